// wgmma-window-scaled: a tile's input once in shared memory, for the study's arrays.
//
// Technique: shared-memory input window, a tap is an offset into it (no im2col gather); ping-pong consumers; floats
// scaled and rounded to fp16; wgmma with accumulators promoted to registers each tap; batch in micro-batches that fit
// L2.
// Read next: window.cuh (mainloop, ping-pong), study_epilogue.cuh, then wgmma/wgmma_split_resident.cu.
// Run: alexconv run --rungs wgmma-window-scaled --layers 1
//
// Parent: wgmma-scaled, which fetches an input from the L2 cache once for each tap that uses it.  As in
// wgmma-window-half a tile's inputs are fetched once, each tap is an offset into them, and the consumers alternate.
// Large batches are computed in micro-batches, so that the multiplication finds its fp16 input in the L2 cache.
//
// find_filter_exponents: block m finds the power of two of filter m.  prepare_filters: block (r, m)
// reorders row r of blocked filter m to channels innermost.  prepare_input: block (tile, slice, n) writes a tile of
// blocked image n.  prepare_outliers: block n converts image n again if its values are very large or small.  multiply:
// a block computes tiles of TILE_PIXELS / 2 positions x all filters, the consumers in ping-pong; a consumer thread
// accumulates a quarter of the filters at two positions of each accumulator tile.
#include <cuda_fp16.h>

#define GATHER GATHER_NEVER
#include "scaled_preparation.cuh"
#include "study_epilogue.cuh"
#include "window.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* position_map,            // of pixels
             const TensorMap* tap_map,                 // of filters
             const int* __restrict__ exponents,         // [N]
             const int* __restrict__ filter_exponents,  // [M]
             float* __restrict__ y,                     // [N][Y_CHANNELS][E][F]
             long long N EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    allow_dependent_launch();
    multiply_windows<WindowPromoted>(position_map, tap_map, N,
                                  StudyEpilogue<OutputPositions>{y, exponents, filter_exponents, {int(N)}, ADDENDS(float)});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, WINDOW_SHARED_BYTES<StudyEpilogue<OutputPositions>>);
ASSERT_POSITION_MAP(POSITION_MAP);
ASSERT_TAP_MAP(TAP_MAP);
