"""The host executor: CUDA's features, limits and errors on the CPU, its compiled-library cache, AddressSanitizer."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from compilers import IS_CLANG, needs_asan, runs_here, wrapper
from numpy.lib.stride_tricks import sliding_window_view

from alexconv.errors import CompileError, LaunchError, MissingTool, OutOfMemory
from alexconv.executors.host import apart, runtime
from alexconv.executors.host.apart import end_of
from alexconv.executors.host.memory import GuardedBuffer
from alexconv.executors.host.runtime import MAX_STATIC_SHARED, HostRuntime, asan_environment
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import H200
from alexconv.shapes import Conv

KERNELS = Path(__file__).parent.parent / "sources"
ONE = (1, 1, 1)
ORDERS = (0, 1, 2, 3, 4)
ENTRIES = {
    "warps": ("sum", "shuffles", "votes", "exited"),
    "arithmetic": (
        *("halves", "conversions", "vectors", "atomics", "underflow", "bits", "functions"),
        *("wmma_float", "wmma_half", "wmma_misaligned"),
    ),
    "memory": (
        *("reversed", "reversed_without_barrier", "shifted_without_barrier"),
        *("weighted", "stale", "within_static_limit"),
    ),
    "waiting": (
        *("divergent", "divergent_on_one_line", "deadlock", "not_in_mask", "trap", "endless"),
        *("different_functions", "different_shuffles", "different_votes", "width_of_24"),
    ),
}


def module(name, order=0, workers=None):
    return HostRuntime(order=order, workers=workers).compile(KERNELS / f"{name}.cu", {}, ENTRIES[name])


def on_device(values, build="fast"):
    """A buffer with a copy of the values, and the array over it."""
    values = np.asarray(values)
    buffer = HostRuntime(build=build).allocate(values.nbytes)
    array = buffer.array(values.dtype, values.shape)
    array[...] = values
    return buffer, array


@pytest.fixture(scope="module")
def warps():
    return module("warps")


@pytest.fixture(scope="module")
def arithmetic():
    return module("arithmetic")


@pytest.fixture(scope="module")
def memory():
    return module("memory")


@pytest.fixture(scope="module")
def waiting():
    return module("waiting")


# ---- The ladder ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS[:3])
@pytest.mark.parametrize("conv", [Conv(3, 37, 75, M=5, R=3, S=5, U=2), Conv(7, 9, 8, M=3, R=1, S=4)], ids=str)
@pytest.mark.parametrize("name", ["direct", "direct-register", "channels"])
def test_rungs_compute_the_convolution(name, conv, order):
    N, rung = 2, RUNGS[name]
    constants = rung.resolve(conv, {})
    rng = np.random.default_rng(1)
    x, w = rng.uniform(-1, 1, conv.x_shape(N)).astype("f4"), rng.uniform(-1, 1, conv.w_shape()).astype("f4")
    executor = HostRuntime(order=order)
    bound = BoundRung(rung, conv, constants)
    compiled = executor.compile(rung.path, bound.macros, bound.entries())
    (x_buffer, _), (w_buffer, _) = on_device(x), on_device(w)
    y_buffer, y = on_device(np.full(conv.y_shape(N), np.nan, "f4"))
    scratch = {array.name: executor.allocate(bound.piece_bytes(N)[array.name]) for array in rung.scratch}
    buffers = {"x": x_buffer, "w": w_buffer, "y": y_buffer, **scratch}
    for launch in bound.launches(N):
        arguments = [buffers[name] for name in launch.args]
        compiled.launch(launch.entry, launch.grid, launch.block, launch.dynamic_shared, arguments)
    windows = sliding_window_view(x.astype("f8"), (conv.R, conv.S), axis=(2, 3))[:, :, :: conv.U, :: conv.U]
    expected = np.einsum("ncefrs,mcrs->nmef", windows, w.astype("f8"))
    np.testing.assert_allclose(y, expected, rtol=0, atol=conv.K * np.finfo("f4").eps)


# ---- What CUDA offers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ORDERS)
def test_shuffle_reduction(order):
    values = np.arange(512, dtype="i4") ** 2
    (x, _), (total, result) = on_device(values), on_device(np.zeros(1, "i4"))
    module("warps", order).launch("sum", ONE, (512, 1, 1), 0, [x, total])
    assert result[0] == values.sum()


def test_shuffles_pick_the_right_lane(warps):
    values = np.random.default_rng(0).random(32)
    (x, _), (y, result) = on_device(values), on_device(np.zeros((5, 32)))
    warps.launch("shuffles", ONE, (32, 1, 1), 0, [x, y])
    lane = np.arange(32)
    up, down = np.where(lane % 16 >= 3, lane - 3, lane), np.where(lane % 16 < 13, lane + 3, lane)
    expected = [np.full(32, 5), lane // 8 * 8 + (lane + 1) % 8, up, down, lane ^ 6]
    np.testing.assert_array_equal(result, values[np.array(expected)])


def test_votes(warps):
    y, result = on_device(np.zeros(7, "u4"))
    warps.launch("votes", ONE, (64, 1, 1), 0, [y])
    multiples_of_three = sum(1 << lane for lane in range(0, 32, 3))
    odd_lanes = sum(1 << lane for lane in range(1, 16, 2))
    assert result.tolist() == [multiples_of_three, 1, 0, odd_lanes, 10, 1, 1]


@pytest.mark.parametrize("order", ORDERS)
def test_exited_threads_are_not_waited_for(order):
    y, result = on_device(np.zeros(64, "i4"))
    module("warps", order).launch("exited", ONE, (64, 1, 1), 0, [y])
    thread = np.arange(64)
    lanes_left = np.where(thread < 32, 16, 5)
    expected = np.where(thread % 2, 1, np.where(thread > 40, 2, 2 + lanes_left))
    assert result.tolist() == expected.tolist()


def finite_halves(count, seed):
    bits = np.random.default_rng(seed).integers(0, 1 << 16, 2 * count).astype("u2")
    halves = bits.view("f2")
    return halves[np.isfinite(halves)][:count]


def same_halves(actual, expected):
    both_nan = np.isnan(actual) & np.isnan(expected)
    return np.all((actual.view("u2") == expected.view("u2")) | both_nan)


@np.errstate(all="ignore")
def test_every_half_operation_rounds_once(arithmetic):
    n = 200_000
    a, b, c = (finite_halves(n, seed) for seed in range(3))
    c[: n // 2] = (a * -b)[: n // 2]  # cancellation, where a second rounding would show
    c[~np.isfinite(c)] = 1
    a[-8:] = c[-8:] = [0, -0.0] * 4  # sums that are zero, of either sign
    c[-6:-2] = [-0.0, 0, 0, -0.0]
    (pa, _), (pb, _), (pc, _) = on_device(a), on_device(b), on_device(c)
    y, result = on_device(np.zeros((6, n), "f2"))
    arithmetic.launch("halves", (-(-n // 256), 1, 1), (256, 1, 1), 0, [pa, pb, pc, y, n])
    fused = (a.astype("f8") * b.astype("f8") + c.astype("f8")).astype("f2")
    other = (b.astype("f8") * c.astype("f8") + a.astype("f8")).astype("f2")
    first = (a.astype("f8") * c.astype("f8") + b.astype("f8")).astype("f2")
    for got, expected in zip(result, [a + b, a - b, a * b, a / b, fused, first + other], strict=True):
        assert same_halves(got, expected)


def test_double_rounds_to_half_directly(arithmetic):
    tie = 1 + 2.0**-11  # between two halves
    near_ties = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, -tie - 2.0**-40, 2.0**-25, 2.0**-25 * (1 + 2.0**-40)])
    values = np.concatenate([near_ties, np.random.default_rng(0).standard_normal(1000), [65519.999, 65520, np.inf, 0]])
    x, _ = on_device(values)
    buffers = [on_device(np.zeros(values.size, kind)) for kind in ("f2", "f2", "f4")]
    arithmetic.launch("conversions", (5, 1, 1), (256, 1, 1), 0, [x, *(buffer for buffer, _ in buffers), values.size])
    from_float, from_double, back = (array for _, array in buffers)
    with np.errstate(over="ignore"):
        assert same_halves(from_float, values.astype("f4").astype("f2"))
        assert same_halves(from_double, values.astype("f2"))
    np.testing.assert_array_equal(back, from_double.astype("f4"))


def test_vector_types_and_scalar_arguments(arithmetic):
    values = np.random.default_rng(0).standard_normal((64, 4)).astype("f4")
    (x, _), (y, result) = on_device(values), on_device(np.zeros((64, 2), "f4"))
    arithmetic.launch("vectors", ONE, (64, 1, 1), 0, [x, y, np.float32(0.5), np.int64(1 << 33)])
    left = np.maximum((values[:, 0] + values[:, 1]).astype("f8") * 0.5 + 1, 0).astype("f4")
    np.testing.assert_array_equal(result[:, 0], left)
    np.testing.assert_array_equal(result[:, 1], (values[:, 2] + values[:, 3]) + np.float32(1 << 33))


def test_atomics_lose_nothing_between_workers(arithmetic):
    blocks, threads = 500, 64
    count = blocks * threads
    arrays = [np.zeros(6, "i4"), np.zeros(1, "u4"), np.zeros(1, "f4"), np.zeros(1, "f8"), np.zeros(2, "f2")]
    buffers = [on_device(array) for array in arrays]
    arithmetic.launch("atomics", (blocks, 1, 1), (threads, 1, 1), 0, [buffer for buffer, _ in buffers])
    i, u, f, d, h = (array.tolist() for _, array in buffers)
    total = count * (count - 1) // 2
    assert i == [total - (total + 2**31) // 2**32 * 2**32, count - 1, 1 - count, 2**31 - 1, 7, 2 * count]
    assert (u, f, d, h) == ([count % 10], [count], [count / 2], [100, 200])


def test_atomics_in_global_memory_flush_subnormals(arithmetic):
    least = 2.0**-126
    a = np.array([0, 0, 1, least / 2, least / 2, 1.5 * least, -least, 1.5 * least, -1.5 * least, np.nan], "f4")
    b = np.array([0, least / 2, least / 2, 1, least / 2, -least, least / 2, least, least, least / 2], "f4")
    flushed = np.array([0, 0, 1, 1, 0, 0, -least, 2.5 * least, -0.0, np.nan], "f4")
    (pa, _), (pb, _), (y, result) = on_device(a), on_device(b), on_device(np.zeros((3, a.size), "f4"))
    arithmetic.launch("underflow", ONE, (a.size, 1, 1), a.nbytes, [pa, pb, y])
    np.testing.assert_array_equal(result, [flushed, a + b, a + b])
    assert np.signbit(result[0])[[0, 8]].tolist() == [False, True]


def test_integer_intrinsics(arithmetic):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 1 << 32, 64, dtype="u4") >> rng.integers(0, 32, 64, dtype="u4") for _ in range(2))
    a[:2] = 0, 0xFFFFFFFF
    (pa, _), (pb, _), (y, result) = on_device(a), on_device(b), on_device(np.zeros((9, 64), "u4"))
    arithmetic.launch("bits", ONE, (64, 1, 1), 0, [pa, pb, y])
    for i, (u, v) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        signed = ((u ^ 1 << 31) - (1 << 31)) * ((v ^ 1 << 31) - (1 << 31))
        both, of = v << 32 | u, (v << 32 | u).to_bytes(8, "little")
        permuted = int.from_bytes([of[5], of[0], of[7], of[2]], "little")
        counts = [u.bit_count(), 32 - u.bit_length(), (u & -u).bit_length(), int(f"{u:032b}"[::-1], 2)]
        products = [u * v >> 32, signed >> 32 & 0xFFFFFFFF]
        shifted = [both << 9 >> 32 & 0xFFFFFFFF, both >> 9 & 0xFFFFFFFF]
        assert result[:, i].tolist() == [*counts, *products, permuted, *shifted]


def test_float_intrinsics_round_as_they_say(arithmetic):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(512).astype("f4") * 3 for _ in range(2))
    a[:4] = 0.5, 1.5, -0.5, -2.5
    (pa, _), (pb, _), (y, result) = on_device(a), on_device(b), on_device(np.zeros((9, 512), "f4"))
    arithmetic.launch("functions", ONE, (512, 1, 1), 0, [pa, pb, y])
    fused = (a.astype("f8") * b + 1).astype("f4")
    expected = [fused, a * b + np.float32(1), np.rint(a), np.trunc(a), np.floor(a), np.clip(a, 0, 1)]
    np.testing.assert_array_equal(result[:6], np.array(expected))
    np.testing.assert_allclose(result[6], 1 / np.sqrt(np.abs(a)), rtol=3e-7)
    np.testing.assert_array_equal(result[7], np.abs(a))


def test_conversions_to_integers_end_at_the_largest_and_take_nan_for_zero(arithmetic):
    a = np.array([2.0**31, 3e38, np.inf, -(2.0**31), -3e38, -np.inf, np.nan, 2.0**31 - 128], "f4")
    (pa, _), (pb, _), (y, result) = on_device(a), on_device(a), on_device(np.zeros((9, 8), "f4"))
    arithmetic.launch("functions", ONE, (8, 1, 1), 0, [pa, pb, y])
    expected = np.array([2.0**31] * 3 + [-(2.0**31)] * 3 + [0, 2.0**31 - 128], "f4")
    np.testing.assert_array_equal(result[2:5], np.array([expected] * 3))


def test_an_approximate_quotient_by_a_large_divisor_is_zero(arithmetic):
    a = np.array([1, -3, np.inf, 8, np.nan, 5], "f4")
    b = np.array([2.0**127, 3e38, 2.0**127, 2.0**126, 1, np.inf], "f4")
    (pa, _), (pb, _), (y, result) = on_device(a), on_device(b), on_device(np.zeros((9, 6), "f4"))
    arithmetic.launch("functions", ONE, (6, 1, 1), 0, [pa, pb, y])
    np.testing.assert_array_equal(result[8], np.array([0, 0, np.nan, 2.0**-123, np.nan, 0], "f4"))


def test_wmma_with_float_sums(arithmetic):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((16, 16)).astype("f2") for _ in range(2))
    c = rng.standard_normal((16, 16)).astype("f4")
    (pa, _), (pb, _), (pc, _), (pd, d) = on_device(a), on_device(b), on_device(c), on_device(np.zeros_like(c))
    arithmetic.launch("wmma_float", ONE, (32, 1, 1), 0, [pa, pb, pc, pd])
    np.testing.assert_allclose(d, 2 * (a.astype("f8") @ b.T.astype("f8") + c), atol=2e-5)


def test_wmma_with_half_sums_is_exact_on_integers(arithmetic):
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-5, 6, (16, 16)).astype("f2") for _ in range(3))
    (pa, _), (pb, _), (pc, _), (pd, d) = on_device(a), on_device(b), on_device(c), on_device(np.zeros_like(c))
    arithmetic.launch("wmma_half", ONE, (32, 1, 1), 0, [pa, pb, pc, pd])
    np.testing.assert_array_equal(d, 2 * (a.T.astype("f4") @ b.astype("f4") + c.astype("f4")))


def test_wmma_refuses_what_a_gpu_cannot_load(arithmetic):
    buffers = [on_device(np.zeros((17, 16), kind))[0] for kind in ("f2", "f2", "f4", "f4")]
    with pytest.raises(LaunchError, match=r"aligned to 32 bytes, at arithmetic\.cu:\d+"):
        arithmetic.launch("wmma_misaligned", ONE, (32, 1, 1), 0, buffers)
    with pytest.raises(LaunchError, match="all 32 lanes"):
        arithmetic.launch("wmma_float", ONE, (16, 1, 1), 0, buffers)


@pytest.mark.parametrize("order", ORDERS)
def test_dynamic_shared_memory(order):
    values = np.arange(1024, dtype="f4")
    (x, _), (y, result) = on_device(values), on_device(np.zeros(1024, "f4"))
    module("memory", order).launch("reversed", ONE, (1024, 1, 1), 4096, [x, y])
    np.testing.assert_array_equal(result, values[::-1])


def test_constant_memory_is_written_by_name(memory):
    values = np.arange(8, dtype="f4")
    (x, _), (y, result) = on_device(values), on_device(np.zeros(8, "f4"))
    for weights in ([1, 2, 3, 4], [5, 6, 7, 8]):
        memory.symbol("weights").view("f4")[:] = weights
        memory.launch("weighted", ONE, (8, 1, 1), 0, [x, y])
        np.testing.assert_array_equal(result, values * (weights * 2))
    with pytest.raises(KeyError):
        memory.symbol("biases")


def test_a_grid_of_three_axes_covers_every_block_once(tmp_path):
    source = tmp_path / "cover.cu"
    source.write_text("""
        extern "C" __global__ void cover(int* y)
        {
            const dim3 thread = threadIdx;
            const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
            const int within = (thread.z * blockDim.y + thread.y) * blockDim.x + thread.x;
            atomicAdd(&y[block * blockDim.x * blockDim.y * blockDim.z + within], 1 + block);
        }""")
    y, result = on_device(np.zeros((5 * 3 * 2, 4 * 3 * 2), "i4"))
    HostRuntime(workers=3).compile(source, {}, ["cover"]).launch("cover", (5, 3, 2), (4, 3, 2), 0, [y])
    np.testing.assert_array_equal(result, np.repeat(np.arange(1, 31), 24).reshape(30, 24))


def test_an_array_keeps_its_buffer_alive():
    arrays = [HostRuntime().allocate(1 << 16).array("u1", (1 << 16,)) for _ in range(8)]
    for i, array in enumerate(arrays):
        array[:] = i
    assert [int(array.max()) for array in arrays] == list(range(8))
    assert all(array.ctypes.data % 256 == 0 for array in arrays)


# ---- Missing barriers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry, dynamic", [("reversed_without_barrier", 1024), ("shifted_without_barrier", 0)])
def test_a_missing_barrier_changes_outputs_with_the_order(entry, dynamic):
    outputs = set()
    for order in ORDERS:
        (x, _), (y, result) = on_device(np.arange(256, dtype="f4")), on_device(np.zeros(256, "f4"))
        module("memory", order).launch(entry, ONE, (256, 1, 1), dynamic, [x, y])
        outputs.add(result.tobytes())
    assert len(outputs) == len(ORDERS)


def test_every_block_starts_with_nan_in_shared_memory(memory):
    y, result = on_device(np.zeros(200, "f4"))
    memory.launch("stale", (200, 1, 1), ONE, 0, [y])
    assert np.isnan(result).all()


def compiled_text(folder, text, entry, device=H200, build="fast"):
    source = folder / "text.cu"
    source.write_text(text)
    return HostRuntime(build=build, device=device).compile(source, {}, [entry])


# A fragment of halves as the words and vectors that copies and tensor cores take.
FRAGMENTS = """
extern "C" __global__ void fragments(const float* x, float* y)
{
    half pair[2], row[8];
    __shared__ float column[32];
    pair[0] = pair[1] = x[0];
    const unsigned word = *reinterpret_cast<const unsigned*>(pair);
    y[0] = __high2half(*reinterpret_cast<const half2*>(&word));
    for (int i = 0; i < 8; ++i) row[i] = 0;
    *reinterpret_cast<float4*>(row) = *reinterpret_cast<const float4*>(x + 4);
    y[1] = row[0];
    column[threadIdx.x] = 1;
    reinterpret_cast<unsigned*>(column)[threadIdx.x] = __float_as_uint(x[2]);
    y[2] = column[threadIdx.x];
}
"""


@pytest.mark.parametrize("build", ["fast", "unoptimized"])
def test_values_are_read_as_other_types(tmp_path, build):
    values = np.array([3, 0, 5, 0, 0, 0, 0, 0], "f4")
    values[4:].view("f2")[0] = 7
    (x, _), (y, result) = on_device(values), on_device(np.zeros(3, "f4"))
    compiled_text(tmp_path, FRAGMENTS, "fragments", build=build).launch("fragments", ONE, ONE, 0, [x, y])
    assert result.tolist() == [3, 7, 5]


# ---- Deadlocks and traps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry, message",
    [
        ("divergent", r"block \(0,0,0\), thread \(40,0,0\): divergent .*\.cu:8, thread \(0,0,0\) at .*\.cu:5"),
        ("divergent_on_one_line", r"divergent barriers: waits at waiting\.cu:15, thread .* at waiting\.cu:15"),
        ("deadlock", r"deadlock: waits at waiting\.cu:21 for lane 3 of its warp, which waits at waiting\.cu:20"),
        ("different_functions", r"thread \(1,0,0\): the lanes .* different functions, at .*\.cu:31 and .*\.cu:29"),
        ("different_shuffles", r"thread \(16,0,0\): the lanes .* different functions, at .*\.cu:52 and .*\.cu:50"),
        ("different_votes", r"thread \(16,0,0\): the lanes .* different functions, at .*\.cu:60 and .*\.cu:58"),
        ("width_of_24", r"thread \(0,0,0\): a shuffle's width is a power of two, up to 32, at waiting\.cu:63"),
        ("not_in_mask", r"thread \(1,0,0\): a lane calls a warp function with a mask that does not name it"),
        ("trap", r"block \(2,0,0\), thread \(1,0,0\): __trap\(\), at waiting\.cu:38"),
    ],
)
def test_threads_that_wait_in_vain_fail_the_launch(waiting, entry, message):
    y, _ = on_device(np.zeros(64, "i4"))
    block = (32, 1, 1) if entry == "deadlock" or entry.startswith("different") else (64, 1, 1)
    with pytest.raises(LaunchError, match=rf"{entry}: .*{message}"):
        waiting.launch(entry, (4, 1, 1) if entry == "trap" else ONE, block, 0, [y])


@pytest.mark.parametrize("include", ["", "#include <cassert>\n"])
def test_an_assertion_fails_the_launch(tmp_path, include):
    text = include + 'extern "C" __global__ void asserts(int* y)\n{\n    assert(threadIdx.x + y[0] < 40);\n}\n'
    y, _ = on_device(np.zeros(1, "i4"))
    kernel = compiled_text(tmp_path, text, "asserts")
    kernel.launch("asserts", ONE, (40, 1, 1), 0, [y])
    place = rf"text\.cu:{3 + bool(include)}"
    with pytest.raises(
        LaunchError, match=rf"thread \(40,0,0\): assert\(threadIdx.x \+ y\[0\] < 40\) fails, at {place}$"
    ):
        kernel.launch("asserts", ONE, (64, 1, 1), 0, [y])


def test_the_process_goes_on_after_a_failed_launch(waiting, warps):
    y, _ = on_device(np.zeros(64, "i4"))
    for _ in range(3):
        with pytest.raises(LaunchError, match="divergent"):
            waiting.launch("divergent", (100, 1, 1), (64, 1, 1), 0, [y])
    test_votes(warps)


@pytest.fixture
def interruptible():
    """Python's own handler of SIGINT, which a process that a shell starts in the background ignores."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_stops_an_endless_kernel(waiting, interruptible):
    y, result = on_device(np.zeros(1, "i4"))

    def interrupt_once_it_runs():
        while not result[0]:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=interrupt_once_it_runs, daemon=True).start()
        waiting.launch("endless", ONE, (64, 1, 1), 0, [y])


