"""GPUs as data: what each rung does on them, without any."""

import json
from pathlib import Path

import pytest
from report_records import record, write
from rung_runs import assert_exact

from alexconv import cards, new, run
from alexconv.compiling import nvcc
from alexconv.errors import MissingTool
from alexconv.executors import choose_executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.precisions import PEER_CLASSES
from alexconv.predict import gpu, model
from alexconv.predict.predictions import KernelCache
from alexconv.records.store import RecordFile, read
from alexconv.reports import card_matrix
from alexconv.reports import cards as tables
from alexconv.shapes import WORKLOADS, Conv

T4 = gpu.load("t4")
CARDS = Path(__file__).parents[2] / "results" / "predicted" / "cards.jsonl"
MMA = ("mma-tf32", "mma-scaled", "mma-split", "mma-half")
NETWORKS = ("alexnet", "alexnet-2012", "vgg16", "resnet50", "convnet-benchmarks", "resnext-regnet")
SMALL = Conv(C=6, H=9, W=8, M=20, R=3, S=2)


def test_no_recorded_prediction_is_below_what_the_peak_rate_allows():
    predictions = [header for header in read([CARDS]).headers.values() if "ms" in header]
    assert len(predictions) > 300
    for header in predictions:
        point, rung = header["point"], ALL_DIRECTIONS.named[header["point"]["rung"]]
        half = rung.tensor_factors or rung.dtype == "float16"
        rate = gpu.load(header["gpu"]).peaks["fp16" if half else "fp32"]
        flops = 2 * WORKLOADS[point["workload"]].layer(point["layer"]).macs(point["N"])
        assert header["ms"] >= 1e3 * flops / rate, f"{rung.name} on {header['gpu']}"


@pytest.mark.parametrize("name", gpu.names())
def test_a_gpu_s_shared_memory_holds_the_mma_rungs_default_tiles(name):
    """Each layer with each rung; of GPUs with equal shared memory, each with half of the rungs, in turn."""
    device = gpu.load(name).device
    equal = [other for other in gpu.names() if gpu.load(other).device.shared_per_block == device.shared_per_block]
    layers = dict.fromkeys(conv for network in NETWORKS for conv in WORKLOADS[network].layers)
    for place, conv in enumerate(layers, equal.index(name)):
        for rung in map(RUNGS.__getitem__, MMA[place % 2 :: 2] if len(equal) > 1 else MMA):
            problem = Problem(conv, 1, rung.resolve(conv, {}, 1, device), device)
            assert rung.refuses(problem) is None, f"{rung.name}, {conv}"


def test_a_t4_has_a_tensor_core_rung_of_each_class():
    suited = [rung for rung in RUNGS.values() if rung.tensor_factors and not rung.unsuited(T4.capability)]
    assert {rung.precision for rung in suited} == {"fp32", "tf32", "fp16"}


@pytest.mark.parametrize("name", ["mma-split", "mma-half"])
def test_turing_s_products_of_half_the_depth_are_exact_on_integers(name):
    bound = BoundRung(RUNGS[name], SMALL, RUNGS[name].resolve(SMALL, {}, 2, T4.device), T4.device)
    assert_exact(choose_executor("host", host_gpu=T4.device), bound, 2)


def test_turing_s_products_and_copies_compile():
    bound = BoundRung(RUNGS["mma-half"], SMALL, RUNGS["mma-half"].resolve(SMALL, {}, 1, T4.device), T4.device)
    try:
        launches = cards.needs(bound, T4)
    except MissingTool as missing:
        pytest.skip(str(missing))
    assert nvcc.arch_name(T4.capability) == "75"
    assert all(launch["resident_blocks"] and not launch["local_bytes"] for launch in launches)


def test_the_host_has_the_limits_of_the_gpu_that_it_stands_for():
    executor = choose_executor("host", host_gpu=T4.device)
    assert "needs compute capability 9.0, this GPU has 7.5" in executor.unsuited(RUNGS["wgmma-half"])
    assert "with the limits of Tesla T4" in executor.describe()


