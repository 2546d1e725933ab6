// wgmma-window-in-place: a tile's window straight from the unprepared input.
//
// Technique: shared-memory input window by TMA im2col mode with a window of one pixel, a tap is an offset into it;
// packed resident filters; ping-pong consumers; persistent, warp-specialized kernel; wgmma on fp16 with fp32
// accumulators.
// Read next: window_in_place.cuh, then wgmma/wgmma_floats.cu.
// Run: alexconv run --rungs wgmma-window-in-place --workload convnet-benchmarks --layers 2 --N 1
//
// Parent: wgmma-window-half, which first copies the whole input with its padding, and has room only for filters of few
// taps: a tap of 16 channels takes a row of 64.  Here the TMA supplies the padding, and filters are packed, and divided
// among blocks where one cannot hold them.  So layers of 5 x 5 filters with 16 to 64 channels, and of 3 x 3 ones with
// up to 96, fetch a value a few times, not once for each row of the filter or tap, in one launch.
//
// order_filters: block (r, m) packs row r of filter m, channels innermost.  multiply: a block computes tiles of
// TILE_PIXELS / 2 positions x TILE_FILTERS filters, the consumers in ping-pong; a consumer thread accumulates a quarter
// of the filters at two positions of each accumulator tile.
#include <cuda_fp16.h>

#define GATHER GATHER_NEVER
#define SHARED 32
#include "../arch/tensor_map.cuh"
#include "../arch/wgmma_sizes.cuh"
#include "native_epilogue.cuh"
#include "window_in_place.cuh"

using Own = OwnChannels<__half, HalfTaps<PACKED_C>, sees_others(MMA_K)>;
using Epilogue = NativeEpilogue<InPlacePositions, Own>;

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    order_filters(const __half* __restrict__ w,  // [M][C][R][S]
                  __half* __restrict__ filters)  // [M][R][S][PACKED_C]
{
    order_packed_filters(w, filters);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* position_map,  // of x [N][H][W][C]
             const TensorMap* filter_map,    // of filters
             __half* __restrict__ y,         // [N][E][F][Y_CHANNELS]
             long long N GROUP_PARAMETERS(Own) EPILOGUE_PARAMETERS(__half))  // [M]; as y
{
    allow_dependent_launch();
    if (threadIdx.x == 0) {
        prefetch_tensor_map(position_map);
        prefetch_tensor_map(filter_map);
    }
    multiply_in_place(position_map, filter_map, N, Epilogue{y, {int(N)}, ADDENDS(__half), OWN_CHANNELS});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, IN_PLACE_SHARED_BYTES<Epilogue>);
ASSERT_IN_PLACE_MAP(POSITION_MAP);
ASSERT_PACKED_FILTER_MAP(FILTER_MAP);
ASSERT_BLOCK(ORDER_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(ORDER_FILTERS, R, M, 1);
ASSERT_ELEMENTS(FILTERS, PACKED_FILTER_ELEMENTS);
