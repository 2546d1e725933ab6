// wgmma-half-whole: whole stages only, and tiles of 32 and 160 filters.
//
// Technique: K padded to whole stages by the TMA's zero fill; tile sizes for few filters; otherwise as
// wgmma-half-split-k: split-K over blocks, warp-specialized implicit GEMM; wgmma on fp16 with fp32 accumulators; TMA
// im2col mode; mbarrier pipeline.
// Read next: split_tiles.cuh, then wgmma/wgmma_window_in_place.cu.
// Run: alexconv run --rungs wgmma-half-whole --layers 3 --N 1
//
// Parent: wgmma-half-split-k, whose mainloop branches for partial stages where the channels are no multiple of 64: the
// compiler orders the wgmmas of one branch against the other's, and a single warpgroup then waits in every stage.  The
// TMA fills both operands with zeros beyond a run, so whole stages give the same sums.  And a layer of 16 or 32 filters
// wastes half of a 64-filter tile or more, one of 144 or 160 a sixth of a 192-filter tile or more.
//
// order_filters: block (r, m) reorders row r of filter m to channels innermost.  multiply: a block computes a slice of
// a tile of TILE_PIXELS x TILE_FILTERS outputs; a consumer thread accumulates TILE_FILTERS / 4 filters at two pixels of
// each accumulator tile.
#include <cuda_fp16.h>

#define GATHER GATHER_AS_IT_LIES
#include "../arch/tensor_map.cuh"
#include "../arch/wgmma_sizes.cuh"
#include "native_epilogue.cuh"
#include "split_tiles.cuh"

#ifdef DYNAMIC_SHAPE
using Own = OwnChannels<__half, HalfTaps<0>, false>;  // there is one group
#else
static_assert(SIDE == 1 && C % CHUNK == 0, "TMA gathers the input in place");
using Own = OwnChannels<__half, HalfTaps<BLOCKED_C>, sees_others(STAGE_TAPS)>;
#endif
using Epilogue = NativeEpilogue<EveryRow, Own>;

// The layer with its runs padded to whole stages.
struct WholeStages : BlockedProblem {
    MEMBER_SIZE(RUN, (OF(BlockedProblem, RUN) + STAGE_TAPS - 1) / STAGE_TAPS * STAGE_TAPS);
};

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    order_filters(const __half* __restrict__ w,  // [M][C][R][S]
                  __half* __restrict__ filters)  // [M][R][S][C]
{
    BlockedFilters::write<__half, 1>(w, {filters}, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,   // of x [N][H][W][C]
             const TensorMap* filter_map,  // of filters [M][R][S][C]
             float4* partial,              // [tiles][SPLITS][TILE_WARPS][WARP_SUMS]
             unsigned* arrived,            // [tiles][TILE_WARPS]
             __half* __restrict__ y,       // [N][E][F][Y_CHANNELS]
             long long N GROUP_PARAMETERS(Own) EPILOGUE_PARAMETERS(__half))  // [M]; as y
{
    allow_dependent_launch();
    if (threadIdx.x == 0) {
        prefetch_tensor_map(pixel_map);
        prefetch_tensor_map(filter_map);
    }
    constexpr bool FILTERS_FIRST = true;
    multiply_tiles<WholeStages, AccumulateInTensorCores, FILTERS_FIRST>(
        OperandMaps<1>{{pixel_map}, {filter_map}}, SplitKTiles<WholeStages>(N),
        SplitKEpilogue<Epilogue>{{y, {int(N)}, ADDENDS(__half), OWN_CHANNELS}, {partial, arrived}});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, SPLITS > 1 ? IMAGE_TILES * SPLITS : GRID_BLOCKS, 1, 1);
ASSERT_ELEMENTS(PARTIAL, PARTIAL_SUMS);
ASSERT_ELEMENTS(ARRIVED, ARRIVAL_COUNTERS);
ASSERT_SHARED_BYTES(MULTIPLY, (SHARED_BYTES<1, Epilogue>));
ASSERT_PIXEL_MAP(PIXEL_MAP);
ASSERT_FILTER_MAP(FILTER_MAP);
ASSERT_BLOCK(ORDER_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(ORDER_FILTERS, BLOCKED_R, M, 1);
ASSERT_ELEMENTS(FILTERS, BLOCKED_FILTER_ELEMENTS);
