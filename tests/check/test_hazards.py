"""Hazards of asynchronous copies and products: each kind is found and named, no rung of the ladder has one."""

import json
import re
from dataclasses import replace
from pathlib import Path

import hazard_mutants
import numpy as np
import pytest
from compilers import needs_gcc
from ladders import planted

from alexconv.check import kinds
from alexconv.check.hazards import (
    BUILD,
    DEFINEDNESS,
    MOMENTS,
    UNINITIALISED,
    UNWRITTEN,
    Inputs,
    Schedule,
    watch_launch,
    watch_rung,
)
from alexconv.check.kinds import SHAPES as CHECKED_SHAPES
from alexconv.check.kinds import async_hazards
from alexconv.cpu_reference.reference import reference
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.bound import BoundRung, LaunchConfig
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import H200
from alexconv.kernels.rung import FOLDER, shape_macros
from alexconv.planning.checks import exact_inputs
from alexconv.planning.layouts import from_study, to_study
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

CHECKOUT = Path(__file__).parent.parent.parent

SOURCE = Path(__file__).parent.parent / "sources" / "hazards.cu"
KINDS = {
    "copy_without_wait": "cp.async.wait_group",
    "copy_without_commit": "cp.async.commit_group",
    "copy_without_barrier": "a barrier",
    "older_group": "cp.async.wait_group",
    "early_arrival": "a barrier",
    "early_refill": "a barrier",
    "bulk_without_wait": "a wait for the phase",
    "wrong_parity": "a wait for the phase",
    "bulk_over_readers": ("a barrier", "a wait for the phase"),
    "bulk_in_flight": "a wait for the phase",
    "unfenced_barrier": "fence.proxy.async",
    "unfenced_operand": "fence.proxy.async",
    "half_unfenced_operand": "fence.proxy.async",
    "race_of_halves": "a barrier",
    "sums_without_wait": "wgmma.wait_group",
    "sums_without_fence": "wgmma.fence",
    "operand_overwritten": "wgmma.wait_group",
    "overtakes": "griddepcontrol.wait",
    "plain_race": "a barrier",
    "early_sum": "a barrier",
}
ASYNC_RUNGS = [rung for rung in LADDER if rung.family in ("igemm", "mma", "wgmma")]
SMALL = Conv(C=16, H=12, W=12, M=24, R=3, S=3)  # fills every rung's pipeline
DEVICE = replace(H200, multiprocessors=2)  # so that persistent blocks have several tiles


@pytest.fixture(scope="module")
def runtime():
    return HostRuntime(build=BUILD)


@pytest.fixture(scope="module")
def kernels(runtime, tmp_path_factory):
    """The kernels with and without their hazards, by FIXED."""
    unit = tmp_path_factory.mktemp("hazards") / "hazards.cu"
    headers = "".join(f'#include "{FOLDER / "arch" / name}"\n' for name in ("ampere.cuh", "hopper.cuh"))
    unit.write_text(headers + "#line 1\n" + SOURCE.read_text())
    macros = shape_macros(SMALL)
    return [runtime.compile(unit, {**macros, "FIXED": fixed}, list(KINDS)) for fixed in (0, 1)]


def watched(runtime, module, entry, moment):
    """The hazards of a kernel, why it failed, and its outputs."""
    x, y = runtime.allocate(4 * 512), runtime.allocate(4 * 512)
    x.array("f4", (512,))[:] = np.arange(512)
    launch = LaunchConfig(entry, (), (1, 1, 1), (128, 1, 1), 0, pdl=entry == "overtakes")
    return *watch_launch(module, launch, [x, y], Schedule(moment, seed=3), dependent=[x]), y.array("f4", (512,))


def lines_of(mark, source=SOURCE):
    """The numbers of the source lines that a comment marks."""
    lines = source.read_text().splitlines()
    return [number for number, line in enumerate(lines, 1) if line.endswith(f"// {mark}")]


