// mma-half: fp16 with channels innermost: half the bytes, twice the products per instruction.
//
// Technique: implicit GEMM on tensor cores (mma.sync, fp16 with fp32 accumulation), NHWC; split-K over blocks and
// sliced-K over warps; multistage cp.async pipeline; programmatic dependent launch.
// Read next: mma_tile.cuh (split-K, mainloop, epilogue), then wgmma/wgmma_half.cu.
// Run: alexconv run --rungs mma-half --layers 3 --N 1
//
// Parent: mma-tf32, which reads four bytes per operand and rounds them.  fp16 needs no rounding, and with channels
// contiguous in memory a word holds two of them, and one copy eight if C and CHANNELS are multiples of eight.
// Accumulators are fp32; outputs are rounded once.
//
// A block computes TILE_FILTERS filters at TILE_PIXELS pixels of an image for some of the channels; a warp
// TILE_FILTERS / WARPS_DOWN of these filters for some of the steps; a thread four of every 16 x 8 outputs.
// mma_half_filters: a thread writes one word.
#include "mma_tile.cuh"

struct Pixels {
    using Value = __half;
    MEMBER_DIVISOR(CHANNEL_WORDS, CHANNEL_WORDS, divide_up(CHANNELS, 2));
    MEMBER_SIZE(WORDS, R * S * OF(Pixels, CHANNEL_WORDS));
    MEMBER_FLAG(VECTORS, GROUP_C % 8 == 0 && CHANNELS % 8 == 0);
    MEMBER_FLAG(PAIRS, GROUP_C % 2 == 0 && CHANNELS % 2 == 0);

    // Words of a copy, and copies of a pixel.
    MEMBER_SIZE(COPIED_WORDS, OF(Pixels, VECTORS) ? 4 : 1);
    MEMBER_DIVISOR(COPIES, PIXEL_COPIES, OF(Pixels, CHANNEL_WORDS) / OF(Pixels, COPIED_WORDS));

    // Words from a pixel to the next: for vectors an odd number of them, so that the lanes' pixels have no bank
    // conflicts.
    MEMBER_SIZE(PITCH, OF(Pixels, CHANNEL_WORDS) +
                           (OF(Pixels, VECTORS) && OF(Pixels, CHANNEL_WORDS) / 4 % 2 == 0 ? 4 : 0));
    MEMBER_SIZE(INPUT_PIXELS, INPUT_ROWS * PADDED_W);
    MEMBER_SIZE(INPUT_WORDS, OF(Pixels, INPUT_PIXELS) * OF(Pixels, PITCH));
    MEMBER_SIZE(FLAGS, 0);
    static constexpr int FACTORS = 0;  // of scaled operands
    static constexpr bool CARRIES_INFINITY = true;
    MEMBER_SIZE(NEXT_CHANNEL, 1);  // values of x from a channel to the next

    // The tile's outputs in shared memory: a row of filters per pixel, padded against bank conflicts of a warp's
    // stores.
    static constexpr int TILE_PITCH = TILE_FILTERS + 4, TILE_WORDS = TILE_PIXELS * TILE_PITCH;

    // Word k of a K tile's depth is tap (r, s) of two channels, its inputs lie [INPUT_ROWS][PADDED_W][PITCH].
    static __device__ __forceinline__ int word(int k)
    {
        const int tap = k / OF(Pixels, CHANNEL_WORDS);
        return (tap / S * DILATION_ROWS * PADDED_W + tap % S * DILATION_COLUMNS) * OF(Pixels, PITCH) +
               k % OF(Pixels, CHANNEL_WORDS);
    }

    // The first input of a pixel's window, in the tile's `row` of outputs.
    static __device__ __forceinline__ int pixel(int row, int column)
    {
        return (row * U * PADDED_W + column * V) * OF(Pixels, PITCH);
    }

    // Two fp16 values as a word.
    static __device__ __forceinline__ unsigned pair(__half low, __half high)
    {
        return __half_as_ushort(low) | (unsigned)__half_as_ushort(high) << 16;
    }

