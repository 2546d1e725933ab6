// depthwise-planes-half: small planes in fp16 by way of shared memory, accumulated in fp32.
//
// Technique: depthwise convolution of whole planes in shared memory, fp16 with fp32 accumulation; asynchronous copies;
// programmatic dependent launch.
// Read next: igemm/igemm.cu, for layers whose filters take all channels.
// Run: alexconv run --rungs depthwise-planes-half --workload depthwise --layers 9 --N 128
//
// Parent: depthwise-planes.  Values take half of the bytes.
//
// A block computes the outputs of PLANES planes, a thread TILE_ROWS x TILE_COLUMNS of one.
#include <cuda_fp16.h>

#include "whole_planes.cuh"

extern "C" __global__ void __launch_bounds__(PLANE_THREADS)
    depthwise_planes_half(const __half* __restrict__ x,  // [N][C][H][W]
                          const __half* __restrict__ w,  // [M][1][R][S]
                          __half* __restrict__ y         // [N][M][E][F]
                          BIAS_PARAMETER(__half))        // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    DYNAMIC_SHARED(uint4, memory);
    WholePlanes<__half>(memory).convolve(x, w, y, BIAS);
}

ASSERT_BLOCK(DEPTHWISE_PLANES_HALF, PLANE_THREADS, 1);
ASSERT_GRID(DEPTHWISE_PLANES_HALF, PLANE_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(DEPTHWISE_PLANES_HALF, WholePlanes<__half>::BYTES);
