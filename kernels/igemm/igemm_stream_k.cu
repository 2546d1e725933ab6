// igemm-stream-k: the last tiles are cut along K, so that all multiprocessors finish together.
//
// Technique: stream-K decomposition of an implicit GEMM; data-parallel full waves; fix-up kernel; cp.async pipeline.
// Read next: pipeline.cuh (mainloop), implicit_gemm.cuh (tiles, epilogue), then mma/mma_tf32.cu.
// Run: alexconv run --rungs igemm-stream-k --layers 3
//
// Parent: igemm-async, whose blocks run in waves of as many as the GPU holds; most of the last wave may idle, and with
// few images there is no full wave at all (wave quantization).  Here only full waves compute whole tiles.  The K tiles
// of the remaining tiles are divided evenly into work units, one per resident block, even where that cuts a tile.  A
// unit leaves its partial sums of a cut tile in memory, and a second kernel (fix-up) adds them in the order of the
// taps, so that results do not depend on the order in which units finish.  The cost is one write and one read of the
// partial sums.  (Osama et al., "Stream-K: work-centric parallel decomposition for dense matrix-matrix multiplication
// on the GPU", PPoPP 2023.)
//
// prepare_filters: a block writes one K tile of one tile's filters.  igemm_stream_k: a block computes a tile of ROWS
// filters at COLUMNS pixels of the batch, or one stream-K work unit; a thread THREAD_ROWS filters at THREAD_COLUMNS
// pixels.  igemm_stream_k_fixup: a block adds the partial sums of one row of outputs of each thread of igemm_stream_k.
#include "pipeline.cuh"

constexpr int TILE_FLOATS = ROWS * COLUMNS;  // partial sums that a unit leaves of a cut tile

// The assignment of tiles and work units to blocks.
//
// Example: 8 tiles of K_TILES = 4, SLOTS = 5 blocks at a time, LEAST_K_TILES = 2.  Blocks 0 to 4 compute whole tiles.
// The 3 remaining tiles A, B, C have 12 K tiles, cut into 5 units that begin at K tiles 0, 2, 4, 7 and 9:
//
//     tile            A       |       B       |       C
//     K tile     0   1   2   3|  4   5   6   7|  8   9  10  11
//     unit         0  |   1   |     2     |   3   |     4
//
// Unit 3 has the end of B and the beginning of C, and so leaves two sets of partial sums: number 2 * 3 of B, the next
// of C.  No unit has a whole tile, so the fix-up adds units 0 and 1 for A, 2 and 3 for B, 3 and 4 for C.
struct StreamK {
    int whole;      // tiles in full waves of SLOTS blocks
    int remaining;  // tiles after these
    int units;      // work units of their K tiles; each has a tile's at most, LEAST_K_TILES or a tile's at least

    __device__ __forceinline__ explicit StreamK(long long N)
        : whole(batch_tiles(N) / SLOTS * SLOTS),
          remaining(batch_tiles(N) - whole),
          units(max(remaining, min(SLOTS, k_tiles() / LEAST_K_TILES)))
    {
    }

    __device__ __forceinline__ int k_tiles() const
    {
        return remaining * K_TILES;
    }

    // The first K tile of a unit, counted over all remaining tiles.
    __device__ __forceinline__ int first_k_tile(int unit) const
    {
        return (size_t)k_tiles() * unit / units;
    }

    // The unit that has a K tile.
    __device__ __forceinline__ int unit_of(int k_tile) const
    {
        return (((size_t)k_tile + 1) * units - 1) / k_tiles();
    }
};

