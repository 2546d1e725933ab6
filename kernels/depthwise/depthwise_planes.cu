// depthwise-planes: small planes by way of shared memory.
//
// Technique: depthwise convolution of whole planes in shared memory; asynchronous copies; strips of outputs in
// registers; programmatic dependent launch.
// Read next: whole_planes.cuh, then depthwise/depthwise_planes_half.cu.
// Run: alexconv run --rungs depthwise-planes --workload depthwise --layers 9 --N 128
//
// Parent: depthwise-window.  Rows of 7 or 14 values are not multiples of a vector, and the lanes of a warp read from many
// planes at once.  But planes follow each other in memory: a block copies several as one array, and returns their outputs
// as one.
//
// A block computes the outputs of PLANES planes, a thread TILE_ROWS x TILE_COLUMNS of one.
#include "whole_planes.cuh"

extern "C" __global__ void __launch_bounds__(PLANE_THREADS)
    depthwise_planes(const float* __restrict__ x,  // [N][C][H][W]
                     const float* __restrict__ w,  // [M][1][R][S]
                     float* __restrict__ y         // [N][M][E][F]
                     BIAS_PARAMETER(float))        // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    DYNAMIC_SHARED(uint4, memory);
    WholePlanes<float>(memory).convolve(x, w, y, BIAS);
}

ASSERT_BLOCK(DEPTHWISE_PLANES, PLANE_THREADS, 1);
ASSERT_GRID(DEPTHWISE_PLANES, PLANE_BLOCKS, 1, 1);
ASSERT_SHARED_BYTES(DEPTHWISE_PLANES, WholePlanes<float>::BYTES);
