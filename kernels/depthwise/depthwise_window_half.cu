// depthwise-window-half: strips of outputs in fp16, accumulated in fp32.
//
// Technique: depthwise convolution from registers in NCHW, fp16 with fp32 accumulation; vector loads along rows;
// programmatic dependent launch.
// Read next: depthwise/depthwise_channels.cu.
// Run: alexconv run --rungs depthwise-window-half --workload depthwise --layers 1
//
// Parent: depthwise-window.  Values take half of the bytes, so that a thread has half of the time for its instructions.
//
// A block computes STRIP_THREADS neighbouring strips of an image, a thread TILE_ROWS x TILE_COLUMNS outputs of a plane.
#include <cuda_fp16.h>

#include "plane_strips.cuh"

extern "C" __global__ void __launch_bounds__(STRIP_THREADS)
    depthwise_window_half(const __half* __restrict__ x,  // [N][C][H][W]
                          const __half* __restrict__ w,  // [M][1][R][S]
                          __half* __restrict__ y         // [N][M][E][F]
                          BIAS_PARAMETER(__half))        // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    convolve_planes<__half>(x, w, y, BIAS);
}

ASSERT_BLOCK(DEPTHWISE_WINDOW_HALF, STRIP_THREADS, 1);
ASSERT_GRID(DEPTHWISE_WINDOW_HALF, STRIP_BLOCKS, 1, 1);
