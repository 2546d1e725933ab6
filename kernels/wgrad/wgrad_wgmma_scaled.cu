// wgrad-wgmma-scaled: the study's floats scaled and rounded to fp16: the accuracy of tf32 at twice its rate.
//
// Technique: fp16 operands scaled by exact powers of two, one for each channel of x and filter of dy; space-to-depth
// for strides; implicit GEMM for wgrad by wgmma on transposed operands, fed by the TMA; stream-K with an ordered
// reduction; blocked summation.
// Read next: wgrad/scaled_operands.cuh, then wgrad/wgrad_wgmma_split.cu.
// Run: alexconv run --rungs wgrad-wgmma-scaled --layers 3
//
// Parent: wgrad-wgmma-half-blocked, which takes fp16. wgmma cannot read tf32 operands transposed, and takes twice the
// time for them. fp16 has tf32's bits but not its exponents: a first kernel scales the floats into fp16's range as it
// writes them channels innermost, and the last kernel removes the scale from the sums.
//
// prepare: a block writes 64 channels of 64 pixels of x or dy. prepare_outliers: a block converts a channel again whose
// values are very large or small. multiply: a block computes an equal part of the stages of all tiles of TILE_FILTERS
// filters x TILE_TAPS taps; a consumer thread accumulates TILE_TAPS / 4 taps of two filters. reduce_fragments: a thread
// adds the fragments' sums of some weights, in a fixed order.
#include <cuda_fp16.h>

#define TERMS 1
#define PROMOTED_PLANES 2
#include "scaled_operands.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare(const float* __restrict__ x,                 // [N][C][H][W]
            const float* __restrict__ dy,                // [N][M][E][F]
            unsigned* __restrict__ input_magnitudes,     // [N][TILES_OF_PLANE][BLOCKED_C]
            unsigned* __restrict__ gradient_magnitudes,  // [N][TILES_OF_PLANE][GRADIENT_C]
            __half* __restrict__ pixels,                 // [N][BLOCKED_H][BLOCKED_W][BLOCKED_C]
            __half* __restrict__ gradients)              // [N][E][F][GRADIENT_C]
{
    allow_dependent_launch();
    prepare_tile({x, input_magnitudes, nullptr, {pixels}}, {dy, gradient_magnitudes, nullptr, {gradients}});
}

extern "C" __global__ void __launch_bounds__(CHECK_THREADS)
    prepare_outliers(const float* __restrict__ x,                 // [N][C][H][W]
                     const float* __restrict__ dy,                // [N][M][E][F]
                     unsigned* __restrict__ input_magnitudes,     // [N][TILES_OF_PLANE][BLOCKED_C]
                     unsigned* __restrict__ gradient_magnitudes,  // [N][TILES_OF_PLANE][GRADIENT_C]
                     int* __restrict__ input_exponents,           // [BLOCKED_C]
                     int* __restrict__ gradient_exponents,        // [GRADIENT_C]
                     __half* __restrict__ pixels,                 // [N][BLOCKED_H][BLOCKED_W][BLOCKED_C]
                     __half* __restrict__ gradients,              // [N][E][F][GRADIENT_C]
                     long long N)
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the magnitudes and the operands
    check_operands({x, input_magnitudes, input_exponents, {pixels}},
                    {dy, gradient_magnitudes, gradient_exponents, {gradients}}, N);
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* input_map,     // of pixels
             const TensorMap* gradient_map,  // of gradients
             float* __restrict__ partial,    // [SLOTS][TILE_FILTERS][TILE_TAPS]
             long long N)
{
    multiply_stream<1>({{gradient_map}, {input_map}}, partial, N);
}

ASSERT_ELEMENTS(PIXELS, Inputs::ELEMENTS);
ASSERT_ELEMENTS(GRADIENTS, Gradients::ELEMENTS);
ASSERT_INPUT_MAP(INPUT_MAP);
ASSERT_GRADIENT_MAP(GRADIENT_MAP);