@pytest.mark.timeout(60)
def test_an_interrupt_before_a_launch_is_waited_for_stops_it_too(waiting, monkeypatch):
    y, result = on_device(np.zeros(1, "i4"))

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *call):
            super().submit(*call)
            while not result[0]:
                time.sleep(0.01)
            raise KeyboardInterrupt

    monkeypatch.setattr(runtime, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        waiting.launch("endless", ONE, (64, 1, 1), 0, [y])


def test_an_interrupt_that_another_thread_gets_ends_a_launch_too(interruptible):
    child, waits = subprocess.Popen(["sleep", "10000"]), threading.get_ident()

    def interrupt():
        while sys._current_frames()[waits].f_code is not end_of.__code__:
            time.sleep(0.01)
        time.sleep(0.1)  # until it waits in a system call
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=interrupt, daemon=True).start()
        end_of(child.pid)
    child.kill()
    child.wait()


# ---- Limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "grid, block, dynamic, message",
    [
        ((0, 1, 1), ONE, 0, "grid"),
        ((1, 65536, 1), ONE, 0, "grid"),
        ((1, 1, 65536), ONE, 0, "grid"),
        ((2**31, 1, 1), ONE, 0, "grid"),
        (ONE, (1, 0, 1), 0, "block"),
        (ONE, (1, 1, 65), 0, "block"),
        (ONE, (1025, 1, 1), 0, "block"),
        (ONE, (32, 33, 1), 0, "32 x 33 x 1 threads exceeds 1024"),
        (ONE, ONE, H200.shared_per_block + 1, "shared memory"),
        (ONE, ONE, -1, "shared memory"),
    ],
)
def test_a_launch_outside_cudas_limits_is_refused(memory, grid, block, dynamic, message):
    with pytest.raises(LaunchError, match=message):
        memory.launch("reversed", grid, block, dynamic, [0, 0])


