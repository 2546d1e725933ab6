// wgmma-scaled: the accuracy of tf32 at the rate of fp16, for the study's arrays.
//
// Technique: floats scaled and rounded to fp16; persistent, warp-specialized implicit GEMM; wgmma with fp32
// accumulators; TMA im2col mode; epilogue transposed through shared memory; programmatic dependent launch.
// Read next: scaled_preparation.cuh, scaling.cuh, study_epilogue.cuh, then wgmma/wgmma_split.cu.
// Run: alexconv run --rungs wgmma-scaled --layers 3
//
// Parent: wgmma-half-blocked, whose input is NHWC fp16.  fp16 has as many mantissa bits as tf32 and multiplies twice as
// fast; a power of two per image makes up for its smaller range.  So the pass over the input that transposes it to NHWC
// and turns a stride into channels (space-to-depth) also scales it and rounds it to fp16: layer 1 is then an ordinary
// layer for the tensor cores.
//
// find_filter_exponents: block m finds the power of two of filter m.  prepare_filters: block (r, m)
// reorders row r of blocked filter m to channels innermost.  prepare_input: block (tile, slice, n) writes a tile of
// blocked image n.  prepare_outliers: block n converts image n again if its values are very large or small.  multiply:
// a block computes tiles of TILE_PIXELS x TILE_FILTERS outputs; a consumer thread accumulates TILE_FILTERS / 4 filters
// at two pixels of each accumulator tile.
#include <cuda_fp16.h>

#include "scaled_preparation.cuh"
#include "stored_terms.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,               // of pixels
             const TensorMap* filter_map,              // of filters
             const int* __restrict__ exponents,         // [N]
             const int* __restrict__ filter_exponents,  // [M]
             float* __restrict__ y,                     // [N][Y_CHANNELS][E][F]
             long long N RANGE_PARAMETER(y_seen)  // [N][STORED_RANGES][E * F]
             TERM_PARAMETER(y_pixels)  // [N][E * F][M]
             EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the pixels and the exponents
    multiply_tiles<BlockedProblem, AccumulateInTensorCores>(
        OperandMaps<1>{{pixel_map}, {filter_map}}, PersistentTiles<BlockedProblem>(N),
        TermsEpilogue<EveryRow, 1>{{y, exponents, filter_exponents, {int(N)}, ADDENDS(float)}, TERM(y_seen), {TERM(y_pixels)}});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, (SHARED_BYTES<1, StudyEpilogue<EveryRow>>));
ASSERT_PIXEL_MAP(PIXEL_MAP);
ASSERT_FILTER_MAP(FILTER_MAP);
