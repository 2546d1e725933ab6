// wgmma-half-blocked: space-to-depth before the product, for layers whose input does not serve as it lies.
//
// Parent: wgmma-half, which needs a multiple of eight channels and a stride of 1.  A stride becomes depth here: U x U
// pixels are one pixel with U*U times the channels.  AlexNet's first layer, three channels, filters 11 x 11, stride 4,
// turns into one of 48 channels and filters 3 x 3, for one more pass over the input.
//
// prepare_filters: block (r, m) blocks row r of filter m.  prepare_input: block (tile, group, n) writes a tile of
// blocked image n.  multiply: a block computes tiles of TILE_PIXELS x TILE_FILTERS outputs; a thread of a consumer has
// the sums of TILE_FILTERS / 4 filters at two pixels of each unit.
#include <cuda_fp16.h>

#include "native_output.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_filters(const __half* __restrict__ w,  // [M][C][R][S]
                    __half* __restrict__ filters)  // [M][BLOCKED_R][RUN]
{
    __half* const parts[] = {filters};
    write_filters(w, parts, 1);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    prepare_input(const __half* __restrict__ x,  // [N][H][W][C]
                  __half* __restrict__ pixels)   // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    let_next_launch_start();
    block_native_input(x, pixels);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,   // of pixels
             const TensorMap* filter_map,  // of filters
             __half* __restrict__ y,       // [N][E][F][M]
             long long N)
{
    wait_for_launches_before();  // which write the pixels
    multiply_tiles(Maps<1>{{pixel_map}, {filter_map}}, Tiles(N), NativeOutput<EveryRow>{y, {int(N)}});
}
