"""Every rung on the host executor: against the cached reference, exactly on integers, and with planted bugs.

Sources are the ladder's own.  Tests of every rung name none, so a new one is tested as soon as it is in the ladder.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from attack_size import in_turn
from compilers import needs_asan
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from ladders import planted
from points import batch_of, point_of
from rung_runs import assert_exact, run_once, small_layer, whole

from alexconv.cpu_reference.cache import LayerData
from alexconv.cpu_reference.reference import reference
from alexconv.errors import LaunchError
from alexconv.executors import choose_executor
from alexconv.executors.host.runtime import asan_environment
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS, Ladder
from alexconv.kernels.problem import H200, Problem
from alexconv.kernels.rung import FOLDER, MICRO_BATCH, Rung
from alexconv.kernels.single import ladder as single
from alexconv.kernels.times import on_cuda_cores
from alexconv.measuring.runner import Layer, Runner, Settings
from alexconv.planning.checks import exact_inputs
from alexconv.planning.planner import Plan
from alexconv.precisions import PRECISIONS
from alexconv.shapes import WORKLOADS, Conv
from alexconv.tune import auto

HOST_RUNGS = [rung for rung in LADDER if not rung.gpu_only]
AT_A_TIME = [rung for rung in LADDER if MICRO_BATCH in {constant.name for constant in rung.constants}]
FEW = replace(H200, multiprocessors=2)  # several tiles per block
ORDERS = (0, 1, 7)  # forward, reverse, a random order of a block's threads


@pytest.fixture(scope="module")
def host():
    return choose_executor("host")


@pytest.fixture(scope="module")
def host_unoptimized():
    """For small layers, which take longer to compile than to compute."""
    return choose_executor("host", host_build="unoptimized")


def takes(rung: Rung, layer: int, workload: str = "alexnet") -> bool:
    """Whether a rung computes a layer."""
    conv = WORKLOADS[workload].layer(layer)
    return rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))) is None


def layer_of(place: int, rung: Rung) -> int:
    """For every other rung layer 1, whose geometry is special; of the others that the rung takes one in turn."""
    others = [layer for layer in range(2, 6) if takes(rung, layer)]
    return others[place // 2 % len(others)] if place % 2 and others else 1


@pytest.mark.parametrize(
    ("rung", "layer"),
    [
        pytest.param(rung, layer, id=f"{rung.name}-{layer}")
        for rung, layer in zip(HOST_RUNGS, map(layer_of, range(len(HOST_RUNGS)), HOST_RUNGS), strict=True)
    ],
)
def test_alexnet_layer_against_the_cached_reference(host, rung, layer):
    conv = WORKLOADS["alexnet"].layer(layer)
    point = point_of(batch_of("alexnet", layer, 1), rung)
    record = Runner(host, [point], Settings(baseline=False)).record(point)
    if reason := rung.refuses(Problem(conv, 1, point.constants)):
        assert (record["status"], record["reason"]) == ("skipped", reason)
        return
    assert record["status"] == "ok", record["reason"]
    assert 0 < record["error"]["scaled"] <= record["error"]["tolerance"]
    assert "samples" not in record or not record["samples"]


@pytest.mark.parametrize("rung", AT_A_TIME, ids=lambda rung: rung.name)
def test_micro_batches_come_out_as_the_whole_batch(host_unoptimized, rung):
    bound = whole(rung, Conv(C=3, H=11, W=11, M=5, R=3, S=3), 70, MICRO_BATCH=32).bound
    assert len(bound.micro_batches(70)) == 3
    assert_exact(host_unoptimized, bound, 70)


@st.composite
def odd_convolutions(draw, takes: Container[str], *, depthwise: bool) -> Conv:
    """A layer with those of padding, stride pairs, dilation, groups, bias and ReLU that a rung takes."""

    def drawn(feature: str, values: st.SearchStrategy[int], otherwise: int) -> int:
        return draw(values) if feature in takes else otherwise

    R, S, U = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.sampled_from((1, 1, 2, 3, 4)))
    top, bottom, left, right = (drawn("padding", st.integers(0, 4), 0) for _ in range(4))
    apart, columns_apart = (drawn("dilation", st.integers(1, 3), 1) for _ in range(2))
    groups, V = drawn("groups", st.integers(1, 9 if depthwise else 3), 1), drawn("stride pairs", st.integers(0, 3), 0)
    H = max(1, (R - 1) * apart + 1 - top - bottom) + draw(st.integers(0, 14))
    W = max(1, (S - 1) * columns_apart + 1 - left - right) + draw(st.integers(0, 14))
    of_group = st.integers(1, 5) | st.sampled_from((8, 24, 64))  # some rungs take multiples of eight only
    C = groups * (1 if depthwise else draw(of_group))
    M = groups * draw(st.integers(1, 9))
    around = {"top": top, "bottom": bottom, "left": left, "right": right}
    more = {"dilation_rows": apart, "dilation_columns": columns_apart, "groups": groups}
    ends = {"bias": "bias" in takes and draw(st.booleans()), "relu": "ReLU" in takes and draw(st.booleans())}
    return Conv(C, H, W, M, R, S, U, V=V, **around, **more, **ends)


@pytest.mark.parametrize("rung", HOST_RUNGS, ids=lambda rung: rung.name)
@settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data(), N=st.integers(1, 3), few=st.booleans())
def test_integers_come_out_exactly_on_odd_shapes(host_unoptimized, rung, data, N, few):
    layers = odd_convolutions(rung.takes, depthwise=rung.family == "depthwise")
    conv, device = data.draw(layers), FEW if few else H200
    chosen = {
        constant.name: data.draw(st.sampled_from(constant.choices) if constant.choices else st.integers(1, 3))
        for constant in rung.constants
        if data.draw(st.booleans())
    }
    bound = BoundRung(rung, conv, rung.resolve(conv, chosen, N, device), device)
    assume(bound.refusal() is None)  # if it refused all examples, the test would fail
    assert_exact(host_unoptimized, bound, N, data.draw(st.integers(1, N)))


TILES_OF_A_WARPGROUP = Conv(C=64, H=9, W=9, M=72, R=2, S=2, left=1)
PARTIAL_STAGES = Conv(C=72, H=9, W=9, M=168, R=2, S=2, left=1)
WINDOWS = [Conv(C=channels, H=11, W=8, M=72, R=5, S=4, top=2, bottom=1, left=1, right=2) for channels in (24, 72)]


@pytest.mark.parametrize(
    ("name", "conv", "N", "pixels", "filters", "more"),
    [
        # Several tiles and several rounds of the pipeline per block; the first round loads filters ahead of pixels.
        ("wgmma-half-split-k", TILES_OF_A_WARPGROUP, 2, 64, 64, {"STAGES": 3, "SPLITS": 1}),
        ("wgmma-half-split-k", TILES_OF_A_WARPGROUP, 2, 64, 64, {"STAGES": 3, "SPLITS": 3}),
        ("wgmma-floats", TILES_OF_A_WARPGROUP, 2, 64, 64, {"STAGES": 3, "SPLITS": 1}),
        ("wgmma-floats-split", TILES_OF_A_WARPGROUP, 2, 64, 64, {"STAGES": 3, "SPLITS": 3}),
        # Partial stages are multiplied as whole ones.
        ("wgmma-half-whole", PARTIAL_STAGES, 1, 64, 32, {"STAGES": 3, "SPLITS": 1}),
        ("wgmma-half-whole", PARTIAL_STAGES, 1, 64, 160, {"STAGES": 3, "SPLITS": 3}),
        # Filter tiles of one block and of several, tiles at the end of an image, boxes beyond its last row, slices.
        ("wgmma-window-in-place", WINDOWS[0], 3, 128, 64, {"STAGES": 2, "GRID_BLOCKS": 3}),
        ("wgmma-window-in-place", WINDOWS[0], 3, 256, 32, {"STAGES": 2, "GRID_BLOCKS": 5}),
        ("wgmma-window-in-place", WINDOWS[0], 3, 128, 96, {"STAGES": 2, "GRID_BLOCKS": 4}),
        ("wgmma-window-in-place", WINDOWS[1], 3, 128, 32, {"STAGES": 2, "GRID_BLOCKS": 3}),
    ],
)
def test_tiles_and_stages_that_random_shapes_seldom_have(host_unoptimized, name, conv, N, pixels, filters, more):
    device = FEW if "SPLITS" in more else H200
    constants = RUNGS[name].resolve(conv, {"TILE_PIXELS": pixels, "TILE_FILTERS": filters, **more}, N, device)
    bound = BoundRung(RUNGS[name], conv, constants, device)
    assert bound.refusal() is None
    assert conv is not TILES_OF_A_WARPGROUP or bound.launches(N)[0].block == (256, 1, 1)
    assert_exact(host_unoptimized, bound, N)


GROUPS_OF = {channels: Conv(channels * groups, 7, 6, 8 * groups, 3, 3, left=1, groups=groups)
             for groups, channels in ((2, 4), (10, 12), (2, 36))}  # fmt: skip
IN_PLACE = "wgmma-half", "wgmma-half-whole", "wgmma-window-in-place", "wgmma-floats"


@pytest.mark.parametrize("channels", GROUPS_OF)
@pytest.mark.parametrize("name", IN_PLACE)
def test_products_of_groups_begin_where_the_copy_engine_does(host_unoptimized, name, channels):
    conv = GROUPS_OF[channels]
    bound = BoundRung(RUNGS[name], conv, RUNGS[name].resolve(conv, {}, 2, H200), H200)
    if channels == 36 and RUNGS[name].precision == "fp16":  # 72 bytes
        assert bound.refusal() == "groups of 36 channels: TMA begins at multiples of 8"
    else:
        assert bound.refusal() is None
        assert_exact(host_unoptimized, bound, 2)


@pytest.mark.parametrize("name", ["wgmma-half-blocked", "wgmma-scaled", "wgmma-split"])
def test_a_stride_of_groups_that_share_a_product_is_gathered(host_unoptimized, name):
    conv = Conv(C=6, H=11, W=9, M=12, R=5, S=4, U=2, top=2, left=1, right=2, groups=6, bias=True)
    assert_exact(host_unoptimized, BoundRung(RUNGS[name], conv, RUNGS[name].resolve(conv, {}, 3)), 3)


@pytest.mark.parametrize("rows, columns, planes", [(8, 1, 1), (4, 2, 4), (2, 8, 2)])
@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.family == "depthwise"], ids=lambda rung: rung.name)
def test_strips_that_small_layers_do_not_have_by_default(host_unoptimized, rung, rows, columns, planes):
    conv = Conv(C=6, H=13, W=14, M=12, R=5, S=4, U=2, groups=6)
    chosen = rung.resolve(conv, {"TILE_ROWS": rows, "TILE_COLUMNS": columns, "PLANES": planes}, 2)
    assert_exact(host_unoptimized, BoundRung(rung, conv, chosen), 2)


def test_windows_in_place_need_a_block_for_each_tile_of_filters():
    rung, conv = RUNGS["wgmma-window-in-place"], Conv(C=8, H=9, W=9, M=96, R=3, S=3)
    for blocks, refused in ((3, None), (2, "3 tiles of filters for 2 blocks")):
        assert (
            rung.refuses(Problem(conv, 1, rung.resolve(conv, {"TILE_FILTERS": 32, "GRID_BLOCKS": blocks}))) == refused
        )


@pytest.mark.parametrize("rung", [rung for rung in LADDER if not rung.takes], ids=lambda rung: rung.name)
def test_a_rung_refuses_what_it_does_not_take(rung):
    for conv in (
        Conv(C=8, H=9, W=9, M=8, R=3, S=3, left=1),
        Conv(C=8, H=9, W=9, M=8, R=3, S=3, U=1, V=2),
        Conv(C=8, H=9, W=9, M=8, R=3, S=3, dilation_rows=2),
        Conv(C=8, H=9, W=9, M=8, R=3, S=3, groups=2),
        Conv(C=8, H=9, W=9, M=8, R=3, S=3, bias=True),
        Conv(C=8, H=9, W=9, M=8, R=3, S=3, relu=True),
    ):
        assert rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))) == f"takes no {conv.features[0]}"


@pytest.mark.parametrize("rung", [rung for rung in HOST_RUNGS if not rung.order_varies], ids=lambda rung: rung.name)
def test_the_order_of_threads_changes_nothing(rung):
    conv, chosen = small_layer(rung), {"CHANNELS": 2} if rung.family == "multi" else {"CHANNELS_SHARED": 6}  # in turn
    x, w = (np.random.default_rng(0).uniform(-1, 1, shape) for shape in (conv.x_shape(2), conv.w_shape()))
    cut = whole(rung, conv, 2, **chosen)
    hosts = (choose_executor("host", host_order=order, host_build="unoptimized") for order in ORDERS)
    outputs = [run_once(host, x, w, cut) for host in hosts]
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0], other)


# A planted bug: a rung, a text in its file or a header, and the replacement.
BUGS = {
    "dropped tap": ("direct-register", "r < R;", "r < R - (blockIdx.y == 0);"),
    "dropped channel": ("channels", "end_channel(); ++c", "end_channel() - (blockIdx.z == 1); ++c"),
    "off by one": ("direct-register", "+ f * U + s]", "+ f * U + s + 1]"),
    "wrong filter": ("channels", "w += (size_t)m * C", "w += (size_t)(m ^ 1) * C"),
    "unwritten output": ("direct-register", "if (e < E && f < F) body(e, f);", "if (e < E && f && f < F) body(e, f);"),
    "NaN": ("direct-register", "float sum = 0;", "float sum = blockIdx.y == 1 ? NAN : 0;"),
    "missing barrier": ("direct-filter-shared", "__syncthreads();", ""),
    "missing second barrier": ("channels-plane-shared", "if (c > first) __syncthreads();", ""),
    "lost slice": ("channels", "slice < SLICES;", "slice < SLICES - 1;"),
}


READS_BEYOND = {"off by one"}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_caught_by_both_checks(host, tmp_path, bug):
    rung = planted(*BUGS[bug], tmp_path)
    layer = Layer(LayerData("alexnet", 3, WORKLOADS["alexnet"].layer(3)), 1)
    chosen = {"CHANNELS": 2}
    y = run_or_fault(host, layer.x, layer.w, whole(rung, layer.conv, 1, **chosen), bug)
    assert y is None or not layer.error(y).passes(PRECISIONS[rung.precision].tolerance(layer.conv.K))
    conv = Conv(C=5, H=9, W=8, M=4, R=3, S=2)
    x, w = exact_inputs(conv, 2, PRECISIONS[rung.precision], seed=2)
    y = run_or_fault(host, x, w, whole(rung, conv, 2, **chosen), bug)
    assert y is None or not np.array_equal(y, reference(conv, x, w))


def run_or_fault(host, x: np.ndarray, w: np.ndarray, cut: Plan, bug: str) -> np.ndarray | None:
    """The outputs; None where a bug that reads beyond the array ends in a fault."""
    try:
        return run_once(host, x, w, cut)
    except LaunchError:
        assert bug in READS_BEYOND
        return None


UNDER_ASAN = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
from rung_runs import assert_exact, small_layer, whole
from alexconv.errors import AlexconvError
from alexconv.executors import choose_executor
from alexconv.executors.host.runtime import asan_environment
from alexconv.kernels.ladder import RUNGS
host, failures = choose_executor("host", host_build="asan"), {{}}
for name in sys.argv[1:]:
    try:
        assert_exact(host, whole(RUNGS[name], small_layer(RUNGS[name]), 2).bound, 2)
    except (AlexconvError, AssertionError) as error:
        failures[name] = str(error)
print(json.dumps(failures))
"""
SHARES = 3  # of the rungs, each in a process with AddressSanitizer's library


