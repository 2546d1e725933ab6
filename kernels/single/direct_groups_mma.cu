// direct-groups-mma: narrow groups in tf32 on tensor cores, without zeros between them, NHWC.
//
// Technique: implicit GEMM with mma.sync, tf32 with fp32 accumulation; the K axis packs taps and channels of a group;
// window in shared memory by cp.async, filters in registers; implicit padding; programmatic dependent launch.
// Read next: groups_mma.cuh, then single/direct_groups_mma_half.cu.
// Run: alexconv run --rungs direct-groups-mma --workload resnext-regnet --layers 3
//
// Parent: direct-groups, whose products on CUDA cores take longer than the layer's bytes.  wgmma-floats multiplies 64
// channels at a time, most of them with the zeros between groups, and loads each input once for each tap.  Here each
// input is loaded once, and a product of 16 pixels with eight filters of eight channels is one instruction.
//
// A block computes BLOCK_GROUPS groups at TILE_ROWS rows of outputs.  order_group_filters: a thread writes a lane's two
// words of an instruction.
#include "../arch/ampere.cuh"

struct Operands {
    using Value = float;

    static __device__ __forceinline__ uint2 words(const float (&values)[2])
    {
        return make_uint2(to_tf32(values[0]), to_tf32(values[1]));
    }
    static __device__ __forceinline__ uint2 rounded(uint2 pixel)
    {
        return make_uint2(to_tf32(__uint_as_float(pixel.x)), to_tf32(__uint_as_float(pixel.y)));
    }
    static __device__ __forceinline__ void multiply_add(float (&sums)[4], const unsigned (&pixels)[4],
                                                        const unsigned (&filters)[2])
    {
        warp_mma_tf32(sums, pixels, filters);
    }
};

#include "groups_mma.cuh"

extern "C" __global__ void __launch_bounds__(GROUP_THREADS, GROUP_RESIDENT)
    direct_groups_mma(const float* __restrict__ x,        // [N][H][W][C]
                      const uint2* __restrict__ filters,  // of order_group_filters
                      float* __restrict__ y               // [N][E][F][M]
                      BIAS_PARAMETER(float))              // [M]
{
    allow_dependent_launch();
    multiply_groups(x, filters, y, BIAS);
}

ASSERT_BLOCK(DIRECT_GROUPS_MMA, GROUP_THREADS, 1);
ASSERT_GRID(DIRECT_GROUPS_MMA, GROUPS / BLOCK_GROUPS * GROUP_TILES, 1, 1);
ASSERT_SHARED_BYTES(DIRECT_GROUPS_MMA, GROUP_BYTES);
