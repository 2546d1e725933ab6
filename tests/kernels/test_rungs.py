"""Every rung on the host executor: against the cached reference, exactly on integers, and with planted bugs.

Sources are the ladder's own.  Tests of every rung name none, so a new one is tested as soon as it is in the ladder.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compilers import needs_asan
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from rung_runs import run_once, whole

from alexconv.compiling.sources import source_files
from alexconv.cpu_reference.reference import reference
from alexconv.errors import LaunchError
from alexconv.executors import choose_executor
from alexconv.executors.interface import open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import H200, Problem
from alexconv.kernels.rung import FOLDER, MICRO_BATCH, Rung
from alexconv.kernels.single import ladder as single
from alexconv.measuring.runner import Layer, Runner, Settings
from alexconv.planning.checks import PRECISIONS, exact_bias, exact_inputs
from alexconv.planning.planner import Plan
from alexconv.planning.points import Point
from alexconv.planning.transfers import TRANSFERS
from alexconv.shapes import WORKLOADS, Conv

HOST_RUNGS = [rung for rung in LADDER if not rung.gpu_only]
AT_A_TIME = [rung for rung in LADDER if MICRO_BATCH in {constant.name for constant in rung.constants}]
ORDERS = (0, 1, 7, 8, 9)  # forward, reverse, three random orders of a block's threads


@pytest.fixture(scope="module")
def host():
    return choose_executor("host")


@pytest.mark.parametrize("layer", range(1, 6))
@pytest.mark.parametrize("rung", HOST_RUNGS, ids=lambda rung: rung.name)
def test_alexnet_layer_against_the_cached_reference(host, rung, layer):
    conv = WORKLOADS["alexnet"].layer(layer)
    point = Point("alexnet", layer, 1, rung.name, "pageable", rung.precision, rung.resolve(conv, {}))
    record = Runner(host, [point], Settings(baseline=False)).record(point)
    if reason := rung.refuses(Problem(conv, 1, point.constants)):
        assert (record["status"], record["reason"]) == ("skipped", reason)
        return
    assert record["status"] == "ok", record["reason"]
    assert 0 < record["error"]["scaled"] <= record["error"]["tolerance"]
    assert "samples" not in record or not record["samples"]


@pytest.mark.parametrize("rung", AT_A_TIME, ids=lambda rung: rung.name)
def test_micro_batches_come_out_as_the_whole_batch(host, rung):
    conv = Conv(C=3, H=11, W=11, M=5, R=3, S=3)
    x, w = exact_inputs(conv, 70, PRECISIONS[rung.precision], seed=4)
    cut = whole(rung, conv, 70, MICRO_BATCH=32)
    assert len(cut.bound.micro_batches(70)) == 3
    y = run_once(host, x, w, cut)
    np.testing.assert_array_equal(y.astype(np.float32), reference(conv, x, w))


@st.composite
def odd_convolutions(draw) -> Conv:
    R, S, U = draw(st.integers(1, 5)), draw(st.integers(1, 5)), draw(st.sampled_from((1, 1, 2, 3)))
    H, W = R + draw(st.integers(0, 14)), S + draw(st.integers(0, 14))
    C = draw(st.integers(1, 5) | st.sampled_from((8, 16)))  # some rungs take multiples of eight only
    return Conv(C=C, H=H, W=W, M=draw(st.integers(1, 4)), R=R, S=S, U=U)


@pytest.mark.parametrize("rung", HOST_RUNGS, ids=lambda rung: rung.name)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(conv=odd_convolutions(), N=st.integers(1, 3), data=st.data())
def test_integers_come_out_exactly_on_odd_shapes(host, rung, conv, N, data):
    chosen = {
        constant.name: data.draw(st.sampled_from(constant.choices) if constant.choices else st.integers(1, 3))
        for constant in rung.constants
        if data.draw(st.booleans())
    }
    constants = rung.resolve(conv, chosen)
    assume(rung.refuses(Problem(conv, 1, constants)) is None)  # if it refused all examples, the test would fail
    images = data.draw(st.integers(1, N))
    bound = BoundRung(rung, conv, constants)
    cut = Plan(bound, N, images, bound.device_bytes(images))
    x, w = exact_inputs(conv, N, PRECISIONS[rung.precision], seed=1)
    y = run_once(host, x, w, cut)
    np.testing.assert_array_equal(y.astype(np.float32), reference(conv, x, w))


@st.composite
def network_convolutions(draw, takes: Container[str]) -> Conv:
    """A layer with those of padding, stride pairs, dilation, groups, bias and ReLU that a rung takes."""

    def drawn(feature: str, values: st.SearchStrategy[int], otherwise: int) -> int:
        return draw(values) if feature in takes else otherwise

    R, S, U = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.sampled_from((1, 1, 2, 4)))
    top, bottom, left, right = (drawn("padding", st.integers(0, 4), 0) for _ in range(4))
    apart, columns_apart = (drawn("dilation", st.integers(1, 3), 1) for _ in range(2))
    groups, V = drawn("groups", st.integers(1, 3), 1), drawn("stride pairs", st.integers(0, 3), 0)
    H = max(1, (R - 1) * apart + 1 - top - bottom) + draw(st.integers(0, 9))
    W = max(1, (S - 1) * columns_apart + 1 - left - right) + draw(st.integers(0, 9))
    C = groups * draw(st.integers(1, 4) | st.sampled_from((8, 24, 64)))
    M = groups * draw(st.integers(1, 9))
    around = {"top": top, "bottom": bottom, "left": left, "right": right}
    more = {"dilation_rows": apart, "dilation_columns": columns_apart, "groups": groups}
    ends = {"bias": "bias" in takes and draw(st.booleans()), "relu": "ReLU" in takes and draw(st.booleans())}
    return Conv(C, H, W, M, R, S, U, V=V, **around, **more, **ends)


@pytest.mark.parametrize("rung", [rung for rung in HOST_RUNGS if rung.takes], ids=lambda rung: rung.name)
@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(data=st.data(), N=st.integers(1, 3))
def test_integers_come_out_exactly_with_what_networks_have(host, rung, data, N):
    conv = data.draw(network_convolutions(rung.takes))
    few = replace(H200, multiprocessors=3)
    constants = rung.resolve(conv, {}, N, few)
    assume(rung.refuses(Problem(conv, 1, constants, few)) is None)  # if it refused all examples, the test would fail
    bound = BoundRung(rung, conv, constants, few)
    (x, w), bias = exact_inputs(conv, N, PRECISIONS[rung.precision], seed=1), exact_bias(conv, seed=1)
    with open_rung(host, Plan(bound, N, N, bound.device_bytes(N)), x, w, TRANSFERS["pageable"], bias) as opened:
        np.testing.assert_array_equal(opened.outputs().astype(np.float32), reference(conv, x, w, bias))


@pytest.mark.parametrize(
    ("name", "splits"),
    [("wgmma-half-split-k", 1), ("wgmma-half-split-k", 3), ("wgmma-floats", 1), ("wgmma-floats-split", 3)],
)
def test_tiles_of_a_single_warpgroup(host, name, splits):
    """Several tiles and several rounds of the pipeline per block; the first round loads filters ahead of pixels."""
    rung, few = RUNGS[name], replace(H200, multiprocessors=2)
    conv = Conv(C=64, H=9, W=9, M=72, R=2, S=2, left=1)
    constants = rung.resolve(conv, {"TILE_PIXELS": 64, "TILE_FILTERS": 64, "STAGES": 3, "SPLITS": splits}, 2, few)
    bound = BoundRung(rung, conv, constants, few)
    assert bound.refusal() is None and bound.launches(2)[0].block == (256, 1, 1)
    x, w = exact_inputs(conv, 2, PRECISIONS[rung.precision], seed=1)
    y = run_once(host, x, w, Plan(bound, 2, 2, bound.device_bytes(2)))
    np.testing.assert_array_equal(y.astype(np.float32), reference(conv, x, w))


@pytest.mark.parametrize(("filters", "splits"), [(32, 1), (160, 3)])
def test_partial_stages_are_multiplied_as_whole_ones(host, filters, splits):
    rung, few = RUNGS["wgmma-half-whole"], replace(H200, multiprocessors=2)
    conv = Conv(C=72, H=9, W=9, M=168, R=2, S=2, left=1)
    constants = rung.resolve(conv, {"TILE_PIXELS": 64, "TILE_FILTERS": filters, "STAGES": 3, "SPLITS": splits}, 1, few)
    bound = BoundRung(rung, conv, constants, few)
    assert bound.refusal() is None
    x, w = exact_inputs(conv, 1, PRECISIONS[rung.precision], seed=1)
    y = run_once(host, x, w, Plan(bound, 1, 1, bound.device_bytes(1)))
    np.testing.assert_array_equal(y.astype(np.float32), reference(conv, x, w))


@pytest.mark.parametrize(
    ("channels", "pixels", "filters", "blocks"),
    [(24, 128, 64, 3), (24, 256, 32, 5), (24, 128, 96, 4), (72, 128, 32, 3)],
)
def test_windows_in_place(host, channels, pixels, filters, blocks):
    """Filter tiles of one block and of several, tiles at the end of an image, boxes beyond its last row, slices."""
    rung = RUNGS["wgmma-window-in-place"]
    conv = Conv(C=channels, H=11, W=8, M=72, R=5, S=4, top=2, bottom=1, left=1, right=2)
    constants = rung.resolve(
        conv, {"TILE_PIXELS": pixels, "TILE_FILTERS": filters, "STAGES": 2, "GRID_BLOCKS": blocks}, 3
    )
    bound = BoundRung(rung, conv, constants)
    assert bound.refusal() is None
    x, w = exact_inputs(conv, 3, PRECISIONS[rung.precision], seed=1)
    y = run_once(host, x, w, Plan(bound, 3, 3, bound.device_bytes(3)))
    np.testing.assert_array_equal(y.astype(np.float32), reference(conv, x, w))


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
    several = [Conv(C=channels, H=38, W=37, M=3, R=4, S=3) for channels in (5, 8)]
    conv = next(conv for conv in several if not rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))))
    x, w = (
        np.random.default_rng(0).uniform(-1, 1, conv.x_shape(2)),
        np.random.default_rng(1).uniform(-1, 1, conv.w_shape()),
    )
    outputs = [
        run_once(choose_executor("host", host_order=order), x, w, whole(rung, conv, 2, CHANNELS=2)) for order in ORDERS
    ]
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
    name, right, wrong = BUGS[bug]
    rung = RUNGS[name]
    found = 0
    for file in source_files(rung.path):
        found += right in file.read_text()
        copy = tmp_path / file.relative_to(FOLDER)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(file.read_text().replace(right, wrong))
    assert found, "no file of the rung has the text that this bug changes"
    planted = replace(rung, file=str(tmp_path / rung.file))
    layer = Layer("alexnet", 3, WORKLOADS["alexnet"].layer(3), 1, seed=0)
    chosen = {"CHANNELS": 2}
    y = run_or_fault(host, layer.x, layer.w, whole(planted, layer.conv, 1, **chosen), bug)
    assert y is None or not layer.error(y).passes(PRECISIONS[rung.precision].tolerance(layer.conv.K))
    conv = Conv(C=5, H=9, W=8, M=4, R=3, S=2)
    x, w = exact_inputs(conv, 2, PRECISIONS[rung.precision], seed=2)
    y = run_or_fault(host, x, w, whole(planted, conv, 2, **chosen), bug)
    assert y is None or not np.array_equal(y, reference(conv, x, w))


def run_or_fault(host, x: np.ndarray, w: np.ndarray, cut: Plan, bug: str) -> np.ndarray | None:
    """The outputs; None where a bug that reads beyond the array ends in a fault."""
    try:
        return run_once(host, x, w, cut)
    except LaunchError:
        assert bug in READS_BEYOND
        return None


def takes(rung: Rung, layer: int) -> bool:
    """Whether a rung computes a layer of AlexNet."""
    conv = WORKLOADS["alexnet"].layer(layer)
    return rung.refuses(Problem(conv, 1, rung.resolve(conv, {}))) is None


WGMMA = [rung for rung in LADDER if rung.family == "wgmma"]


@needs_asan
@pytest.mark.long
@pytest.mark.parametrize(
    "workload, layers, rungs",
    [
        ("lenet-86-k7", "1-2", [rung for rung in LADDER if rung not in WGMMA]),
        ("alexnet", "1-1", [rung for rung in WGMMA if takes(rung, 1)]),
        ("alexnet", "3-3", [rung for rung in WGMMA if takes(rung, 3) and not takes(rung, 1)]),
        ("convnet-benchmarks", "31-31", [rung for rung in WGMMA if not takes(rung, 3) and not takes(rung, 1)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_all_rungs_are_clean_under_address_sanitizer(tmp_path, workload, layers, rungs):
    names = ",".join(rung.name for rung in rungs)
    arguments = ["--workload", workload, "--layers", layers, "--rungs", names, "--N", "1", "--host-build", "asan"]
    arguments += ["--out", str(tmp_path / "r.jsonl")]
    command = [sys.executable, "-m", "alexconv.run", "--backend", "host", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    first, last = map(int, layers.split("-"))
    assert len(records) == (last - first + 1) * len(rungs), done.stderr
    assert [record["reason"] for record in records if record["status"] not in ("ok", "skipped")] == []
    assert {record["point"]["rung"] for record in records if record["status"] == "ok"} >= {
        rung.name for rung in rungs if not rung.gpu_only
    }


def test_the_rung_that_the_guide_adds_computes_what_it_should(host, tmp_path):
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
        x, w = exact_inputs(conv, 2, PRECISIONS[rung.precision], seed=3)
        np.testing.assert_array_equal(run_once(host, x, w, whole(rung, conv, 2)), reference(conv, x, w))
