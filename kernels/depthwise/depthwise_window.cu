// depthwise-window: each row of the input passes once under a strip of outputs.
//
// Technique: depthwise convolution from registers; vector loads along rows; implicit padding; programmatic dependent
// launch.
// Read next: plane_strips.cuh, strip.cuh, then depthwise/depthwise_window_half.cu.
// Run: alexconv run --rungs depthwise-window --workload depthwise --layers 1
//
// Parent: direct-any, whose threads load R S inputs and as many taps for one output, each with its own tests and
// addresses: with one channel per filter these instructions take longer than the bytes.  Here a thread keeps its filter
// in registers, loads a row in vectors of up to 16 bytes, and adds it to all outputs that it is part of.
//
// A block computes STRIP_THREADS neighbouring strips of an image, a thread TILE_ROWS x TILE_COLUMNS outputs of a plane.
#include "plane_strips.cuh"

extern "C" __global__ void __launch_bounds__(STRIP_THREADS)
    depthwise_window(const float* __restrict__ x,  // [N][C][H][W]
                     const float* __restrict__ w,  // [M][1][R][S]
                     float* __restrict__ y         // [N][M][E][F]
                     BIAS_PARAMETER(float))        // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    convolve_planes<float>(x, w, y, BIAS);
}

ASSERT_BLOCK(DEPTHWISE_WINDOW, STRIP_THREADS, 1);
ASSERT_GRID(DEPTHWISE_WINDOW, STRIP_BLOCKS, 1, 1);
