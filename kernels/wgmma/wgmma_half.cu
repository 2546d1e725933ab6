// wgmma-half: implicit GEMM on Hopper's tensor cores, fed by the copy engine.
//
// Parent: mma-half, whose warps load their operands into registers and compute the addresses of a gather.  Here a
// warpgroup multiplies straight from shared memory, and one thread tells the copy engine (TMA) what to gather: all other
// threads do nothing but start products, and keep their registers for sums.
//
// order_filters: block (r, m) brings row r of filter m into the order of the input's channels.  multiply: a block
// computes tiles of TILE_PIXELS x TILE_FILTERS outputs; a thread of a consumer has the sums of TILE_FILTERS / 4 filters
// at two pixels of each unit.
#include <cuda_fp16.h>

#include "native_output.cuh"

static_assert(U == 1 && C % CHUNK == 0, "the input serves as it lies");

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    order_filters(const __half* __restrict__ w,  // [M][C][R][S]
                  __half* __restrict__ filters)  // [M][R][S][C]
{
    __half* const parts[] = {filters};
    write_filters(w, parts, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    multiply(const TensorMap* pixel_map,   // of x [N][H][W][C]
             const TensorMap* filter_map,  // of filters [M][R][S][C]
             __half* __restrict__ y,       // [N][E][F][M]
             long long N)
{
    let_next_launch_start();
    wait_for_launches_before();  // which may write x
    multiply_tiles(Maps<1>{{pixel_map}, {filter_map}}, Tiles(N), NativeOutput<EveryRow>{y, {int(N)}});
}
