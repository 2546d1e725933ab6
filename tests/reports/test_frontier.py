"""The frontier page: goals, tables and floors from made records, and that the page is what the results say."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from report_records import GPU, record, samples, write

from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.measuring.sequences import mixed_in, sequence_of
from alexconv.planning.points import DEFAULTS
from alexconv.planning.transfers import transfer_named
from alexconv.records.store import RecordFile, read
from alexconv.reports import frontier
from alexconv.reports.comparison import CONTRACTS, Frontier, gather
from alexconv.reports.goals import Goal, goals
from alexconv.reports.measurements import measurements
from alexconv.reports.winners import batches_of
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).parent.parent.parent
LAYERS = range(1, 6)
OURS = {"fp32": "wgmma-split", "fp32-tile": "wgmma-winograd", "tf32": "wgmma-scaled", "fp16": "wgmma-half-blocked"}
H200 = GPU | {"name": "NVIDIA H200"}


def point(rung: str, layer: int, N: int, ms: float, error: float = 1e-7, **constants: int) -> dict[str, Any]:
    """A finished point of a rung or a peer."""
    precision = RUNGS[rung].precision if rung in RUNGS else rung.rpartition("-")[2]
    measurement = record("alexnet", layer, N, rung, precision=precision, **constants)
    measurement["samples"] |= {"kernel": samples(ms), "kernel_cold": samples(2 * ms)}
    return measurement | {"error": measurement["error"] | {"scaled": error}}


def together(
    name: str, ms: float, layers: Sequence[str] = (), transfer: str = "pageable", N: int = 1
) -> dict[str, Any]:
    """All layers as one sequence: of a rung, a mix of rungs, or a peer."""
    axes: dict[str, Any] = {"workload": "alexnet", "layer": "1-5", "N": N, "rung": f"{name}-together", "constants": {}}
    axes |= {"transfer": transfer, "precision": name.split("-")[-1]}
    words = [f"{layer}={rung}" for layer, rung in zip(LAYERS, layers, strict=False)]
    if words:  # as the program writes it
        workload, way = WORKLOADS["alexnet"], transfer_named(transfer)
        chosen = [point for word in words for point in mixed_in(word, workload, N, way, DEFAULTS, LADDER)]
        axes = sequence_of(chosen, name).axes()
    rungs = [{"layer": layer, "rung": rung, "constants": {}} for layer, rung in zip(LAYERS, layers, strict=False)]
    figure = "kernel" if transfer == "pageable" else "total"
    base = record("alexnet", 1, N, "direct") | ({"layers": rungs} if rungs else {})
    return base | {"point": axes, "samples": {figure: samples(ms)}}


def comparison(N: int = 128, ours: float = 0.4, **other: float) -> list[dict[str, Any]]:
    """Every class at 1 ms a layer for cuDNN in the class's layout and ``ours`` for us, unless ``fp32_3`` says more."""
    points = []
    for layer in LAYERS:
        for contract in CONTRACTS:
            ms = other.get(f"{contract.name}_{layer}", ours)
            points += [point(OURS[contract.name], layer, N, ms, 2e-7), point(contract.peer, layer, N, 1.0, 4e-7)]
            other_layout = next(name for name in contract.peers if name != contract.peer)
            points.append(point(other_layout, layer, N, 2.0 if layer > 1 else 0.5))
        plain = (("direct-register", 9.0, 3e-7), ("igemm", 4.0, 1e-7))
        points += [point(rung, layer, N, ms * max(N / 128, 0.1), error) for rung, ms, error in plain]
        points.append(point("torch-gemm-fp32", layer, N, 3.8))
    return points


def gathered(tmp_path: Path, *files: Iterable[dict[str, Any]], device: dict[str, Any] = GPU) -> Frontier:
    paths = [write(tmp_path / f"file-{i}.jsonl", records, device) for i, records in enumerate(files)]
    return gather(paths)


