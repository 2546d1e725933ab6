"""``tune --predict`` and ``run --predict``: what is pruned, shown and recorded, from stored machine code."""

import re
from dataclasses import replace

import pytest
import stored_code
from report_records import GPU, record, write

from alexconv import new, run
from alexconv.errors import MissingTool, UsageError
from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER
from alexconv.planning.points import Point
from alexconv.predict import __main__ as predict
from alexconv.predict import gpu, model
from alexconv.predict.accuracy import predictions_in
from alexconv.predict.disassembly import UnknownInstruction
from alexconv.predict.predictions import TYPE, KernelCache, predict_points
from alexconv.records.store import read
from alexconv.tune import __main__ as tune

H200 = gpu.load("h200")


@pytest.fixture(autouse=True)
def stored_kernels(monkeypatch):
    """The tests' stored machine code in place of the compiler; any other kernel has an unknown instruction."""
    programs = {}
    for entry in stored_code.stored()["points"]:
        point = Point.from_axes(entry["point"])
        programs[point.rung, point.conv, tuple(sorted(point.constants.items()))] = entry["program"]

    def kernels(bound: BoundRung, _: gpu.Gpu) -> dict[str, model.Kernel]:
        program = programs.get((bound.rung.name, bound.conv, tuple(sorted(bound.constants.items()))))
        if program is None:
            raise UnknownInstruction("an unknown instruction")
        return stored_code.kernels(program)

    monkeypatch.setattr(model, "compile_kernels", kernels)


class SteadyPoint(HostBuffers):
    """Computed on the CPU; claims to take a millisecond."""

    def measure(self, seconds):
        return {"kernel": [1.0] * 3}


class SteadyGpu(HostExecutor):
    """The host executor with times."""

    measures = True

    def header(self):
        return {**super().header(), "name": "made-up GPU", "compute_capability": [9, 0], "toolkit": "13.0"}

    def open(self, program, plan, x, w, transfer, bias=None):
        return SteadyPoint(self.runtime, program, plan, x, w, transfer, bias)


def stored_points(rung, **constants):
    """The stored points of a rung with these constants, for one image."""
    points = [Point.from_axes(entry["point"]) for entry in stored_code.stored()["points"]]
    chosen = [point for point in points if point.rung == rung and point.workload == "lenet-70-k5"]
    return [
        replace(point, batch=replace(point.batch, N=1))
        for point in chosen
        if constants.items() <= point.constants.items()
    ]


def milliseconds(points):
    return {prediction.point: prediction.milliseconds for prediction in predict_points(points, H200, KernelCache())}


def test_what_is_predicted_slow_is_pruned_but_never_the_default(capsys):
    points = stored_points("fused-unroll-matmul", RESTRICT=0, UNROLL=1)
    times = milliseconds(points)
    limit = (1 + tune.PRUNED) * min(times.values())
    fast = [point for point in points if times[point] <= limit]
    slow = [point for point in points if times[point] > limit]
    assert len(fast) > 1
    assert {6, 32} <= {point.constants["TILE"] for point in slow}, "which take 2.5 and 1.25 times as long on an H200"
    promising = tune.prunes(H200.device)
    assert promising([fast[0], *slow, *fast[1:]]) == fast
    assert f"{len(fast)} of {len(points)} candidates are predicted to be fast" in capsys.readouterr().out
    assert promising([slow[0], *fast]) == [slow[0], *fast]


def test_points_that_the_model_cannot_predict_are_run():
    known = stored_points("tiled", RESTRICT=0)
    strange = replace(known[0], constants={**known[0].constants, "TILE": 10})
    fastest = min(known, key=milliseconds(known).get)
    assert tune.prunes(H200.device)([fastest, strange]) == [fastest, strange]


def test_a_gpu_without_a_description_is_a_usage_error():
    with pytest.raises(UsageError, match="no model of Nobody's GPU: times can be predicted for"):
        tune.prunes(replace(H200.device, name="Nobody's GPU"))


@pytest.mark.parametrize("option, tried", [([], [0, 1]), (["--predict"], [0])])
def test_a_search_runs_what_is_predicted_fast(tmp_path, cache_of_tuning, option, tried):
    pytest.importorskip("optuna")
    out = tmp_path / "tuning.jsonl"
    words = ["--workload", "lenet-70-k5", "--N", "1", "--layers", "2", "--rungs", "tiled", "--set", "UNROLL=0,1"]
    options = tune.parser().parse_args([*words, "--constants", "UNROLL", "--out", str(out), *option])
    (search,) = tune.tune(options, LADDER, SteadyGpu(), "the command")
    for records in (search.records, read([out]).points):
        assert [record["point"]["constants"]["UNROLL"] for record in records if "again" not in record] == tried


