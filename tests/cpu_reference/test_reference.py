"""The CPU reference and its baselines against the definition of convolution; the command and its arguments."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from statistics import median
from subprocess import CompletedProcess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from processes import in_process

from alexconv import data, machine
from alexconv import reference as command
from alexconv.compiling.toolchain import CXX_VARIABLE, compiler_version, find_cxx
from alexconv.cpu_reference import baseline
from alexconv.cpu_reference import reference as reference_module
from alexconv.cpu_reference.baseline import Baseline, Conditions, blas_time, serial_time, within_float32_rounding
from alexconv.cpu_reference.reference import convolve, filter_norms, patch_norms, reference
from alexconv.cpu_reference.serial import compile_serial
from alexconv.errors import AlexconvError, CompileError, MissingTool, UsageError
from alexconv.paths import CACHE_VARIABLE
from alexconv.planning.points import parse_batches, parse_layers, workload_named
from alexconv.shapes import DGRAD, FORWARD, WGRAD, WORKLOADS, Conv

ALEXNET = WORKLOADS["alexnet"]
SMALL = Conv(C=3, H=9, W=11, M=4, R=3, S=2, U=2)
GENERAL = Conv(6, 9, 11, 4, 3, 2, 2, top=1, right=2, V=1, dilation_rows=2, dilation_columns=3, groups=2)

Arrays = tuple[NDArray[np.float32], NDArray[np.float32]]


def arrays(conv: Conv, N: int, seed: int = 0) -> Arrays:
    return data.images("test", 1, conv, 0, N, seed), data.filters("test", 1, conv, seed)


def patches(conv: Conv, x: NDArray[np.float32]) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
    """Each output's row and column, and the inputs ``[N][C][R][S]`` under it, one by one."""
    for e, f in np.ndindex(conv.E, conv.F):
        patch = np.zeros((len(x), conv.C, conv.R, conv.S))
        for r, s in np.ndindex(conv.R, conv.S):
            h = e * conv.U + r * conv.dilation_rows - conv.top
            w = f * (conv.V or conv.U) + s * conv.dilation_columns - conv.left
            if 0 <= h < conv.H and 0 <= w < conv.W:
                patch[:, :, r, s] = x[:, :, h, w]
        yield e, f, patch


def by_definition(
    conv: Conv, x: NDArray[np.float32], w: NDArray[np.float32], bias: NDArray[np.float32] | None = None
) -> NDArray[np.float64]:
    y = np.zeros(conv.y_shape(len(x)))
    C, M = conv.C // conv.groups, conv.M // conv.groups
    for e, f, patch in patches(conv, x):
        for m in range(conv.M):
            first = m // M * C
            y[:, m, e, f] = np.einsum("ncrs,crs->n", patch[:, first : first + C], w[m].astype(np.float64))
    y += 0 if bias is None else bias[:, None, None]
    return np.maximum(y, 0) if conv.relu else y


@st.composite
def convs(draw: st.DrawFn) -> Conv:
    size = st.integers(1, 5)
    R, S = draw(size), draw(size)
    H, W = R + draw(st.integers(0, 9)), S + draw(st.integers(0, 9))
    return Conv(C=draw(size), H=H, W=W, M=draw(size), R=R, S=S, U=draw(st.integers(1, 4)))


@given(conv=convs(), N=st.integers(0, 5), seed=st.integers(0, 2**70))
@settings(max_examples=60, deadline=None)
def test_reference_is_the_definition_on_odd_shapes(conv: Conv, N: int, seed: int) -> None:
    x, w = arrays(conv, N, seed)
    y = reference(conv, x, w)
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, by_definition(conv, x, w), rtol=2.0**-23, atol=1e-13)


