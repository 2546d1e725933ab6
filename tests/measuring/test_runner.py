"""Points one by one: what their records depend on, and rungs that the executor cannot run."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from edited_code import edit_code, forget_code
from points import batch_of, point_of
from rich.console import Console

from alexconv.cli import display
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.ladder import RUNGS, Ladder
from alexconv.kernels.rung import FOLDER, Array, TensorMap
from alexconv.kernels.times import on_cuda_cores
from alexconv.measuring.ahead import compile_all
from alexconv.measuring.runner import Runner, Settings

DIRECT = RUNGS["direct"]
POINT = point_of(batch_of("lenet-70-k5", 1, 2), DIRECT, {"THREAD_OUTPUTS": 3})


@pytest.mark.parametrize(
    "changed, depends",
    [
        ({"seed": 1}, True),
        ({"memory_budget": 1 << 30}, True),
        ({"timed": False}, True),
        ({"seconds": 1.0}, False),
        ({"baseline": False}, False),
    ],
)
def test_a_record_is_stale_when_a_setting_that_its_outcome_depends_on_changes(changed, depends):
    before, after = (
        Runner(HostExecutor(), [POINT], settings).key(POINT) for settings in (Settings(), Settings(**changed))
    )
    assert (before != after) == depends


def key_with(rung, point=POINT, settings=None):
    """The key of the point if its rung were another one."""
    point = replace(point, entry=rung)
    return Runner(HostExecutor(), [point], settings or Settings()).key(point)


def launched(**changes):
    """DIRECT with a launch that differs."""
    return replace(DIRECT, launches=(replace(DIRECT.launches[0], **changes),))


def grown(numbers):
    """The same numbers for one image, larger ones for several."""
    return lambda p: tuple(size + (p.N > 1) for size in numbers(p))


MAP = TensorMap("map", "x", lambda p: (p.N, 8), lambda p: (16,), lambda p: (8, 8))
GEOMETRY = {
    "the grid": launched(grid=grown(DIRECT.launches[0].grid)),
    "the block": launched(block=lambda p: (32, 1, 1)),
    "dynamic shared memory": launched(dynamic_shared=lambda p: 64),
    "the order of arguments": launched(args=("w", "x", "y")),
    "an early start": launched(pdl=True),
    "a second launch": replace(DIRECT, launches=DIRECT.launches * 2),
    "a launch that prepares": replace(DIRECT, prepare=DIRECT.launches),
    "the layout": replace(DIRECT, layout="nhwc"),
    "the type": replace(DIRECT, dtype="float16"),
    "the error class": replace(DIRECT, precision="half"),
    "a scratch array": replace(DIRECT, scratch=(Array("sums", grown(lambda p: (p.N, 8))),)),
    "a tensor map": replace(DIRECT, maps=(MAP,)),
}


def test_a_record_is_stale_when_a_launch_changes():
    keys = {what: key_with(rung) for what, rung in GEOMETRY.items()}
    keys["nothing"] = key_with(DIRECT)
    keys["the box of a tensor map"] = key_with(replace(DIRECT, maps=(replace(MAP, box=lambda p: (8, 16)),)))
    keys["the extents of a tensor map"] = key_with(replace(DIRECT, maps=(replace(MAP, dims=grown(MAP.dims)),)))
    keys["the size of a scratch array"] = key_with(replace(DIRECT, scratch=(Array("sums", lambda p: (p.N, 8)),)))
    assert len(set(keys.values())) == len(keys)


def test_a_record_is_stale_when_its_tolerance_reference_or_inputs_change(monkeypatch):
    keys = {key_with(DIRECT)}
    for change in (
        ("alexconv.cpu_reference.reference", "np.float64, bias", "np.float32, bias"),
        ("alexconv.data", "STREAM = 1", "STREAM = 2"),
    ):
        with monkeypatch.context() as patch:
            edit_code(patch, *change)
            keys.add(key_with(DIRECT))
    forget_code()
    with monkeypatch.context() as patch:
        patch.setattr("alexconv.precisions.DEVIATIONS", 100)
        keys.add(key_with(DIRECT))
    keys.add(key_with(DIRECT, replace(POINT, transfer="managed")))
    for data in ("relu", "zeros"):
        keys.add(key_with(DIRECT, replace(POINT, batch=replace(POINT.batch, data=data))))
    keys.add(key_with(DIRECT, replace(POINT, constants={"THREAD_OUTPUTS": 2})))
    assert len(keys) == 8


def test_what_a_result_does_not_depend_on_makes_no_record_stale(tmp_path):
    (tmp_path / "moved.cu").write_text("// a comment\n" + DIRECT.path.read_text().replace('"../', f'"{FOLDER}/'))
    moved = replace(DIRECT, file=str(tmp_path / "moved.cu"))
    described = replace(DIRECT, idea="another", alias="another", family="another")
    described = replace(described, time=on_cuda_cores(9.0), cpu_order=9)
    assert {key_with(moved), key_with(described)} == {key_with(DIRECT)}
    (tmp_path / "moved.cu").write_text("int token;\n" + (tmp_path / "moved.cu").read_text())
    assert key_with(moved) != key_with(DIRECT)


def test_a_rung_without_a_host_twin_is_skipped_and_listed_with_the_reason(monkeypatch, capsys):
    reason = "TMA's scatter has no twin"
    made_up = replace(DIRECT, name="made-up", alias="mu", gpu_only=reason)
    host = HostExecutor()
    monkeypatch.setattr(host, "load", lambda *arguments: pytest.fail("a rung that cannot run here was compiled"))
    monkeypatch.setattr(host, "build", lambda *arguments: pytest.fail("a rung that cannot run here was compiled"))
    point = replace(POINT, entry=made_up)
    runner = Runner(host, [point], Settings())
    compile_all(runner, [point])
    record = runner.record(point)
    assert (record["status"], record["reason"]) == ("skipped", f"needs a GPU: {reason}")
    console = Console(width=200, file=StringIO())
    display.plan_table(console, runner, [point])
    assert f"skipped: needs a GPU: {reason}" in console.file.getvalue()
    display.listing(console, Ladder((DIRECT, made_up)), as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert [(rung["name"], rung["gpu_only"]) for rung in listed] == [("direct", None), ("made-up", reason)]


class Measuring(HostExecutor):
    """A host executor that is taken for a GPU."""

    measures = True


@pytest.mark.parametrize(
    "executor, rung, layer, N, images",
    [
        (HostExecutor, "direct", 2, 1, 0),  # slow, and the max error shows every missing tap
        (HostExecutor, "direct", 1, 1, 1),
        (HostExecutor, "direct", 2, 5, 5),
        (HostExecutor, "direct", 2, 128, 8),
        (HostExecutor, "direct-half", 2, 1, 1),
        (HostExecutor, "direct-half", 2, 128, 128),
        (Measuring, "direct", 2, 128, 128),
    ],
)
def test_the_exact_check_takes_every_image_unless_the_cpu_is_slow_and_the_max_error_tells(
    executor, rung, layer, N, images
):
    point = point_of(batch_of("alexnet", layer, N), rung, {})
    assert Runner(executor(), [point], Settings())._exact_images(point) == images