@needs_asan
@pytest.mark.long
@pytest.mark.parametrize("share", in_turn(range(SHARES), place=0))
def test_rungs_are_clean_under_address_sanitizer(share):
    names = [rung.name for rung in HOST_RUNGS[share::SHARES]]
    command, environment = [sys.executable, "-c", UNDER_ASAN, *names], {**os.environ, **asan_environment()}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


def test_the_rung_that_the_guide_adds_computes_what_it_should_and_auto_knows_it(host, tmp_path, monkeypatch):
    guide = (Path(__file__).parent.parent.parent / "docs" / "adding-a-rung.md").read_text()
    (cuda,), (entry,) = (re.findall(rf"```{language}\n(.*?)```", guide, re.DOTALL) for language in ("cuda", "python"))
    rung = eval(entry, {**vars(single)})
    assert rung.name not in RUNGS
    assert cuda.startswith(f"// {rung.name}: ")
    assert all(f"\n// {title}: " in cuda for title in ("Technique", "Read next", "Run"))
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (tmp_path / rung.file).write_text(cuda)
    rung = replace(rung, file=str(tmp_path / rung.file))
    for conv in (Conv(C=3, H=23, W=19, M=5, R=4, S=3, U=2), Conv(C=5, H=9, W=40, M=4, R=3, S=3)):
        assert_exact(host, whole(rung, conv, 2).bound, 2)
    monkeypatch.setattr(host, "measures", True)

    def order(entry: Rung) -> list[str]:
        """What ``auto`` would try on a GPU, first to last, if the ladder ended with this entry."""
        ladder = Ladder((*LADDER, entry))
        preferred = auto.preferences(host, WORKLOADS["alexnet"].layer(2), 128, entry.precision, ladder)
        return [bound.rung.name for bound in preferred]

    known, unknown = order(rung), order(replace(rung, time=None))
    assert known.index("igemm-async") < known.index(rung.name) < known.index("direct-any")
    assert all(RUNGS[name].time for name in unknown[: unknown.index(rung.name)]), "without a time it comes last"
    assert order(replace(rung, time=on_cuda_cores(rate=1e6)))[0] == rung.name