extern "C" __global__ void prepare_filters(const float* __restrict__ w,  // [M][C][R][S]
                                           float* __restrict__ filters)  // [TILES_DOWN][K_TILES][DEPTH][ROWS]
{
    order_filters(w, filters);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    igemm_stream_k(const float* __restrict__ x,        // [N][C][H][W]
                   const float* __restrict__ filters,  // [TILES_DOWN][K_TILES][DEPTH][ROWS]
                   float* __restrict__ y,              // [N][M][PIXELS]
                   float* __restrict__ partial,        // [SLOTS][2][THREAD_ROWS][THREAD_COLUMNS][THREADS]
                   long long N)
{
    const StreamK work(N);
    const int unit = int(blockIdx.x) - work.whole;
    if (unit >= work.units) return;
    const int begin = unit < 0 ? 0 : work.first_k_tile(unit), end = unit < 0 ? K_TILES : work.first_k_tile(unit + 1);
    for (int first = begin, last; first < end; first = last) {  // one tile, or two
        const int number = first / K_TILES, first_of_tile = number * K_TILES;
        last = min(end, first_of_tile + K_TILES);
        const BatchTile tile(unit < 0 ? blockIdx.x : work.whole + number);
        if (first > begin) {
            copy_async_wait_group<0>();
            __syncthreads();  // no thread still reads or copies K tiles of the previous tile, which are now overwritten
        }
        Accumulators accumulators;
        mainloop(accumulators, x, filters, tile, N, first - first_of_tile, last - first_of_tile);
        if (last - first == K_TILES) {
            store_rows(accumulators.at, 0, y, tile, N);  // epilogue of a whole tile
            continue;
        }
        // Float by float: vectors would tie accumulators to register pairs, and products would wait on register banks.
        float* const to = partial + (2 * unit + (first > begin)) * TILE_FLOATS + threadIdx.x;
#pragma unroll
        for (int i = 0; i < THREAD_ROWS; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_COLUMNS; ++j) to[(i * THREAD_COLUMNS + j) * THREADS] = accumulators.at[i][j];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    igemm_stream_k_fixup(const float* __restrict__ partial,  // [SLOTS][2][THREAD_ROWS][THREAD_COLUMNS][THREADS]
                         float* __restrict__ y,              // [N][M][PIXELS]
                         long long N)
{
    const StreamK work(N);
    const int number = blockIdx.x / THREAD_ROWS, row = blockIdx.x % THREAD_ROWS;
    if (number >= work.remaining) return;
    const int first_of_tile = number * K_TILES;
    const int first = work.unit_of(first_of_tile), last = work.unit_of(first_of_tile + K_TILES - 1);
    if (first == last) return;  // one unit had the whole tile, and has stored it
    float sums[1][THREAD_COLUMNS] = {};
    for (int unit = first; unit <= last; ++unit) {
        const int second = work.first_k_tile(unit) < first_of_tile;  // the unit's first tile was the previous one
        const float* const from = partial + (2 * unit + second) * TILE_FLOATS + row * THREAD_COLUMNS * THREADS;
#pragma unroll
        for (int j = 0; j < THREAD_COLUMNS; ++j) sums[0][j] += from[j * THREADS + threadIdx.x];
    }
    store_rows(sums, row, y, BatchTile(work.whole + number), N);
}

ASSERT_BLOCK(IGEMM_STREAM_K, THREADS, 1);
ASSERT_GRID(IGEMM_STREAM_K, IMAGE_TILES / SLOTS * SLOTS + SLOTS, 1, 1);
ASSERT_SHARED_BYTES(IGEMM_STREAM_K, STAGES * STAGE * sizeof(float));
ASSERT_BLOCK(IGEMM_STREAM_K_FIXUP, THREADS, 1);
ASSERT_GRID(IGEMM_STREAM_K_FIXUP, IMAGE_TILES % SLOTS == 0 ? 1 : IMAGE_TILES % SLOTS * THREAD_ROWS, 1, 1);
ASSERT_ELEMENTS(PARTIAL, 2 * SLOTS * TILE_FLOATS);
ASSERT_BLOCK(PREPARE_FILTERS, LADDER_PREPARE_FILTERS_THREADS, 1);
ASSERT_GRID(PREPARE_FILTERS, TILES_DOWN * K_TILES, 1, 1);
ASSERT_ELEMENTS(FILTERS, FILTER_FLOATS);