def test_static_shared_memory_is_known_and_limited(memory, tmp_path):
    text = "__shared__ float all[1024];\nnamespace tiles { __shared__ double one; }\n"
    text += 'extern "C" __global__ void wide(int* y) { all[0] = tiles::one; }\n'
    wide = compiled_text(tmp_path, text, "wide")
    above = HostRuntime().compile(KERNELS / "memory.cu", {"ABOVE": 1}, ["above_static_limit", "within_static_limit"])
    y, _ = on_device(np.zeros(32, "f4"))
    assert memory.static_shared("within_static_limit") == MAX_STATIC_SHARED // 2
    assert memory.static_shared("shifted_without_barrier") == 4096
    assert memory.static_shared("reversed") == 0
    assert wide.static_shared("wide") == 4 * 1024 + 8
    memory.launch("within_static_limit", ONE, (32, 1, 1), H200.shared_per_block - MAX_STATIC_SHARED // 2, [y])
    with pytest.raises(LaunchError, match=r"static and \d+ dynamic bytes"):
        memory.launch("within_static_limit", ONE, (32, 1, 1), H200.shared_per_block - MAX_STATIC_SHARED // 2 + 1, [y])
    with pytest.raises(LaunchError, match="above_static_limit: 49156 bytes of static shared memory exceed 49152"):
        above.launch("above_static_limit", ONE, (32, 1, 1), 0, [y])


def test_constant_memory_is_limited(tmp_path):
    entry, y = "first_filter", on_device(np.zeros(1, "f4"))[0]
    (tmp_path / "kernel.cu").write_text(
        "__constant__ float filters[COUNT];\n__constant__ float more[4];\n__device__ float scratch[20000];\n"
        'extern "C" __global__ void first_filter(float* y) { y[0] = filters[0] + more[0] + scratch[0]; }\n'
    )
    whole, above = (HostRuntime().compile(tmp_path / "kernel.cu", {"COUNT": n}, [entry]) for n in (16380, 16381))
    whole.launch(entry, ONE, ONE, 0, [y])
    with pytest.raises(LaunchError, match=r"kernel\.cu: 65540 bytes of constant memory exceed 65536"):
        above.launch(entry, ONE, ONE, 0, [y])


def test_variables_of_the_cxx_library_are_not_shared_memory(tmp_path, monkeypatch):
    (tmp_path / "kernel.cu").write_text((KERNELS / "memory.cu").read_text() + "\n__constant__ int another[1];\n")
    monkeypatch.setattr("alexconv.executors.host.runtime.fast_linker", lambda cxx: ["-static-libstdc++"])
    static = HostRuntime().compile(tmp_path / "kernel.cu", {}, ["reversed", "shifted_without_barrier"])
    assert b"__verbose_terminate_handler" in static.path.read_bytes()
    assert (static.static_shared("reversed"), static.static_shared("shifted_without_barrier")) == (0, 4096)
    assert static.constant == 20


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([0, 0, 1.0], "takes 4 arguments, not 3"),
        ([0, 0.5, 1.0, 0], "argument 2"),
        ([0, 0, 1.0, 0.5], "argument 4"),
    ],
)
def test_arguments_must_match_the_kernel(arithmetic, arguments, message):
    with pytest.raises(LaunchError, match=message):
        arithmetic.launch("vectors", ONE, ONE, 0, arguments)