@needs_gcc
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("entry", KINDS)
def test_a_hazard_is_named_with_its_line_and_what_is_missing(runtime, kernels, entry, moment):
    hazards, failure, _ = watched(runtime, kernels[0], entry, moment)
    if failure:  # a wait for a phase that never ends
        assert entry in ("wrong_parity", "bulk_over_readers")
        assert moment != "latest"
        assert any(f"{SOURCE.name}:{line} " in failure for line in lines_of(entry))
    else:
        assert any(hazard.missing.startswith(KINDS[entry]) for hazard in hazards), list(map(str, hazards))
        named = {place.line for hazard in hazards for place in hazard.lines if place.file == SOURCE.name}
        assert named & set(lines_of(entry))
    hazards, failure, _ = watched(runtime, kernels[1], entry, moment)
    assert (hazards, failure) == ([], None)


@needs_gcc
@pytest.mark.parametrize("entry", ["copy_without_wait", "sums_without_wait"])
def test_late_effects_expose_hazards_that_early_ones_hide(runtime, kernels, entry):
    _, _, right = watched(runtime, kernels[1], entry, "latest")
    _, _, early = watched(runtime, kernels[0], entry, "earliest")
    _, _, late = watched(runtime, kernels[0], entry, "latest")
    np.testing.assert_array_equal(early[:128], right[:128])
    assert not np.array_equal(late[:128], right[:128], equal_nan=True)


@needs_gcc
@pytest.mark.parametrize("rung", ASYNC_RUNGS, ids=lambda rung: rung.name)
def test_no_async_rung_has_a_hazard_with_any_timing(runtime, rung):
    N = 3
    x, w = exact_inputs(SMALL, N, PRECISIONS[rung.precision], seed=2)
    bound = BoundRung(rung, SMALL, rung.resolve(SMALL, {}, N, DEVICE), DEVICE)
    for moment in MOMENTS:
        inputs = Inputs(from_study(x, rung.layout).astype(rung.dtype), w.astype(rung.dtype))
        outcome = watch_rung(runtime, bound, inputs, Schedule(moment, seed=5))
        assert (outcome.hazards, outcome.failure) == ((), None)
        np.testing.assert_array_equal(to_study(outcome.y, rung.layout).astype("f4"), reference(SMALL, x, w))


@needs_gcc
@pytest.mark.parametrize("arrivals", [1, 2])
def test_consecutive_phases_without_a_wait_are_found(runtime, tmp_path, arrivals):
    unit = tmp_path / "phases.cu"
    unit.write_text(
        f'#include "{FOLDER / "arch" / "hopper.cuh"}"\n#line 1\nextern "C" __global__ void kernel(float* y)\n'
        "{\n    __shared__ Mbarrier barrier;\n"
        "    if (threadIdx.x == 0) { mbarrier_init(&barrier, 2); mbarrier_init_fence(); }\n    __syncthreads();\n"
        f"    for (int i = 0; i < {arrivals}; ++i) mbarrier_arrive(&barrier);\n"
        "    y[threadIdx.x] = 1;\n}\n"
    )
    module = runtime.compile(unit, shape_macros(SMALL), ["kernel"])
    launch = LaunchConfig("kernel", (), (1, 1, 1), (2, 1, 1), 0)
    outcome = watch_launch(module, launch, [runtime.allocate(128)], Schedule("earliest", seed=1))
    message = "two phases of the barrier in a row end that no thread waits for"
    assert (message in str(outcome)) == (arrivals == 2), outcome