def test_rungs_are_listed_and_planned_for_a_gpu(capsys):
    assert run.main(["--list", "--json", "--gpu", "t4"]) == 0
    listed = {rung["name"]: rung["unsuited"] for rung in json.loads(capsys.readouterr().out)}
    assert listed["mma-half"] is None
    assert "8.0" in listed["mma-tf32"]
    assert run.main(["--dry-run", "--gpu", "t4", "--layers", "4", "--N", "512", "--rungs", "channels"]) == 0
    assert " 4 " in next(line for line in capsys.readouterr().out.splitlines() if "channels" in line)
    assert run.main(["--list", "--gpu", "voodoo"]) == 2
    assert "unknown GPU 'voodoo': choose from a100," in capsys.readouterr().err


def test_the_matrix_resumes_and_shows_what_does_not_apply(tmp_path, capsys):
    file = tmp_path / "cards.jsonl"
    command = ["--gpu", "t4,h100", "--rungs", "wgmma-half,direct-few", "--layers", "1", "--parts", "check"]
    assert cards.main([*command, "--out", str(file)]) == 0
    assert "t4 alexnet layer 1 wgmma-half: unsuited; needs compute capability 9.0" in capsys.readouterr().out
    assert cards.main([*command, "--out", str(file)]) == 0
    assert "0 points, 0 wrong" in capsys.readouterr().out
    records = [header for header in read([file]).headers.values() if header["type"] == "card"]
    assert {record["reason"] for record in records if record["gpu"] == "h100"} == {
        "3 channels: TMA takes multiples of 8",
        "363 taps of a filter exceed 320",
    }


def test_the_order_of_the_parts_does_not_count(tmp_path, capsys):
    command = ["--gpu", "t4", "--rungs", "wgmma-half", "--layers", "1", "--out", str(tmp_path / "cards.jsonl")]
    assert cards.main([*command, "--parts", "check,predict"]) == 0
    assert "1 point, 0 wrong" in capsys.readouterr().out
    assert cards.main([*command, "--parts", "predict,check,check"]) == 0
    assert "0 points, 0 wrong" in capsys.readouterr().out


def test_the_matrix_checks_again_what_has_changed(tmp_path, capsys):
    def filled(parts="check"):
        words = ["--gpu", "t4", "--ladder", str(folder), "--rungs", "mine", "--layers", "3", "--parts", parts]
        status = cards.main([*words, "--out", str(tmp_path / "cards.jsonl")])
        return status, capsys.readouterr().out.splitlines()[-1].partition(";")[0]

    folder = tmp_path / "mine"
    assert new.main([str(folder)]) == 0
    assert [filled(), filled()] == [(0, "1 point, 0 wrong"), (0, "0 points, 0 wrong")]
    kernel = folder / "mine.cu"
    kernel.write_text(kernel.read_text().replace("float sum = 0;", "float sum = 1;"))
    assert [filled(), filled()] == [(1, "1 point, 1 wrong"), (1, "0 points, 1 wrong")]


def test_rungs_that_no_gpu_runs_on_layer_3_are_those_of_layer_1():
    options = cards.parser().parse_args(["--gpu", "t4,h100", "--rungs", "wgmma-window-half,igemm,direct-groups"])
    places = [(point.entry.name, point.layer) for _, point in cards.card_points(options, ALL_DIRECTIONS)]
    window = [("wgmma-window-half", layer) for layer in (3, 3, 1, 1)]
    assert sorted(places) == sorted([*window, ("igemm", 3), ("igemm", 3), ("direct-groups", 3), ("direct-groups", 3)])


def test_the_matrix_has_the_gradients_rungs_too():
    options = cards.parser().parse_args(["--gpu", "t4", "--rungs", "mma"])
    directions = {point.direction for _, point in cards.card_points(options, ALL_DIRECTIONS)}
    assert directions == {"forward"}
    options = cards.parser().parse_args(["--gpu", "t4"])
    assert {point.direction for _, point in cards.card_points(options, ALL_DIRECTIONS)} == {"forward", "dgrad", "wgrad"}


def test_the_matrix_without_checks_needs_no_executor(tmp_path, monkeypatch):
    monkeypatch.setattr(cards, "choose_executor", lambda *_, **__: pytest.fail("asked for an executor"))
    command = ["--gpu", "t4", "--rungs", "wgmma-half", "--layers", "1", "--parts", "compile"]
    assert cards.main([*command, "--out", str(tmp_path / "cards.jsonl")]) == 0