def test_an_unknown_entry_point_is_refused(memory):
    with pytest.raises(LaunchError, match="without the entry point nothing"):
        memory.launch("nothing", ONE, ONE, 0, [])


# ---- Compiler and cache ----------------------------------------------------------------------------------------------


@pytest.fixture
def counting_compiler(tmp_path, monkeypatch):
    """A compiler that logs each kernel library that it links; calling the fixture's value counts them."""
    log = tmp_path / "log"
    script = f'case "$*" in *-Bsymbolic*) echo linked >> {log};; esac\nexec "$CXX" "$@"'
    monkeypatch.setenv("CXX", str(wrapper(tmp_path / "logging", script)))
    return lambda: len(log.read_text().splitlines()) if log.exists() else 0


def one_kernel(folder, header="constexpr int VALUE = 1;"):
    (folder / "value.cuh").write_text(header)
    source = folder / "one.cu"
    source.write_text('#include "value.cuh"\nextern "C" __global__ void one(int* y) { y[0] = VALUE + EXTRA; }\n')
    return source


RUN_ONE = "from test_host_executor import *; print(run_one(Path(sys.argv[1])))"


def run_one(source, extra=0):
    y, result = on_device(np.zeros(1, "i4"))
    HostRuntime().compile(source, {"EXTRA": extra}, ["one"]).launch("one", ONE, ONE, 0, [y])
    return int(result[0])


