// direct-few-half: few input channels in fp16 with the channels innermost, accumulated in fp32.
//
// Technique: direct convolution in NHWC with register tiles of 8 x 8 outputs, fp16 with fp32 accumulation; input window
// and filters in shared memory; programmatic dependent launch.
// Read next: single/direct_few_mma.cu.
// Run: alexconv run --rungs direct-few-half --workload vgg16 --layers 1
//
// Parent: direct-few.  The lanes of a warp compute neighbouring filters of a pixel, which are contiguous in y.
//
// A block computes TILE_FILTERS filters at TILE_ROWS x TILE_COLUMNS outputs of an image, a thread 8 filters at 8 of
// them.
#include <cuda_fp16.h>

#include "../arch/dependent_launch.cuh"
#include "../common/vector.cuh"
#include "few_channels.cuh"

extern "C" __global__ void __launch_bounds__(FEW_THREADS, FEW_RESIDENT)
    direct_few_half(const __half* __restrict__ x,  // [N][H][W][C]
                    const __half* __restrict__ w,  // [M][C][R][S]
                    __half* __restrict__ y         // [N][E][F][M]
                    BIAS_PARAMETER(__half))        // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    DYNAMIC_SHARED(float4, memory);
    const FewChannels<__half> tile(memory);
    tile.load(x, w, [](int c, int row, int column) { return (row * W + column) * C + c; });
    float sums[OUTPUTS][OUTPUTS] = {};
    tile.multiply(sums);
    if (tile.row() >= E) return;
#pragma unroll
    for (int j = 0; j < OUTPUTS; ++j) {
        const int column = tile.column(j);
        if (column >= F) continue;
        __half* const out = y + (((size_t)tile.n * E + tile.row()) * F + column) * M;
#pragma unroll
        for (int i = 0; i < OUTPUTS; i += VECTOR) {
            const int m = tile.filter(i);
            Vector<__half, VECTOR> values;
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) {
                values.values[k] = __float2half_rn(with_bias_and_relu<__half>(sums[i + k][j], BIAS, min(m + k, M - 1)));
                if (M % VECTOR != 0 && m + k < M) out[m + k] = values.values[k];
            }
            if (M % VECTOR == 0 && m < M) store(out + m, values);
        }
    }
}

ASSERT_BLOCK(DIRECT_FEW_HALF, FEW_THREADS, 1);
ASSERT_GRID(DIRECT_FEW_HALF, TILES_DOWN * TILES_ACROSS, (M + TILE_FILTERS - 1) / TILE_FILTERS, 1);
ASSERT_SHARED_BYTES(DIRECT_FEW_HALF, FEW_BYTES);