    static __device__ __forceinline__ unsigned filter(const __half* w,  // [M][GROUP_C][R][S]
                                                      int m, int k_tile, int k)
    {
        const int tap = k / OF(Pixels, CHANNEL_WORDS), first = k % OF(Pixels, CHANNEL_WORDS) * 2;
        const auto half = [&](int channel) {
            const int c = k_tile * CHANNELS + channel;
            return channel < CHANNELS && c < GROUP_C ? filter_tap(w, m, c, tap) : __float2half(0);
        };
        return pair(half(first), half(first + 1));
    }

    // With padding: the offset, in elements, of the i-th pixel from a row's first.
    static __device__ __forceinline__ int place(int i)
    {
        return (i / PADDED_W * W + i % PADDED_W) * C;
    }

    // Whether that pixel is in memory, given that it is above the padding at the bottom.
    static __device__ __forceinline__ bool is_input(int i, int row)
    {
        return !HAS_PADDING || clear_of_border(row + i / PADDED_W, i % PADDED_W);
    }

    // Copies the rows from `row` on, asynchronously where alignment permits; zeros beyond the last row or channel, and
    // in the padding.
    static __device__ __forceinline__ void copy(unsigned* to, const __half* x,  // x [H][W][C], from the group's
                                                int row, int k_tile)           // first channel on
    {
        SHAPE_CONST int COPIED = OF(Pixels, COPIED_WORDS), COUNT = OF(Pixels, COPIES), INPUTS = OF(Pixels, INPUT_PIXELS);
        SHAPE_CONST int TOGETHER = THREADS > COUNT ? THREADS / OF(Pixels, COPIES) : 1;  // pixels copied at a time
        const int first = threadIdx.x / OF(Pixels, COPIES);
        if (first >= TOGETHER) return;
        for (int copied = threadIdx.x % OF(Pixels, COPIES); copied < COUNT; copied += THREADS) {
            const int channel = copied * COPIED * 2, c = k_tile * CHANNELS + channel;
            // Pixels above the bottom edge of the plane; of the padded plane if there is padding.
            const int valid = c < GROUP_C ? (H + TOP - row) * PADDED_W - first : 0;
            const __half* const from = x + ((size_t)row * W + (HAS_PADDING ? 0 : first)) * C + c - (TOP * W + LEFT) * C;
            unsigned* const words = to + first * OF(Pixels, PITCH) + copied * COPIED;
            const bool second = channel + 1 < CHANNELS && c + 1 < GROUP_C;
            const auto at = [=](int i) { return HAS_PADDING ? place(first + i) : i * C; };
            IF_SHAPE (OF(Pixels, VECTORS) || OF(Pixels, PAIRS)) {
#pragma unroll UNROLLED_COPIES
                for (int i = 0; i < INPUTS; i += TOGETHER) {
                    if (i + TOGETHER > INPUTS && i + first >= INPUTS) break;
                    const bool there = i < valid && is_input(first + i, row);
                    IF_SHAPE (OF(Pixels, VECTORS))
                        copy_async_16(words + i * OF(Pixels, PITCH), from + at(i), there);
                    else
                        copy_async_4(words + i * OF(Pixels, PITCH), from + at(i), there);
                }
            } else {
                // All loads of a batch are in flight before the first is used.
#ifdef DYNAMIC_SHAPE
                constexpr int BATCH = UNROLLED_COPIES;
#else
                constexpr int LOADS = divide_up(INPUTS, TOGETHER), MOST = 3 * UNROLLED_COPIES;
                constexpr int BATCH = divide_up(LOADS, divide_up(LOADS, MOST));
#endif
                for (int start = 0; start < INPUTS; start += BATCH * TOGETHER) {
                    __half low[BATCH], high[BATCH];
#pragma unroll
                    for (int j = 0; j < BATCH; ++j) {
                        const int i = start + j * TOGETHER;
                        const bool there = i < valid && is_input(first + i, row);
                        low[j] = there ? __ldg(from + at(i)) : __float2half(0);
                        high[j] = there && second ? __ldg(from + at(i) + 1) : __float2half(0);
                    }
#pragma unroll
                    for (int j = 0; j < BATCH; ++j) {
                        const int i = start + j * TOGETHER;
                        if (i + first < INPUTS) words[i * OF(Pixels, PITCH)] = pair(low[j], high[j]);
                    }
                }
            }
        }
    }

