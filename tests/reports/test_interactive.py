"""The data of charts that readers step through, against the records' raw samples."""

from pathlib import Path
from statistics import median

import pytest
from report_records import published_report

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import H200
from alexconv.kernels.rung import FOLDER
from alexconv.records.compressed import files_in
from alexconv.records.store import read
from alexconv.reports.diagrams import diagrams
from alexconv.reports.elements import Chart
from alexconv.reports.machine_code import listings
from alexconv.shapes import WORKLOADS

RESULTS = Path(__file__).resolve().parents[2] / "results"


@pytest.fixture(scope="module")
def charts() -> list[Chart]:
    sections = (section for page in published_report().pages for section in page.sections)
    return [chart for section in sections for chart in section.charts if chart.kind in ("roofline", "batches")]


@pytest.fixture(scope="module")
def times() -> dict[tuple[str, int, int], set[float]]:
    """The medians on record by workload, layer and batch size."""
    medians: dict[tuple[str, int, int], set[float]] = {}
    for record in read(files_in(RESULTS)).points:
        point = record["point"]
        if record["status"] == "ok" and record["samples"].get("kernel"):
            key = point["workload"], point["layer"], point["N"]
            medians.setdefault(key, set()).add(float(f"{median(record['samples']['kernel']):.5g}"))
    return medians


def test_every_time_of_a_chart_is_a_median_on_record(charts, times):
    tried = 0
    for chart in charts:
        workload = chart.title.partition(",")[0]
        for row in (*chart.data.get("points", ()), *chart.data.get("rows", ())):
            layer = row.get("layer") or int(chart.key.split("-")[-2])
            N = row.get("N") or int(chart.title.split("N=")[1].partition(":")[0])
            assert row["ms"] in times[workload, layer, N], (chart.key, row)
            tried += 1
    assert tried > 400


def test_a_roofline_has_cudnn_in_every_layer_and_a_reason_for_each_rung(charts):
    (chart,) = [chart for chart in charts if chart.key == "alexnet-steps"]
    points = chart.data["points"]
    assert {point["layer"] for point in points if point.get("peer")} == {1, 2, 3, 4, 5}
    assert all(point["text"] for point in points)
    counted = [point for point in points if point["counted"]]
    assert 50 < len(counted) < len(points)


def test_diagrams_show_the_launches_of_their_rungs():
    conv = WORKLOADS["alexnet"].layer(3)
    of_rung = {rung.name: {chart.kind: chart.data for chart in diagrams(rung)} for rung in LADDER}
    assert {name for name, drawn in of_rung.items() if "waves" in drawn} > {"igemm", "igemm-stream-k", "wgmma-split"}
    assert all("winograd" in of_rung[name] for name in ("wgmma-winograd",))
    for name in ("igemm", "igemm-async"):
        (launch,) = [*BoundRung(RUNGS[name], conv, RUNGS[name].resolve(conv, {}, 128), H200).launches(128)]
        assert of_rung[name]["waves"]["tiles"] == launch.grid[0]
    assert of_rung["igemm-stream-k"]["waves"]["cut"] and not of_rung["igemm"]["waves"]["cut"]
    assert of_rung["igemm-async"]["ring"]["stages"] == RUNGS["igemm-async"].resolve(conv, {}, 128)["STAGES"]
    rows, columns = of_rung["igemm"]["tile"]["tile"]
    parts, part = of_rung["igemm"]["tile"]["parts"], of_rung["igemm"]["tile"]["part"]
    assert parts[0] * parts[1] * 32 * part[0] * part[1] == rows * columns


def test_listings_are_of_todays_kernels_and_all_their_cycles():
    sources = {path.name: path.read_text().splitlines() for path in FOLDER.rglob("*.cu*")}
    charts = dict(listings(RESULTS))
    assert len(charts) >= 3
    for name, chart in charts.items():
        for file, lines in chart.data["files"].items():
            assert lines == sources[file], f"{name}: run scripts/measure/machine_code.py"
        for rows in chart.data["kernels"].values():
            assert sum(share for _, share, _ in rows) == pytest.approx(100, abs=1)
