// The fp32 fallback for images and filters that fp16 operands cannot represent, after the kernel for the others: exits
// immediately if there are none.
//
// Gives: compute_in_full_range, compute_tile_in_full_range; FULL_THREADS, FULL_BYTES.
//
// An implicit GEMM from shared memory in fused multiply-adds: outputs are what float32 arithmetic gives, infinities,
// NaN, overflow and subnormal numbers included.  A block computes tiles of FULL_TILE filters at FULL_TILE pixels of an
// image, a thread 4 x 4 of its outputs.
//
// Arrays: input(n, c, h, w) and filter(m, c, r, s) give a float, store(n, m, pixel, value) stores an output
// (StudyArrays; NativeArrays of wgmma/native_full_range.cuh).
#pragma once
#include "bias.cuh"
#include "pooling.cuh"
#include "range.cuh"

constexpr int FULL_TILE = 64, FULL_DEPTH = 16, FULL_SIDE = 4;  // outputs of a tile, taps at a time, outputs of a thread
constexpr int FULL_ACROSS = FULL_TILE / FULL_SIDE, FULL_THREADS = FULL_ACROSS * FULL_ACROSS;
constexpr int FULL_PITCH = FULL_TILE + 4;  // of a tap's filters, which threads write one below the other
constexpr int FULL_BYTES = FULL_DEPTH * (FULL_PITCH + FULL_TILE) * sizeof(float);  // of shared memory: filters, inputs
static_assert(FULL_THREADS % FULL_TILE == 0 && FULL_THREADS % FULL_DEPTH == 0);

// Tiles of filters, those of a group after the other's; tiles of pixels.
SIZE(FULL_GROUP_TILES, (GROUP_M + FULL_TILE - 1) / FULL_TILE); SIZE(FULL_DOWN, GROUPS * FULL_GROUP_TILES);
SIZE(FULL_PIXEL_TILES, (E * F + FULL_TILE - 1) / FULL_TILE);

// The first filter of a tile of filters.
__device__ __forceinline__ int full_filter(int tile)
{
    const int group = GROUPS == 1 ? 0 : tile / FULL_GROUP_TILES;
    return group * GROUP_M + (tile - group * FULL_GROUP_TILES) * FULL_TILE;
}

// Computes a tile, from its first filter and pixel on.
template <class Arrays>
__device__ __forceinline__ void compute_tile_in_full_range(const Arrays& arrays, int n, int m, int pixel)
{
    SHAPE_CONST int TAPS = GROUP_C * R * S, OUTPUTS = E * F;
    DYNAMIC_SHARED(float4, full_memory);
    auto& of_filters = *reinterpret_cast<float(*)[FULL_DEPTH][FULL_PITCH]>(full_memory);
    auto& of_inputs = *reinterpret_cast<float(*)[FULL_DEPTH][FULL_TILE]>(&of_filters + 1);
    const int own = threadIdx.x % FULL_TILE, depth = threadIdx.x % FULL_DEPTH;  // a pixel and a tap that this thread loads
    const int end = end_of_group(m), first_channel = (end - GROUP_M) / GROUP_M * GROUP_C;
    const bool is_pixel = pixel + own < OUTPUTS;
    const int h = (pixel + own) / F * U, w = (pixel + own) % F * V;
    const int row = threadIdx.x / FULL_ACROSS * FULL_SIDE, column = threadIdx.x % FULL_ACROSS * FULL_SIDE;
    float sums[FULL_SIDE][FULL_SIDE] = {};
    for (int first = 0; first < TAPS; first += FULL_DEPTH) {
#pragma unroll
        for (int k = threadIdx.x / FULL_TILE; k < FULL_DEPTH; k += FULL_THREADS / FULL_TILE) {
            const int tap = first + k, c = tap / (R * S), r = tap / S % R, s = tap % S;
            of_inputs[k][own] = is_pixel && tap < TAPS ? arrays.input(n, first_channel + c, h + r * DILATION_ROWS, w + s * DILATION_COLUMNS) : 0;
        }
#pragma unroll
        for (int i = threadIdx.x / FULL_DEPTH; i < FULL_TILE; i += FULL_THREADS / FULL_DEPTH) {
            const int tap = first + depth, c = tap / (R * S), r = tap / S % R, s = tap % S;
            of_filters[depth][i] = m + i < end && tap < TAPS ? arrays.filter(m + i, c, r, s) : 0;
        }
        __syncthreads();  // the taps' filters and inputs are complete before any thread reads them
#pragma unroll
        for (int k = 0; k < FULL_DEPTH; ++k)
#pragma unroll
            for (int i = 0; i < FULL_SIDE; ++i)
#pragma unroll
                for (int j = 0; j < FULL_SIDE; ++j) sums[i][j] += of_filters[k][row + i] * of_inputs[k][column + j];
        __syncthreads();  // all threads have read the taps before the next overwrite them
    }
#pragma unroll
    for (int i = 0; i < FULL_SIDE; ++i)
#pragma unroll
        for (int j = 0; j < FULL_SIDE; ++j)
            if (m + row + i < end && pixel + column + j < OUTPUTS)
                arrays.store(n, m + row + i, pixel + column + j, sums[i][j]);
}

