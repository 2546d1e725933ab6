"""The LeNet-style studies: each of their variants stands beside its own rung, constants included."""

from pathlib import Path

import pytest
from report_records import published_report, record, write

from alexconv.kernels.studies import PUBLISHED, STUDY_WORKLOADS
from alexconv.planning.points import study_points
from alexconv.records.store import read
from alexconv.reports import lenet, published
from alexconv.reports.elements import Table
from alexconv.reports.measurements import Measurements, measurements


def as_records(*studies: str) -> list[dict]:
    """The points of the studies' own commands, each with its own kernel time."""
    records = []
    for place, point in enumerate(point for study in studies for point in study_points(study, ())):
        measurement = record(point.workload, point.layer, point.N, point.rung, point.transfer, point.precision)
        measurement["point"]["constants"] = point.constants
        measurement["samples"] = {"kernel": [1.0 + place] * 10, "total": [1000.0 + place] * 10}
        records.append(measurement)
    return records


def measured(folder: Path, records: list[dict]) -> Measurements:
    return measurements(read([write(folder / "few.jsonl", records)]))


def rows_of(data: Measurements, key: str) -> list[dict]:
    study = next((study for study in STUDY_WORKLOADS if key.startswith(study)), None)
    items = lenet.section(data, study).items if study else [lenet.coverage(data)]
    table = next(item for item in items if isinstance(item, Table) and item.key == key)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


@pytest.fixture(scope="module")
def everything() -> list[dict]:
    return as_records(*STUDY_WORKLOADS)


def test_every_variant_that_a_study_printed_is_known() -> None:
    names = {(figure.study, figure.variant) for figure in published.figures() if figure.study in STUDY_WORKLOADS}
    assert names - PUBLISHED.keys() == {("ece408-2018", "cpu-serial")}
    assert lenet.UNLIKE.keys() <= names


def test_each_figure_of_a_study_has_ours_with_its_constants_and_the_ratio_beside_it(
    tmp_path: Path, everything: list[dict]
) -> None:
    data = measured(tmp_path, everything)
    tables = {study: rows_of(data, f"{study}-op-times") for study in STUDY_WORKLOADS}
    compared = 0
    for figure in published.figures():
        if figure.quantity not in lenet.FIGURES or figure.variant == "cpu-serial":
            continue
        variant = PUBLISHED[figure.study, figure.variant]
        row = next(
            row
            for row in tables[figure.study]
            if row["layer"] == figure.layer and row["variant"].split(" ")[0] == figure.variant
        )
        ours = row[f"N={figure.N}, here (ms)"]
        source = next(
            measurement
            for measurement in everything
            if ours in measurement["samples"]["kernel"] + measurement["samples"]["total"]
            and measurement["point"]["workload"] == figure.workload
            and (measurement["point"]["layer"], measurement["point"]["N"]) == (figure.layer, figure.N)
            and measurement["point"]["rung"] == variant.rung
        )
        for name, value in variant.constants.items():
            expected = value if isinstance(value, int) else value[figure.layer - 1]
            assert source["point"]["constants"][name] == expected, (figure, name)
        assert source["point"]["transfer"] == variant.transfer
        assert row[f"N={figure.N}, study (ms)"] == figure.value
        assert row[f"N={figure.N}, here / study"] == pytest.approx(ours / figure.value)
        compared += 1
    assert compared == 150


def test_the_studies_own_form_has_the_same_times(tmp_path: Path, everything: list[dict]) -> None:
    data = measured(tmp_path, everything)
    compared = 0
    for study in STUDY_WORKLOADS:
        times = rows_of(data, f"{study}-op-times")
        for row in rows_of(data, f"{study}-by-batch"):
            for layer in (1, 2):
                same = [time for time in times if time["variant"] == row["variant"]]
                (other,) = [time for time in same if time["layer"] == layer]
                for who in ("study", "here"):
                    assert row[f"Op Time {layer}, {who} (ms)"] == other[f"N={row['dataset size']}, {who} (ms)"]
                    compared += 1
    assert compared > 300


