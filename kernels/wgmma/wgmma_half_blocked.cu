// wgmma-half-blocked: space-to-depth before the product, for layers whose input TMA cannot gather in place.
//
// Technique: space-to-depth, then as wgmma-half: persistent, warp-specialized implicit GEMM; wgmma on fp16 with fp32
// accumulators; TMA im2col mode; mbarrier pipeline.
// Read next: blocked.cuh (space-to-depth), warpgroups.cuh (mainloop), then wgmma/wgmma_scaled.cu.
// Run: alexconv run --rungs wgmma-half-blocked --layers 1
//
// Parent: wgmma-half, which needs a multiple of eight channels.  Here channels are padded to that, and where there are
// few, a stride becomes channels: U x U pixels are one pixel with U*U times the channels.  AlexNet's first layer, three
// channels, 11 x 11 filters, stride 4, becomes one of 48 channels and 3 x 3 filters, for one more pass over the input.
//
// prepare_filters: block (r, m) writes row r of blocked filter m.  prepare_input: block (tile, slice, n) writes a tile
// of blocked image n.  multiply: a block computes tiles of TILE_PIXELS x TILE_FILTERS outputs; a consumer thread
// accumulates TILE_FILTERS / 4 filters at two pixels of each accumulator tile.
#include <cuda_fp16.h>

#include "native_epilogue.cuh"
#include "native_full_range.cuh"

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
    multiply(const TensorMap* pixel_map,   // of pixels
             const TensorMap* filter_map,  // of filters
             __half* __restrict__ y,       // [N][E][F][Y_CHANNELS]
             long long N EPILOGUE_PARAMETERS(__half))  // [M]; as y
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which write the pixels
    multiply_tiles<BlockedProblem, AccumulateInTensorCores>(OperandMaps<1>{{pixel_map}, {filter_map}},
                                                            PersistentTiles<BlockedProblem>(N),
                                                            NativeEpilogue<EveryRow>{y, {int(N)}, ADDENDS(__half)});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, (SHARED_BYTES<1, NativeEpilogue<EveryRow>>));
ASSERT_PIXEL_MAP(PIXEL_MAP);
ASSERT_FILTER_MAP(FILTER_MAP);
ASSERT_BLOCK(PREPARE_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, BLOCKED_R, M, 1);
ASSERT_BLOCK(PREPARE_INPUT, BLOCK_THREADS, 1);
ASSERT_GRID(PREPARE_INPUT, BlockedTile<1>::TILES, BlockedTile<1>::SLICES, 1);
ASSERT_SHARED_BYTES(PREPARE_INPUT, BlockedTile<1>::BYTES);
ASSERT_ELEMENTS(PIXELS, BLOCKED_ELEMENTS);
ASSERT_ELEMENTS(FILTERS, BLOCKED_FILTER_ELEMENTS);
