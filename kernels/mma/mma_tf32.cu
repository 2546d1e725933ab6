// mma-tf32: tensor cores, with K divided among blocks and warps so that one image fills the GPU.
//
// Technique: implicit GEMM on tensor cores (mma.sync, tf32 with fp32 accumulation); split-K over blocks and sliced-K
// over warps; multistage cp.async pipeline; programmatic dependent launch.
// Read next: mma_tile.cuh (split-K, mainloop, epilogue), mma_planes.cuh (layout), then mma/mma_scaled.cu.
// Run: alexconv run --rungs mma-tf32 --layers 3 --N 1
//
// Parent: fused-unroll-matmul, which for a single image has few blocks, each with a long loop over K, and reads two
// values from shared memory for every product.  Here a warp's product of 16 filters and 8 pixels reads two words of
// inputs per lane; inputs are copied once for all taps (asynchronously, a K tile of channels ahead); and as K is
// divided too, all multiprocessors take part, each with a short loop.  Filters are rounded to tf32 and stored in
// fragment order once; inputs are rounded in shared memory, by the thread that copied them.
//
// A block computes TILE_FILTERS filters at TILE_PIXELS pixels of an image for some of the channels; a warp
// TILE_FILTERS / WARPS_DOWN of these filters for some of the steps; a thread four of every 16 x 8 outputs.
// mma_tf32_filters: a thread writes one word.
#include "mma_planes.cuh"

struct Tf32 {
    static constexpr int TERMS = 1;

    static __device__ __forceinline__ void multiply_add(Accumulators& accumulators, const Fragments<1>& operands)
    {
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int i = 0; i < FRAGMENTS_DOWN; ++i)
                warp_mma_tf32(accumulators[i][j], operands.filters[0][i], operands.inputs[0][j]);
    }
};

extern "C" __global__ void mma_tf32_filters(
    const float* __restrict__ w,       // [M][GROUP_C][R][S]
    unsigned* __restrict__ fragments)  // [FILTER_TILES][K_TILES][STEPS][FILTERS]
{
    prepare_fragments<Planes, Tf32>(
        fragments, [=](int m, int k_tile, int k, int) { return to_tf32(Planes::filter(w, m, k_tile, k)); });
}

extern "C" __global__ void IN_CLUSTERS __launch_bounds__(THREADS)
    mma_tf32(const float* __restrict__ x,             // [N][C][H][W]
             const unsigned* __restrict__ fragments,  // [FILTER_TILES][K_TILES][STEPS][FILTERS]
             float* partial,                          // [tiles][SPLIT_BLOCKS][TILE_ELEMENTS]
             unsigned* arrived,                       // [tiles][WARPS]
             float* __restrict__ y                    // [N][Y_CHANNELS][PIXELS]
             EPILOGUE_PARAMETERS(float))  // [M]; as y
{
    compute_tile<Planes, Tf32>(x, fragments, partial, arrived, y, Unscaled(), ADDENDS(float));
}

using Geometry = Sizes<Planes, Tf32>;
ASSERT_BLOCK(MMA_TF32, THREADS, 1);
ASSERT_GRID(MMA_TF32, IMAGE_TILES * SPLIT_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(MMA_TF32, Geometry::SHARED_BYTES);
ASSERT_GRID(MMA_TF32_FILTERS, divide_up(Geometry::FRAGMENT_WORDS, LADDER_MMA_TF32_FILTERS_THREADS), 1, 1);
ASSERT_ELEMENTS(FRAGMENTS, Geometry::FRAGMENT_WORDS);
ASSERT_ELEMENTS(PARTIAL, PARTIAL_SUMS);
ASSERT_ELEMENTS(ARRIVED, ARRIVAL_COUNTERS);
