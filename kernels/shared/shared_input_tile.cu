// shared-input-tile: the block is as large as its input tile, and some threads compute nothing.
//
// Technique: direct convolution; shared-memory tiling with halo, block = input tile.
// Read next: shared/shared_core_tile.cu.
// Run: alexconv run --rungs shared-input-tile --layers 2
//
// Parent: shared-output-tile, which loads an input tile in several steps with index divisions in each.  Here there is a
// thread for each input of the tile: loading is one step, without a loop or a division.  The price comes afterwards,
// when only TILE x TILE of the threads have an output to compute.  Strategy 2 of Kirk and Hwu's "Programming Massively
// Parallel Processors".  CHANNELS_SHARED channels are loaded together and share the two barriers.  Block (n, m, tile)
// computes that tile of the plane (n, m); a thread loads one input of each channel and computes at most one output.
#include "input_tile.cuh"

constexpr int LOADERS = INPUT_ROWS * INPUT_COLUMNS;

ASSERT_BLOCK(SHARED_INPUT_TILE, INPUT_COLUMNS, INPUT_ROWS);
ASSERT_GRID(SHARED_INPUT_TILE, 1, M, TILES);
ASSERT_SHARED_BYTES(SHARED_INPUT_TILE, CHANNELS_SHARED * LOADERS * sizeof(float));

extern "C" __global__ void __launch_bounds__(LOADERS)
    shared_input_tile(const float* __restrict__ x,  // [N][C][H][W]
                      const float* __restrict__ w,  // [M][C][R][S]
                      float* __restrict__ y)        // [N][M][E][F]
{
    DYNAMIC_SHARED(float, input);  // [CHANNELS_SHARED][INPUT_ROWS][INPUT_COLUMNS]
    const int n = blockIdx.x, m = blockIdx.y;
    const int row = tile_row() * U + threadIdx.y, column = tile_column() * U + threadIdx.x;
    const int e = output_row(), f = output_column();
    const bool computes = threadIdx.y < TILE && threadIdx.x < TILE && e < E && f < F;
    x += (size_t)n * C * H * W;
    w += (size_t)m * C * R * S;
    y += ((size_t)n * M + m) * E * F;
    float sum = 0;
    for (int first = 0; first < C; first += CHANNELS_SHARED) {
        const int count = first + CHANNELS_SHARED < C ? CHANNELS_SHARED : C - first;
        if (first > 0) __syncthreads();  // every thread is done with the previous channels before they are overwritten
        if (row < H && column < W)
            for (int c = 0; c < count; ++c)
                input[(c * INPUT_ROWS + threadIdx.y) * INPUT_COLUMNS + threadIdx.x] =
                    x[((first + c) * H + row) * W + column];
        __syncthreads();  // all threads have written their inputs before any thread reads them
        if (computes)
            for (int c = 0; c < count; ++c)
                for (int r = 0; r < R; ++r)
                    for (int s = 0; s < S; ++s)
                        sum += input[(c * INPUT_ROWS + threadIdx.y * U + r) * INPUT_COLUMNS + threadIdx.x * U + s] *
                               w[((first + c) * R + r) * S + s];
    }
    if (computes) y[e * F + f] = sum;
}