@st.composite
def network_convs(draw: st.DrawFn) -> Conv:
    groups, few, sides = draw(st.integers(1, 3)), st.integers(1, 3), st.integers(0, 3)
    R, S, apart, columns_apart = draw(few), draw(few), draw(few), draw(few)
    top, bottom, left, right = draw(sides), draw(sides), draw(sides), draw(sides)
    H = draw(st.integers(max(1, (R - 1) * apart + 1 - top - bottom), 11))
    W = draw(st.integers(max(1, (S - 1) * columns_apart + 1 - left - right), 11))
    C, M = groups * draw(few), groups * draw(few)
    apart_both = {"dilation_rows": apart, "dilation_columns": columns_apart}
    around = {"top": top, "bottom": bottom, "left": left, "right": right}
    more = {"groups": groups, "bias": draw(st.booleans()), "relu": draw(st.booleans())}
    return Conv(C, H, W, M, R, S, draw(few), V=draw(sides), **around, **apart_both, **more)


@given(conv=network_convs(), N=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_reference_is_the_definition_for_all_that_networks_have(conv: Conv, N: int) -> None:
    (x, w), bias = arrays(conv, N), data.biases("test", 1, conv) if conv.bias else None
    np.testing.assert_allclose(reference(conv, x, w, bias), by_definition(conv, x, w, bias), rtol=2.0**-23, atol=1e-13)
    norms = np.broadcast_to(
        patch_norms(conv, x)[:, None] if conv.groups == 1 else patch_norms(conv, x), (N, conv.M, conv.E, conv.F)
    )
    C, M = conv.C // conv.groups, conv.M // conv.groups
    for e, f, patch in patches(conv, x):
        for m in range(conv.M):
            values = patch[:, m // M * C :][:, :C].reshape(N, conv.K)
            np.testing.assert_allclose(norms[:, m, e, f], np.sqrt((values**2).sum(axis=1) + conv.bias), rtol=1e-6)


def test_relu_keeps_nan() -> None:
    conv = Conv(C=1, H=1, W=3, M=1, R=1, S=1, bias=True, relu=True)
    x, w = np.array([np.nan, -1, 2], np.float32).reshape(conv.x_shape(1)), np.ones(conv.w_shape(), np.float32)
    np.testing.assert_array_equal(reference(conv, x, w, np.array([-1], np.float32)).ravel(), [np.nan, 0, 1])


def test_a_layer_without_new_features_is_described_as_before() -> None:
    conv = WORKLOADS["alexnet"].layer(2)
    assert conv.facts() == {"C": 96, "H": 31, "W": 31, "M": 256, "R": 5, "S": 5, "U": 1, "pad": 2}
    padded = Conv(C=96, H=27, W=27, M=256, R=5, S=5, top=2, bottom=2, left=2, right=2)
    assert padded.with_border() == replace(conv, pad=0)
    assert padded.facts() == {
        **padded.with_border().facts(),
        "H": 27,
        "W": 27,
        "top": 2,
        "bottom": 2,
        "left": 2,
        "right": 2,
    }


@pytest.mark.parametrize("tile_columns", [1, 7, 64, 10_000])
@pytest.mark.parametrize("workers, unrolled", [(1, 1 << 20), (3, 1 << 20), (3, 1)], ids=str)
def test_every_tiling_gives_the_definition(
    tile_columns: int, workers: int, unrolled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference_module, "_TILE_COLUMNS", tile_columns)
    monkeypatch.setattr(reference_module, "_UNROLLED_ELEMENTS", unrolled)  # of 1: a channel at a time
    monkeypatch.setattr(reference_module, "_TILE_ELEMENTS", 1)
    monkeypatch.setattr(reference_module, "cores", lambda: workers)
    conv = Conv(C=2, H=16, W=13, M=5, R=4, S=3)
    x, w = arrays(conv, 7)
    np.testing.assert_allclose(reference(conv, x, w), by_definition(conv, x, w), rtol=2.0**-23, atol=1e-13)


def test_sums_are_exact_where_float32_sums_are_not() -> None:
    conv = Conv(C=3, H=1, W=1, M=1, R=1, S=1)
    x = np.array([2.0**24, 1, -(2.0**24)], np.float32).reshape(conv.x_shape(1))
    w = np.ones(conv.w_shape(), np.float32)
    assert reference(conv, x, w) == 1


def test_whole_numbers_are_exact_in_both_precisions() -> None:
    generator = np.random.default_rng(0)
    x = generator.integers(-4, 5, SMALL.x_shape(3)).astype(np.float32)
    w = generator.integers(-4, 5, SMALL.w_shape()).astype(np.float32)
    exact = by_definition(SMALL, x, w)
    np.testing.assert_array_equal(reference(SMALL, x, w), exact)
    np.testing.assert_array_equal(convolve(SMALL, x, w, np.float32), exact)


def test_an_image_is_the_same_in_every_batch() -> None:
    conv = ALEXNET.layer(3)
    w = data.filters("alexnet", 3, conv)
    one = reference(conv, data.images("alexnet", 3, conv, 4, 5), w)
    many = reference(conv, data.images("alexnet", 3, conv, 0, 9), w)
    np.testing.assert_array_max_ulp(one[0], many[4], 1)


def test_arrays_that_do_not_fit_are_refused() -> None:
    x, w = arrays(SMALL, 2)
    with pytest.raises(ValueError, match="do not fit"):
        reference(SMALL, x[:, :, :-1], w)
    with pytest.raises(ValueError, match="do not fit"):
        reference(SMALL, x, w[:-1])


@given(conv=convs(), N=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_norms_are_those_of_each_patch_and_filter(conv: Conv, N: int) -> None:
    x, w = arrays(conv, N)
    norms = patch_norms(conv, x)
    expected = np.empty((N, conv.E, conv.F))
    for n, e, f in np.ndindex(expected.shape):
        patch = x[n, :, e * conv.U : e * conv.U + conv.R, f * conv.U : f * conv.U + conv.S]
        expected[n, e, f] = np.linalg.norm(patch.astype(np.float64))
    np.testing.assert_allclose(norms, expected, rtol=1e-6)
    np.testing.assert_allclose(filter_norms(w), [np.linalg.norm(one.astype(np.float64)) for one in w], rtol=1e-12)


@pytest.mark.parametrize("reach", [0, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_norms_of_an_image_do_not_depend_on_those_beside_it(monkeypatch, groups: int, reach: int) -> None:
    conv = Conv(C=4, H=9, W=8, M=6, R=3, S=2, groups=groups)
    x, _ = arrays(conv, 7)
    alone = np.concatenate([patch_norms(conv, image[None], reach) for image in x])
    for elements in (1, 3 * x[0].size, 1 << 30):  # one image at a time, three, and all
        monkeypatch.setattr("alexconv.cpu_reference.reference._NORM_ELEMENTS", elements)
        np.testing.assert_array_equal(patch_norms(conv, x, reach), alone)


@pytest.mark.parametrize("conv", [SMALL, Conv(C=1, H=5, W=7, M=2, R=5, S=1), ALEXNET.layer(5), GENERAL])
def test_serial_convolution_is_the_reference_within_rounding(conv: Conv) -> None:
    x, w = arrays(conv, 1)
    y = compile_serial(find_cxx())(conv, x, w)
    assert within_float32_rounding(conv, x, w, y)
    y.flat[-1] += 0.05  # a dropped product changes an output by a third on average
    assert not within_float32_rounding(conv, x, w, y)
    y.flat[-1] = np.nan
    assert not within_float32_rounding(conv, x, w, y)


def test_each_image_of_a_layer_with_groups_has_its_own_bound() -> None:
    x, w = arrays(GENERAL, 3)
    x[1] *= np.float32(2.0**20)
    y = convolve(GENERAL, x, w, np.float32)
    assert within_float32_rounding(GENERAL, x, w, y)
    y[0, 0, 0, 0] += np.float32(0.05)
    assert not within_float32_rounding(GENERAL, x, w, y)


def test_serial_convolution_refuses_arrays_that_do_not_fit() -> None:
    x, w = arrays(SMALL, 2)
    with pytest.raises(ValueError, match="do not fit"):
        compile_serial(find_cxx())(SMALL, x, w[:, :-1])


def test_serial_convolution_refuses_what_it_does_not_compute() -> None:
    with_bias = replace(SMALL, bias=True)
    x, w = arrays(with_bias, 2)
    with pytest.raises(ValueError, match="no bias, activation or gradient"):
        compile_serial(find_cxx())(with_bias, x, w)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("time", [serial_time, blas_time])
@pytest.mark.parametrize(
    "conv", [GENERAL, replace(GENERAL, bias=True, relu=True), SMALL.toward(DGRAD), SMALL.toward(WGRAD)]
)
def test_every_layer_has_baselines(time: type, conv: Conv) -> None:
    assert time("test", 1, conv).conditions.conv == conv.alone().toward(FORWARD)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("time", [serial_time, blas_time])
def test_baselines_are_measured_once_and_say_when_they_are_scaled(time: type, monkeypatch: pytest.MonkeyPatch) -> None:
    first = time("test", 1, SMALL)
    assert len(first.samples_ms) >= 3
    monkeypatch.setattr(baseline, "_measure", lambda *_: pytest.fail("measured again"))
    assert time("test", 1, SMALL) == first
    same, other = first.for_batch(first.images_timed), first.for_batch(3 * first.images_timed)
    assert same.scaled_from is None
    assert other.scaled_from == first.images_timed
    assert other.ms == pytest.approx(3 * same.ms)


@pytest.mark.usefixtures("cache")
def test_of_a_large_layer_some_filters_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "_MOST_MACS", SMALL.macs(1) * 0.6)
    monkeypatch.setattr(baseline, "_SERIAL_MACS", 1)
    assert baseline.some_filters(SMALL) == replace(SMALL, M=2)
    assert baseline.some_filters(GENERAL) == replace(GENERAL, M=2), "one of each group, where fewer would be none"
    some = serial_time("test", 1, SMALL)
    assert some.images_timed == 0.5
    assert some.for_batch(3).ms == pytest.approx(6 * median(some.samples_ms))
    assert some.for_batch(1).scaled_from == 0.5


@pytest.mark.parametrize(("times", "taken"), [((4.0, 4.02, 4.01, 9.0, 9.0), 3), ((4.0, 4.02, 5.0, 4.0, 4.0, 4.0), 5)])
def test_a_baseline_stops_when_its_first_samples_agree(
    times: tuple[float, ...], taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([moment for ms in accumulate(times, initial=0.0) for moment in (ms / 1e3, ms / 1e3)][1:])
    monkeypatch.setattr(baseline, "perf_counter", lambda: next(now))
    conditions = Conditions("serial C++", "machine", "cpu", "tool", "source", "test", 1, SMALL)
    assert baseline._measure(reference, conditions, SMALL, 2) == pytest.approx(times[:taken])


def test_a_baseline_is_the_median_sample() -> None:
    conditions = Conditions("serial C++", "machine", "cpu", "tool", "source", "test", 1, SMALL)
    assert Baseline(conditions, 2, (4.0, 100.0, 6.0)).ms_per_image == 3


@pytest.mark.parametrize("damage", ["", "{}", "[1]", "null", '{"conditions": 1}'])
def test_a_damaged_baseline_is_noticed_and_measured_again(cache: Path, damage: str) -> None:
    lines: list[str] = []
    blas_time("test", 1, SMALL, say=lines.append)
    (file,) = (cache / "baseline").glob("*.json")
    file.write_text(damage)
    blas_time("test", 1, SMALL, say=lines.append)
    assert len(lines) == 1
    assert "damaged" in lines[0]
    assert json.loads(file.read_text())["images_timed"] >= 1


def test_a_baseline_of_other_code_or_shape_is_not_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blas_time("test", 1, SMALL)
    blas_time("test", 1, Conv(C=1, H=4, W=4, M=1, R=2, S=2))
    monkeypatch.setattr(baseline, "machine_name", lambda: "another machine")
    blas_time("test", 1, SMALL)
    assert len(list((cache / "baseline").glob("*.json"))) == 3


@pytest.mark.usefixtures("cache")
def test_a_wrong_baseline_gets_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "convolve", lambda conv, x, w, dtype: np.zeros(conv.y_shape(len(x)), np.float32))
    with pytest.raises(AlexconvError, match="wrong output"):
        blas_time("test", 1, SMALL)


def test_a_missing_or_failing_compiler_is_one_line(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CXX_VARIABLE, "no-such-compiler")
    with pytest.raises(MissingTool, match="no-such-compiler"):
        serial_time("test", 1, SMALL)
    monkeypatch.delenv(CXX_VARIABLE)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="no C\\+\\+ compiler"):
        find_cxx()
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho 'serial.cpp:1:1: error: broken' >&2\nexit 1\n")
    broken.chmod(0o755)
    assert find_cxx() == str(broken)
    with pytest.raises(MissingTool, match="does not run"):
        compiler_version(str(broken))
    with pytest.raises(CompileError, match="error: broken"):
        compile_serial(str(broken))
    assert not list(cache.rglob("*.json"))


@pytest.mark.parametrize(
    ("text", "layers"), [("1-5", (1, 2, 3, 4, 5)), ("1,3", (1, 3)), ("2-4,5,2", (2, 3, 4, 5)), ("all", (1, 2, 3, 4, 5))]
)
def test_layer_lists(text: str, layers: tuple[int, ...]) -> None:
    assert parse_layers(text, ALEXNET) == layers


@pytest.mark.parametrize("text", ["", "0", "6", "1-6", "3-1", "one", "1,,2", "-1", "1-", "1.5"])
def test_unknown_layers_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="1 to 5"):
        parse_layers(text, ALEXNET)


@pytest.mark.parametrize(
    ("text", "batches"),
    [("1,32,128", (1, 32, 128)), ("256:2048:x2", (256, 512, 1024, 2048)), ("1,1:9:x3", (1, 3, 9)), ("5:9:x2", (5,))],
)
def test_batch_lists(text: str, batches: tuple[int, ...]) -> None:
    assert parse_batches(text) == batches


@pytest.mark.parametrize("text", ["", "0", "-1", "1,0", "many", "4:2:x2", "1:8:x1", "1:8:x0", "0:8:x2", "1:8", "1e3"])
def test_invalid_batch_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="whole numbers from 1"):
        parse_batches(text)


def test_an_unknown_workload_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"choose from alexnet, .*lenet-72-k7"):
        workload_named("vgg")


