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
// prepare_input: a block writes 64 neighbouring blocked pixels.  multiply: a block computes an equal part of the
// stages of all tiles of TILE_FILTERS filters x TILE_TAPS taps; a consumer thread accumulates TILE_TAPS / 4 taps of two
// filters.  reduce_fragments: a thread adds the fragments' sums of some weights, in a fixed order.
#include <cuda_fp16.h>

#define PROMOTED_PLANES 2
#include "stream_k.cuh"

static_assert(M % CHUNK == 0, "TMA takes whole chunks");
constexpr int CHUNKS = BLOCKED_C / CHUNK, BLOCK_PIXELS = 64;
constexpr int TILES_ACROSS_PLANE = (BLOCKED_W + BLOCK_PIXELS - 1) / BLOCK_PIXELS, ROW_VALUES = BLOCK_PIXELS * SIDE * C;

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_input(const __half* __restrict__ x,  // [N][H][W][C]
                  uint4* __restrict__ pixels)    // [N][BLOCKED_H][BLOCKED_W][CHUNKS]
{
    DYNAMIC_SHARED(__half, rows);  // [SIDE][ROW_VALUES]
    allow_dependent_launch();
    const int n = blockIdx.z, h = blockIdx.y, first_w = blockIdx.x * BLOCK_PIXELS;
    const int first_row = h * SIDE - (SIDE == 1 ? 0 : TOP), first_column = first_w * SIDE - (SIDE == 1 ? 0 : LEFT);
    for (int i = threadIdx.x; i < SIDE * ROW_VALUES; i += BLOCK_THREADS) {
        const int row = first_row + i / ROW_VALUES, value = first_column * C + i % ROW_VALUES;
        const bool inside = unsigned(row) < unsigned(H) && unsigned(value) < unsigned(W * C);
        rows[i] = inside ? x[((size_t)n * H + row) * (W * C) + value] : __float2half_rn(0);
    }
    __syncthreads();  // the rows are complete before pixels are read from them
    for (int i = threadIdx.x; i < BLOCK_PIXELS * CHUNKS; i += BLOCK_THREADS) {
        const int pixel = i / CHUNKS, first = i % CHUNKS * CHUNK;
        if (first_w + pixel >= BLOCKED_W) break;
        unsigned words[CHUNK / 2] = {};
#pragma unroll
        for (int j = 0; j < CHUNK; ++j) {
            const int channel = first + j, c = channel / SQUARE;
            if (c >= C) break;
            const int place = channel / SIDE % SIDE * ROW_VALUES + (pixel * SIDE + channel % SIDE) * C + c;
            words[j / 2] |= unsigned(__half_as_ushort(rows[place])) << (16 * (j % 2));
        }
        pixels[(((size_t)n * BLOCKED_H + h) * BLOCKED_W + first_w) * CHUNKS + i] =
            make_uint4(words[0], words[1], words[2], words[3]);
    }
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* input_map,     // of pixels
             const TensorMap* gradient_map,  // of dy [N][E][F][M]
             float* __restrict__ partial,    // [SLOTS][TILE_FILTERS][TILE_TAPS]
             long long N)
{
    multiply_stream<1>({{gradient_map}, {input_map}}, partial, N);
}

extern "C" __global__ void __launch_bounds__(REDUCED_THREADS, REDUCED_BLOCKS)
    reduce_fragments(const float* __restrict__ partial,  // [SLOTS][TILE_FILTERS][TILE_TAPS]
                     __half* __restrict__ dw,            // [M][C][R][S]
                     long long N)
{
    reduce_stream(partial, dw, N, AsTheyAre());
}

ASSERT_BLOCK(PREPARE_INPUT, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_INPUT, TILES_ACROSS_PLANE, BLOCKED_H, 1);
ASSERT_SHARED_BYTES(PREPARE_INPUT, SIDE * ROW_VALUES * sizeof(__half));
ASSERT_ELEMENTS(PIXELS, 1ll * BLOCKED_H * BLOCKED_W * BLOCKED_C);
ASSERT_STREAM(1, AsTheyAre);
ASSERT_INPUT_MAP(INPUT_MAP);
ASSERT_GRADIENT_MAP(GRADIENT_MAP);
