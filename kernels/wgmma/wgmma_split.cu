// wgmma-split: the accuracy of fp32 from three products of fp16 terms.
//
// Technique: split-fp16 emulation of fp32 (hi and lo terms); persistent, warp-specialized implicit GEMM; wgmma with
// each stage's sums promoted to fp32 accumulators in registers; TMA im2col mode; epilogue transposed through shared
// memory.
// Read next: warpgroups.cuh (PromoteEachStage), study_epilogue.cuh, then wgmma/wgmma_window_half.cu.
// Run: alexconv run --rungs wgmma-split --layers 3
//
// Parent: wgmma-scaled, whose fp16 operands keep 11 bits of a float's 24.  Here a float is the sum of two fp16 terms,
// hi, the nearest fp16 value, and lo, the rest: 22 bits and the sign of lo.  The product of two such sums has four
// terms, of which lo times lo is smaller than a float's rounding and is left out.  Three fp16 products cost less than
// half of the same work on the CUDA cores.  (Markidis et al., "NVIDIA Tensor Core programmability, performance and
// precision", 2018; Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores", 2022, who found that
// the truncation inside the tensor cores has to be kept out of long sums.)
//
// find_filter_exponents: block m finds the power of two of filter m.  prepare_filters: block (r, m)
// reorders row r of blocked filter m to channels innermost.  prepare_input: block (tile, slice, n) writes a tile of
// blocked image n.  prepare_outliers: block n converts image n again if its values are very large or small.  multiply:
// a block computes tiles of TILE_PIXELS x TILE_FILTERS outputs; a consumer thread accumulates TILE_FILTERS / 4 filters
// at two pixels of each accumulator tile.
#include <cuda_fp16.h>

#include "stored_terms.cuh"
#include "study_full_range.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_filters(const float* __restrict__ w,              // [M][C][R][S]
                    const int* __restrict__ filter_exponents,  // [M]
                    __half* __restrict__ filters_hi,          // [M][BLOCKED_R][RUN]
                    __half* __restrict__ filters_lo)          // [M][BLOCKED_R][RUN]
{
    __half* const terms[] = {filters_hi, filters_lo};
    prepare_scaled_filters<BlockedFilters>(w, filter_exponents, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_input(const float* __restrict__ x,  // [N][C][H][W]
                  unsigned* __restrict__ seen,  // [N][SLICES][TILES]
                  __half* __restrict__ pixels_hi,
                  __half* __restrict__ pixels_lo)  // both [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    allow_dependent_launch();
    __half* const terms[] = {pixels_hi, pixels_lo};
    prepare_usual_input<BlockedTile<2>>(x, seen, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const unsigned* __restrict__ seen,  // [N][SLICES][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ pixels_hi,
                     __half* __restrict__ pixels_lo)  // both [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write `seen` and the pixels
    __half* const terms[] = {pixels_hi, pixels_lo};
    prepare_outlier_input<BlockedTile<2>>(x, seen, exponents, terms);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_hi_map,            // of pixels_hi
             const TensorMap* pixel_lo_map,            // of pixels_lo
             const TensorMap* filter_hi_map,           // of filters_hi
             const TensorMap* filter_lo_map,           // of filters_lo
             const int* __restrict__ exponents,         // [N]
             const int* __restrict__ filter_exponents,  // [M]
             float* __restrict__ y,                     // [N][Y_CHANNELS][E][F]
             long long N RANGE_PARAMETER(y_seen)  // [N][STORED_RANGES][E * F]
             TERM_PARAMETER(y_pixels_hi) TERM_PARAMETER(y_pixels_lo)  // [N][E * F][M]
             EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the pixels and the exponents
    multiply_tiles<BlockedProblem, PromoteEachStage>(
        OperandMaps<2>{{pixel_hi_map, pixel_lo_map}, {filter_hi_map, filter_lo_map}},
        PersistentTiles<BlockedProblem>(N),
        TermsEpilogue<EveryRow, 2>{{y, exponents, filter_exponents, {int(N)}, ADDENDS(float)}, TERM(y_seen), {TERM(y_pixels_hi), TERM(y_pixels_lo)}});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, (SHARED_BYTES<2, StudyEpilogue<EveryRow>>));
ASSERT_PIXEL_MAP(PIXEL_HI_MAP);
ASSERT_PIXEL_MAP(PIXEL_LO_MAP);
ASSERT_FILTER_MAP(FILTER_HI_MAP);
ASSERT_FILTER_MAP(FILTER_LO_MAP);
ASSERT_BLOCK(PREPARE_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, BLOCKED_R, M, 1);
ASSERT_INPUT_TILES(BlockedTile<2>);
ASSERT_ELEMENTS(PIXELS_HI, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(PIXELS_LO, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(FILTERS_HI, BLOCKED_FILTER_ELEMENTS);
ASSERT_ELEMENTS(FILTERS_LO, BLOCKED_FILTER_ELEMENTS);
