// igemm-stream-k: the last tiles are cut along K, so that all multiprocessors finish together.
//
// Technique: stream-K decomposition of an implicit GEMM; data-parallel full waves; fix-up kernel; cp.async pipeline.
// Read next: pipeline.cuh (mainloop), implicit_gemm.cuh (tiles, epilogue), then mma/mma_tf32.cu.
// Run: alexconv run --rungs igemm-stream-k --layers 3
//
// Parent: igemm-async, whose blocks run in waves of as many as the GPU holds; most of the last wave may idle, and with
// few images there is no full wave at all (wave quantization).  Here only full waves compute whole tiles.  The steps of
// the remaining tiles are divided evenly into work units, one for each block that the GPU holds, wherever that cuts a
// tile.  A unit leaves its fragment of a cut tile's sums in memory, and a second kernel adds the fragments in the order
// of the taps, so that results do not depend on the order in which units finish.  The cost is one write and one read of
// the fragments.  (Osama et al., "Stream-K: work-centric parallel decomposition for dense matrix-matrix multiplication
// on the GPU", PPoPP 2023.)
//
// prepare_filters: a block writes one step of one tile's filters.  igemm_even: a block computes a tile of ROWS filters
// at COLUMNS pixels of the batch, or one stream-K work unit; a thread THREAD_ROWS filters at THREAD_COLUMNS pixels.
// add_parts: a block adds the fragments of one row of outputs of each thread of igemm_even's block.
#include "pipeline.cuh"

constexpr int FRAGMENT = ROWS * COLUMNS;  // floats: what a unit leaves of a cut tile

// Which blocks compute what.
struct StreamK {
    int whole;      // tiles in full waves of SLOTS blocks
    int remaining;  // tiles after these
    int units;      // work units of their steps; each has LEAST_STEPS or more, and at most a tile's

    __device__ __forceinline__ explicit StreamK(long long N)
        : whole(batch_tiles(N) / SLOTS * SLOTS),
          remaining(batch_tiles(N) - whole),
          units(max(remaining, min(SLOTS, steps() / LEAST_STEPS)))
    {
    }

    __device__ __forceinline__ int steps() const
    {
        return remaining * STEPS;
    }

    // The first step of a unit, counted over all remaining tiles.
    __device__ __forceinline__ int first_step(int unit) const
    {
        return (size_t)steps() * unit / units;
    }

    // The unit that has a step.
    __device__ __forceinline__ int unit_of(int step) const
    {
        return (((size_t)step + 1) * units - 1) / steps();
    }
};

extern "C" __global__ void prepare_filters(const float* __restrict__ w,  // [M][C][R][S]
                                           float* __restrict__ filters)  // [TILES_DOWN][STEPS][DEPTH][ROWS]
{
    order_filters(w, filters);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    igemm_even(const float* __restrict__ x,        // [N][C][H][W]
               const float* __restrict__ filters,  // [TILES_DOWN][STEPS][DEPTH][ROWS]
               float* __restrict__ y,              // [N][M][PIXELS]
               float* __restrict__ partial,        // [SLOTS][2][THREAD_ROWS][THREAD_COLUMNS][THREADS]
               long long N)
{
    const StreamK work(N);
    const int unit = int(blockIdx.x) - work.whole;
    if (unit >= work.units) return;
    const int begin = unit < 0 ? 0 : work.first_step(unit), end = unit < 0 ? STEPS : work.first_step(unit + 1);
    for (int first = begin, last; first < end; first = last) {  // one tile, or two
        const int number = first / STEPS, first_of_tile = number * STEPS;
        last = min(end, first_of_tile + STEPS);
        const BatchTile tile(unit < 0 ? blockIdx.x : work.whole + number);
        if (first > begin) {
            copy_async_wait_group<0>();
            __syncthreads();  // no thread still reads or copies steps of the tile before, which are now overwritten
        }
        Accumulators accumulators;
        mainloop(accumulators, x, filters, tile, N, first - first_of_tile, last - first_of_tile);
        if (last - first == STEPS) {
            store_rows(accumulators.at, 0, y, tile, N);  // epilogue of a whole tile
            continue;
        }
        // Float by float: vectors would tie accumulators to register pairs, and products would wait on register banks.
        float* const to = partial + (2 * unit + (first > begin)) * FRAGMENT + threadIdx.x;
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_COLUMNS; ++j) to[(i * THREAD_COLUMNS + j) * THREADS] = accumulators.at[i][j];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    add_parts(const float* __restrict__ partial,  // [SLOTS][2][THREAD_ROWS][THREAD_COLUMNS][THREADS]
              float* __restrict__ y,              // [N][M][PIXELS]
              long long N)
{
    const StreamK work(N);
    const int number = blockIdx.x / THREAD_ROWS, row = blockIdx.x % THREAD_ROWS;
    if (number >= work.remaining) return;
    const int first_of_tile = number * STEPS;
    const int first = work.unit_of(first_of_tile), last = work.unit_of(first_of_tile + STEPS - 1);
    if (first == last) return;  // one unit had the whole tile, and has stored it
    float sums[1][THREAD_COLUMNS] = {};
    for (int unit = first; unit <= last; ++unit) {
        const int second = work.first_step(unit) < first_of_tile;  // the unit's first tile was the one before
        const float* const from = partial + (2 * unit + second) * FRAGMENT + row * THREAD_COLUMNS * THREADS;
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; ++j) sums[0][j] += from[j * THREADS + threadIdx.x];
    }
    store_rows(sums, row, y, BatchTile(work.whole + number), N);
}

ASSERT_BLOCK(IGEMM_EVEN, THREADS, 1);
ASSERT_GRID(IGEMM_EVEN, IMAGE_TILES / SLOTS * SLOTS + SLOTS, 1, 1);
ASSERT_SHARED_BYTES(IGEMM_EVEN, STAGES * STAGE * sizeof(float));
ASSERT_BLOCK(ADD_PARTS, THREADS, 1);
ASSERT_GRID(ADD_PARTS, IMAGE_TILES % SLOTS == 0 ? 1 : IMAGE_TILES % SLOTS * THREAD_ROWS, 1, 1);
ASSERT_ELEMENTS(PARTIAL, 2 * SLOTS * FRAGMENT);
ASSERT_BLOCK(PREPARE_FILTERS, LADDER_PREPARE_FILTERS_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, TILES_DOWN * STEPS, 1, 1);
ASSERT_ELEMENTS(FILTERS, FILTER_FLOATS);
