// wgmma-half: implicit GEMM on Hopper's tensor cores, fed by the TMA.
//
// Technique: persistent, warp-specialized implicit GEMM (producer/consumer warpgroups); wgmma on fp16 with fp32
// accumulators; TMA im2col mode, 128-byte swizzle; mbarrier pipeline; programmatic dependent launch.
// Read next: warpgroups.cuh (mainloop), native_epilogue.cuh, blocked.cuh, then wgmma/wgmma_half_blocked.cu.
// Run: alexconv run --rungs wgmma-half --layers 3
//
// Parent: mma-half, whose warps load their operands into registers and compute gather addresses.  Here a warpgroup
// multiplies straight from shared memory, and one producer thread tells TMA what to gather: the
// consumers only issue wgmmas, and keep their registers for accumulators.
//
// order_filters: block (r, m) reorders row r of filter m to channels innermost.  multiply: a block computes tiles of
// TILE_PIXELS x TILE_FILTERS outputs; a consumer thread accumulates TILE_FILTERS / 4 filters at two pixels of each
// accumulator tile.
#include <cuda_fp16.h>

#define GATHER GATHER_AS_IT_LIES
#include "native_epilogue.cuh"

static_assert(SIDE == 1 && C % CHUNK == 0, "TMA gathers the input in place");
using Own = OwnChannels<__half, HalfTaps<BLOCKED_C>, sees_others(MMA_K)>;
using Epilogue = NativeEpilogue<EveryRow, Own>;

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    order_filters(const __half* __restrict__ w,  // [M][C][R][S]
                  __half* __restrict__ filters)  // [M][R][S][C]
{
    BlockedFilters::write<__half, 1>(w, {filters}, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,   // of x [N][H][W][C]
             const TensorMap* filter_map,  // of filters [M][R][S][C]
             __half* __restrict__ y,       // [N][E][F][Y_CHANNELS]
             long long N GROUP_PARAMETERS(Own) EPILOGUE_PARAMETERS(__half))  // [M]; as y
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x
    multiply_tiles<BlockedProblem, AccumulateInTensorCores>(OperandMaps<1>{{pixel_map}, {filter_map}},
                                                            PersistentTiles<BlockedProblem>(N),
                                                            Epilogue{y, {int(N)}, ADDENDS(__half), OWN_CHANNELS});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, (SHARED_BYTES<1, Epilogue>));
ASSERT_PIXEL_MAP(PIXEL_MAP);
ASSERT_FILTER_MAP(FILTER_MAP);
ASSERT_BLOCK(ORDER_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(ORDER_FILTERS, BLOCKED_R, M, 1);
ASSERT_ELEMENTS(FILTERS, BLOCKED_FILTER_ELEMENTS);
