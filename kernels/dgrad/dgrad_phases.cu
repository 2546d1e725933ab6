// dgrad-phases: a strided layer as interleaved problems, one for each phase of the stride.
//
// Technique: direct dgrad by gathering; polyphase decomposition (sub-pixel phases of a transposed convolution).
// Read next: phase_taps.cuh, then dgrad/dgrad_igemm.cu.
// Run: alexconv run --rungs dgrad-phases --layers 1
//
// Parent: dgrad-direct, whose threads test every tap: with a stride of U in both directions only one tap in U * U has an
// output, and neighbouring threads have different ones.  Values whose rows, and columns, are U apart share their taps:
// they are a phase.  Here a block has values of one phase, so its loops step from one tap with an output to the next,
// nothing is tested, and the lanes of a warp never diverge.  At stride 1 there is one phase, and nothing changes but
// the tests.
//
// A block computes THREADS consecutive values of one phase of dx, a thread one of them.
#include "phase_taps.cuh"

constexpr int THREADS = 256;

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
    const PhaseTaps taps(blockIdx.y);
    const int h = place / PHASE_COLUMNS * U + taps.row, column = place % PHASE_COLUMNS * V + taps.column;
    if (h >= H || column >= W) return;
    const int down = h + TOP, across = column + LEFT;
    float sum = 0;
    if (taps.any) {
        dy += ((size_t)n * M + group * GROUP_M) * E * F;
        w += ((size_t)group * GROUP_M * GROUP_C + c % GROUP_C) * R * S;
        for (int m = 0; m < GROUP_M; ++m, dy += E * F, w += (size_t)GROUP_C * R * S)
            for (int r = taps.first_r; r < R; r += ROW_STEP)
                for (int s = taps.first_s; s < S; s += COLUMN_STEP) {
                    const int e = (down - r * DILATION_ROWS) / U, f = (across - s * DILATION_COLUMNS) / V;
                    const bool inside =
                        down >= r * DILATION_ROWS && e < E && across >= s * DILATION_COLUMNS && f < F;
                    sum += (inside ? dy[e * F + f] : 0) * w[r * S + s];
                }
    }
    dx[(plane * H + h) * W + column] = sum;
}

ASSERT_BLOCK(DGRAD_PHASES, THREADS, 1);
ASSERT_GRID(DGRAD_PHASES, (C * PHASE_ROWS * PHASE_COLUMNS + THREADS - 1) / THREADS, PHASES, 1);
