// wgmma-split-resident: filters that stay in shared memory.
//
// Technique: shared-memory-resident filters; split-fp16 emulation of fp32 (hi and lo terms); ping-pong consumers;
// persistent, warp-specialized kernel; wgmma without swizzle; bulk TMA copies; epilogue transposed through shared
// memory.
// Read next: resident.cuh (mainloop, ping-pong), study_epilogue.cuh, then wgmma/wgmma_winograd.cu.
// Run: alexconv run --rungs wgmma-split-resident --layers 1
//
// Parent: wgmma-split, which the L2 cache limits where filters are few: every tile fetches all of them again, and every
// pixel once for each tap that uses it.  Here a block keeps the filters, hi and lo terms, and fetches a pixel once per
// filter row.  The consumers alternate (ping-pong): while one multiplies, the other stores.  Products of hi terms have
// separate accumulators, so the tensor cores need not pause for promotion.
//
// find_filter_exponents: block m finds the power of two of filter m.  prepare_filters: block (i, s) writes all filters
// at tap s of stage i, a filter row in 16 channels.  prepare_input: block (tile, slice, n) writes a tile of blocked
// image n.  prepare_outliers: block n converts image n again if its values are very large or small.  multiply: a block
// computes tiles of 64 positions x all filters, the consumers in ping-pong; a consumer thread accumulates a quarter of
// the filters at two positions.
#include <cuda_fp16.h>

#define GATHER GATHER_NEVER
#include "resident.cuh"
#include "study_full_range.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_filters(const float* __restrict__ w,              // [M][C][R][S]
                    const int* __restrict__ filter_exponents,  // [M]
                    __half* __restrict__ filters)             // [STAGES_OF_TILE][BLOCKED_S] slices
{
    prepare_resident_filters(w, filter_exponents, filters);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_input(const float* __restrict__ x,  // [N][C][H][W]
                  unsigned* __restrict__ seen,  // [N][SLICES][TILES]
                  __half* __restrict__ pixels_hi,
                  __half* __restrict__ pixels_lo)  // both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
{
    allow_dependent_launch();
    __half* const terms[] = {pixels_hi, pixels_lo};
    prepare_usual_input<ResidentTile>(x, seen, terms);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS)
    prepare_outliers(const float* __restrict__ x,       // [N][C][H][W]
                     const unsigned* __restrict__ seen,  // [N][SLICES][TILES]
                     int* __restrict__ exponents,       // [N]
                     __half* __restrict__ pixels_hi,
                     __half* __restrict__ pixels_lo)  // both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write `seen` and the pixels
    __half* const terms[] = {pixels_hi, pixels_lo};
    prepare_outlier_input<ResidentTile>(x, seen, exponents, terms);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const __half* __restrict__ pixels_hi,
             const __half* __restrict__ pixels_lo,     // both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
             const __half* __restrict__ filters,       // [STAGES_OF_TILE][BLOCKED_S] slices
             const int* __restrict__ exponents,         // [N]
             const int* __restrict__ filter_exponents,  // [M]
             float* __restrict__ y,                     // [N][Y_CHANNELS][E][F]
             long long N EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the pixels and the exponents
    const __half* const terms[] = {pixels_hi, pixels_lo};
    multiply_resident(terms, filters, N,
                      StudyEpilogue<ResidentPositions>{y, exponents, filter_exponents, {int(N)}, ADDENDS(float)});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, sizeof(ResidentStorage));
ASSERT_BLOCK(PREPARE_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, STAGES_OF_TILE, BLOCKED_S, 1);
ASSERT_INPUT_TILES(ResidentTile);
ASSERT_ELEMENTS(PIXELS_HI, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(PIXELS_LO, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(FILTERS, sizeof(ResidentStorage::filters) / sizeof(__half));
