// direct-groups-mma-half: narrow groups in fp16 on tensor cores, without zeros between them, NHWC.
//
// Technique: implicit GEMM with mma.sync, fp16 with fp32 accumulation; the K axis packs taps and channels of a group;
// window in shared memory by cp.async, filters in registers; implicit padding; programmatic dependent launch.
// Read next: wgmma/products.cuh.
// Run: alexconv run --rungs direct-groups-mma-half --workload resnext-regnet --layers 3
//
// Parent: direct-groups-mma.  An instruction takes 16 values of K, of a group of eight channels two taps.
//
// A block computes BLOCK_GROUPS groups at TILE_ROWS rows of outputs.  order_group_filters: a thread writes a lane's two
// words of an instruction.
#include <cuda_fp16.h>

#include "../arch/ampere.cuh"
#include "../common/vector.cuh"

struct Operands {
    using Value = __half;

    static __device__ __forceinline__ uint2 words(const __half (&values)[4])
    {
        Vector<__half, 4> four;
#pragma unroll
        for (int i = 0; i < 4; ++i) four.values[i] = values[i];
        return four.word;
    }
    static __device__ __forceinline__ uint2 rounded(uint2 pixel) { return pixel; }
    static __device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&pixels)[4],
                                                        const unsigned (&filters)[2])
    {
        warp_mma_fp16(sums, pixels, filters);
    }
};

#include "groups_mma.cuh"

extern "C" __global__ void __launch_bounds__(GROUP_THREADS, GROUP_RESIDENT)
    direct_groups_mma_half(const __half* __restrict__ x,       // [N][H][W][C]
                           const uint2* __restrict__ filters,  // of order_group_filters
                           __half* __restrict__ y              // [N][E][F][M]
                           BIAS_PARAMETER(__half))             // [M]
{
    allow_dependent_launch();
    multiply_groups(x, filters, y, BIAS);
}

ASSERT_BLOCK(DIRECT_GROUPS_MMA_HALF, GROUP_THREADS, 1);
ASSERT_GRID(DIRECT_GROUPS_MMA_HALF, GROUPS / BLOCK_GROUPS * GROUP_TILES, 1, 1);
ASSERT_SHARED_BYTES(DIRECT_GROUPS_MMA_HALF, GROUP_BYTES);
