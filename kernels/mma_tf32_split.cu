// mma-tf32-split: the same, every factor the sum of two tf32 numbers: the precision of floats from tensor cores.
//
// Parent: mma-tf32, whose factors keep 11 of a float's 24 bits.  What rounding drops is again rounded to tf32, and
// three of the four products are added, the small ones first; the fourth is below a float's last bit.  (Ootomo and
// Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32 theoretical peak
// performance", 2022.)  Tensor cores truncate where they add, which for a long row of sums is worse than rounding: they
// add no more than one step's products, and ordinary additions the steps.
//
// A block computes TILE_FILTERS filters at TILE_PIXELS pixels of an image for some of the channels; a warp all of these
// outputs for some of the steps; a thread of every 16 x 8 outputs four.  mma_split_filters: a thread writes one word.
#include "mma_planes.cuh"

struct Split {
    static constexpr int PARTS = 2;  // big, small
    static constexpr bool ROUND = true;

    static __device__ __forceinline__ unsigned part(float value, int number)
    {
        const unsigned big = to_tf32(value);
        return number == 0 ? big : to_tf32(value - __uint_as_float(big));
    }

    static __device__ __forceinline__ void round(unsigned* to, float input)
    {
        *reinterpret_cast<uint2*>(to) = make_uint2(part(input, 0), part(input, 1));
    }

    // The products of some columns at a time, so that a product seldom waits for the one that it is added to.
    static __device__ __forceinline__ void multiply(Sums& sums, const Factors<2>& factors)
    {
        constexpr int COLUMNS = 4;
#pragma unroll
        for (int first = 0; first < FRAGMENTS_ACROSS; first += COLUMNS) {
            const int end = first + COLUMNS < FRAGMENTS_ACROSS ? first + COLUMNS : FRAGMENTS_ACROSS;
            float step[FRAGMENTS_DOWN][COLUMNS][4] = {};
#pragma unroll
            for (int product = 0; product < 3; ++product)
#pragma unroll
                for (int j = first; j < end; ++j)
#pragma unroll
                    for (int i = 0; i < FRAGMENTS_DOWN; ++i)
                        multiply_tf32(step[i][j - first], factors.filters[product == 0][i],
                                      factors.inputs[product == 1][j]);
#pragma unroll
            for (int j = first; j < end; ++j)
#pragma unroll
                for (int i = 0; i < FRAGMENTS_DOWN; ++i)
#pragma unroll
                    for (int k = 0; k < 4; ++k) sums[i][j][k] += step[i][j - first][k];
        }
    }
};

extern "C" __global__ void mma_split_filters(const float* __restrict__ w,       // [M][C][R][S]
                                             unsigned* __restrict__ fragments)
// fragments [FILTER_TILES][CHUNKS][STEPS][FILTERS]
{
    prepare_fragments<Planes, Split>(w, fragments);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    mma_tf32_split(const float* __restrict__ x,             // [N][C][H][W]
                   const unsigned* __restrict__ fragments,  // [FILTER_TILES][CHUNKS][STEPS][FILTERS]
                   float* partial,                          // [tiles][SPLIT_BLOCKS][TILE_OUTPUTS]
                   unsigned* arrived,                       // [tiles][WARPS]
                   float* __restrict__ y)                   // [N][M][PIXELS]
{
    compute_tile<Planes, Split>(x, fragments, partial, arrived, y);
}
