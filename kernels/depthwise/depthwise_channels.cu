// depthwise-channels: strips of outputs with the channels innermost.
//
// Technique: depthwise convolution from registers in NHWC; vector loads along channels; implicit padding; programmatic
// dependent launch.
// Read next: channel_strips.cuh, then depthwise/depthwise_channels_half.cu.
// Run: alexconv run --rungs depthwise-channels --workload depthwise --layers 1
//
// Parent: depthwise-window.  The values of a vector are of neighbouring channels, which each have a filter: every
// address is aligned, whatever the width of the plane, and a thread holds VECTOR filters.
//
// A block computes STRIP_THREADS neighbouring strips of an image, a thread TILE_ROWS x TILE_COLUMNS outputs of VECTOR
// filters.
#include "channel_strips.cuh"

extern "C" __global__ void __launch_bounds__(STRIP_THREADS)
    depthwise_channels(const float* __restrict__ x,  // [N][H][W][C]
                       const float* __restrict__ w,  // [M][1][R][S]
                       float* __restrict__ y         // [N][E][F][M]
                       BIAS_PARAMETER(float))        // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    convolve_channels<float>(x, w, y, BIAS);
}

ASSERT_BLOCK(DEPTHWISE_CHANNELS, STRIP_THREADS, 1);
ASSERT_GRID(DEPTHWISE_CHANNELS, STRIP_BLOCKS, 1, 1);