// The study's arrays, and the filters from find_filter_exponents.
struct StudyArrays {
    const float* x;             // [N][C][H][W]
    const float* full_filters;  // [M][GROUP_C * R * S]
    float* y;                   // [N][Y_CHANNELS][E][F]
    Addends<float> added;

    // c counts from the image's first channel, in filters from the group's; h and w from the corner of the padded plane.
    __device__ __forceinline__ float input(int n, int c, int h, int w) const
    {
        if (HAS_PADDING && !in_plane(h, w)) return 0;
        return load_input(x + ((size_t)n * C + c) * PLANE_ELEMENTS + place_in_plane(h - TOP, w - LEFT));
    }

    __device__ __forceinline__ float filter(int m, int c, int r, int s) const
    {
        return full_filters[((size_t)m * GROUP_C + c) * (R * S) + r * S + s];
    }

    __device__ __forceinline__ void store(int n, int m, int pixel, float value) const
    {
        const size_t place = ((size_t)n * Y_CHANNELS + m) * (E * F) + pixel;
        y[place] = added.finished(value, m, place);
    }
};

// Whether any image or filter has no exponent; called by all threads of a block.
__device__ __forceinline__ bool any_without_exponent(const int* __restrict__ exponents,         // [N]
                                                     const int* __restrict__ filter_exponents,  // [M]
                                                     int images)
{
    bool any = false;
    for (int n = threadIdx.x; n < images; n += FULL_THREADS) any |= exponents[n] == NO_EXPONENT;
    for (int m = threadIdx.x; m < M; m += FULL_THREADS) any |= filter_exponents[m] == NO_EXPONENT;
    return __syncthreads_or(any);
}

// Computes the tiles that have an image or a filter without an exponent, in a grid-stride loop.
__device__ __forceinline__ void compute_in_full_range(const StudyArrays& arrays,
                                                      const int* __restrict__ exponents,         // [N]
                                                      const int* __restrict__ filter_exponents,  // [M]
                                                      int images)
{
    if (!any_without_exponent(exponents, filter_exponents, images)) return;
    const int tiles = images * FULL_DOWN * FULL_PIXEL_TILES, own = threadIdx.x % FULL_TILE;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int n = tile / (FULL_DOWN * FULL_PIXEL_TILES), m = full_filter(tile % FULL_DOWN);
        const bool of_filter = m + own < end_of_group(m) && filter_exponents[m + own] == NO_EXPONENT;
        if (__syncthreads_or(exponents[n] == NO_EXPONENT || of_filter))
            compute_tile_in_full_range(arrays, n, m, tile / FULL_DOWN % FULL_PIXEL_TILES * FULL_TILE);
    }
}
