// depthwise-channels-half: strips of outputs in fp16 with the channels innermost, accumulated in fp32.
//
// Technique: depthwise convolution from registers in NHWC, fp16 with fp32 accumulation; vector loads along channels;
// programmatic dependent launch.
// Read next: depthwise/depthwise_planes.cu.
// Run: alexconv run --rungs depthwise-channels-half --workload depthwise --layers 1
//
// Parent: depthwise-channels.  Values take half of the bytes, so that a thread has half of the time for its
// instructions.
//
// A block computes STRIP_THREADS neighbouring strips of an image, a thread TILE_ROWS x TILE_COLUMNS outputs of VECTOR
// filters.
#include <cuda_fp16.h>

#include "channel_strips.cuh"

extern "C" __global__ void __launch_bounds__(STRIP_THREADS)
    depthwise_channels_half(const __half* __restrict__ x,  // [N][H][W][C]
                            const __half* __restrict__ w,  // [M][1][R][S]
                            __half* __restrict__ y         // [N][E][F][M]
                            BIAS_PARAMETER(__half))        // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    convolve_channels<__half>(x, w, y, BIAS);
}

ASSERT_BLOCK(DEPTHWISE_CHANNELS_HALF, STRIP_THREADS, 1);
ASSERT_GRID(DEPTHWISE_CHANNELS_HALF, STRIP_BLOCKS, 1, 1);