def test_a_library_is_compiled_once_and_again_when_anything_changes(cache, tmp_path, counting_compiler):
    source = one_kernel(tmp_path)
    assert [run_one(source), run_one(source), counting_compiler()] == [1, 1, 1]
    assert [run_one(source, extra=5), counting_compiler()] == [6, 2]
    one_kernel(tmp_path, "constexpr int VALUE = 2;")
    assert [run_one(source), counting_compiler()] == [2, 3]
    assert [run_one(source, extra=0), counting_compiler()] == [2, 3]


def test_a_damaged_library_is_rebuilt(cache, tmp_path, counting_compiler):
    source = one_kernel(tmp_path)
    assert run_one(source) == 1
    (library,) = (cache / "host").glob("one-*.so")
    whole = library.read_bytes()
    flipped = bytes([*whole[:5000], whole[5000] ^ 1, *whole[5001:]])
    for built, damaged in enumerate([whole[: len(whole) // 2], b"", whole[:-1], flipped], start=2):
        library.unlink()  # leaves the file that is loaded here as it is
        library.write_bytes(damaged)
        HostRuntime().compile(source, {"EXTRA": 0}, ["one"])
        assert counting_compiler() == built
        assert len(library.read_bytes()) == len(whole)
    assert in_new_process(RUN_ONE, str(source)).strip() == "1"


def test_processes_that_compile_at_once_do_not_disturb_each_other(cache, tmp_path):
    source = one_kernel(tmp_path)
    command = [sys.executable, "-c", RUN_ONE, str(source)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, env=process_environment()) for _ in range(2)]
    assert [process.communicate()[0].strip() for process in started] == [b"1"] * 2
    files = [path.suffix for path in cache.rglob("*") if path.is_file()]
    headers = [] if IS_CLANG else [".gch", ".lock"]
    wanted = sorted(["", ".lock", *headers, ".o", ".lock", ".so"])
    assert sorted(files) == wanted, "launcher, headers and run-time, their locks, and the library; no partial files"


@pytest.mark.skipif(IS_CLANG, reason="headers are precompiled only for g++")
def test_kernels_read_the_precompiled_headers(fresh_cache, tmp_path):
    host, log = HostRuntime(), tmp_path / "log"
    host.cxx = str(wrapper(tmp_path / "g++", f'exec "$CXX" -H "$@" 2>>{log}'))
    host.compile(one_kernel(tmp_path), {"EXTRA": 0}, ["one"])
    used = [line for line in log.read_text().splitlines() if line.startswith("! ")]
    assert len(used) == 1 and used[0].endswith("host_cuda.h.gch")


def test_a_compile_error_is_one_line_with_its_place(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void broken(int* y)\n{\n    y[0] = undeclared;\n}\n')
    with pytest.raises(CompileError) as caught:
        HostRuntime().compile(source, {}, ["broken"])
    assert str(caught.value).startswith("broken.cu:3:12: error:")
    assert "undeclared" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "line, named, meaning",
    [
        ('asm volatile("cp.async.wait_all;" ::: "memory");', "cp.async.wait_all", "inline PTX"),
        ('float a; asm("mov.f32 %0, %1;" : "=f"(a) : "f"(1.0f)); y[0] = a;', "", "inline PTX"),
        ("extern __shared__ float tile[]; y[0] = tile[0];", "extern", "DYNAMIC_SHARED"),
        ("y[0] = __reduce_add_sync(~0u, y[0]);", "__reduce_add_sync", "the host executor does not have it"),
        ("}\n#include <cooperative_groups.h>\nvoid rest() {", "cooperative_groups.h", "a header of CUDA's"),
        ("}\n#include <cuda/barrier>\nvoid rest() {", "cuda/barrier", "a header of CUDA's"),
        ("}\n__managed__ int managed;\nvoid rest() {", "__managed__", "the host executor does not have it"),
    ],
)
def test_what_cuda_has_and_the_cpu_has_not_is_named_with_its_place(tmp_path, line, named, meaning):
    text = f'extern "C" __global__ void unknown(int* y)\n{{\n    {line}\n}}\n'
    with pytest.raises(CompileError) as caught:
        compiled_text(tmp_path, text, "unknown")
    error = str(caught.value)
    elsewhere = (IS_CLANG and meaning == "inline PTX") or "host_cuda.h" in error  # g++ 14: where __shared__ is defined
    assert re.match(r"text\.cu:[34]:", error) or elsewhere, error
    assert named in error
    assert meaning in error
    assert "\n" not in error
    assert "docs/own-kernels.md#on-a-cpu" in error


def test_alignas_after_shared_is_aligned_or_explained(tmp_path):
    """g++ takes it since version 14."""
    text = "__shared__ alignas(64) int tile[3]; y[0] = size_t(tile) % 64;"
    text = f'extern "C" __global__ void aligned(int* y) {{ {text} }}'
    y, result = on_device(np.ones(1, "i4"))
    try:
        compiled_text(tmp_path, text, "aligned").launch("aligned", ONE, ONE, 0, [y])
    except CompileError as error:
        assert "alignas comes before __shared__" in str(error)
    else:
        assert result[0] == 0


def test_a_kernel_that_a_gpu_would_not_find_by_its_name_is_a_compile_error(tmp_path):
    with pytest.raises(CompileError, match=r'mangled.*is extern "C"'):
        compiled_text(tmp_path, "__global__ void mangled(int* y) { y[0] = 1; }\n", "mangled")


def test_a_local_array_that_no_stack_holds_is_a_compile_error():
    with pytest.raises(CompileError, match="frame size"):
        HostRuntime().compile(KERNELS / "memory.cu", {"FRAME": 20_000}, ["large_frame"])


def test_a_macro_may_have_any_name(tmp_path):
    source = tmp_path / "names.cu"
    source.write_text('extern "C" __global__ void names(int* y) { __syncthreads(); y[0] = WARP + M + T + Site; }\n')
    y, result = on_device(np.zeros(1, "i4"))
    names = HostRuntime().compile(source, {"WARP": 1, "M": 2, "T": 3, "Site": 4}, ["names"])
    names.launch("names", ONE, ONE, 0, [y])
    assert result[0] == 10


def test_attributes_of_a_newer_library_are_not_cuda_keywords(cache, tmp_path, monkeypatch):
    """libstdc++ 13 spells ``__attribute__((__noinline__, ...))`` in <string>, which most of its headers include."""
    (tmp_path / "string").write_text(
        "#pragma once\n#include_next <string>\n"
        "__attribute__((__noinline__, __noclone__, __cold__)) inline int newer() { return 7; }\n"
    )
    monkeypatch.setenv("CPLUS_INCLUDE_PATH", str(tmp_path))
    source = tmp_path / "newer.cu"
    source.write_text(
        "#include <cuda_runtime.h>\n#include <iostream>\n"
        "__device__ __noinline__ int twice(int x) { return 2 * x; }\n"
        'extern "C" __global__ void kernel(int* y) { y[0] = twice(newer()); }\n'
    )
    y, result = on_device(np.zeros(1, "i4"))
    HostRuntime().compile(source, {}, ["kernel"]).launch("kernel", ONE, ONE, 0, [y])
    assert result[0] == 14


def test_a_missing_compiler_is_one_clear_line(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MissingTool, match="no-such-compiler"):
        HostRuntime()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="install"):
        HostRuntime()


def test_the_portable_switch_between_stacks_works_too(cache, tmp_path, monkeypatch):
    compiler = wrapper(tmp_path / "portable", 'exec "$CXX" -DHOST_CUDA_UCONTEXT "$@"')
    monkeypatch.setenv("CXX", str(compiler))
    test_shuffle_reduction(order=2)


def test_halves_round_once_without_the_instruction_that_does(cache, tmp_path, monkeypatch):
    compiler = wrapper(tmp_path / "older", 'exec "$CXX" "$@" -U__AVX512FP16__')
    monkeypatch.setenv("CXX", str(compiler))
    test_every_half_operation_rounds_once(module("arithmetic"))


def test_a_linker_that_does_not_work_is_not_used(cache, tmp_path, monkeypatch):
    """On some machines gold is installed and does not find the compiler's own libraries."""
    script = 'case "$*" in *gold*) echo "cannot open libstdc++.so" >&2; exit 1;; esac\nexec "$CXX" "$@"'
    compiler = wrapper(tmp_path / "no-linker", script)
    (tmp_path / "ld.gold").write_text("")
    (tmp_path / "ld.gold").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CXX", str(compiler))
    assert run_one(one_kernel(tmp_path)) == 1


@pytest.mark.parametrize("device, arch", [(H200, 900), (replace(H200, capability=(7, 5)), 750)])
def test_a_file_chooses_by_the_gpus_generation(tmp_path, device, arch):
    y, result = on_device(np.zeros(1, "i4"))
    text = 'extern "C" __global__ void generation(int* y) { y[0] = __CUDA_ARCH__; }\n'
    compiled_text(tmp_path, text, "generation", device).launch("generation", ONE, ONE, 0, [y])
    assert result[0] == arch


@pytest.mark.parametrize("wrong", [{"build": "slow"}, {"order": -1}, {"workers": 0}, {"build": "asan", "workers": 2}])
def test_bad_choices_are_refused(wrong):
    with pytest.raises(ValueError, match=r"host executor|order|worker"):
        HostRuntime(**wrong)


def test_the_executors_description_fits_a_record():
    facts = json.loads(json.dumps(HostRuntime(order=3, workers=2).describe()))
    assert (facts["build"], facts["order"], facts["workers"]) == ("fast", 3, 2)
    assert facts["compiler"] and "-O2" in facts["flags"] and facts["cpu"]


# ---- AddressSanitizer ------------------------------------------------------------------------------------------------

OVERRUNS = {
    "global_read": r"reads 4 bytes, 0 bytes beyond a buffer of 128 bytes, at overruns.cu:8",
    "global_write": r"writes 4 bytes, 0 bytes beyond a buffer of 128 bytes, at overruns.cu:12",
    "static_shared": r"writes 4 bytes, 0 bytes beyond shared or constant array tile of 128 bytes, at overruns.cu:18",
    "dynamic_shared": r"writes 4 bytes, 0 bytes beyond dynamic shared memory of 128 bytes, at overruns.cu:26",
    "local": r"reads 4 bytes, 0 bytes beyond local array window of 32 bytes, at overruns.cu:36",
}
if not IS_CLANG:
    OVERRUNS["across_the_end"] = "writes 16 bytes, across the end of local array window of 24 bytes, at overruns.cu:49"
    OVERRUNS["misaligned"] = (
        "misaligned: 'const struct float2' needs a multiple of 8 bytes, the address is 4 beyond one, at overruns.cu:41"
    )


def test_beyond_dynamic_shared_memory_is_a_fault_and_not_another_s_memory():
    overruns = HostRuntime().compile(KERNELS / "overruns.cu", {}, OVERRUNS)
    x, y = (on_device(values)[0] for values in (np.arange(32, dtype="f4"), np.full(32, -1, "f4")))
    with pytest.raises(LaunchError, match="bad access"):
        overruns.launch("dynamic_shared", (3, 1, 1), (32, 1, 1), 1024, [x, y, 256])


ALL_OVERRUNS = """
from test_host_executor import *
overruns = HostRuntime(build="asan").compile(KERNELS / "overruns.cu", {}, OVERRUNS)
said = {}
for entry in OVERRUNS:
    for beyond in (0, 1, 0):
        x, y = (on_device(values, "asan")[0] for values in (np.arange(32, dtype="f4"), np.full(32, -1, "f4")))
        try:
            overruns.launch(entry, (3, 1, 1), (32, 1, 1), 128, [x, y, beyond])
            said.setdefault(entry, []).append(None)
        except LaunchError as error:
            said.setdefault(entry, []).append(str(error))
assert overruns.static_shared("static_shared") >= 128
print(json.dumps(said))
"""


def process_environment(**more):
    """Variables for a process that imports this file."""
    folders = [Path(__file__).parent, KERNELS.parent, KERNELS.parent.parent]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), **more}