    // fp16 needs no rounding.
    static __device__ __forceinline__ void round(unsigned*) {}

    static __device__ __forceinline__ int shared_place(int filter, int pixel)
    {
        return pixel * TILE_PITCH + filter;
    }

    // Writes two pixels' sums of a filter to shared memory.
    static __device__ __forceinline__ void put_neighbours(float* tile, int filter, int pixel, float2 sums)
    {
        tile[shared_place(filter, pixel)] = sums.x;
        tile[shared_place(filter, pixel + 1)] = sums.y;
    }

    static __device__ __forceinline__ int filter_of(int output)
    {
        return output % TILE_FILTERS;
    }

    static __device__ __forceinline__ int pixel_of(int output)
    {
        return output / TILE_FILTERS;
    }

    // Stores four filters of a group at a pixel, in one access where groups have a multiple of four.
    static __device__ __forceinline__ void store(__half* y,  // [N][PIXELS][Y_CHANNELS]
                                                 int n, int group, int filter, int pixel, float4 outputs,
                                                 const Addends<__half>& added)
    {
        if (pixel >= PIXELS) return;
        const int first = group * GROUP_M;
        const size_t place = ((size_t)n * PIXELS + pixel) * Y_CHANNELS + first + filter;
        y += place;
        float values[4] = {outputs.x, outputs.y, outputs.z, outputs.w};
        if constexpr (HAS_EPILOGUE)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (filter + i < GROUP_M) values[i] = added.finished(values[i], first + filter + i, place + i);
        IF_SHAPE (GROUP_M % 4 == 0) {
            if (filter < GROUP_M)
                *reinterpret_cast<uint2*>(y) =
                    make_uint2(pair(__float2half(values[0]), __float2half(values[1])),
                               pair(__float2half(values[2]), __float2half(values[3])));
        } else {
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (filter + i < GROUP_M) y[i] = __float2half(values[i]);
        }
    }
};

extern "C" __global__ void mma_half_filters(
    const __half* __restrict__ w,      // [M][GROUP_C][R][S]
    unsigned* __restrict__ fragments)  // [FILTER_TILES][K_TILES][STEPS][FILTERS]
{
    prepare_fragments<Pixels, Fp16>(fragments,
                                    [=](int m, int k_tile, int k, int) { return Pixels::filter(w, m, k_tile, k); });
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS)
    mma_half(const __half* __restrict__ x,            // [N][H][W][C]
             const unsigned* __restrict__ fragments,  // [FILTER_TILES][K_TILES][STEPS][FILTERS]
             float* partial,                          // [tiles][SPLIT_BLOCKS][TILE_ELEMENTS]
             unsigned* arrived,                       // [tiles][WARPS]
             __half* __restrict__ y                   // [N][E][F][Y_CHANNELS]
             EPILOGUE_PARAMETERS(__half))             // [M]; as y
{
    compute_tile<Pixels, Fp16>(x, fragments, partial, arrived, y, Unscaled(), ADDENDS(__half));
}

using Geometry = Sizes<Pixels, Fp16>;
ASSERT_BLOCK(MMA_HALF, THREADS, 1);
ASSERT_GRID(MMA_HALF, IMAGE_TILES * SPLIT_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MMA_HALF, Geometry::SHARED_BYTES);
ASSERT_GRID(MMA_HALF_FILTERS, divide_up(Geometry::FRAGMENT_WORDS, LADDER_MMA_HALF_FILTERS_THREADS), 1, 1);
ASSERT_ELEMENTS(FRAGMENTS, Geometry::FRAGMENT_WORDS);
ASSERT_ELEMENTS(PARTIAL, PARTIAL_SUMS);
ASSERT_ELEMENTS(ARRIVED, ARRIVAL_COUNTERS);
