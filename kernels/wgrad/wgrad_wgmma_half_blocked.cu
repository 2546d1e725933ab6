// wgrad-wgmma-half-blocked: space-to-depth first, for few channels and a stride.
//
// Technique: space-to-depth; otherwise as wgrad-wgmma-half: implicit GEMM for wgrad; wgmma on transposed fp16 operands
// fed by the TMA; stream-K with an ordered reduction; blocked summation.
// Read next: wgrad/pixel_runs.cuh, then wgrad/wgrad_wgmma_scaled.cu.
// Run: alexconv run --rungs wgrad-wgmma-half-blocked --layers 1
//
// Parent: wgrad-wgmma-half, which takes channels in chunks of eight and gathers one tap at a time: of a layer with
// three channels it would leave almost all of a product empty.  Here a first kernel makes U x U pixels one, with U * U
// times the channels, so that a row of the smaller filter is one run of many taps.
//
// prepare_input: a thread writes eight channels of one blocked pixel.  multiply: a block computes an equal part of the
// stages of all tiles of TILE_FILTERS filters x TILE_TAPS taps; a consumer thread accumulates TILE_TAPS / 4 taps of two
// filters.  reduce_fragments: a thread adds the fragments' sums of one weight, in a fixed order.
#include <cuda_fp16.h>

#define PROMOTED_PLANES 2
#include "stream_k.cuh"

static_assert(M % CHUNK == 0, "the copy engine takes whole chunks");
constexpr int PLANE_CHUNKS = BLOCKED_H * BLOCKED_W * (BLOCKED_C / CHUNK);

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_input(const __half* __restrict__ x,  // [N][H][W][C]
                  uint4* __restrict__ pixels,    // [N][BLOCKED_H][BLOCKED_W][BLOCKED_C / CHUNK]
                  long long N)
{
    allow_dependent_launch();
    const int i = blockIdx.x * BLOCK_THREADS + threadIdx.x;
    if (i >= PLANE_CHUNKS) return;
    const int pixel = i / (BLOCKED_C / CHUNK), first = i % (BLOCKED_C / CHUNK) * CHUNK;
    const int h = pixel / BLOCKED_W * SIDE, w = pixel % BLOCKED_W * SIDE;
    x += (size_t)blockIdx.z * H * W * C;
    unsigned words[CHUNK / 2] = {};
#pragma unroll
    for (int j = 0; j < CHUNK; ++j) {
        const int channel = first + j, c = channel / SQUARE;
        const int row = h + channel / SIDE % SIDE, column = w + channel % SIDE;
        const bool inside = c < C && (SIDE == 1 || in_plane(row, column));
        const int place = SIDE == 1 ? row * W + column : (row - TOP) * W + column - LEFT;
        const unsigned short bits = inside ? __half_as_ushort(x[place * C + c]) : 0;
        words[j / 2] |= unsigned(bits) << (16 * (j % 2));
    }
    pixels[(size_t)blockIdx.z * PLANE_CHUNKS + i] = make_uint4(words[0], words[1], words[2], words[3]);
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* input_map,     // of pixels
             const TensorMap* gradient_map,  // of dy [N][E][F][M]
             float* __restrict__ partial,    // [SLOTS][TILE_FILTERS][TILE_TAPS]
             long long N)
{
    multiply_stream<1>({{gradient_map}, {input_map}}, partial, N);
}

extern "C" __global__ void __launch_bounds__(REDUCTION_THREADS)
    reduce_fragments(const float* __restrict__ partial,  // [SLOTS][TILE_FILTERS][TILE_TAPS]
                     __half* __restrict__ dw,            // [M][C][R][S]
                     long long N)
{
    add_fragments(partial, dw, N);
}

ASSERT_BLOCK(PREPARE_INPUT, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_INPUT, (PLANE_CHUNKS + BLOCK_THREADS - 1) / BLOCK_THREADS, 1, 1);
ASSERT_ELEMENTS(PIXELS, 1ll * PLANE_CHUNKS * CHUNK);
ASSERT_STREAM(1);
ASSERT_INPUT_MAP(INPUT_MAP);
ASSERT_GRADIENT_MAP(GRADIENT_MAP);
