"""The host executor's twins of kernels/arch/: fragments, barriers, TMA, products of a warpgroup."""

import json

import numpy as np
import pytest
from compilers import needs_asan, needs_gcc
from test_host_executor import ONE, ORDERS, in_new_process, on_device

from alexconv.errors import LaunchError
from alexconv.executors.host.maps import encode
from alexconv.executors.host.memory import HostBuffer
from alexconv.executors.host.runtime import HostRuntime, asan_environment
from alexconv.kernels.bound import LaunchConfig
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import FOLDER, TensorMap, shape_macros
from alexconv.profile.trace import trace_launch
from alexconv.shapes import Conv

CONV = Conv(64, 5, 6, M=1, R=3, S=2)  # for the headers' macros; most kernels here do not use it
WARP, GROUP = (32, 1, 1), (128, 1, 1)
ROW = 128  # bytes


def compiled(tmp_path, body, *entries, order=0, build="fast", **macros):
    source = tmp_path / "kernel.cu"
    source.write_text(f'#include "{FOLDER / "arch" / "hopper.cuh"}"\n{body}')
    executor = HostRuntime(order=order, build=build)
    return executor.compile(source, {**shape_macros(CONV), **macros}, entries)


def run(tmp_path, body, arrays, *, block=WARP, shared=0, order=0, memory=(), **macros):
    """Runs ``kernel`` of ``body`` on copies of the arrays and returns these; maps point into buffers of ``memory``."""
    placed = [on_device(array) if isinstance(array, np.ndarray) else (array, None) for array in arrays]
    module = compiled(tmp_path, body, "kernel", order=order, **macros)
    module.launch("kernel", ONE, block, shared, [argument for argument, _ in placed], memory)
    return [array for _, array in placed]