def in_new_process(code, *arguments, **environment):
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=process_environment(**environment), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_asan
def test_overruns_of_all_memories_are_found_and_the_process_lives_on():
    messages = json.loads(in_new_process(ALL_OVERRUNS, **asan_environment()))
    for entry, message in OVERRUNS.items():
        before, overrun, after = messages[entry]
        assert before is None and after is None
        assert overrun.startswith(f"{entry}: block (") and overrun.endswith(message), overrun


OVERRUNS_OF_TWO_LIBRARIES = """
from test_host_executor import *
said = []
for number in range(2):
    overruns = HostRuntime(build="asan").compile(KERNELS / "overruns.cu", {"LIBRARY": number}, OVERRUNS)
    x, y = (on_device(np.zeros(32, dtype="f4"), "asan")[0] for _ in range(2))
    try:
        overruns.launch("global_read", (1, 1, 1), (32, 1, 1), 0, [x, y, 1])
    except LaunchError as error:
        said.append(str(error))
print(json.dumps(said))
"""


@needs_asan
def test_an_overrun_whose_line_is_unknown_names_none():
    """g++'s AddressSanitizer does not know the lines of a library that is loaded after its first finding."""
    messages = json.loads(in_new_process(OVERRUNS_OF_TWO_LIBRARIES, **asan_environment()))
    assert len(messages) == 2
    for message in messages:
        assert re.search(r"beyond a buffer of 128 bytes(, at overruns\.cu:8)?$", message), message


