// A convolution in fp32 of the images and filters that fp16 operands cannot carry, after the kernel that has multiplied
// the others: exits at once where there are none.
//
// Gives: compute_in_full_range; FULL_THREADS.
//
// An implicit GEMM from shared memory, one fused multiply-add after the other: whatever float32 arithmetic gives for
// infinities, NaN, overflow and subnormal numbers, an output gets.  A block computes tiles of FULL_TILE filters at
// FULL_TILE pixels of an image, a thread 4 x 4 of its outputs.
#pragma once
#include "range.cuh"

constexpr int FULL_TILE = 64, FULL_DEPTH = 16, FULL_SIDE = 4;  // outputs of a tile, its taps at a time, of a thread
constexpr int FULL_ACROSS = FULL_TILE / FULL_SIDE, FULL_THREADS = FULL_ACROSS * FULL_ACROSS;
static_assert(FULL_THREADS % FULL_TILE == 0);

// Whether any image or filter has no exponent; for all threads of a block.
__device__ __forceinline__ bool any_without_exponent(const int* __restrict__ exponents,         // [N]
                                                     const int* __restrict__ filter_exponents,  // [M]
                                                     int images)
{
    bool any = false;
    for (int n = threadIdx.x; n < images; n += FULL_THREADS) any |= exponents[n] == NO_EXPONENT;
    for (int m = threadIdx.x; m < M; m += FULL_THREADS) any |= filter_exponents[m] == NO_EXPONENT;
    return __syncthreads_or(any);
}

// Computes the tiles that have an image or a filter without an exponent, every gridDim.x-th.
__device__ __forceinline__ void compute_in_full_range(const float* __restrict__ x,               // [N][C][H][W]
                                                      const float* __restrict__ full_filters,    // [C * R * S][M]
                                                      const int* __restrict__ exponents,         // [N]
                                                      const int* __restrict__ filter_exponents,  // [M]
                                                      float* __restrict__ y,                     // [N][M][E][F]
                                                      int images)
{
    constexpr int TAPS = C * R * S, OUTPUTS = E * F;
    constexpr int DOWN = (M + FULL_TILE - 1) / FULL_TILE, ACROSS = (OUTPUTS + FULL_TILE - 1) / FULL_TILE;
    alignas(16) __shared__ float of_filters[FULL_DEPTH][FULL_TILE], of_inputs[FULL_DEPTH][FULL_TILE];
    if (!any_without_exponent(exponents, filter_exponents, images)) return;
    const int own = threadIdx.x % FULL_TILE;  // the filter and the pixel of the tile that this thread loads
    const int row = threadIdx.x / FULL_ACROSS * FULL_SIDE, column = threadIdx.x % FULL_ACROSS * FULL_SIDE;
    for (int tile = blockIdx.x; tile < images * DOWN * ACROSS; tile += gridDim.x) {
        const int n = tile / (DOWN * ACROSS), m = tile % DOWN * FULL_TILE, pixel = tile / DOWN % ACROSS * FULL_TILE;
        const bool is_filter = m + own < M, is_pixel = pixel + own < OUTPUTS;
        const bool of_filter = is_filter && filter_exponents[m + own] == NO_EXPONENT;
        // Also a barrier: all threads have read what the tile before left in shared memory.
        if (!__syncthreads_or(exponents[n] == NO_EXPONENT || of_filter)) continue;
        const int e = (pixel + own) / F, f = (pixel + own) % F;
        const float* const window = x + ((size_t)n * C * H + e * U) * W + f * U;
        float sums[FULL_SIDE][FULL_SIDE] = {};
        for (int first = 0; first < TAPS; first += FULL_DEPTH) {
#pragma unroll
            for (int k = threadIdx.x / FULL_TILE; k < FULL_DEPTH; k += FULL_THREADS / FULL_TILE) {
                const int tap = first + k, c = tap / (R * S), r = tap / S % R, s = tap % S;
                of_filters[k][own] = is_filter && tap < TAPS ? full_filters[(size_t)tap * M + m + own] : 0;
                of_inputs[k][own] = is_pixel && tap < TAPS ? window[((size_t)c * H + r) * W + s] : 0;
            }
            __syncthreads();  // the taps' filters and inputs are complete before any thread reads them
#pragma unroll
            for (int k = 0; k < FULL_DEPTH; ++k)
#pragma unroll
                for (int i = 0; i < FULL_SIDE; ++i)
#pragma unroll
                    for (int j = 0; j < FULL_SIDE; ++j)
                        sums[i][j] += of_filters[k][row + i] * of_inputs[k][column + j];
            __syncthreads();  // all threads have read the taps before the next overwrite them
        }
#pragma unroll
        for (int i = 0; i < FULL_SIDE; ++i)
#pragma unroll
            for (int j = 0; j < FULL_SIDE; ++j)
                if (m + row + i < M && pixel + column + j < OUTPUTS)
                    y[((size_t)n * M + m + row + i) * OUTPUTS + pixel + column + j] = sums[i][j];
    }
}
