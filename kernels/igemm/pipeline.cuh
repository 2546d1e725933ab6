// The pipeline and mainloop of igemm-async and igemm-stream-k: STAGES K tiles in shared memory, filled by cp.async.
//
// Gives: STAGE; mainloop(accumulators, x, filters, tile, N, first, end); implicit_gemm.cuh.
// Needs: DEPTH and STAGES, constants of the rung.
#pragma once
#include "../arch/ampere.cuh"
#include "implicit_gemm.cuh"

constexpr int STAGE = DEPTH * (ROWS + COLUMNS);  // floats: filters, then inputs

// One thread's copies, K tile after K tile, into a circular buffer of stages.
class Pipeline {
public:
    // Copies the K tiles [first, end).
    __device__ __forceinline__ Pipeline(const float* x,            // [N][C][H][W]
                                        const float* all_filters,  // [TILES_DOWN][K_TILES][DEPTH][ROWS]
                                        BatchTile tile, long long N, int first, int end)
        : filters(all_filters + ((size_t)tile.down * K_TILES + first) * DEPTH * ROWS + VECTOR * threadIdx.x),
          k_tile(first),
          last(end - 1),
          at(tap(first, 0)),
          first_tap(threadIdx.x / COLUMNS),
          to(DEPTH * ROWS + first_tap * COLUMNS + column_of(threadIdx.x % COLUMNS))
    {
#pragma unroll
        for (int j = 0; j < COPIED_PIXELS; ++j) {
            windows[j] = window(x, tile.pixel + threadIdx.x % COLUMNS + j * THREADS, N);
            if (REGULAR) windows[j] += tap_offset(first, first_tap);
        }
    }

    // Starts the copies of a K tile as one group, and advances to the next.  Past the end, copies the last K tile
    // again, which is never read: so no copy depends on a condition.
    __device__ __forceinline__ void issue(float* stage)
    {
#pragma unroll
        for (int i = 0; i < DEPTH * ROWS; i += VECTOR * THREADS)
            if (DEPTH * ROWS % (VECTOR * THREADS) == 0 || i + VECTOR * threadIdx.x < DEPTH * ROWS)
                copy_async_16(stage + VECTOR * threadIdx.x + i, filters + i, true);
#pragma unroll
        for (int k = 0; k < DEPTH; k += COPIED_TAPS)
#pragma unroll
            for (int j = 0; j < COPIED_PIXELS; ++j)
                copy_async_4(stage + to + k * COLUMNS + j * THREADS,
                             windows[j] + (REGULAR ? k * TAP_PITCH : tap_offset(k_tile, k + first_tap)),
                             is_tap(k_tile, k + first_tap));
        copy_async_commit_group();
        if (k_tile == last) return;
        ++k_tile;
        filters += DEPTH * ROWS;
        if (REGULAR) advance();
    }

private:
    // To the next K tile's first tap: of the next row or place of the filter, or else of the next channels.
    __device__ __forceinline__ void advance()
    {
        SHAPE_CONST int columns = CHANNELS_TOGETHER ? int(S) : 1;  // of the filter that are K tiles of their own
        int distance = 1;
        if (++at.s == columns) {
            at.s = 0;
            distance = W - columns + 1;
            if (++at.r == R) {
                at.r = 0;
                distance = (CHANNELS_TOGETHER ? DEPTH : 1) * H * W - (R - 1) * W - columns + 1;
            }
        }
#pragma unroll
        for (int j = 0; j < COPIED_PIXELS; ++j) windows[j] += distance;
    }

    const float* windows[COPIED_PIXELS];  // of the thread's pixels; where REGULAR, the thread's first tap in them
    const float* filters;                 // of the K tile, from the thread's first vector on
    int k_tile, last;
    Tap at;  // the K tile's first tap
    int first_tap, to;
};

// Adds the products of the K tiles [first, end) to the thread's accumulators.  Copies run STAGES - 1 K tiles ahead;
// fragments are double-buffered: those of the next tap are loaded while this tap's are multiplied.
__device__ __forceinline__ void mainloop(Accumulators& accumulators,
                                         const float* __restrict__ x,        // [N][C][H][W]
                                         const float* __restrict__ filters,  // [TILES_DOWN][K_TILES][DEPTH][ROWS]
                                         BatchTile tile, long long N, int first, int end)
{
    DYNAMIC_SHARED(float4, shared);
    float* const stages = &shared->x;  // [STAGES][STAGE]
    Pipeline pipeline(x, filters, tile, N, first, end);
    // Prologue: the copies of all stages but one are in flight, the first has arrived.
#pragma unroll
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) pipeline.issue(stages + ahead * STAGE);
    copy_async_wait_group<STAGES - 2>();
    __syncthreads();  // all threads' copies of the first K tile have arrived before any thread reads it
    const int row = thread_row(), column = DEPTH * ROWS + thread_column();
    Fragments fragments[2];
    fragments[0].load(stages + row, stages + column);
    float *stage = stages, *free_stage = stages + (STAGES - 1) * STAGE;
    for (int k_tile = first; k_tile < end; ++k_tile) {
        float* const next_stage = stage == stages + (STAGES - 1) * STAGE ? stages : stage + STAGE;
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            if (k + 1 < DEPTH) {
                fragments[(k + 1) % 2].load(stage + (k + 1) * ROWS + row, stage + (k + 1) * COLUMNS + column);
            } else {
                copy_async_wait_group<STAGES - 2>();
                // All threads' copies of the next K tile have arrived before any thread reads it, and all threads have
                // read this K tile before any thread's copies overwrite it.
                __syncthreads();
                fragments[(k + 1) % 2].load(next_stage + row, next_stage + column);
            }
            if (k == 0) pipeline.issue(free_stage);
            accumulators.multiply_add(fragments[k % 2]);
        }
        free_stage = stage;
        stage = next_stage;
    }
}
