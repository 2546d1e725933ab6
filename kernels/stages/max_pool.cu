// max-pool: max pooling, with windows that may overlap.
//
// Technique: one thread for some neighbouring channels of a strip of output pixels, by 16-byte vectors where channels are
// innermost; each input row's maximum serves all windows of the strip that it lies in.
// Read next: stages/channels.cuh, then stages/linear.cu.
// Run: alexconv run --network alexnet-2012 --N 1
//
// Windows of 3 x 3 with a stride of 2 read every input up to four times.  Along a row the L1 cache serves all but the
// first; the rows between neighbouring strips come from the L2 cache again.  Values that were normalized as the pooling
// loads them, to spare the normalized plane, were so up to four times: together slower by two thirds than apart (H100,
// AlexNet of 2012, N = 128).
//
// A block computes THREADS parts, a thread one of them: a chunk of channels of TILE_ROWS outputs below each other.
//
// Needs: TILE_ROWS, a constant of the rung.
#include "../arch/dependent_launch.cuh"
#include "channels.cuh"

constexpr int THREADS = 256;
constexpr int STRIPS = (E + TILE_ROWS - 1) / TILE_ROWS;  // of a column of outputs
constexpr int STRIP_ROWS = (TILE_ROWS - 1) * U + R;      // of inputs under a strip

extern "C" __global__ void __launch_bounds__(THREADS)
    max_pool(const Value* __restrict__ x,  // [N] planes of H x W
             Value* __restrict__ y,        // [N] planes of E x F
             long long N)
{
    allow_dependent_launch();
    wait_for_primary_launches();
    const long long thread = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (thread >= N * STRIPS * F * CHUNKS) return;
    const Part part = part_of<STRIPS * F>(thread);
    const int e = part.pixel / F * TILE_ROWS, f = part.pixel % F;
    float largest[TILE_ROWS][CHUNK];
#pragma unroll
    for (int row = 0; row < STRIP_ROWS; ++row) {
        const int h = min(e * U + row, H - 1);  // rows beyond the plane are under no output
        float of_row[CHUNK];
        load_part<H, W>(x, part.n, part.first, h, f * U, of_row);
#pragma unroll
        for (int s = 1; s < S; ++s) {
            float values[CHUNK];
            load_part<H, W>(x, part.n, part.first, h, f * U + s, values);
#pragma unroll
            for (int i = 0; i < CHUNK; ++i) of_row[i] = larger(of_row[i], values[i]);
        }
#pragma unroll
        for (int output = 0; output < TILE_ROWS; ++output) {
            const int r = row - output * U;  // of the output's window
#pragma unroll
            for (int i = 0; i < CHUNK && r >= 0 && r < R; ++i)
                largest[output][i] = r == 0 ? of_row[i] : larger(largest[output][i], of_row[i]);
        }
    }
#pragma unroll
    for (int output = 0; output < TILE_ROWS; ++output)
        if (e + output < E) store_part<E, F>(largest[output], y, part.n, part.first, e + output, f);
}

ASSERT_BLOCK(MAX_POOL, THREADS, 1);
ASSERT_GRID(MAX_POOL, (STRIPS * F * CHUNKS + THREADS - 1) / THREADS, 1, 1);