@needs_gcc
@pytest.mark.parametrize("between, names", [("", 1), ("__syncthreads();", 1), ("", 2)])
def test_a_named_barrier_shared_by_groups_that_nothing_orders_is_found(runtime, tmp_path, between, names):
    unit = tmp_path / "names.cu"
    unit.write_text(
        f'#include "{FOLDER / "arch" / "basics.cuh"}"\n#line 1\nextern "C" __global__ void kernel(float* y)\n'
        f"{{\n    const int warp = threadIdx.x / 32;\n    if (warp == 0) named_barrier(1, 32);\n    {between}\n"
        f"    if (warp == 1) named_barrier({names}, 32);\n    y[threadIdx.x] = 1;\n}}\n"
    )
    module = runtime.compile(unit, shape_macros(SMALL), ["kernel"])
    launch = LaunchConfig("kernel", (), (1, 1, 1), (64, 1, 1), 0)
    hazards, failure = watch_launch(module, launch, [runtime.allocate(256)], Schedule("earliest", seed=1))
    shared = not between and names == 1
    assert hazards == []
    assert ("use the same named barrier, at names.cu:6" in str(failure)) == shared, failure


@needs_gcc
@pytest.mark.parametrize("memory", ["", "__shared__ "])
def test_an_async_copy_to_a_local_array_is_found(runtime, tmp_path, memory):
    unit = tmp_path / "local.cu"
    unit.write_text(
        f'#include "{FOLDER / "arch" / "ampere.cuh"}"\n#line 1\nextern "C" __global__ void kernel(float* y)\n'
        f"{{\n    {memory}__align__(16) float stage[4];\n    copy_async_16(stage, y, true);\n"
        "    copy_async_commit_group();\n    copy_async_wait_group<0>();\n    y[4] = stage[threadIdx.x];\n}\n"
    )
    module = runtime.compile(unit, shape_macros(SMALL), ["kernel"])
    launch = LaunchConfig("kernel", (), (1, 1, 1), (1, 1, 1), 0)
    hazards, failure = watch_launch(module, launch, [runtime.allocate(32)], Schedule("latest", seed=1))
    assert hazards == []
    assert ("copies to shared memory alone, at local.cu:4" in str(failure)) == (not memory), failure


@needs_gcc
def test_check_has_a_block_of_stream_k_with_parts_of_two_tiles(tmp_path):
    barrier = "            __syncthreads();  // no thread still reads or copies K tiles of the previous tile"
    deep = [conv for conv in kinds.SHAPES if conv.C == 72]
    hazards = list(async_hazards(planted("igemm-stream-k", barrier, "//", tmp_path), deep))
    assert any("a load meets a copy by cp.async" in line for line in hazards)
    assert list(async_hazards(RUNGS["igemm-stream-k"], deep)) == []


# ---- Loads of what nothing has written ----

UNDEFINED = SOURCE.with_name("undefined.cu")
SHARED = ("maximum", "comparison", "integer", "bytes", "vector", "sum")
LOCAL = ("array", "halves")
REGISTERS = ("registers", "count")
EVERY = (*SHARED, *LOCAL, *REGISTERS, "written")


def undefined_loads(entry, good, build, missing):
    """The lines of a kernel that load what nothing has written."""
    runtime = HostRuntime(build=build)
    module = runtime.compile(UNDEFINED, {"GOOD": good}, EVERY)
    x, y = runtime.allocate(512), runtime.allocate(512)
    x.array("f4", (128,))[:] = np.arange(128) - 3
    loads, failure = watch_launch(module, LaunchConfig(entry, (), (1, 1, 1), (128, 1, 1), 0), [x, y], Schedule())
    assert failure is None
    return {load.second_place.line for load in loads if load.missing == missing}


def analysed_loads(good):
    """The lines on which g++ sees a variable without a value."""
    loads = HostRuntime(build=DEFINEDNESS).uninitialised(UNDEFINED, {"GOOD": good}, EVERY)
    assert {file for file, _, _ in loads} <= {UNDEFINED.name}
    return {line for _, line, _ in loads}


@needs_gcc
@pytest.mark.parametrize("entry", SHARED)
def test_a_load_of_unwritten_shared_memory_is_found_whatever_becomes_of_the_value(entry):
    assert undefined_loads(entry, 0, BUILD, UNWRITTEN) == set(lines_of(entry, UNDEFINED))
    assert undefined_loads(entry, 1, BUILD, UNWRITTEN) == set()