@needs_asan
def test_asan_needs_a_process_that_was_started_for_it():
    with pytest.raises(MissingTool, match=r": LD_PRELOAD=\S*asan"):
        HostRuntime(build="asan")


# ---- Faults ----------------------------------------------------------------------------------------------------------

needs_x86 = pytest.mark.skipif(HostRuntime()._machine != "x86_64", reason="other CPUs divide by zero without a fault")
FAULTS = """
extern "C" __global__ void past(int* y) { y[64 + threadIdx.x] = 1; }          // [64]
extern "C" __global__ void before(int* y) { y[-1] = 1; }
extern "C" __global__ void far(int* y) { *(int* volatile)4096 = y[0]; }         // no process has that page
extern "C" __global__ void next(char* y) { y[63 * 4 + 3] = 1; }               // [63 * 4 + 3]
extern "C" __global__ void illegal(int* y) { __builtin_trap(); }
extern "C" __global__ void aborts(int* y) { __builtin_abort(); }
extern "C" __global__ void divides(int* y) { y[0] = blockDim.x % y[0]; }
extern "C" __global__ void copy(const int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" __global__ void input(int* x, int* y) { y[threadIdx.x] = x[threadIdx.x]; x[3] = 7; }
"""
NAMES = ("past", "before", "far", "next", "illegal", "aborts", "divides", "copy", "input")


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    source = tmp_path_factory.mktemp("faults") / "faults.cu"
    source.write_text(FAULTS)
    return HostRuntime().compile(source, {}, NAMES)


