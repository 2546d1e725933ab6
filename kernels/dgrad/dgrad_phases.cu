// dgrad-phases: a strided layer as interleaved problems, one for each phase of the stride.
//
// Technique: direct dgrad by gathering; polyphase decomposition (sub-pixel phases of a transposed convolution).
// Read next: common/padding.cuh, then dgrad/dgrad_mma_split.cu.
// Run: alexconv run --rungs dgrad-phases --layers 1
//
// Parent: dgrad-direct, whose threads test every tap: with a stride of U in both directions only one tap in U * U has an
// output, and neighbouring threads have different ones.  Values whose rows, and columns, are U apart share their taps:
// they are a phase.  Here a block has values of one phase, so its loops step from one tap with an output to the next,
// nothing is tested, and the lanes of a warp never diverge.  At stride 1 there is one phase, and nothing changes but
// the tests.
//
// A block computes THREADS consecutive values of one phase of dx, a thread one of them.
#include "../common/padding.cuh"

constexpr int THREADS = 256;
constexpr int PHASE_ROWS = (H + U - 1) / U, PHASE_COLUMNS = (W + V - 1) / V;  // of the plane of a phase, at most

constexpr int greatest_divisor(int a, int b)
{
    return b == 0 ? a : greatest_divisor(b, a % b);
}

// From a tap with an output to the next.
constexpr int ROW_STEP = U / greatest_divisor(U, DILATION_ROWS), COLUMN_STEP = V / greatest_divisor(V, DILATION_COLUMNS);

// The first tap along an axis that has an output for values at a place of the padded plane; `step` if none has.
__device__ __forceinline__ int first_tap(int place, int dilation, int stride, int step)
{
    int tap = 0;
    while (tap < step && (place - tap * dilation) % stride != 0) ++tap;
    return tap;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    dgrad_phases(const float* __restrict__ dy,  // [N][M][E][F]
                 const float* __restrict__ w,   // [M][GROUP_C][R][S]
                 float* __restrict__ dx,        // [N][C][H][W]
                 long long N)
{
    const long long number = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (number >= N * C * PHASE_ROWS * PHASE_COLUMNS) return;
    const long long plane = number / (PHASE_ROWS * PHASE_COLUMNS), n = plane / C;
    const int place = number - plane * (PHASE_ROWS * PHASE_COLUMNS), c = plane - n * C, group = c / GROUP_C;
    const int h = place / PHASE_COLUMNS * U + blockIdx.y / V, column = place % PHASE_COLUMNS * V + blockIdx.y % V;
    if (h >= H || column >= W) return;
    const int down = h + TOP, across = column + LEFT;
    const int first_r = first_tap(down, DILATION_ROWS, U, ROW_STEP);
    const int first_s = first_tap(across, DILATION_COLUMNS, V, COLUMN_STEP);
    float sum = 0;
    if (first_r < ROW_STEP && first_s < COLUMN_STEP) {
        dy += ((size_t)n * M + group * GROUP_M) * E * F;
        w += ((size_t)group * GROUP_M * GROUP_C + c % GROUP_C) * R * S;
        for (int m = 0; m < GROUP_M; ++m, dy += E * F, w += (size_t)GROUP_C * R * S)
            for (int r = first_r; r < R; r += ROW_STEP)
                for (int s = first_s; s < S; s += COLUMN_STEP) {
                    const int e = (down - r * DILATION_ROWS) / U, f = (across - s * DILATION_COLUMNS) / V;
                    const bool inside =
                        down >= r * DILATION_ROWS && e < E && across >= s * DILATION_COLUMNS && f < F;
                    sum += (inside ? dy[e * F + f] : 0) * w[r * S + s];
                }
    }
    dx[(plane * H + h) * W + column] = sum;
}

ASSERT_BLOCK(DGRAD_PHASES, THREADS, 1);
ASSERT_GRID(DGRAD_PHASES, (C * PHASE_ROWS * PHASE_COLUMNS + THREADS - 1) / THREADS, U * V, 1);