@pytest.fixture
def run_command(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CompletedProcess[str]]:
    """The command in this process, with a rate of dgemm that is measured on small matrices."""
    monkeypatch.setattr(machine, "_SQUARE", 100)
    return partial(in_process, command.main)


@pytest.mark.parametrize(
    "arguments", [["--layers", "7"], ["--N", "0"], ["--N=-3"], ["--N", "x"], ["--workload", "vgg"]], ids=str
)
def test_bad_usage_is_one_line_and_status_2(
    run_command: Callable[..., CompletedProcess[str]], arguments: list[str]
) -> None:
    answer = run_command(*arguments)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert answer.stderr.startswith("error: ")
    assert answer.stderr.count("\n") == 1


def test_a_cache_folder_that_cannot_be_made_is_one_line_and_status_2(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = [sys.executable, "-m", "alexconv.reference", "--workload", "lenet-86-k7", "--N", "1"]
    environment = {**os.environ, CACHE_VARIABLE: str(tmp_path / "file" / "cache")}
    answer = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr.startswith("error: cannot create the cache folder")
    assert answer.stderr.count("\n") == 1


def test_the_command_builds_then_checks_and_says_what_it_rebuilds(
    cache: Path, run_command: Callable[..., CompletedProcess[str]]
) -> None:
    arguments = ["--workload", "lenet-86-k7", "--layers", "1-2", "--N", "1,3"]
    built = run_command(*arguments)
    assert (built.returncode, built.stderr) == (0, "")
    assert [line.split()[:3] for line in built.stdout.splitlines()[1:4]] == [
        ["1", "3", "3"],
        ["2", "3", "3"],
        ["all", "3", "6"],
    ]
    file = min(cache.rglob("*.h5"))
    contents = bytearray(file.read_bytes())
    contents[len(contents) // 2] ^= 0x10
    file.write_bytes(contents)
    checked = run_command(*arguments, "--check")
    assert checked.returncode == 0
    assert checked.stderr.count("\n") == 1
    assert str(file) in checked.stderr
    assert run_command(*arguments, "--check").stderr == ""
