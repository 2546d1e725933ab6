// wgrad-wgmma-split: the accuracy of fp32 from three products of fp16 terms.
//
// Technique: split-fp16 emulation of fp32 (hi and lo terms), scaled by exact powers of two; space-to-depth for strides;
// implicit GEMM for wgrad by wgmma on transposed operands, fed by the TMA; each stage's sums promoted to fp32
// accumulators in registers; stream-K with an ordered reduction.
// Read next: wgrad/stream_k.cuh (consume), then wgmma/wgmma_split.cu.
// Run: alexconv run --rungs wgrad-wgmma-split --layers 3
//
// Parent: wgrad-wgmma-scaled, whose operands keep 11 bits of a float's 24.  Here a float is the sum of two fp16 terms,
// and three of the four products are added; lo times lo is below a float's last bits.  Tensor cores truncate when they
// accumulate: they accumulate one stage's products only.
//
// prepare: a block writes 64 channels of 64 pixels of x or dy. prepare_outliers: a block converts a channel again whose
// values are very large or small. multiply: a block computes an equal part of the stages of all tiles of TILE_FILTERS
// filters x TILE_TAPS taps; a consumer thread accumulates TILE_TAPS / 4 taps of two filters. reduce_fragments: a thread
// adds the fragments' sums of some weights, in a fixed order.
#include <cuda_fp16.h>

#define TERMS 2
#define PROMOTED_PLANES 0
#include "scaled_operands.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare(const float* __restrict__ x,                 // [N][C][H][W]
            const float* __restrict__ dy,                // [N][M][E][F]
            unsigned* __restrict__ input_magnitudes,     // [N][TILES_OF_PLANE][BLOCKED_C]
            unsigned* __restrict__ gradient_magnitudes,  // [N][TILES_OF_PLANE][GRADIENT_C]
            __half* __restrict__ pixels_hi,
            __half* __restrict__ pixels_lo,  // both [N][BLOCKED_H][BLOCKED_W][BLOCKED_C]
            __half* __restrict__ gradients_hi,
            __half* __restrict__ gradients_lo)  // both [N][E][F][GRADIENT_C]
{
    allow_dependent_launch();
    prepare_tile({x, input_magnitudes, nullptr, {pixels_hi, pixels_lo}},
                 {dy, gradient_magnitudes, nullptr, {gradients_hi, gradients_lo}});
}

extern "C" __global__ void __launch_bounds__(CHECK_THREADS)
    prepare_outliers(const float* __restrict__ x,                 // [N][C][H][W]
                     const float* __restrict__ dy,                // [N][M][E][F]
                     unsigned* __restrict__ input_magnitudes,     // [N][TILES_OF_PLANE][BLOCKED_C]
                     unsigned* __restrict__ gradient_magnitudes,  // [N][TILES_OF_PLANE][GRADIENT_C]
                     int* __restrict__ input_exponents,           // [BLOCKED_C]
                     int* __restrict__ gradient_exponents,        // [GRADIENT_C]
                     __half* __restrict__ pixels_hi,
                     __half* __restrict__ pixels_lo,  // both [N][BLOCKED_H][BLOCKED_W][BLOCKED_C]
                     __half* __restrict__ gradients_hi,
                     __half* __restrict__ gradients_lo,  // both [N][E][F][GRADIENT_C]
                     long long N)
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the magnitudes and the operands
    check_operands({x, input_magnitudes, input_exponents, {pixels_hi, pixels_lo}},
                    {dy, gradient_magnitudes, gradient_exponents, {gradients_hi, gradients_lo}}, N);
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* input_hi_map,     // of pixels_hi
             const TensorMap* input_lo_map,     // of pixels_lo
             const TensorMap* gradient_hi_map,  // of gradients_hi
             const TensorMap* gradient_lo_map,  // of gradients_lo
             float* __restrict__ partial,       // [SLOTS][TILE_FILTERS][TILE_TAPS]
             long long N)
{
    multiply_stream<2>({{gradient_hi_map, gradient_lo_map}, {input_hi_map, input_lo_map}}, partial, N);
}

ASSERT_ELEMENTS(PIXELS_HI, Inputs::ELEMENTS);
ASSERT_ELEMENTS(PIXELS_LO, Inputs::ELEMENTS);
ASSERT_ELEMENTS(GRADIENTS_HI, Gradients::ELEMENTS);
ASSERT_ELEMENTS(GRADIENTS_LO, Gradients::ELEMENTS);
ASSERT_INPUT_MAP(INPUT_HI_MAP);
ASSERT_INPUT_MAP(INPUT_LO_MAP);
ASSERT_GRADIENT_MAP(GRADIENT_HI_MAP);
ASSERT_GRADIENT_MAP(GRADIENT_LO_MAP);