def goal(data: Frontier, number: int, text: str = "") -> Goal:
    """The one goal with that number whose text has all these words; fp32-tile's only if they name it."""
    (only,) = [
        candidate
        for candidate in goals(data)
        if candidate.number == number
        and all(word in candidate.subject for word in text.split())
        and (number == 5 or ("fp32-tile" in candidate.subject) == ("fp32-tile" in text))
        and ("without FFT" in candidate.subject) == ("without FFT" in text)
    ]
    return only


def rows(table: str) -> list[dict[str, str]]:
    """The cells of a Markdown table by column."""
    head, _, *body = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line[:1] == "|"
    ]
    return [dict(zip(head, cells, strict=True)) for cells in body]


def test_the_summary_has_each_class_beside_its_peer(tmp_path: Path) -> None:
    table = rows(frontier.text_of(frontier.summary_table(gathered(tmp_path, comparison(ours=0.4)))))
    assert [row["N=128, ms"] for row in table] == ["2.000"] * 4
    assert [row["cuDNN, ms"] for row in table] == ["5.000"] * 4
    assert {row["N=1, one graph"] for row in table} == {"–"}
    assert frontier.summary_table(gathered(tmp_path / "none", [point("igemm", 1, 128, 0.1)])) is None


# Which points count


def test_sums_are_compared_with_the_class_s_own_layout_and_with_the_faster_ones(tmp_path: Path) -> None:
    target = goal(gathered(tmp_path, comparison(fp32_1=0.7)), 1, "five layers")
    assert (target.ours, target.peer) == ("2.300 ms", "5.000 ms")
    assert target.ratio == pytest.approx(5 / 2.3)
    assert target.best_layout == pytest.approx(4.5 / 2.3)
    assert target.met is False


@pytest.mark.parametrize(("ours", "verdicts"), [(0.39, [True] * 3), (0.44, [True, False, True]), (0.46, [False] * 3)])
def test_each_class_has_its_own_bound(tmp_path: Path, ours: float, verdicts: list[bool]) -> None:
    data = gathered(tmp_path, comparison(ours=ours))
    assert [goal(data, number, "five layers").met for number in (1, 2, 3)] == verdicts


def test_ours_and_the_peer_come_from_one_file(tmp_path: Path) -> None:
    records = comparison()
    ours = [record for record in records if record["point"]["rung"] in RUNGS]
    peers = [record for record in records if record["point"]["rung"] not in RUNGS]
    apart = gathered(tmp_path, ours, peers)
    assert [row.met for row in goals(apart)] == [None] * len(goals(apart))
    faster = [point("wgmma-split", layer, 128, 0.001) for layer in LAYERS]
    assert goal(gathered(tmp_path / "more", records, faster), 1, "five layers").ours == "2.000 ms"