def test_machine_code_stands_beside_its_lines_and_cycles(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    out = ["--out", str(tmp_path / "p.jsonl")]
    assert predict.main(["--layers", "3", "--N", "1", "--rungs", "direct-register", "--sass", *out]) == 0
    text = capsys.readouterr().out
    assert re.search(r"kernel +\S ms .*registers", text)
    _, _, code = text.partition("direct_register: machine code, % of its warps' cycles, source line, stalls\n")
    rows = [line for line in code.splitlines() if re.match("[0-9a-f]{4}  ", line)]
    assert [int(row[:4], 16) for row in rows] == [16 * number for number in range(len(rows))]
    assert not rows[-1][6:].startswith("NOP")
    loads = [row for row in rows if "LDG.E.CONSTANT" in row]
    assert len(loads) == 2 * sum("FFMA" in row for row in rows), "an input and a weight for each product"
    assert all("direct_register.cu:" in row for row in loads)
    assert any("lg_throttle" in row for row in loads)
    assert any(re.search(r"  @!?P\d EXIT ", row) for row in rows)
    (loop,) = (row for row in rows if re.search(r"  @!?P\d BRA ", row))
    target = int(re.search("BRA 0x([0-9a-f]{4})", loop)[1], 16)
    assert 0 < target < int(loop[:4], 16), "the loop over channels goes back"
    shares = [float(number) for row in rows for number in re.findall(r" (\d+\.\d)  \S+\.cuh?:", row)]
    assert 95 < sum(shares) <= 100.5


def test_only_predictions_of_the_same_gpu_and_code_are_kept(tmp_path, capsys, monkeypatch):
    def predicted(*more):
        assert predict.main(["--layers", "3", "--N", "1", "--out", str(tmp_path / "p.jsonl"), "--resume", *more]) < 2
        return capsys.readouterr().out.splitlines()[-1].partition(";")[0]

    monkeypatch.setattr("alexconv.compiling.nvcc.nvcc_version", lambda: "13")
    known = ["--rungs", "direct-register"]
    words = [predicted(*known, "--gpu", "t4"), predicted(*known), predicted(*known), predicted(*known, "--gpu", "t4")]
    assert words == ["1 point predicted", "1 point predicted", "0 points predicted", "0 points predicted"]
    monkeypatch.setattr("alexconv.compiling.nvcc.nvcc_version", lambda: "14")
    assert predicted(*known) == "1 point predicted"

    (of_14,) = predictions_in(read([tmp_path / "p.jsonl"])).values()
    monkeypatch.setattr("alexconv.compiling.nvcc.nvcc_version", lambda: "13")
    assert [predicted(*known), predicted(*known)] == ["1 point predicted", "0 points predicted"]
    (of_13,) = predictions_in(read([tmp_path / "p.jsonl"])).values()
    assert of_13["code"] != of_14["code"]

    assert new.main([str(tmp_path / "mine")]) == 0
    own = ["--ladder", str(tmp_path / "mine"), "--rungs", "mine"]
    kernel = tmp_path / "mine" / "mine.cu"
    assert [predicted(*own), predicted(*own)] == ["0 points predicted, 1 refused", "0 points predicted"]
    kernel.write_text(kernel.read_text().replace("float sum = 0;", "float sum = 1;"))
    assert predicted(*own) == "0 points predicted, 1 refused"


def test_times_are_compared_with_predictions_of_the_gpu_that_is_named(tmp_path, capsys):
    def compared(out):
        words = ["--compare", str(measured), "--out", str(tmp_path / out)]
        assert predict.main(words) == 0
        return capsys.readouterr().out.partition("constants:")[0]

    measured = write(tmp_path / "m.jsonl", [record("alexnet", 3, 1, "direct-register") | {"pieces": 1}])
    alone = compared("alone.jsonl")
    of_t4 = ["--gpu", "t4", "--layers", "3", "--N", "1", "--rungs", "direct-register"]
    assert predict.main([*of_t4, "--out", str(tmp_path / "both.jsonl")]) == 0
    capsys.readouterr()
    assert compared("both.jsonl") == alone


def test_times_of_another_gpu_than_the_one_predicted_are_named(tmp_path, capsys):
    point = record("alexnet", 3, 1, "direct-register") | {"pieces": 1}
    for name, shown in (("NVIDIA H200", ""), ("NVIDIA A40", "NVIDIA A40 was measured, NVIDIA H200 is predicted\n")):
        measured = write(tmp_path / f"{name}.jsonl", [point], {**GPU, "name": name})
        assert predict.main(["--compare", str(measured), "--out", str(tmp_path / "p.jsonl")]) == 0
        assert capsys.readouterr().err == shown


RUN = ["--layers", "3", "--rungs", "direct-register,channels", "--N", "1", "--backend", "host", "--no-baseline"]


def test_a_run_records_predicted_times_apart_from_measured_ones(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "r.jsonl"
    assert run.main([*RUN, "--predict", "--out", str(out)]) == 0
    records = read([out])
    assert all(not record["samples"] for record in records.points)
    predicted = [header for header in records.headers.values() if header["type"] == TYPE]
    assert [record["point"]["rung"] for record in predicted] == ["direct-register", "channels"]
    points = [Point.from_axes(record["point"]) for record in records.points]
    for prediction, expected in zip(predicted, predict_points(points, H200, KernelCache()), strict=True):
        assert prediction["ms"] == pytest.approx(expected.milliseconds)
        assert prediction["run"] in records.headers
    shown = capsys.readouterr().out
    assert run.main([*RUN, "--predict", "--resume", "--out", str(out)]) == 0
    assert out.read_text().count('"type":"prediction"') == 2, "the same ones again"
    assert shown.count("on NVIDIA H200, predicted:") == 2
    assert "there are no GPU times" in shown


def test_a_run_keeps_its_points_where_nothing_can_be_predicted(tmp_path, capsys, monkeypatch):
    def missing(*_):
        raise MissingTool("nvdisasm is not on this machine")

    monkeypatch.setattr(model, "compile_kernels", missing)
    out = tmp_path / "r.jsonl"
    assert run.main([*RUN[:3], "direct-register", *RUN[4:], "--predict", "--out", str(out)]) == 1
    assert [record["status"] for record in read([out]).points] == ["ok"]
    assert capsys.readouterr().err.splitlines()[-1].endswith("nvdisasm is not on this machine")