def test_a_sweep_adds_up_the_layers_each_with_its_own_tile(tmp_path: Path) -> None:
    records = as_records("ece408-2019")
    rows = rows_of(measured(tmp_path, records), "ece408-2019-sweep")
    assert len(rows) == 10

    def kernel(layer: int, rung: str, tile: int) -> float:
        for measurement in records:
            point, constants = measurement["point"], measurement["point"]["constants"]
            wanted = {"TILE": tile, "RESTRICT": 0, "UNROLL": 1}
            same = (point["layer"], point["N"], point["rung"]) == (layer, 10000, rung)
            if same and wanted.items() <= constants.items():
                return float(measurement["samples"]["kernel"][0])
        raise AssertionError((layer, rung, tile))

    for row in rows:
        tiles = [int(tile) for tile in row["tiles of layer 1, 2"].split(" ")[-1].split(",")]
        rung = "tiled" if "baseline" in row["tiles of layer 1, 2"] else "fused-unroll-matmul"
        assert row["here (ms)"] == kernel(1, rung, tiles[0]) + kernel(2, rung, tiles[1])


def test_the_coverage_counts_what_is_there_and_says_what_is_not(tmp_path: Path, everything: list[dict]) -> None:
    whole = rows_of(measured(tmp_path / "whole", everything), "lenet-coverage")
    assert [(row["variants"], row["measured here"], row["like for like"]) for row in whole] == [
        (8, 8, 7),
        (15, 15, 11),
        (6, 6, 5),
        (9, 9, 7),
        (38, 38, 30),
    ]
    lost = [
        measurement
        for measurement in everything
        if (measurement["point"]["rung"], measurement["point"]["layer"], measurement["point"]["N"])
        != ("shared-input-tile", 2, 1000)
    ]
    row = rows_of(measured(tmp_path / "lost", lost), "lenet-coverage")[3]
    assert (row["measured here"], row["like for like"]) == (8, 6)
    assert "shared-memory-conv-strategy2: not measured" in row["others, and why"]


def test_a_point_with_other_constants_does_not_stand_for_a_variant(tmp_path: Path) -> None:
    records = as_records("ece408-2018")
    for measurement in records:
        if measurement["point"]["rung"] == "fused-unroll-matmul" and measurement["point"]["constants"]["TILE"] == 32:
            measurement["point"]["constants"]["IMAGES_PER_PIECE"] = 0
    rows = rows_of(measured(tmp_path, records), "ece408-2018-op-times")
    missing = {row["variant"] for row in rows if row["N=10000, here (ms)"] is None}
    assert missing == {"fused-unroll-matmul-per-image"}


def test_gains_are_over_the_studys_own_baseline(tmp_path: Path) -> None:
    data = measured(tmp_path, as_records("ece408-2018"))
    row = next(row for row in rows_of(data, "ece408-2018-gains") if row["variant"] == "shared-memory-conv")
    assert row["both layers, study"] == pytest.approx((42.534 + 152.912) / (58.28 + 191.002))
    times = {row["variant"]: row["N=10000, here (ms)"] for row in rows_of(data, "ece408-2018-op-times")[::-1]}
    assert row["layer 1, here"] == pytest.approx(times["tiled-grid-baseline"] / times["shared-memory-conv"])


def test_a_profile_with_other_constants_than_its_variant_says_so() -> None:
    variant = PUBLISHED["ece408-2018", "tiled-grid-baseline"]
    counted = {"point": {"workload": "lenet-72-k7", "layer": 1, "N": 1000, "rung": "tiled", "constants": {"UNROLL": 0}}}
    assert lenet.other_constants(counted, variant) == {"UNROLL": (0, 1)}
    captions = {table.key: table.caption for table in published_report().tables()}
    assert (
        "of tiled with its default constants (UNROLL=0), not the baseline's UNROLL=1."
        in captions["ece408-2018-properties"]
    )
    assert all("with their default constants" in captions[f"{study}-counters"] for study in STUDY_WORKLOADS)