def random_halves(shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype("f2")


def swizzled(rows):
    """Rows of 64 halves, or tiles of such rows, as TMA writes them to shared memory."""
    chunks = rows.reshape(-1, 8, 8)
    place = np.arange(8)[None, :] ^ (np.arange(len(chunks)) % 8)[:, None]
    out = np.empty_like(chunks)
    out[np.arange(len(chunks))[:, None], place] = chunks
    return out.reshape(rows.shape)


# ---- Asynchronous copies ---------------------------------------------------------------------------------------------

COPIES = """
extern "C" __global__ void kernel(const float* x, float* y, int shift)
{
    __shared__ __align__(16) float to[128 + 4];
    copy_async_16(to + 4 * threadIdx.x + shift, x + 4 * threadIdx.x, threadIdx.x % 3 != 0);
    copy_async_commit_group();
    copy_async_wait_group<0>();
    __syncthreads();
    for (int i = threadIdx.x; i < 128; i += 32) y[i] = to[i];
    __syncthreads();
    copy_async_4(to + threadIdx.x, threadIdx.x < 31 ? x + threadIdx.x : nullptr, threadIdx.x < 31);
    copy_async_wait_group<0>();
    y[128 + threadIdx.x] = to[threadIdx.x];
}
"""


def test_copies_write_values_or_zeros(tmp_path):
    x = np.arange(1, 129, dtype="f4")
    _, y, _ = run(tmp_path, COPIES, [x, np.full(160, np.nan, "f4"), 0])
    np.testing.assert_array_equal(y[:128], np.where(np.arange(128) // 4 % 3, x, 0))
    np.testing.assert_array_equal(y[128:], [*x[:31], 0])


def test_a_misaligned_copy_is_reported(tmp_path):
    with pytest.raises(LaunchError, match=r"copy_async_16 needs addresses aligned to 16 bytes, at kernel\.cu:6"):
        run(tmp_path, COPIES, [np.zeros(128, "f4"), np.zeros(160, "f4"), 1])


# ---- Products of a warp ----------------------------------------------------------------------------------------------

HALF_PRODUCT = """
extern "C" __global__ void kernel(const __half* a, const __half* b, float* d)
{
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const unsigned *const a_words = (const unsigned*)a, *const b_words = (const unsigned*)b;  // eight to a row
    unsigned fa[4], fb[2];
    for (int i = 0; i < 4; ++i) fa[i] = a_words[(g + i % 2 * 8) * 8 + t + i / 2 * 4];
    for (int i = 0; i < 2; ++i) fb[i] = b_words[g * 8 + t + i * 4];
    float sums[4] = {1, 1, 1, 1};
    for (int i = 0; i < 2; ++i) warp_mma_fp16(sums, fa, fb);
    for (int h = 0; h < 2; ++h)
        for (int i = 0; i < 2; ++i) d[(lane / 4 + 8 * h) * 8 + 2 * (lane % 4) + i] = sums[2 * h + i];
}
"""


@pytest.mark.parametrize("order", ORDERS)
def test_a_warp_multiplies_halves(tmp_path, order):
    a, b = random_halves((16, 16)), random_halves((8, 16), 1)
    *_, d = run(tmp_path, HALF_PRODUCT, [a, b, np.zeros((16, 8), "f4")], order=order)
    np.testing.assert_allclose(d, 1 + 2 * a.astype("f8") @ b.T.astype("f8"), atol=1e-5)


TF32_PRODUCT = """
extern "C" __global__ void kernel(const float* a, const float* b, float* d, float* rounded)
{
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    unsigned fa[4], fb[2];
    for (int i = 0; i < 4; ++i) fa[i] = __float_as_uint(a[(g + i % 2 * 8) * 8 + t + i / 2 * 4]);
    for (int i = 0; i < 2; ++i) fb[i] = to_tf32(b[(t + 4 * i) * 8 + g]);
    float sums[4] = {};
    warp_mma_tf32(sums, fa, fb);
    for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
    for (int i = threadIdx.x; i < 64; i += 32) rounded[i] = __uint_as_float(to_tf32(b[i]));
}
"""


def test_tf32_is_rounded_when_asked_for_and_else_truncated(tmp_path):
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((16, 8)).astype("f4"), rng.standard_normal((8, 8)).astype("f4")
    tie = 1 + 2.0**-11
    b[0, :6] = tie, -tie, np.nextafter(np.float32(tie), np.float32(0)), 0, 2.0**-130, 3 * 2.0**-136
    _, _, d, rounded = run(tmp_path, TF32_PRODUCT, [a, b, np.zeros((16, 8), "f4"), np.zeros((8, 8), "f4")])
    nearest = ((b.view("u4").astype("u8") + (1 << 12)) & 0xFFFFE000).astype("u4").view("f4")
    np.testing.assert_array_equal(rounded, nearest)
    np.testing.assert_array_equal(rounded[0, :4], [1 + 2.0**-10, -1 - 2.0**-10, 1, 0])
    truncated = (a.view("u4") & np.uint32(0xFFFFE000)).view("f4")
    np.testing.assert_allclose(d, truncated.astype("f8") @ nearest.astype("f8"), atol=1e-5)


def test_tf32_keeps_infinities_and_nans(tmp_path):
    b = np.zeros((8, 8), "f4")
    b[0, :3] = np.inf, -np.inf, np.nan
    b.view("u4")[0, 3] = 0xFFFFFFFF
    *_, rounded = run(tmp_path, TF32_PRODUCT, [np.zeros((16, 8), "f4"), b, np.zeros((16, 8), "f4"), b])
    np.testing.assert_array_equal(rounded, b)


@pytest.mark.parametrize(
    "statement, message",
    [
        ("warp_mma_fp16(sums, words, {words[0], words[1]});", "a product needs all 32 lanes"),
        ("warp_mma_tf32(sums, words, {words[0], words[1]});", "a product needs all 32 lanes"),
    ],
)
def test_a_warp_product_with_a_lane_missing_is_reported(tmp_path, statement, message):
    body = f"""
extern "C" __global__ void kernel(int*)
{{
    unsigned words[4] = {{}};
    float sums[4] = {{}};
    if (threadIdx.x < 31) {statement}
}}"""
    with pytest.raises(LaunchError, match=rf"{message}.*at kernel\.cu:7"):
        run(tmp_path, body, [np.zeros(1, "i4")])


# ---- Barriers --------------------------------------------------------------------------------------------------------

# One warp fills a ring of two stages, two warpgroups empty it at different paces, each with a named barrier as well.
RING = """
constexpr int STAGES = 2, GROUP = 128;

extern "C" __global__ void kernel(const int* x, int* y, int steps)
{
    __shared__ Mbarrier full[STAGES], empty[STAGES];
    __shared__ int ring[STAGES][GROUP];
    const int thread = threadIdx.x;
    if (thread == 0) {
        for (int i = 0; i < STAGES; ++i) mbarrier_init(&full[i], 32), mbarrier_init(&empty[i], 2 * GROUP);
        mbarrier_init_fence();
    }
    __syncthreads();
    if (thread < 32) {
        warpgroup_reg_dealloc<40>();
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES, turn = step / STAGES;
            mbarrier_wait(&empty[stage], (turn + 1) % 2);
            for (int i = thread; i < GROUP; i += 32) ring[stage][i] = x[step * GROUP + i];
            mbarrier_arrive(&full[stage]);
        }
        return;
    }
    warpgroup_reg_alloc<232>();
    const int group = thread / GROUP - 1, within = thread % GROUP;
    if (group < 0) return;
    int sum = 0;
    for (int step = 0; step < steps; ++step) {
        const int stage = step % STAGES, turn = step / STAGES;
        mbarrier_wait(&full[stage], turn % 2);
        sum += ring[stage][(within + 1 + group) % GROUP] * (step + 1);
        mbarrier_arrive(&empty[stage]);
        if (group == step % 2) named_barrier(1 + group, GROUP);
    }
    y[group * GROUP + within] = sum;
}
"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_ring_of_stages_loses_nothing(tmp_path, order, steps):
    x = np.random.default_rng(0).integers(0, 1000, (steps, 128)).astype("i4")
    _, y, _ = run(tmp_path, RING, [x, np.zeros((2, 128), "i4"), steps], block=(384, 1, 1), order=order)
    weighted = np.arange(1, steps + 1) @ x
    np.testing.assert_array_equal(y, [np.roll(weighted, -1), np.roll(weighted, -2)])


@pytest.mark.parametrize("order", ORDERS)
def test_a_named_barrier_opens_for_those_who_name_it(tmp_path, order):
    body = """
extern "C" __global__ void kernel(int* y)
{
    __shared__ int values[96];
    const int thread = threadIdx.x, name = thread < 64 ? 3 : 15, first = thread < 64 ? 0 : 64;
    const int threads = thread < 64 ? 64 : 32;
    for (int i = 1; i < 4; ++i) {
        values[thread] = thread * i;
        named_barrier(name, threads);
        const int next = values[first + (thread - first + 1) % threads];
        named_barrier(name, threads);
        y[thread] = next;
    }
}"""
    (y,) = run(tmp_path, body, [np.zeros(96, "i4")], block=(96, 1, 1), order=order)
    np.testing.assert_array_equal(y, 3 * np.array([*np.roll(np.arange(64), -1), *np.roll(np.arange(64, 96), -1)]))


@pytest.mark.parametrize(
    "statement, message",
    [
        (
            "mbarrier_wait(&barrier, 0);",
            r"deadlock: waits at kernel\.cu:6 for a barrier's phase, which lacks 2 of 2 arrivals and 0 bytes",
        ),
        ("if (thread == 5) mbarrier_wait(&barrier, 0); else __syncthreads();", r"thread \(5,0,0\): deadlock: .*\.cu:6"),
        (
            "if (thread < 2) mbarrier_arrive_expect_tx(&barrier, 64); mbarrier_wait(&barrier, 0);",
            "lacks 0 of 2 arrivals and 128 bytes",
        ),
        (
            "if (thread < 3) mbarrier_arrive_expect_tx(&barrier, 8);",
            "more arrivals than the barrier expects in a phase, at .*:6",
        ),
        ("mbarrier_arrive_expect_tx(&barrier, 1 << 20);", "more bytes than a barrier counts"),
        ("mbarrier_wait(&barrier, 2);", "the parity of a phase is 0 or 1"),
        ("mbarrier_wait(&unknown, 0);", "the barrier is not initialised, at .*:6"),
        ("mbarrier_init(&unknown, 0);", r"a barrier expects 1 to 2\^20 - 1 arrivals"),
        ("mbarrier_arrive((Mbarrier*)((char*)&barrier + 4));", "aligned to 8 bytes"),
        ("named_barrier(16, 64);", "a named barrier is one of 1 to 15"),
        ("named_barrier(1, 33);", "whole warps of the block"),
        ("named_barrier(1, 160);", "whole warps of the block"),
        ("named_barrier(1, thread < 32 ? 32 : 64);", "deadlock: waits at .*:6 for 32 more threads at a named barrier"),
        ("named_barrier(1, thread % 2 ? 32 : 64);", "named barrier 1 waits for 32 threads at .* and for 64 at .*:6"),
        ("if (thread % 2) named_barrier(1, 64);", "at a named barrier, with 16 of the 32 lanes of its warp"),
        ("wgmma_fp16(d, 0, 0, true);", "deadlock: waits at .*:6 for 64 more threads of its warpgroup"),
    ],
)
def test_barriers_used_wrongly_fail_the_launch(tmp_path, statement, message):
    lines = [
        'extern "C" __global__ void kernel(int*) {',
        "__shared__ Mbarrier barrier, unknown; const int thread = threadIdx.x; float d[32] = {};",
        "if (thread == 0) mbarrier_init(&barrier, 2);",
        "__syncthreads();" + ("if (thread >= 64) return;" if "thread" not in statement or "more" in message else ""),
        statement,
        "(void)unknown; (void)d; }",
    ]
    with pytest.raises(LaunchError, match=message):
        run(tmp_path, "\n".join(lines), [np.zeros(1, "i4")], block=GROUP)


# ---- TMA -------------------------------------------------------------------------------------------------------------

# Copies a box to shared memory, and writes all of it out.
BOX = """
extern "C" __global__ void kernel(const TensorMap* map, int bytes, int i0, int i1, int i2, uint4* y, int skipped)
{
    DYNAMIC_SHARED(uint4, box);
    __shared__ Mbarrier barrier;
    if (threadIdx.x == 0) {
        mbarrier_init(&barrier, 1);
        mbarrier_init_fence();
        mbarrier_arrive_expect_tx(&barrier, bytes);
        LOAD
    }
    __syncthreads();
    mbarrier_wait(&barrier, 0);
    for (int i = threadIdx.x; i < bytes / 16; i += blockDim.x) y[i] = box[i];
}
"""
TILED = "tma_load_box(box + skipped, map, &barrier, i0, i1, i2);"
IM2COL = "tma_load_im2col(box + skipped, map, &barrier, i0, i1 % 1000, i2 % 1000, i2 / 1000, DW, DH);"


def brought(tmp_path, tensor_map, x, rows, at, load, skipped=0, shared=None, **macros):
    """A box of ``x`` as ``[rows][64]`` halves, the swizzle undone; the array fills its buffer exactly."""
    buffer, _ = on_device(x)
    encoded = encode(tensor_map, Problem(CONV), buffer.pointer, HostRuntime().allocate)
    y = np.full((rows, 64), np.nan, "f2")
    arguments = [encoded, rows * ROW, *at, y, skipped]
    body = BOX.replace("LOAD", load)
    *_, y, _ = run(tmp_path, body, arguments, shared=shared or rows * ROW, memory=[buffer], **macros)
    return swizzled(y)  # its own inverse


def a_map(dims, strides, box, window=None):
    return TensorMap(
        "a map",
        "x",
        lambda p: dims,
        lambda p: strides,
        lambda p: box,
        (lambda p: window) if window else None,
    )


@pytest.mark.parametrize("at", [(0, 0, 0), (-5, -1, 1), (40, 3, 2), (64, 0, 0), (3, 4, -2), (1000, 1000, 1000)])
def test_a_box_is_swizzled_and_zero_outside(tmp_path, at):
    planes, lines, length = 4, 5, 72
    x = random_halves((planes, lines, length))
    dims, strides, box = (length, lines, planes), (length * 2, lines * length * 2), (64, 3, 2)
    padded = np.zeros((planes + 8, lines + 8, length + 200), "f2")
    padded[4:-4, 4:-4, 100:-100] = x
    i0, i1, i2 = at
    expected = np.zeros((2, 3, 64), "f2")
    if i0 < 100:
        expected = padded[i2 + 4 : i2 + 6, i1 + 4 : i1 + 7, i0 + 100 : i0 + 164]
    y = brought(tmp_path, a_map(dims, strides, box), x, 6, at, TILED)
    np.testing.assert_array_equal(y.reshape(2, 3, 64), expected)


def test_rows_of_a_box_may_overlap(tmp_path):
    x = random_halves((40 + 64,))
    y = brought(tmp_path, a_map((64, 6, 1), (16, 1024), (64, 6, 1)), x, 6, (0, 0, 0), TILED)
    np.testing.assert_array_equal(y, [x[8 * i : 8 * i + 64] for i in range(6)])


@pytest.mark.parametrize("pixels", [13, 64])
@pytest.mark.parametrize("place", [(0, 0), (1, 2)])
@pytest.mark.parametrize("start", [(0, 0, 0), (3, 2, 0), (1, 1, 1), (4, 2, 2), (2, 0, 3)])
@pytest.mark.parametrize("channel", [0, 16])
def test_an_im2col_copy_follows_the_output_pixels(tmp_path, pixels, place, start, channel):
    images, H, W, channels, R, S = 3, 5, 6, 72, 3, 2
    x = random_halves((images, H, W, channels))
    dims = (channels, W, H, images)
    strides = (channels * 2, W * channels * 2, H * W * channels * 2)
    (w, h, n), (dw, dh) = start, place
    y = brought(
        tmp_path,
        a_map(dims, strides, (64, pixels), (S, R)),
        x,
        pixels,
        (channel, w, h + 1000 * n),
        IM2COL,
        DW=dw,
        DH=dh,
    )
    E, F = H - R + 1, W - S + 1
    first = (n * E + h) * F + w
    shifted = x[:, dh : dh + E, dw : dw + F].reshape(images * E * F, channels)
    expected = np.zeros((pixels, channels + 64), "f2")
    window = shifted[first : first + pixels]
    expected[: len(window), :channels] = window
    np.testing.assert_array_equal(y, expected[:, channel : channel + 64])


def test_a_copy_that_a_gpu_would_refuse_is_reported(tmp_path):
    x = random_halves((4, 64))
    tiled, im2col = a_map((64, 4, 1), (128, 512), (64, 4, 1)), a_map((64, 2, 2, 1), (128,) * 3, (64, 4), (1, 1))

    def message(tensor_map, load, at=(0, 0, 0), **more):
        with pytest.raises(LaunchError) as caught:
            brought(tmp_path, tensor_map, x, 4, at, load, **more)
        return str(caught.value)

    assert "aligned to 1024 bytes here, at kernel.cu:11" in message(tiled, TILED, skipped=8, shared=2048)
    assert "tma_load_im2col needs an im2col map" in message(tiled, IM2COL, DW=0, DH=0)
    assert "tma_load_box needs a tiled map" in message(im2col, TILED)
    assert "outside the output plane" in message(im2col, IM2COL, (0, 2, 0), DW=0, DH=0)
    assert "at a channel that is no multiple of 16 bytes" in message(im2col, IM2COL, (4, 0, 0), DW=0, DH=0)


@pytest.mark.parametrize(
    "dims, strides, box, window, address, message",
    [
        ((64, 4, 1), (128, 512), (64, 4, 1), None, 8, "multiples of 16 bytes"),
        ((64, 4, 1), (136, 512), (64, 4, 1), None, 0, "multiples of 16 bytes"),
        ((64, 4, 1), (128, 512), (32, 4, 1), None, 0, "a row of a box has 128 bytes, not 64"),
        ((64, 400, 1), (128, 512), (64, 257, 1), None, 0, "too large"),
        ((64, 4), (128,), (64, 4), None, 0, "2 dimensions"),
        ((64, 4, 1), (128,), (64, 4), None, 0, "do not fit together"),
        ((64, 0, 1), (128, 512), (64, 4, 1), None, 0, "out of range"),
        ((64, 4, 4, 1), (128, 512, 2048), (64, 9), (5, 3), 0, "is empty"),
    ],
)
def test_a_map_that_the_driver_would_refuse_is_refused(dims, strides, box, window, address, message):
    with pytest.raises(LaunchError, match=f"tensor map a map: .*{message}"):
        encode(a_map(dims, strides, box, window), Problem(CONV), address, HostBuffer)


BYTES = """
extern "C" __global__ void kernel(const char* x, char* y, int from, int to, int bytes)
{
    __shared__ __align__(16) char brought[256];
    __shared__ Mbarrier barrier;
    const int thread = threadIdx.x;
    for (int i = thread; i < 256; i += 32) brought[i] = 7;
    if (thread == 0) mbarrier_init(&barrier, 1), mbarrier_init_fence();
    __syncthreads();
    if (thread == 0) {
        mbarrier_arrive_expect_tx(&barrier, bytes);
        tma_load_bulk(brought + to, x + from, &barrier, bytes);
    }
    mbarrier_wait(&barrier, 0);
    for (int i = thread; i < 256; i += 32) y[i] = brought[i];
}
"""


def test_bulk_copies_keep_bytes(tmp_path):
    x = np.random.default_rng(0).integers(0, 100, 512).astype("i1")
    _, y, *_ = run(tmp_path, BYTES, [x, np.zeros(256, "i1"), 48, 16, 160])
    expected = np.full(256, 7, "i1")
    expected[16:176] = x[48:208]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("at", [(8, 0, 16), (0, 4, 16), (0, 0, 24)])
def test_bulk_copies_not_in_multiples_of_16_bytes_are_reported(tmp_path, at):
    with pytest.raises(LaunchError, match=r"tma_load_bulk needs .* multiples of 16 bytes, at kernel\.cu:13"):
        run(tmp_path, BYTES, [np.zeros(512, "i1"), np.zeros(256, "i1"), *at])


# ---- Products of a warpgroup -----------------------------------------------------------------------------------------

GROUP_PRODUCT = """
constexpr int COLUMNS = 2 * COUNT, ROWS = 64;

extern "C" __global__ void kernel(const uint4* a, const uint4* b, float* y, int repeats, int shift)
{
    DYNAMIC_SHARED(char, shared);
    const int thread = threadIdx.x % 128, group = threadIdx.x / 128;
    char* const a_rows = shared;
    char* const b_rows = shared + 2 * ROWS * ROW_BYTES;
    for (int i = threadIdx.x; i < 2 * ROWS * 8; i += blockDim.x) ((uint4*)a_rows)[i] = a[i];
    for (int i = threadIdx.x; i < COLUMNS * 8; i += blockDim.x) ((uint4*)b_rows)[i] = b[i];
    __syncthreads();
    float d[COUNT];
    for (int i = 0; i < repeats; ++i) {
        warpgroup_fence();
        for (int k = 0; k < 4; ++k)
            wgmma_fp16(d, swizzled_descriptor(a_rows + group * ROWS * ROW_BYTES + 32 * k + shift),
                          swizzled_descriptor(b_rows + 32 * k), k > 0);
        warpgroup_commit_group();
        warpgroup_wait_group<0>();
    }
    for (int j = 0; j < COUNT / 4; ++j)
        for (int h = 0; h < 2; ++h)
            for (int i = 0; i < 2; ++i)
                y[(group * ROWS + 16 * (thread / 32) + thread % 32 / 4 + 8 * h) * COLUMNS + 8 * j + 2 * (thread % 4)
                  + i] = d[4 * j + 2 * h + i];
}
"""


def group_product(tmp_path, n, order=0, repeats=1, shift=0):
    a, b = random_halves((128, 64)), random_halves((n, 64), 1)
    arrays = [swizzled(a), swizzled(b), np.zeros((128, n), "f4"), repeats, shift]
    shared = (128 + n) * ROW
    _, _, y, *_ = run(tmp_path, GROUP_PRODUCT, arrays, block=(256, 1, 1), shared=shared, order=order, COUNT=n // 2)
    return y, a.astype("f8") @ b.T.astype("f8")


@pytest.mark.parametrize("order", ORDERS[:3])
@pytest.mark.parametrize("n", [64, 96, 128, 192, 256])
def test_a_warpgroup_multiplies(tmp_path, n, order):
    y, expected = group_product(tmp_path, n, order)
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_matrices_that_begin_within_a_row_are_reported(tmp_path):
    with pytest.raises(LaunchError, match=r"wgmma needs rows aligned to 128 bytes, .*at kernel\.cu:18"):
        group_product(tmp_path, 64, shift=16)


# Operands in planes of eight halves, a from any row on: K = 32, in two products.
PLANES_PRODUCT = """
constexpr int ROWS = 64, COLUMNS = 96, A_PLANE = (ROWS + 3) * 16, B_PLANE = COLUMNS * 16;

extern "C" __global__ void kernel(const uint4* a, const uint4* b, float* y, int first_row)
{
    DYNAMIC_SHARED(char, shared);
    const int thread = threadIdx.x;
    char* const b_planes = shared + 4 * A_PLANE;
    for (int i = thread; i < 4 * A_PLANE / 16; i += 128) ((uint4*)shared)[i] = a[i];
    for (int i = thread; i < 4 * B_PLANE / 16; i += 128) ((uint4*)b_planes)[i] = b[i];
    __syncthreads();
    const MatrixDescriptor a_rows = advance_descriptor(unswizzled_descriptor(shared, A_PLANE), first_row * 16);
    const MatrixDescriptor b_rows = unswizzled_descriptor(b_planes, B_PLANE);
    float d[COLUMNS / 2];
    warpgroup_fence();
    for (int k = 0; k < 2; ++k)
        wgmma_fp16(d, advance_descriptor(a_rows, 2 * k * A_PLANE), advance_descriptor(b_rows, 2 * k * B_PLANE), k > 0);
    warpgroup_commit_group();
    warpgroup_wait_group<0>();
    for (int j = 0; j < COLUMNS / 8; ++j)
        for (int h = 0; h < 2; ++h)
            for (int i = 0; i < 2; ++i)
                y[(16 * (thread / 32) + thread % 32 / 4 + 8 * h) * COLUMNS + 8 * j + 2 * (thread % 4) + i] =
                    d[4 * j + 2 * h + i];
}
"""


def in_planes(rows):
    """Rows of halves as planes of eight: ``[K / 8][rows][8]``."""
    return np.ascontiguousarray(rows.reshape(len(rows), -1, 8).swapaxes(0, 1))


@pytest.mark.parametrize("first_row", [0, 1, 3])
def test_a_warpgroup_multiplies_planes_from_any_row(tmp_path, first_row):
    a, b = random_halves((67, 32)), random_halves((96, 32), 1)
    arrays = [in_planes(a), in_planes(b), np.zeros((64, 96), "f4"), first_row]
    _, _, y, _ = run(tmp_path, PLANES_PRODUCT, arrays, block=GROUP, shared=(67 + 96) * 64)
    np.testing.assert_allclose(y, a[first_row : first_row + 64].astype("f8") @ b.T.astype("f8"), atol=1e-5)


# Both operands with K outermost: planes of 64 rows of the matrix, a row of 128 bytes for each value of K; K = 32.
TRANSPOSED_PRODUCT = """
constexpr int COLUMNS = 2 * COUNT, PLANE = 32 * ROW_BYTES, B_PLANES = (COLUMNS + 63) / 64;

extern "C" __global__ void kernel(const uint4* a, const uint4* b, float* y, int skipped)
{
    DYNAMIC_SHARED(char, shared);
    const int thread = threadIdx.x;
    for (int i = thread; i < PLANE / 16; i += 128) ((uint4*)shared)[i] = a[i];
    for (int i = thread; i < B_PLANES * PLANE / 16; i += 128) ((uint4*)(shared + PLANE))[i] = b[i];
    __syncthreads();
    const MatrixDescriptor of_a = transposed_descriptor(shared + skipped, PLANE);
    const MatrixDescriptor of_b = transposed_descriptor(shared + PLANE, PLANE);
    float d[COUNT];
    warpgroup_fence();
    for (int k = 0; k < 2; ++k)
        wgmma_fp16_transposed(d, advance_descriptor(of_a, 16 * k * ROW_BYTES),
                              advance_descriptor(of_b, 16 * k * ROW_BYTES), k > 0);
    warpgroup_commit_group();
    warpgroup_wait_group<0>();
    for (int j = 0; j < COUNT / 4; ++j)
        for (int h = 0; h < 2; ++h)
            for (int i = 0; i < 2; ++i)
                y[(16 * (thread / 32) + thread % 32 / 4 + 8 * h) * COLUMNS + 8 * j + 2 * (thread % 4) + i] =
                    d[4 * j + 2 * h + i];
}
"""


def transposed_planes(rows):
    """Rows ``[rows][32]`` of halves as swizzled planes ``[planes][32][64]``, filled up with NaN."""
    planes = -(-len(rows) // 64)
    filled = np.full((planes * 64, 32), np.nan, "f2")
    filled[: len(rows)] = rows
    return np.stack([swizzled(np.ascontiguousarray(plane.T)) for plane in filled.reshape(planes, 64, 32)])


def transposed_product(tmp_path, n, skipped=0):
    a, b = random_halves((64, 32)), random_halves((n, 32), 1)
    arrays = [transposed_planes(a), transposed_planes(b), np.zeros((64, n), "f4"), skipped]
    shared = (1 + -(-n // 64)) * 32 * ROW
    _, _, y, _ = run(tmp_path, TRANSPOSED_PRODUCT, arrays, block=GROUP, shared=shared, COUNT=n // 2)
    return y, a.astype("f8") @ b.T.astype("f8")


@pytest.mark.parametrize("n", [32, 96, 144, 192])
def test_a_warpgroup_multiplies_transposed_matrices(tmp_path, n):
    y, expected = transposed_product(tmp_path, n)
    np.testing.assert_allclose(y, expected, atol=1e-5)


def test_transposed_planes_that_begin_within_an_atom_are_reported(tmp_path):
    with pytest.raises(LaunchError, match=r"wgmma needs planes aligned to 1024 bytes, .* at kernel\.cu:12"):
        transposed_product(tmp_path, 64, skipped=128)


@pytest.mark.parametrize("arguments", ["rows + 1, 64", "rows, 8", "rows, 0", "rows, 1 << 18"])
def test_planes_that_a_descriptor_cannot_address_are_reported(tmp_path, arguments):
    body = f"""extern "C" __global__ void kernel(int*)
{{
    __shared__ __align__(16) char rows[64];
    unswizzled_descriptor({arguments});
}}"""
    with pytest.raises(LaunchError, match=r"wgmma needs planes aligned to 16 bytes, .* at kernel\.cu:5"):
        run(tmp_path, body, [np.zeros(1, "i4")])


@pytest.mark.parametrize("order", ORDERS)
def test_a_warp_has_its_first_lanes_value(tmp_path, order):
    body = """extern "C" __global__ void kernel(int* y)
{
    y[threadIdx.x] = warp_uniform(threadIdx.x + 1);
}"""
    (y,) = run(tmp_path, body, [np.zeros(64, "i4")], block=(64, 1, 1), order=order)
    np.testing.assert_array_equal(y, np.repeat([1, 33], 32))


@pytest.mark.parametrize(
    "statement, threads, message",
    [
        ("wgmma_fp16(d, 64 * (threadIdx.x / 64), 0, true);", 128, "multiply different matrices, at .*:5"),
        (
            "if (threadIdx.x < 9) wgmma_fp16(d, 0, 0, true); else wgmma_fp16(e, 0, 0, true);",
            128,
            "the threads of a warpgroup call different functions",
        ),
        ("wgmma_fp16(d, 0, 0, true);", 96, "a warpgroup has 128 threads, and this block ends before, at .*:5"),
    ],
)
def test_misuse_of_wgmma_is_reported(tmp_path, statement, threads, message):
    body = f"""extern "C" __global__ void kernel(int*)
{{
    float d[32] = {{}}, e[48] = {{}};
    {statement}
}}"""
    with pytest.raises(LaunchError, match=message):
        run(tmp_path, body, [np.zeros(1, "i4")], block=(threads, 1, 1))


# ---- The other builds ------------------------------------------------------------------------------------------------

OVERRUN = """
import sys
from pathlib import Path
import test_host_hopper as t
folder = Path(sys.argv[1])
module = t.compiled(folder, t.BOX.replace("LOAD", t.TILED), "kernel", build="asan")
said = []
for elements, shared in ((4 * 64, 512), (4 * 64 - 8, 512), (4 * 64, 496)):
    x, _ = t.on_device(t.random_halves((elements,)), "asan")
    y, result = t.on_device(t.np.zeros((4, 64), "f2"), "asan")
    encoded = t.encode(t.a_map((64, 4, 1), (128, 512), (64, 4, 1)), t.Problem(t.CONV), x.pointer, t.HostBuffer)
    try:
        module.launch("kernel", t.ONE, t.WARP, shared, [encoded, 512, 0, 0, 0, y, 0])
        said.append(None)
    except t.LaunchError as error:
        said.append(str(error))
product = t.compiled(folder, t.GROUP_PRODUCT, "kernel", build="asan", COUNT=32)
a, b = (t.on_device(t.random_halves((rows, 64), rows), "asan")[0] for rows in (128, 64))
y, result = t.on_device(t.np.zeros((128, 64), "f4"), "asan")
product.launch("kernel", t.ONE, (256, 1, 1), 192 * t.ROW, [a, b, y, 1, 0])
print(t.json.dumps([*said, float(abs(result).max())]))
"""


@needs_asan
def test_address_sanitizer_watches_copies(tmp_path):
    whole, beyond_array, beyond_shared, largest = json.loads(
        in_new_process(OVERRUN, str(tmp_path), **asan_environment())
    )
    assert whole is None
    assert "reads 16 bytes, 0 bytes beyond a buffer of 496 bytes" in beyond_array
    assert "writes 16 bytes, 0 bytes beyond dynamic shared memory of 496 bytes" in beyond_shared
    assert largest > 1


def traced_ring(tmp_path, body, steps, order=0):
    module = compiled(tmp_path, body, "kernel", build="trace", order=order)
    arrays = [on_device(np.zeros((steps, 128), "i4"))[0], on_device(np.zeros((2, 128), "i4"))[0]]
    launch = LaunchConfig("kernel", (), ONE, (384, 1, 1), 0)
    return trace_launch(module, launch, [*arrays, steps], arrays, [0])


@needs_gcc
@pytest.mark.parametrize("order", ORDERS[:3])
def test_barriers_put_accesses_in_order_for_the_trace(tmp_path, order):
    trace = traced_ring(tmp_path, RING, 7, order)
    assert not trace.races
    assert trace.total("global", "load").requests == 7 * 4


@needs_gcc
def test_without_barriers_the_trace_finds_the_races(tmp_path):
    unordered = RING.replace("mbarrier_wait(&full", "(void)(&full").replace("mbarrier_arrive(&full", "(void)(&full")
    assert {race.space for race in traced_ring(tmp_path, unordered, 2).races} == {"shared"}


@needs_gcc
def test_the_trace_leaves_out_what_the_tensor_cores_read(tmp_path):
    module = compiled(tmp_path, GROUP_PRODUCT, "kernel", build="trace", COUNT=32)
    arrays = [on_device(np.zeros(shape, "f2"))[0] for shape in ((128, 64), (64, 64), (128, 128))]
    launch = LaunchConfig("kernel", (), ONE, (256, 1, 1), 192 * ROW)
    trace = trace_launch(module, launch, [*arrays, 1, 0], arrays, [0])
    assert not trace.races
    assert trace.total("shared", "load") is None
    assert trace.total("shared", "store").requests == 192 * ROW // (32 * 16)
