// direct-few: few input channels, as in a network's first layer.
//
// Technique: direct convolution with register tiles of 8 x 8 outputs; input window and filters in shared memory;
// implicit padding; programmatic dependent launch.
// Read next: few_channels.cuh, then single/direct_few_half.cu.
// Run: alexconv run --rungs direct-few --workload vgg16 --layers 1
//
// Parent: direct-any, whose threads load two operands per product.  With three channels and 3 x 3 filters an output has
// 27 products, too few to repay tensor cores and the preparation of their operands: such a layer is as fast as its
// outputs can be written, if the products keep up.  Here a thread's 64 outputs share 16 operands.
//
// A block computes TILE_FILTERS filters at TILE_ROWS x TILE_COLUMNS outputs of an image, a thread 8 filters at 8 of
// them.
#include "../arch/dependent_launch.cuh"
#include "few_channels.cuh"

extern "C" __global__ void __launch_bounds__(FEW_THREADS, FEW_RESIDENT)
    direct_few(const float* __restrict__ x,  // [N][C][H][W]
               const float* __restrict__ w,  // [M][C][R][S]
               float* __restrict__ y         // [N][M][E][F]
               BIAS_PARAMETER(float))        // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    DYNAMIC_SHARED(float4, memory);
    const FewChannels<float> tile(memory);
    tile.load(x, w, [](int c, int row, int column) { return (c * H + row) * W + column; });
    float sums[OUTPUTS][OUTPUTS] = {};
    tile.multiply(sums);
    if (tile.row() >= E) return;
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) {
        const int m = tile.filter(i);
        if (m >= M) continue;
        float* const out = y + (((size_t)tile.n * M + m) * E + tile.row()) * F;
#pragma unroll
        for (int j = 0; j < OUTPUTS; j += VECTOR) {
            const int column = tile.column(j);
            float four[VECTOR];
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) four[k] = with_bias_and_relu<float>(sums[i][j + k], BIAS, m);
            if constexpr (F % VECTOR == 0) {
                if (column < F) *reinterpret_cast<float4*>(out + column) = make_float4(four[0], four[1], four[2], four[3]);
            } else {
#pragma unroll
                for (int k = 0; k < VECTOR; ++k)
                    if (column + k < F) out[column + k] = four[k];
            }
        }
    }
}

ASSERT_BLOCK(DIRECT_FEW, FEW_THREADS, 1);
ASSERT_GRID(DIRECT_FEW, TILES_DOWN * TILES_ACROSS, (M + TILE_FILTERS - 1) / TILE_FILTERS, 1);
ASSERT_SHARED_BYTES(DIRECT_FEW, FEW_BYTES);