@pytest.mark.parametrize(
    "entry, nbytes, says",
    [
        ("past", 256, r"past: bad access \(SIGSEGV\) 0 bytes after y"),
        ("before", 8192, r"before: bad access \(SIGSEGV\) 4 bytes before y"),
        ("far", 256, r"far: bad access \(SIGSEGV\) at 0x"),
        ("next", 255, "a kernel stored right after y"),
        ("before", 256, "a kernel stored right before y"),
        ("illegal", 256, "illegal: the kernel's process ended with SIG(ILL|TRAP)"),
        ("aborts", 256, "aborts: the kernel's process ended with SIGABRT"),
        pytest.param("divides", 256, "ended with SIGFPE: an integer divided by zero", marks=needs_x86),
    ],
)
def test_a_fault_of_a_kernel_is_an_error_and_the_process_lives_on(faults, entry, nbytes, says):
    y = HostRuntime().allocate(nbytes, "y")
    with pytest.raises(LaunchError, match=says):
        faults.launch(entry, ONE, ONE, 0, [y])
    (x, _), (y, result) = on_device(np.arange(64, dtype="i4")), on_device(np.zeros(64, "i4"))
    faults.launch("copy", ONE, (64, 1, 1), 0, [x, y])
    assert result.tolist() == list(range(64))


@runs_here
def test_threads_that_fault_together_are_one_fault(tmp_path, monkeypatch):
    text = runtime._APART.read_text()
    slow = tmp_path / "apart.cpp"
    slow.write_text(text.replace("    shared->address =", "    usleep(200'000);\n    shared->address =", 1))
    assert slow.read_text() != text
    monkeypatch.setattr(runtime, "_APART", slow)
    source = tmp_path / "far.cu"
    source.write_text('extern "C" __global__ void far() { *(int* volatile)4096 = 1; }')
    kernel = HostRuntime(workers=2).compile(source, {}, ("far",))
    with pytest.raises(LaunchError, match=r"far: bad access \(SIGSEGV\) at 0x1000$"):
        kernel.launch("far", (64, 1, 1), (256, 1, 1), 0, [])


def test_a_store_to_a_read_only_array_is_a_fault(faults):
    x, y = (HostRuntime().allocate(256, name) for name in "xy")
    faults.launch("input", ONE, (64, 1, 1), 0, [x, y])
    with x.read_only(), pytest.raises(LaunchError, match=r"input: bad access \(SIGSEGV\) in x"):
        faults.launch("input", ONE, (64, 1, 1), 0, [x, y])


# Shell scripts in place of the launcher, with its arguments, and the error that each gives.
ENDS = {
    "addresses in use once": ('[ -e {mark} ] && exec {launcher} "$@"; touch {mark}; exit 2', None),
    "addresses in use": ("exit 2", (LaunchError, "cannot map the arrays")),
    "not loaded": ('exec {launcher} /absent.so "$2" "$3"', (CompileError, "cannot be loaded: /absent.so")),
    "killed": ("kill -9 $$", (LaunchError, "copy: the kernel's process ended with SIGKILL")),
}


@runs_here
@pytest.mark.parametrize("end", ENDS)
def test_a_launch_that_does_not_start_is_tried_again_or_an_error(faults, tmp_path, monkeypatch, end):
    script, error = ENDS[end]
    stand_in = tmp_path / "launcher"
    stand_in.write_text("#!/bin/sh\n" + script.format(mark=tmp_path / "mark", launcher=faults._launcher))
    stand_in.chmod(0o755)
    monkeypatch.setattr(faults, "_launcher", stand_in)
    (x, _), (y, result) = on_device(np.arange(64, dtype="i4")), on_device(np.zeros(64, "i4"))
    if error:
        with pytest.raises(error[0], match=error[1]):
            faults.launch("copy", ONE, (64, 1, 1), 0, [x, y])
    else:
        faults.launch("copy", ONE, (64, 1, 1), 0, [x, y])
        assert result.tolist() == list(range(64))


@runs_here
def test_a_launcher_that_is_still_open_for_writing_is_waited_for(faults, tmp_path, monkeypatch):
    """As happens while another thread starts a compiler, between fork and exec."""
    path = Path(shutil.copy(faults._launcher, tmp_path))
    writer, waits = path.open("ab"), []
    monkeypatch.setattr(apart, "sleep", lambda seconds: waits.append(seconds) or writer.close())
    monkeypatch.setattr(faults, "_launcher", path)
    (x, _), (y, result) = on_device(np.arange(64, dtype="i4")), on_device(np.zeros(64, "i4"))
    faults.launch("copy", ONE, (64, 1, 1), 0, [x, y])
    assert (result.tolist(), len(waits)) == (list(range(64)), 1)


def refused(*_: object) -> int:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_where_files_in_memory_are_refused_arrays_are_temporary_files(faults, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "memfd_create", refused)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (x, _), (y, result) = on_device(np.arange(64, dtype="i4")), on_device(np.zeros(64, "i4"))
    array = faults.allocate(4096)
    assert str(tmp_path) in str(Path(f"/proc/self/fd/{array.file}").readlink())
    faults.launch("copy", ONE, (64, 1, 1), 0, [x, y])
    assert result.tolist() == list(range(64))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    with pytest.raises(OutOfMemory, match=r"no memory file for an array, and none in .*/none \(No such file"):
        GuardedBuffer(64)
