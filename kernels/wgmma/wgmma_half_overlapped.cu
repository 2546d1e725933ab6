// wgmma-half-overlapped: a tile's outputs are stored while the next tile is multiplied.
//
// Technique: epilogue overlapped with the next mainloop, through pipeline stages and TMA bulk stores; otherwise as
// wgmma-half: persistent, warp-specialized implicit GEMM; wgmma on fp16 with fp32 accumulators; TMA im2col mode.
// Read next: lent_stages.cuh, then wgmma/wgmma_half_split_k.cu.
// Run: alexconv run --rungs wgmma-half-overlapped --layers 2
//
// Parent: wgmma-half, whose consumers exchange outputs by shuffles and wait while all multiprocessors store at the same
// time; until then the tensor cores idle.  Here a consumer's registers are free as soon as it has written its outputs
// to shared memory, which the pipeline's own stages provide, and the copy engine stores them.
//
// order_filters: block (r, m) reorders row r of filter m to channels innermost.  multiply: a block computes tiles of
// TILE_PIXELS x TILE_FILTERS outputs; a consumer thread accumulates TILE_FILTERS / 4 filters at two pixels of each
// accumulator tile.
#include <cuda_fp16.h>

#define GATHER GATHER_AS_IT_LIES
#include "../arch/tensor_map.cuh"
#include "lent_stages.cuh"

static_assert(SIDE == 1 && C % CHUNK == 0, "TMA gathers the input in place");
static_assert(GROUPS == 1, "a group's outputs may have to be computed again");
using Epilogue = StagedEpilogue<EveryRow>;

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    order_filters(const __half* __restrict__ w,  // [M][C][R][S]
                  __half* __restrict__ filters)  // [M][R][S][C]
{
    BlockedFilters::write<__half, 1>(w, {filters}, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,   // of x [N][H][W][C]
             const TensorMap* filter_map,  // of filters [M][R][S][C]
             const TensorMap* output_map,  // of y
             __half* __restrict__ y,       // [N][E][F][Y_CHANNELS]
             long long N EPILOGUE_PARAMETERS(__half))  // [M]; as y
{
    allow_dependent_launch();
    if (threadIdx.x == 0) {
        prefetch_tensor_map(pixel_map);
        prefetch_tensor_map(filter_map);
        prefetch_tensor_map(output_map);
    }
    constexpr bool FILTERS_FIRST = true;
    multiply_tiles<BlockedProblem, AccumulateAndLendStages<Epilogue>, FILTERS_FIRST>(
        OperandMaps<1>{{pixel_map}, {filter_map}}, PersistentTiles<BlockedProblem>(N),
        Epilogue{{y, {int(N)}, ADDENDS(__half)}, output_map});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, GRID_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MULTIPLY, (SHARED_BYTES<1, Epilogue>));
ASSERT_PIXEL_MAP(PIXEL_MAP);
ASSERT_FILTER_MAP(FILTER_MAP);
ASSERT_MAP_3(OUTPUT_MAP, M, PIXELS, 1, Y_CHANNELS * sizeof(__half), PIXELS * Y_CHANNELS * sizeof(__half));
ASSERT_BOX_3(OUTPUT_MAP, Epilogue::BOX_FILTERS, Epilogue::WARP_ROWS, 1);
ASSERT_BLOCK(ORDER_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(ORDER_FILTERS, BLOCKED_R, M, 1);
ASSERT_ELEMENTS(FILTERS, BLOCKED_FILTER_ELEMENTS);
