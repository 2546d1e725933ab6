// wgmma-window-half: the input of a tile once in shared memory, and a place to begin reading it for each tap.
//
// Parent: wgmma-half-blocked, which fetches an input as often as taps meet it, from the L2 cache: for layer 1 nine times,
// and the L2 cache is then what limits it.  Here the tile's inputs come once, and the filters stay.  The price is that
// some rows of the product are no outputs, those that begin in the last columns or rows of the input.  With so few
// products to a tile the way out counts as much as they do: the consumers take turns, and one stores while the other
// multiplies.
//
// prepare_filters: block (r, m) blocks row r of filter m.  prepare_input: block (tile, group, n) writes a tile of blocked
// image n.  multiply: a block computes tiles of TILE_PIXELS / 2 positions x all filters, the consumers in turn; a thread
// of a consumer has the sums of a quarter of the filters at two positions of each unit.
#include <cuda_fp16.h>

#include "native_output.cuh"
#include "window.cuh"

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
    multiply(const TensorMap* position_map,  // of pixels
             const TensorMap* tap_map,       // of filters
             __half* __restrict__ y,         // [N][E][F][M]
             long long N)
{
    multiply_windows<TruncatedSums>(position_map, tap_map, N, NativeOutput<OutputPositions>{y, {int(N)}});
}
