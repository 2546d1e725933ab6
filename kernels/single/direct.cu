// direct: the naive convolution, one thread per output.
//
// Technique: direct convolution; accumulator in global memory.
// Read next: common/plane.cuh (which outputs a thread computes), then single/direct_register.cu.
// Run: alexconv run --rungs direct --layers 2
//
// The ladder starts here.  A block computes the plane (n, m); a thread computes its outputs one after the other and
// adds every product in global memory.  The pointers are not __restrict__, so the compiler must assume that y overlaps
// the inputs and stores each partial sum.
#include "../common/plane.cuh"

ASSERT_BLOCK(DIRECT, BLOCK_COLUMNS, BLOCK_ROWS);
ASSERT_GRID(DIRECT, 1, M, 1);

extern "C" __global__ void __launch_bounds__(THREADS) direct(const float* x,  // [N][C][H][W]
                                                             const float* w,  // [M][C][R][S]
                                                             float* y)        // [N][M][E][F]
{
    const int n = blockIdx.x, m = blockIdx.y;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    for_each_output([&](int e, int f) {
        y[e * F + f] = 0;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    y[e * F + f] += x[(c * H + e * U + r) * W + f * U + s] * w[(c * R + r) * S + s];
    });
}