@needs_gcc
@pytest.mark.parametrize("entry", LOCAL)
def test_a_load_of_an_uninitialised_element_is_found_whatever_becomes_of_the_value(entry):
    assert undefined_loads(entry, 0, DEFINEDNESS, UNINITIALISED) == set(lines_of(entry, UNDEFINED))
    assert undefined_loads(entry, 1, DEFINEDNESS, UNINITIALISED) == set()


@needs_gcc
@pytest.mark.parametrize("entry", REGISTERS)
def test_a_register_that_may_have_no_value_is_found(entry):
    lines = set(lines_of(entry, UNDEFINED))
    assert analysed_loads(0) & lines == lines
    assert analysed_loads(1) & lines == set()


@needs_gcc
def test_what_is_written_out_of_sight_is_no_load_of_what_nothing_has_written():
    body = UNDEFINED.read_text().partition("void written")[0].count("\n") + 1
    assert undefined_loads("written", 0, BUILD, UNWRITTEN) == set()
    assert undefined_loads("written", 0, DEFINEDNESS, UNINITIALISED) == set()
    assert not [line for line in analysed_loads(0) if line >= body]


@needs_gcc
def test_a_comment_declares_a_load_whose_value_changes_nothing(tmp_path):
    rung, file = "channels-vector", "multi/vectors.cuh"
    comment = next(line for line in (FOLDER / file).read_text().splitlines() if kinds.DELIBERATE in line)
    assert list(kinds.undefined(RUNGS[rung], kinds.SHAPES[:1])) == []
    (load,) = kinds.undefined(planted(rung, comment, "", tmp_path), kinds.SHAPES[:1])
    assert load.startswith("vectors.cuh:")


# ---- Mutants ---------------------------------------------------------------------------------------------------------

SAMPLE = (  # one of each kind of bug
    "igemm/pipeline.cuh: barrier before the wait",
    "mma/mma_tile.cuh: early refill: issue(",
    "wgmma/warpgroups.cuh: wrong parity: mbarrier_wait(&shared.full[state.stage], state.parity);",
    "wgmma/warpgroups.cuh: too few bytes",
    "wgmma/warpgroups.cuh: arrival before the wait: warpgroup_wait_group<0>(); release",
    "wgmma/window.cuh: no proxy fence",
    "wgmma/wgmma_winograd.cu: no wait for launches",
)


@needs_gcc
@pytest.mark.parametrize("start", SAMPLE)
def test_a_mutant_is_found_with_its_lines(start):
    mutant = next(candidate for candidate in hazard_mutants.mutants() if candidate.name.startswith(start))
    row = hazard_mutants.examine(mutant, hazard_mutants.FILES[mutant.file])
    assert re.search(r"\.cuh?:\d+", row["report"]), row


def test_the_recorded_mutants_are_those_of_todays_kernels_and_all_but_equivalent_ones_were_found():
    rows = json.loads(hazard_mutants.RECORDS.read_text())
    names = [mutant.name for mutant in hazard_mutants.mutants()]
    assert [row["name"] for row in rows] == names, "run tests/attacks/hazard_mutants.py"
    assert len(names) >= 60
    assert len(set(names)) == len(names)
    assert set(hazard_mutants.EQUIVALENT) <= set(names)
    for row in rows:
        assert ("report" in row) != ("equivalent" in row), row["name"]
        if "report" in row:
            assert ".cu" in row["report"], row


@needs_gcc
def test_the_shapes_of_alexconv_check_fill_a_pipeline(tmp_path):
    empty = "mbarrier_wait(&shared.empty[state.stage], state.parity ^ 1);"
    too_early = planted("wgmma-window-half", empty, ";", tmp_path)
    assert any("meets a TMA copy" in hazard for hazard in async_hazards(too_early, CHECKED_SHAPES[1:2]))
