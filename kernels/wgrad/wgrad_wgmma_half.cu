// wgrad-wgmma-half: dw by wgmma from NHWC operands as they lie, neither of them transposed.
//
// Technique: implicit GEMM for wgrad; warp-specialized (producer/consumer warpgroups); wgmma on transposed fp16
// operands with fp32 accumulators; TMA tile and im2col modes, 128-byte swizzle; mbarrier pipeline; stream-K with an
// ordered reduction; blocked summation.
// Read next: wgrad/stream_k.cuh, then wgrad/wgrad_wgmma_half_blocked.cu.
// Run: alexconv run --rungs wgrad-wgmma-half --layers 3
//
// Parent: wgrad-mma-half, whose warps compute addresses, load operands value by value and keep them in registers on
// their way to shared memory.  Here one thread tells TMA what to bring, padding and strides included, and a
// warpgroup multiplies from shared memory what the copies left there: in NHWC both operands have the sum's index, the
// pixels, outermost, and wgmma reads fp16 matrices in that order too.
//
// multiply: a block computes an equal part of the stages of all tiles of TILE_FILTERS filters x TILE_TAPS taps; a
// consumer thread accumulates TILE_TAPS / 4 taps of two filters. reduce_fragments: a thread adds the fragments' sums of
// one weight, in a fixed order.
#include <cuda_fp16.h>

#define IN_PLACE 1
#define PROMOTED_PLANES 2
#include "stream_k.cuh"

static_assert(C % CHUNK == 0 && M % CHUNK == 0, "TMA takes whole chunks");

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* input_map,     // of x [N][H][W][C]
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

ASSERT_STREAM(1, AsTheyAre);
ASSERT_INPUT_MAP(INPUT_MAP);
ASSERT_GRADIENT_MAP(GRADIENT_MAP);