def test_parts_of_the_matrix_are_named(tmp_path, capsys):
    assert cards.main(["--parts", "compile,sell", "--out", str(tmp_path / "cards.jsonl")]) == 2
    assert "unknown part 'sell': choose from compile, check, predict" in capsys.readouterr().err


def measured(path, times):
    """A record file of direct on layer 3 with these milliseconds, by batch size."""
    records = [record("alexnet", 3, N, "direct") for N in times]
    for measurement in records:
        measurement["samples"]["kernel"] = [times[measurement["point"]["N"]]] * 6
    return read([write(path, records)])


def predicted(path, ms):
    """A prediction of the point with 128 images."""
    point = record("alexnet", 3, 128, "direct")["point"]
    RecordFile(path).header("prediction", {"point": point, "ms": ms, "launches": [{"ms": ms, "limit": "L2"}]})
    return read([path])


def test_two_gpus_are_compared_by_the_points_that_both_have(tmp_path):
    first = measured(tmp_path / "a.jsonl", {128: 2.0, 1: 1.0})
    second = measured(tmp_path / "b.jsonl", {128: 3.0, 32: 1.0})
    expected = predicted(tmp_path / "c.jsonl", 2.0), predicted(tmp_path / "d.jsonl", 2.5)
    points = tables.side_by_side((first, second), expected)
    assert [(point.point["N"], point.ratio, point.predicted_ratio) for point in points] == [(128, 1.5, 1.25)]
    assert list(tables.by_family(points, 128))[-1] == "| single | 1 | 1.50 | 1.50 to 1.50 | 1.25 (n 1) |"
    assert list(tables.furthest(points, 128))[-1] == "| direct | 3 | 2 | 3 | 1.50 | 1.25 | L2 |"


def test_the_library_s_layers_on_two_gpus_are_compared_by_class_and_batch(tmp_path):
    for folder, name, ours in (("library", "h200", 1.0), ("h100", "library", 2.0)):
        for precision in PEER_CLASSES:
            file = f"{name}-{precision}.jsonl"
            graph = {"alexconv-nchw": ours, "alexconv-nhwc": 9.0, "cudnn-nchw": 4.0}
            layer = {"workload": "alexnet", "layer": 3, "N": 128, "precision": precision, "graph_ms": graph}
            RecordFile(tmp_path / folder / file).header("library-layer", layer)
    rows = list(tables.library(tmp_path))
    assert len(rows) == 2 + len(PEER_CLASSES)
    assert rows[-1].endswith("| 128 | 1 | 4.00× faster | 2.00× faster |")


def test_the_page_has_a_row_for_each_gpu():
    assert len(list(tables.gpus())) == len(gpu.names()) + 2


def test_the_matrix_has_a_row_for_each_rung_and_a_column_for_each_gpu(tmp_path):
    suited = {
        "gpu": "t4",
        "point": {"rung": "mma-half", "layer": 3, "N": 128},
        "status": "suited",
        "reason": None,
        "launches": [{"registers": 40, "local_bytes": 8, "static_shared_bytes": 0, "dynamic_shared_bytes": 32768}],
        "checked": "right",
        "ms": 1.25,
    }
    missing = {**suited, "gpu": "h100", "status": "unsuited", "reason": "not its shape", "launches": []}
    file = RecordFile(tmp_path / card_matrix.FILE)
    for header in (suited, missing):
        file.header("card", header)
    page = card_matrix.parts(tmp_path)
    assert page["matrix"].splitlines()[-1] == "| mma-half | 3 | 40 / 1.25 | - |"
    assert "| Tesla T4 | sm_75 | 1 of 1 | 1 | 1 | 1 of 1 | 1 of 1 | 32 of 64 |" in page["summary"]
    assert "| not its shape | mma-half | h100 |" in page["reasons"]
    assert page["local"].splitlines()[-1] == "| mma-half | 3 | 8 | - |"


def test_a_rung_s_kernels_are_kept_apart_by_gpu(monkeypatch):
    monkeypatch.setattr(model, "compile_kernels", lambda bound, card: {card.key: None})
    kernels, bound = KernelCache(), BoundRung(RUNGS["direct"], SMALL, RUNGS["direct"].resolve(SMALL, {}))
    assert [list(kernels(bound, gpu.load(name))) for name in ("t4", "h100", "t4")] == [["t4"], ["h100"], ["t4"]]