def test_of_files_with_equal_comparisons_the_last_by_name_counts(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{name}.jsonl", comparison(ours=ours)) for name, ours in (("b", 0.3), ("a", 0.1))]
    for order in (paths, paths[::-1]):
        assert goal(gather(order), 1, "five layers").ours == "1.500 ms"


@pytest.mark.parametrize(
    "other",
    [
        point("mma-half", 1, 128, 0.01),  # another class and layout
        point("wgmma-scaled", 1, 128, 0.4) | {"status": "wrong", "samples": {"kernel": [0.01] * 10}},
        point("wgmma-split", 1, 1, 0.01),
    ],
)
def test_points_of_other_contracts_and_wrong_ones_do_not_count(tmp_path: Path, other: dict[str, Any]) -> None:
    data = gathered(tmp_path, [*comparison(fp16_1=0.005), other])
    assert goal(data, 1, "five layers").ours == "2.000 ms"
    wrong = other["status"] != "ok"
    assert goal(data, 2, "five layers").ours == (None if wrong else "2.000 ms")


def test_the_fastest_constants_and_rung_of_a_layer_count(tmp_path: Path) -> None:
    chosen = {"WARPS_DOWN": 1, "THREAD_ROWS": 4}
    tuned = point("igemm", 2, 128, 0.1, **chosen)
    data = gathered(tmp_path, [*comparison(), tuned])
    assert goal(data, 1, "five layers").ours == "1.700 ms"
    row = rows(frontier.class_part(data, CONTRACTS[0]))[1]
    assert row["rung"] == "igemm"
    assert "WARPS_DOWN=1" in row["constants"]
    assert float(row["ms, cold"]) == pytest.approx(0.2)
    assert float(row["TFLOP/s"].replace(",", "")) == pytest.approx(
        2 * WORKLOADS["alexnet"].layer(2).macs(128) / 0.1e9, rel=1e-3
    )


def test_a_missing_layer_leaves_a_goal_unmeasured(tmp_path: Path) -> None:
    def is_there(record: dict[str, Any]) -> bool:
        return (record["point"]["rung"], record["point"]["layer"]) != ("wgmma-half-blocked", 3)

    data = gathered(tmp_path, filter(is_there, comparison()))
    assert goal(data, 3).row()[-1] == "not measured"
    assert goal(data, 5).met is None
    assert goal(data, 2, "five layers").met is True


def test_a_stricter_rung_serves_a_weaker_class_and_not_the_other_way_round(tmp_path: Path) -> None:
    tile, strict = point("wgmma-winograd", 2, 128, 0.1), point("wgmma-split", 3, 128, 0.1)
    data = gathered(tmp_path, [*comparison(), tile, strict])
    assert goal(data, 1, "fp32-tile five layers").ours == "1.400 ms"
    assert goal(data, 1, "five layers").ours == "1.700 ms"


# Goals


def test_errors_are_compared_over_all_layers(tmp_path: Path) -> None:
    good = gathered(tmp_path, comparison())
    assert goal(good, 1, "error").ratio == pytest.approx(2 / 3)
    assert goal(good, 2, "error").ratio == pytest.approx(2 / 4)
    bad = [point("wgmma-split", 4, 128, 0.3, 3.1e-7), point("wgmma-scaled", 4, 128, 0.3, 4.1e-7)]
    data = gathered(tmp_path / "bad", [*comparison(), *bad])
    assert [goal(data, number, "error").met for number in (1, 2)] == [False, False]


def test_the_first_layer_has_a_bound_of_its_own(tmp_path: Path) -> None:
    data = gathered(tmp_path, comparison(fp32_1=0.19, tf32_1=0.21))
    assert [goal(data, 4, name).met for name in ("fp32", "tf32", "fp16")] == [True, False, False]


def test_the_slowest_layer_of_all_classes_is_named(tmp_path: Path) -> None:
    target = goal(gathered(tmp_path, comparison(tf32_4=1.01, fp16_2=0.9)), 5)
    assert "layer 4, tf32" in target.subject
    assert (target.ratio, target.met) == (pytest.approx(1 / 1.01), False)
    assert goal(gathered(tmp_path / "less", comparison(tf32_4=0.99)), 5).met is True


GRAPHS = [together(f"torch-{layout}-fp32", ms) for layout, ms in (("nchw", 1.0), ("nhwc", 0.8))]


@pytest.mark.parametrize(
    ("ours", "ratio"),
    [
        ([together("mma-split", 0.2, ["mma-split"] * 5)], 0.25),
        ([together("mixed", 0.16, ["igemm", *["mma-split"] * 4])], 0.2),
        ([together("mixed", ms, [first, *["mma-split"] * 4]) for first, ms in (("igemm", 0.16), ("direct", 0.3))], 0.2),
        ([together("mma-split", 0.2, ["mma-split"] * 5), together("igemm", 0.3, ["igemm"] * 5)], 0.25),
        ([together("mma-tf32", 0.1, ["mma-tf32"] * 5)], None),  # another class
        ([together("igemm", 0.1, ["igemm"] * 5, N=128)], None),
        ([together("igemm", 0.1, ["igemm"] * 5) | {"status": "wrong"}], None),
    ],
)
def test_one_graph_is_compared_with_the_faster_layout(tmp_path: Path, ours: list, ratio: float | None) -> None:
    data = gathered(tmp_path, [*comparison(), *GRAPHS, *ours])
    target = goal(data, 6, "fp32")
    assert target.ratio == (ratio and pytest.approx(1 / ratio))
    assert target.met is (None if ratio is None else True)
    row = next(row for row in rows(frontier.one_image_part(data)) if row["layer"] == "one graph") if ratio else None
    assert row is None or float(row["ms"]) == pytest.approx(0.8 * ratio)


def test_a_single_image_is_compared_with_the_faster_layout_and_its_error_is_ours(tmp_path: Path) -> None:
    lines = [
        row for row in rows(frontier.one_image_part(gathered(tmp_path, comparison(N=1)))) if row["class"] == "tf32"
    ]
    assert [row["ms"] for row in lines[:5]] == ["0.4000"] * 5
    assert [row["than the faster layout"] for row in lines[:5]] == ["1.25× faster", *["2.50× faster"] * 4]
    assert {row["largest error"] for row in lines[:5]} == {"2.0e-07"}


def test_the_cuda_cores_are_compared_with_cublas_on_layers_2_to_5(tmp_path: Path) -> None:
    target = goal(gathered(tmp_path, comparison()), 7)
    assert (target.ratio, target.met) == (pytest.approx(3.8 / 4), True)
    slow = [point("igemm", 3, 128, 6.0), point("igemm", 1, 128, 99.0)]
    assert goal(gathered(tmp_path / "slow", [*comparison(), *slow]), 7).ratio == pytest.approx(15.2 / 18)


@pytest.mark.parametrize(("ms", "met"), [(7.4, True), (7.6, False)])
def test_a_pipeline_of_all_layers_has_a_bound_in_ms(tmp_path: Path, ms: float, met: bool) -> None:
    streamed = together("igemm", ms, ["igemm"] * 5, "streamed:8", 128)
    data = gathered(tmp_path, [*comparison(), streamed, together("direct", 1.0, ["direct"] * 5, "streamed:8", 1)])
    assert goal(data, 8, "fp32").met is met
    assert goal(data, 8, "tf32").met is None


def test_time_per_image_of_a_large_batch_is_compared_with_the_usual_batch(tmp_path: Path) -> None:
    large = [*comparison(128, 0.4), *comparison(2048, 6.3, tf32_1=8.0)]
    data = gathered(tmp_path, large, comparison(128, 0.1))
    assert goal(data, 9, "fp32").ratio == pytest.approx(0.4 / (6.3 / 16))
    assert goal(data, 9, "fp32").met is True
    assert goal(data, 9, "tf32").met is False
    table = rows(frontier.scaling_part(data))
    assert [row["N"] for row in table] == ["128", "2048"]
    assert float(table[1]["fp32, µs"]) == pytest.approx(5 * 6.3 / 2048 * 1000, rel=1e-3)


def test_cudnn_may_end_at_a_smaller_batch_than_ours(tmp_path: Path) -> None:
    alone = [point(rung, layer, 2048, 6.3) for rung in OURS.values() for layer in LAYERS]
    data = gathered(tmp_path, [*comparison(128, 0.4), *comparison(512, 1.2), *alone])
    assert data.largest == 512
    assert goal(data, 9, "fp32").ratio == pytest.approx(0.4 / (6.3 / 16))
    table = rows(frontier.scaling_part(data))
    beside = [(row["N"], row["than cuDNN"], row["cuDNN for fp16, µs"] != "–") for row in table]
    assert beside == [("128", "2.25× faster", True), ("512", "1.33× slower", True), ("2048", "–", False)]
    measured = measurements(read([tmp_path / "file-0.jsonl"]))
    assert batches_of(measured, data, "alexnet") == [128, 512]


# Tables


def test_gains_are_over_the_layers_that_both_computed(tmp_path: Path) -> None:
    more = [point("wgmma-half", layer, 128, 0.8) for layer in (2, 3, 4, 5)]
    more += [point("igemm-async", layer, 128, 2.0) for layer in LAYERS]
    records = [*comparison(), *more]
    table = {row["rung"]: row for row in rows(frontier.ladder_part(gathered(tmp_path, records)))}
    assert table["`igemm-async`"]["than its parent"] == "2.00× faster"
    assert table["`wgmma-half-blocked`"]["than its parent"] == "2.00× faster (layers 2-5)"
    assert table["`wgmma-half`"]["sum, ms"] == "–"
    assert table["`igemm`"]["than its parent"] == "–"
    timed = {record["point"]["rung"] for record in records}
    assert list(table) == [f"`{name}`" for name in RUNGS if name in timed], "what the file has, in ladder order"


@pytest.mark.parametrize(
    ("device", "rates", "ms"),
    [(GPU, {"fp16": 5e14}, 0.2297), (H200, {}, 0.1161), (GPU, {}, None)],
)
def test_floors_are_at_measured_rates_or_the_data_sheet_s(
    tmp_path: Path, device: dict[str, Any], rates: dict[str, float], ms: float | None
) -> None:
    file = write(tmp_path / "floors.jsonl", comparison(), device)
    records = RecordFile(file)
    key = next(key for key, header in records.previous.headers.items() if header["type"] == "device")
    flops = {"fp32": 5e13, **rates}
    records.header("ceilings", {"device": key, "copy_bytes_per_s": 2e12, "flops": flops})
    data = gather([file])
    cuda = rows(frontier.cuda_floors_part(data))[1]
    macs = WORKLOADS["alexnet"].layer(2).macs(128)
    assert float(cuda["arithmetic, ms"]) == pytest.approx(2 * macs / 5e13 * 1e3, rel=1e-3)
    assert float(cuda["fastest rung, ms"]) == 4
    tensor = next(
        row for row in rows(frontier.tensor_floors_part(data)) if (row["class"], row["layer"]) == ("fp32", "3")
    )
    assert tensor["arithmetic, ms"] == (f"{ms:.4f}" if ms else "–")
    assert float(tensor["fastest rung, ms"]) == pytest.approx(0.4)
    sizes = [WORKLOADS["alexnet"].layer(3).x_shape(128), WORKLOADS["alexnet"].layer(3).y_shape(128)]
    megabytes = 4 * (sum(n * c * h * w for n, c, h, w in sizes) + 384 * 256 * 9) / 1e6
    assert float(tensor["MB"]) == pytest.approx(megabytes, rel=1e-3)
    assert float(tensor["bytes, ms"]) == pytest.approx(megabytes / 2e6 * 1e3, abs=1e-4)


def test_tables_say_where_they_are_from(tmp_path: Path) -> None:
    slow = point("igemm", 1, 128, 4.0) | {"throttled": True, "peer": {"torch": "2.9", "cudnn": "9.1.0", "cuda": "13"}}
    text = frontier.goals_part(gathered(tmp_path, [*comparison(), slow]))
    assert "From `file-0.jsonl`: NVIDIA Test 9000, driver 580.1, CUDA 13.0, torch 2.9 with cuDNN 9.1.0." in text
    assert "Clocks dropped during 1 of its" in text


def test_records_without_comparisons_give_a_page_that_says_so(tmp_path: Path) -> None:
    data = gathered(tmp_path, [record("alexnet", layer, N, "direct") for layer in LAYERS for N in (1, 128, 2048)])
    assert all(row.met is None for row in goals(data))
    parts: dict[str, Callable[[Frontier], str]] = frontier.PARTS
    unmeasured = {name for name, part in parts.items() if part(data) == frontier.NOT_MEASURED}
    assert unmeasured == set(parts) - {"goals", "classes", "cuda-cores-floors", "tensor-cores-floors"}
    assert parts["classes"](data).count(frontier.NOT_MEASURED) == len(CONTRACTS)


def test_the_table_of_contracts_has_every_class() -> None:
    page = (ROOT / "docs" / "frontier.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("|") and " layout: " in line]
    rows = [line.strip("| ").split(" | ") for line in lines]
    layouts = [f"{contract.title.split()[0]} layout: {contract.layout}, {contract.dtype}" for contract in CONTRACTS]
    expected = [(contract.name, text, f"`{contract.peer}`") for contract, text in zip(CONTRACTS, layouts, strict=True)]
    assert [(name, layout, cudnn.partition(",")[0]) for name, layout, _, cudnn in rows] == expected
