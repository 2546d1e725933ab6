"""Rungs that cheat, run like any other; on a GPU, also those that cheat only while timed."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from attacks import cases, shows
from points import batch_of, point_of
from report_records import record, write

from alexconv.check import kinds
from alexconv.compiling import nvcc
from alexconv.errors import CompileError, MissingTool
from alexconv.executors import choose_executor
from alexconv.executors.interface import Executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Array, Constant, Launch, Rung
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.layouts import LAYOUTS
from alexconv.planning.peers import TORCH_PEERS
from alexconv.planning.points import Batch
from alexconv.records.store import read
from alexconv.reports.comparison import FP32, LAYERS, gather
from alexconv.shapes import WORKLOADS, Conv

SOURCE = Path(__file__).parent / "cheats.cu"
WORKLOAD, LAYER, N = "lenet-70-k5", 2, 3
THREADS = 128
OWN = f"""
from dataclasses import replace
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Launch
launch = Launch("ENTRY", ("x", "w", "y"), lambda p: (p.N, p.conv.M, 1), lambda p: ({THREADS}, 1, 1))
file = dict(name="own", alias="ow", parent="direct", file="cheats.cu")
RUNGS = [replace(RUNGS["direct"], **file, launches=(launch,), constants=(), refuses=lambda p: None)]
"""
NAME = "cheat"


POINT = point_of(batch_of(WORKLOAD, LAYER, N), "direct")


def cheating(entry: str, *, counts: bool = False) -> Rung:
    """A rung that launches a kernel of cheats.cu and, with ``counts``, one after it that counts the launches."""
    planes = Launch(entry, ("x", "w", "y"), lambda p: (p.N, p.conv.M, 1), lambda p: (THREADS, 1, 1))
    count = Launch("count", ("y",), lambda p: (1, 1, 1), lambda p: (1, 1, 1))
    launches = (planes, count) if counts else (planes,)
    return replace(
        RUNGS["direct"], name=NAME, file=str(SOURCE), launches=launches, constants=(), refuses=lambda p: None
    )


def recorded(backend: str, rung: Rung, images: int = N, executor: Executor | None = None) -> dict:
    executor = executor or choose_executor(backend, host_build="unoptimized")
    point = point_of(batch_of(WORKLOAD, LAYER, images), rung)
    return Runner(executor, [point], Settings(seconds=0.05, baseline=False)).record(point)


def preparing() -> Rung:
    """A rung that computes its outputs while it should prepare filters."""
    grid, block = (lambda p: (N, p.conv.M, 1)), (lambda p: (THREADS, 1, 1))
    prepare = Launch("prepare_outputs", ("x", "w", "kept"), grid, block)
    outputs = Array("kept", lambda p: (N, p.conv.M, p.conv.E, p.conv.F))
    launch = Launch("copy_prepared", ("kept", "y"), grid, block)
    return replace(cheating("honest"), prepare=(prepare,), prepared=(outputs,), launches=(launch,))


ALWAYS = {
    "right on floats alone": ("one_kind_of_data", "wrong", "not exact on integers"),
    "takes images for repetitions of others": ("repeats", "wrong", "error"),
    "moves the work into the preparation of the filters": ("prepare_outputs", "wrong", ""),
    "constant outputs": ("constant", "wrong", "error"),
    "part of y unwritten": ("unwritten", "wrong", "NaN"),
    "reads freed or unwritten memory as its output": ("nothing", "wrong", "NaN"),
    "all images in half precision": ("half_sums", "wrong", "error"),
    "some images in half precision": ("half_sums_of_an_image", "wrong", "error"),
    "zeros skipped, and what follows them": ("stops_at_zero", "wrong", "error"),
    "stores far from any array": ("far_from_y", "launch-error", ""),
}
ON_HOST = {
    "ends its process": ("ends", "launch-error", "process ended with SIGABRT"),
    "depends on shared memory of an earlier launch": ("stale_shared", "wrong", "NaN"),
    "stores right after y": ("after_y", "launch-error", "after y"),
    "stores right before y": ("before_y", "launch-error", "before y"),
    "changes x": ("changes_x", "launch-error", "in x"),
    "changes w": ("changes_w", "launch-error", "in w"),
}
ON_GPU = {
    **{attack: cheat for attack, cheat in ALWAYS.items() if cheat[0] != "far_from_y"},  # leaves the context unusable
    "stores right after y": ("after_y", "launch-error", "right after y"),
    "stores right before y": ("before_y", "launch-error", "right before y"),
    "changes x": ("changes_x", "wrong", "changed x"),
    "changes w": ("changes_w", "wrong", "changed x, w"),
    "right for some launches, then wrong": ("wrong_later", "wrong", "timed launches"),
    "skips every second launch": ("every_second", "wrong", ""),
    "skips all but one launch of a batch": ("all_but_one_of_four", "wrong", ""),
    "skips where y is there already": ("where_it_is_there", "wrong", ""),
    "learns the outputs during warm-up": ("learns", "wrong", ""),
    "half precision once it is timed": ("half_later", "wrong", "timed launches"),
}
COUNTING = {"wrong_later", "every_second", "all_but_one_of_four", "learns", "half_later"}


def caught(backend, cheat):
    entry, status, reason = cheat
    rung = preparing() if entry == "prepare_outputs" else cheating(entry, counts=entry in COUNTING)
    record = recorded(backend, rung)
    assert (record["status"], reason in record["reason"]) == (status, True), record["reason"]
    assert not record.get("samples")


@shows(*ALWAYS, *ON_HOST)
@cases(ALWAYS | ON_HOST)
def test_a_rung_that_cheats_is_caught_on_the_cpu(attack, cheat):
    caught("host", cheat)


def run_of(tmp_path: Path, entry: str, *words: str) -> subprocess.CompletedProcess:
    """Runs a rung in a separate process, which it may end or print into."""
    kernels = SOURCE.parents[2] / "kernels"
    (tmp_path / SOURCE.name).write_text(SOURCE.read_text().replace("../../kernels", str(kernels)))
    (tmp_path / "ladder.py").write_text(OWN.replace("ENTRY", entry))
    chosen = ["--workload", WORKLOAD, "--layers", str(LAYER), "--N", "1", "--rungs", "own", "--backend", "host"]
    command = [sys.executable, "-m", "alexconv.run", "--ladder", str(tmp_path), *chosen, "--no-baseline", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)


SKIPPING = {  # by class: the kernel, and its type
    "fp32": ("skips_in_floats", "float32"),
    "fp32-tile": ("skips_in_floats", "float32"),
    "tf32": ("skips_in_tf32", "float32"),
    "fp16": ("skips_in_halves", "float16"),
    "half": ("skips_in_halves", "float16"),
}
DEEP = Conv(C=384, H=5, W=6, M=3, R=3, S=3)
LAST = 6
NOWHERE = 1000


def skipping(precision: str, image: int) -> Rung:
    """A rung of a class that skips a channel in an image."""
    entry, dtype = SKIPPING[precision]
    late = Constant("LATE", "the image without its first channel", lambda p: image, least=0)
    return replace(cheating(entry), precision=precision, dtype=dtype, constants=(late,))


def record_of_a_skip(precision: str, image: int, budget: int | None = None) -> dict:
    point = point_of(Batch("deep", 1, DEEP, LAST + 1), skipping(precision, image))
    return Runner(choose_executor("host"), [point], Settings(baseline=False, memory_budget=budget)).record(point)


@shows("skips a channel in one image")
@pytest.mark.parametrize("image", [0, 3, LAST])
@pytest.mark.parametrize("precision", SKIPPING)
def test_a_channel_that_is_skipped_in_one_image_is_noticed_by_a_run(precision, image):
    record = record_of_a_skip(precision, image)
    assert record["exact"]["images"] == LAST + 1
    assert 0 < record["exact"]["wrong"] <= DEEP.M * DEEP.E * DEEP.F
    assert record["status"] == "wrong"


def test_half_arithmetic_hides_a_channel_from_the_max_error():
    error = record_of_a_skip("half", LAST)["error"]
    assert error["scaled"] <= error["tolerance"]


@pytest.mark.parametrize("precision", SKIPPING)
def test_the_same_rung_without_a_skip_is_right(precision):
    record = record_of_a_skip(precision, NOWHERE)
    assert (record["status"], record["reason"]) == ("ok", None)


def test_the_exact_check_takes_the_pieces_of_the_point():
    one = BoundRung(skipping("half", 0), DEEP, {"LATE": 0}).device_bytes(2)
    for image, status in ((LAST, "ok"), (1, "wrong")):  # a kernel counts images from the first one of its piece
        record = record_of_a_skip("half", image, one)
        assert (record["status"], record["exact"]["images"]) == (status, LAST + 1), record["reason"]


@shows("skips a channel in one image")
@pytest.mark.parametrize("image", [3, 30])
@pytest.mark.parametrize("precision", SKIPPING)
def test_a_channel_that_is_skipped_in_one_image_is_noticed_by_check(precision, image):
    shape = next(conv for conv in kinds.SHAPES if conv.C == 16 and not conv.bias)
    (problem,) = kinds.exact(skipping(precision, image), [shape])
    assert f"y[{image}]" in problem
    assert list(kinds.exact(skipping(precision, NOWHERE), [shape])) == []


@shows("prints a record")
def test_what_a_kernel_prints_is_no_record(tmp_path):
    out = tmp_path / "r.jsonl"
    done = run_of(tmp_path, "prints", "--json", "--out", str(out))
    (line,) = map(json.loads, done.stdout.splitlines())
    assert [line] == [{**record} for record in read([out]).points]
    assert "0.0001" in done.stderr
    assert line["samples"] == {}


@shows("does not end")
def test_a_kernel_without_an_end_is_a_record(tmp_path):
    run_of(tmp_path, "sleeps", "--time-limit", "2", "--out", str(tmp_path / "r.jsonl"))
    (endless,) = read([tmp_path / "r.jsonl"]).points
    assert (endless["status"], endless.get("samples")) == ("timeout", None)


@shows("launches another's kernel")
def test_a_kernel_that_launches_another_is_not_compiled(tmp_path):
    try:
        nvcc.nvcc_version()
    except MissingTool as error:
        pytest.skip(str(error))
    rung = cheating("honest")
    bound = BoundRung(rung, WORKLOADS[WORKLOAD].layer(LAYER), {})
    nvcc.compile_cubin(SOURCE, bound.macros, "90a")
    with pytest.raises(CompileError, match="separate compilation"):
        nvcc.compile_cubin(SOURCE, {**bound.macros, "LAUNCHES_ANOTHER": 1}, "90a")


def test_an_honest_rung_is_trusted_on_the_cpu():
    assert recorded("host", cheating("honest"))["status"] == "ok"


@pytest.mark.gpu
@pytest.mark.alone
@shows(*ON_GPU)
@cases(ON_GPU)
def test_a_rung_that_cheats_is_caught_on_a_gpu(attack, cheat):
    caught("cuda", cheat)


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("images", [1, 3, 100])
def test_an_honest_rung_is_trusted_on_a_gpu(images):
    record = recorded("cuda", cheating("honest", counts=True), images)
    assert record["status"] == "ok", record["reason"]
    assert record["audit"]["differing"] == 0
    assert len(record["samples"]["kernel"]) <= record["audit"]["samples"]


@pytest.mark.gpu
@pytest.mark.alone
@shows("leaves clocks, a power limit or a share of the L2 cache set")
def test_a_ladder_entry_that_sets_a_share_of_the_l2_cache_aside_is_refused_on_a_gpu():
    executor = choose_executor("cuda")
    driver, limit = executor.gpu.bindings, executor.gpu.bindings.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE
    _, before = driver.cuCtxGetLimit(limit)
    addresses = []  # once: not allowed while a graph is captured

    def set_aside(nbytes: int) -> int:
        driver.cuCtxSetLimit(limit, nbytes)
        return driver.cuCtxGetLimit(limit)[1]

    def grid(p):
        addresses.append(addresses or set_aside(before + (8 << 20)))
        return p.N, p.conv.M, 1

    if set_aside(before + (8 << 20)) == before:
        pytest.skip("this driver sets nothing aside")
    set_aside(before)
    rung = cheating("honest")
    try:
        record = recorded("cuda", replace(rung, launches=(replace(rung.launches[0], grid=grid),)), executor=executor)
    finally:
        set_aside(before)
    assert (record["status"], "kept_l2_bytes" in str(record["reason"])) == ("wrong", True), record
    assert not record.get("samples")


@shows("another grid under the same name")
def test_a_rung_with_another_grid_has_another_key():
    executor = choose_executor("host")
    keys = set()
    for blocks in (0, 1):
        rung = cheating("honest")
        launch = replace(rung.launches[0], grid=lambda p, blocks=blocks: (p.N, p.conv.M - blocks, 1))
        point = point_of(batch_of(WORKLOAD, LAYER, N), replace(rung, launches=(launch,)))
        keys.add(Runner(executor, [point], Settings()).key(point))
    assert len(keys) == 2


@shows("slows a peer by a bad layout")
def test_a_peer_that_is_slow_in_one_layout_counts_in_the_other(tmp_path):
    records = []
    for layer in LAYERS:
        ours, *peers = (record("alexnet", layer, 128, rung) for rung in ("wgmma-split", *FP32.peers))
        for of_rung, ms in zip((ours, *peers), (0.4, 40.0, 0.5), strict=True):
            records.append(of_rung | {"samples": {"kernel": [ms] * 10}})
    source = gather([write(tmp_path / "r.jsonl", records)], None).many
    assert source.named_sum(FP32.peers[0], 128) == pytest.approx(5 * 40.0)
    assert source.faster_layouts(FP32, 128) == pytest.approx(5 * 0.5)
    assert {peer.layout for peer in TORCH_PEERS if not peer.is_product} == {*LAYOUTS}
