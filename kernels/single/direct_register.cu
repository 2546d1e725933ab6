// direct-register: the accumulator is a register, stored once.
//
// Technique: direct convolution; register accumulator.
// Read next: single/direct_filter_one_thread.cu, multi/channels.cu or tiles/tiled.cu, which all start from here.
// Run: alexconv run --rungs direct-register --layers 2
//
// Parent: direct, which stores every partial sum.  That store, and the wait for it, is gone: C*R*S stores per output
// become one, and only the loads of x and w are left.  A block computes the plane (n, m); a thread computes its outputs
// one after the other.
#include "../common/plane.cuh"

ASSERT_BLOCK(DIRECT_REGISTER, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(DIRECT_REGISTER, 1, M, 1);

extern "C" __global__ void __launch_bounds__(THREADS)
    direct_register(const float* __restrict__ x,  // [N][C][H][W]
                    const float* __restrict__ w,  // [M][C][R][S]
                    float* __restrict__ y)        // [N][M][E][F]
{
    const int n = blockIdx.x, m = blockIdx.y;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    for_each_output([&](int e, int f) {
        float sum = 0;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    sum += x[(c * H + e * U + r) * W + f * U + s] * w[(c * R + r) * S + s];
        y[e * F + f] = sum;
    });
}
