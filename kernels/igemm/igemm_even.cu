// igemm-even: the last tiles are cut along the taps, so that all multiprocessors finish together.
//
// Parent: igemm-async, whose blocks run in waves of as many as the GPU holds; in the last wave most of it may idle, and
// with few images there is no full wave at all.  Here only full waves compute whole tiles.  The steps of the tiles that
// remain are shared out evenly among as many blocks as the GPU holds, wherever that cuts a tile, and a second kernel
// adds the parts in the order of the taps, so sums do not depend on who came first.  What this costs is one write and
// one read of the cut tiles' parts.  (Osama et al., "Stream-K: work-centric parallel decomposition for dense
// matrix-matrix multiplication on the GPU", PPoPP 2023.)
//
// prepare_filters: a block writes one step's part of a tile's filters.  igemm_even: a block computes a tile of ROWS
// filters at COLUMNS pixels of the batch, or an even share of the remaining tiles' steps; a thread THREAD_ROWS filters
// at THREAD_COLUMNS pixels.  add_parts: a block adds one row of outputs of each thread of igemm_even's block.
#include "pipeline.cuh"

constexpr int PART = ROWS * COLUMNS;  // floats

// Which blocks compute what.
struct Shares {
    int whole;      // tiles in full waves of SLOTS blocks
    int remaining;  // tiles after these
    int parts;      // into which their steps are cut; each has LEAST_STEPS or more, and no more than a tile

    __device__ __forceinline__ explicit Shares(long long N)
        : whole(batch_tiles(N) / SLOTS * SLOTS),
          remaining(batch_tiles(N) - whole),
          parts(max(remaining, min(SLOTS, steps() / LEAST_STEPS)))
    {
    }

    __device__ __forceinline__ int steps() const
    {
        return remaining * STEPS;
    }

    // The first step of a part, counted over all remaining tiles.
    __device__ __forceinline__ int first_step(int part) const
    {
        return (size_t)steps() * part / parts;
    }

    // The part that has a step.
    __device__ __forceinline__ int part_of(int step) const
    {
        return (((size_t)step + 1) * parts - 1) / steps();
    }
};

extern "C" __global__ void prepare_filters(const float* __restrict__ w,  // [M][C][R][S]
                                           float* __restrict__ filters)  // [TILES_DOWN][STEPS][DEPTH][ROWS]
{
    order_filters(w, filters);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    igemm_even(const float* __restrict__ x,        // [N][C][H][W]
               const float* __restrict__ filters,  // [TILES_DOWN][STEPS][DEPTH][ROWS]
               float* __restrict__ y,              // [N][M][PIXELS]
               float* __restrict__ partial,        // [SLOTS][2][THREAD_ROWS][THREAD_COLUMNS][THREADS]
               long long N)
{
    const Shares shares(N);
    const int part = int(blockIdx.x) - shares.whole;
    if (part >= shares.parts) return;
    const int begin = part < 0 ? 0 : shares.first_step(part), end = part < 0 ? STEPS : shares.first_step(part + 1);
    for (int first = begin, last; first < end; first = last) {  // one tile, or two
        const int number = first / STEPS, first_of_tile = number * STEPS;
        last = min(end, first_of_tile + STEPS);
        const BatchTile tile(part < 0 ? blockIdx.x : shares.whole + number);
        if (first > begin) {
            copy_async_wait<0>();
            __syncthreads();  // no thread still reads or copies steps of the tile before, which are now overwritten
        }
        Sums sums;
        multiply(sums, x, filters, tile, N, first - first_of_tile, last - first_of_tile);
        if (last - first == STEPS) {
            store_rows(sums.at, 0, y, tile, N);
            continue;
        }
        // Float by float: vectors would tie the sums to registers in which products wait for the register file.
        float* const to = partial + (2 * part + (first > begin)) * PART + threadIdx.x;
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_COLUMNS; ++j) to[(i * THREAD_COLUMNS + j) * THREADS] = sums.at[i][j];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    add_parts(const float* __restrict__ partial,  // [SLOTS][2][THREAD_ROWS][THREAD_COLUMNS][THREADS]
              float* __restrict__ y,              // [N][M][PIXELS]
              long long N)
{
    const Shares shares(N);
    const int number = blockIdx.x / THREAD_ROWS, row = blockIdx.x % THREAD_ROWS;
    if (number >= shares.remaining) return;
    const int first_of_tile = number * STEPS;
    const int first = shares.part_of(first_of_tile), last = shares.part_of(first_of_tile + STEPS - 1);
    if (first == last) return;  // one block had the whole tile, and has stored it
    float sums[1][THREAD_COLUMNS] = {};
    for (int part = first; part <= last; ++part) {
        const int second = shares.first_step(part) < first_of_tile;  // the part's first tile was the one before
        const float* const from = partial + (2 * part + second) * PART + row * THREAD_COLUMNS * THREADS;
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; ++j) sums[0][j] += from[j * THREADS + threadIdx.x];
    }
    store_rows(sums, row, y, BatchTile(shares.whole + number), N);
}
