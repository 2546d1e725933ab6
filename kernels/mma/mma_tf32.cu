// mma-tf32: tensor cores fill a GPU with one image, the depth of the product divided among blocks and warps.
//
// Parent: fused-unroll-matmul, which for a single image has few blocks, each with a long row of steps, and reads two
// values of shared memory for every product.  Here a warp's product of 16 filters and 8 pixels reads two words a lane;
// inputs are copied once for all taps (asynchronously, a chunk of channels ahead); and as the depth is divided too, all
// multiprocessors take part, and each has a short way to go.  Filters are rounded to tf32 and put into the order of the
// tensor cores' fragments once; inputs are rounded in shared memory, by the thread that has copied them.
//
// A block computes TILE_FILTERS filters at TILE_PIXELS pixels of an image for some of the channels; a warp all of these
// outputs for some of the steps; a thread of every 16 x 8 outputs four.  mma_tf32_filters: a thread writes one word.
#include "mma_planes.cuh"

struct Rounded {
    static constexpr int PARTS = 1;

    static __device__ __forceinline__ void multiply(Sums& sums, const Factors<1>& factors)
    {
#pragma unroll
        for (int j = 0; j < FRAGMENTS_ACROSS; ++j)
#pragma unroll
            for (int i = 0; i < FRAGMENTS_DOWN; ++i)
                multiply_tf32(sums[i][j], factors.filters[0][i], factors.inputs[0][j]);
    }
};

extern "C" __global__ void mma_tf32_filters(const float* __restrict__ w,       // [M][C][R][S]
                                            unsigned* __restrict__ fragments)  // [FILTER_TILES][CHUNKS][STEPS][FILTERS]
{
    prepare_fragments<Planes, 1>(
        fragments, [=](int m, int chunk, int k, int) { return to_tf32(Planes::filter(w, m, chunk, k)); });
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mma_tf32(const float* __restrict__ x,             // [N][C][H][W]
             const unsigned* __restrict__ fragments,  // [FILTER_TILES][CHUNKS][STEPS][FILTERS]
             float* partial,                          // [tiles][SPLIT_BLOCKS][TILE_OUTPUTS]
             unsigned* arrived,                       // [tiles][WARPS]
             float* __restrict__ y)                   // [N][M][PIXELS]
{
    compute_tile<Planes, Rounded>(x, fragments, partial, arrived, y, Unscaled());
}
