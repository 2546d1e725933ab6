// direct-half: the naive convolution in half precision.
//
// Technique: direct convolution in fp16; fp16 accumulator in global memory.
// Read next: single/direct_any.cu.
// Run: alexconv run --rungs direct-half --layers 2
//
// Parent: direct.  Each of its many accesses to global memory moves half the bytes; there are as many as before,
// because the accumulator stays in y.  Every product is added with one fused multiply-add, which rounds once, and the
// sum is rounded to fp16 each time.  A block computes the plane (n, m); a thread computes its outputs one after the
// other.
#include <cuda_fp16.h>

#include "../common/plane.cuh"

ASSERT_BLOCK(DIRECT_HALF, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(DIRECT_HALF, 1, M, 1);

extern "C" __global__ void __launch_bounds__(THREADS) direct_half(const __half* x,  // [N][C][H][W]
                                                                  const __half* w,  // [M][C][R][S]
                                                                  __half* y)        // [N][M][E][F]
{
    const int n = blockIdx.x, m = blockIdx.y;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    for_each_output([&](int e, int f) {
        __half& sum = y[e * F + f];
        sum = 0.0f;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    sum = __hfma(x[(c * H + e * U + r) * W + f * U + s], w[(c * R + r) * S + s], sum);
    });
}
