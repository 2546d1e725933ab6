// wgmma-window-half: a tile's input once in shared memory, each tap an offset into it.
//
// Technique: shared-memory input window, a tap is an offset into it (no im2col gather); ping-pong consumers;
// persistent, warp-specialized kernel; wgmma on fp16 with fp32 accumulators; TMA tile mode; space-to-depth.
// Read next: window.cuh (mainloop, ping-pong), native_epilogue.cuh, then wgmma/wgmma_window_scaled.cu.
// Run: alexconv run --rungs wgmma-window-half --layers 1
//
// Parent: wgmma-half-blocked, which fetches an input from the L2 cache once for each tap that uses it: nine times in
// layer 1, where L2 is then the limit.  Here a tile's inputs are fetched once, and the filters stay in shared memory.
// The price: product rows in the last columns or rows of the input are no outputs.  With so few products per tile the
// epilogue takes as long as they do, so the consumers alternate (ping-pong): one stores while the other multiplies.
//
// prepare_filters: block (r, m) writes row r of blocked filter m.  prepare_input: block (tile, slice, n) writes a tile
// of blocked image n.  multiply: a block computes tiles of TILE_PIXELS / 2 positions x all filters, the consumers in
// ping-pong; a consumer thread accumulates a quarter of the filters at two positions of each accumulator tile.
#include <cuda_fp16.h>

#define GATHER GATHER_NEVER
#include "native_epilogue.cuh"
#include "native_full_range.cuh"
#include "window.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_filters(const __half* __restrict__ w,  // [M][C][R][S]
                    __half* __restrict__ filters)  // [M][BLOCKED_R][RUN]
{
    BlockedFilters::write<__half, 1>(w, {filters}, 1);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_input(const __half* __restrict__ x,  // [N][H][W][C]
                  int* __restrict__ infinite,    // [N][SLICES][TILES]
                  __half* __restrict__ pixels)   // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    allow_dependent_launch();
    block_native_input(x, infinite, pixels);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* position_map,  // of pixels
             const TensorMap* tap_map,       // of filters
             __half* __restrict__ y,         // [N][E][F][Y_CHANNELS]
             long long N EPILOGUE_PARAMETERS(__half))  // [M]; as y
{
    allow_dependent_launch();
    multiply_windows<WindowTensorCores>(position_map, tap_map, N,
                                        NativeEpilogue<OutputPositions>{y, {int(N)}, ADDENDS(__half)});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, WINDOW_SHARED_BYTES<NativeEpilogue<OutputPositions>>);
ASSERT_POSITION_MAP(POSITION_MAP);
ASSERT_TAP_MAP(TAP_MAP);
ASSERT_BLOCK(PREPARE_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, BLOCKED_R, M, 1);
ASSERT_BLOCK(PREPARE_INPUT, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_INPUT, BlockedTile<1>::TILES, BlockedTile<1>::SLICES, 1);
ASSERT_SHARED_BYTES(PREPARE_INPUT, BlockedTile<1>::BYTES);
ASSERT_ELEMENTS(PIXELS, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(FILTERS, BLOCKED_FILTER_ELEMENTS);
