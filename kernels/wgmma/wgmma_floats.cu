// wgmma-floats: tf32 precision straight from NHWC floats, in one launch.
//
// Technique: pixels rounded to tf32 in registers (operand A of wgmma), filters in shared memory; persistent,
// warp-specialized implicit GEMM; TMA im2col mode; mbarrier pipeline.
// Read next: floats.cuh (mainloop, epilogue), then wgmma/wgmma_floats_split.cu.
// Run: alexconv run --rungs wgmma-floats --layers 3
//
// Parent: wgmma-half, whose pipeline it shares.  wgmma-scaled multiplies twice as fast, but first rewrites the whole
// input as fp16: layers with few products per input, above all those of 1 x 1 filters, spend most of their time there.
// Here the input is read once, in place.
//
// order_filters: block (run, m) rounds a run of filter m and reorders it.  multiply: a block computes tiles of
// TILE_PIXELS x TILE_FILTERS outputs; a consumer thread accumulates TILE_FILTERS / 4 filters at two pixels of each
// accumulator tile.
#include <cuda_fp16.h>

#define GATHER GATHER_AS_IT_LIES
#include "floats.cuh"

#ifdef DYNAMIC_SHAPE
using Own = OwnChannels<float, FloatTaps, false>;  // there is one group
#else
using Own = OwnChannels<float, FloatTaps, sees_others(GROUP)>;
#endif
using Epilogue = FloatEpilogue<NoExponents, Own>;

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    order_filters(const float* __restrict__ w,     // [M][GROUP_C][R][S]
                  unsigned* __restrict__ filters)  // [M][RUNS][FILTER_VALUES]
{
    unsigned* const terms[] = {filters};
    FloatFilters::write(w, terms, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,   // of x [N][H][W][C]
             const TensorMap* filter_map,  // of filters
             float4* partial,              // [tiles][SPLITS][TILE_WARPS][WARP_SUMS]
             unsigned* arrived,            // [tiles][TILE_WARPS]
             float* __restrict__ y,        // [N][E][F][Y_CHANNELS]
             long long N GROUP_PARAMETERS(Own) EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    allow_dependent_launch();
    multiply_floats<FloatProblem, RoundToTf32>(pixel_map, FilterMaps<1>{{filter_map}},
                                               SplitKTiles<FloatProblem>(N),
                                               Epilogue{y, ADDENDS(float), int(N), {partial, arrived}, {}, OWN_CHANNELS});
}

ASSERT_BLOCK(MULTIPLY, THREADS, 1);
ASSERT_GRID(MULTIPLY, SPLITS > 1 ? IMAGE_TILES * SPLITS : GRID_BLOCKS, 1, 1);
ASSERT_ELEMENTS(PARTIAL, PARTIAL_SUMS);
ASSERT_ELEMENTS(ARRIVED, ARRIVAL_COUNTERS);
ASSERT_SHARED_BYTES(MULTIPLY, FLOAT_SHARED_BYTES<1>);
ASSERT_FLOAT_MAP(PIXEL_MAP);
ASSERT_FLOAT_FILTER_MAP(FILTER_MAP);
ASSERT_BLOCK(ORDER_FILTERS, BLOCK_THREADS, 1);
ASSERT_GRID(ORDER_FILTERS, OF(FloatProblem, RUNS), M, 1);
ASSERT_ELEMENTS(FILTERS, FLOAT_FILTER_ELEMENTS);
