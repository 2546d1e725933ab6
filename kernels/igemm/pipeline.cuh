// The main loop of igemm-async and igemm-even: a ring of STAGES steps in shared memory, which asynchronous copies fill.
#pragma once
#include "implicit_product.cuh"
#include "../arch/ptx.cuh"

constexpr int STAGE = DEPTH * (ROWS + COLUMNS);  // floats: filters, then inputs

// The copies of one thread, step after step.
class Copies {
public:
    // From step `first` on, to before `end`.
    __device__ __forceinline__ Copies(const float* x,            // [N][C][H][W]
                                      const float* all_filters,  // [TILES_DOWN][STEPS][DEPTH][ROWS]
                                      BatchTile tile, long long N, int first, int end)
        : filters(all_filters + ((size_t)tile.down * STEPS + first) * DEPTH * ROWS + VECTOR * threadIdx.x),
          step(first),
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

    // Starts the copies of a step, as a group, and goes on to the next.  After the last step it is copied again: nobody
    // multiplies that, and no copy depends on a condition.
    __device__ __forceinline__ void start(float* stage)
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
                             windows[j] + (REGULAR ? k * TAP_PITCH : tap_offset(step, k + first_tap)),
                             is_tap(step, k + first_tap));
        copy_async_close_group();
        if (step == last) return;
        ++step;
        filters += DEPTH * ROWS;
        if (REGULAR) advance();
    }

private:
    // To the next step's first tap: of the next row or place of the filter, or else of the next channels.
    __device__ __forceinline__ void advance()
    {
        constexpr int columns = CHANNELS_TOGETHER ? S : 1;  // of the filter that are steps of their own
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
    const float* filters;                 // of the step, from the thread's first vector on
    int step, last;
    Tap at;  // the step's first tap
    int first_tap, to;
};

// Adds the products of the steps from `first` to before `end` to the sums of the thread's outputs.
__device__ __forceinline__ void multiply(Sums& sums,
                                         const float* __restrict__ x,        // [N][C][H][W]
                                         const float* __restrict__ filters,  // [TILES_DOWN][STEPS][DEPTH][ROWS]
                                         BatchTile tile, long long N, int first, int end)
{
    DYNAMIC_SHARED(float4, shared);
    float* const ring = &shared->x;  // [STAGES][STAGE]
    Copies copies(x, filters, tile, N, first, end);
#pragma unroll
    for (int ahead = 0; ahead < STAGES - 1; ++ahead) copies.start(ring + ahead * STAGE);
    copy_async_wait<STAGES - 2>();
    __syncthreads();  // all threads' copies of the first step have arrived before any thread reads it
    const int row = thread_row(), column = DEPTH * ROWS + thread_column();
    Factors factors[2];
    factors[0].load(ring + row, ring + column);
    float *stage = ring, *free_stage = ring + (STAGES - 1) * STAGE;
    for (int step = first; step < end; ++step) {
        float* const next_stage = stage == ring + (STAGES - 1) * STAGE ? ring : stage + STAGE;
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            if (k + 1 < DEPTH) {
                factors[(k + 1) % 2].load(stage + (k + 1) * ROWS + row, stage + (k + 1) * COLUMNS + column);
            } else {
                copy_async_wait<STAGES - 2>();
                // All threads' copies of the next step have arrived before any thread reads it, and all threads have
                // read this step before any thread's copies overwrite it.
                __syncthreads();
                factors[(k + 1) % 2].load(next_stage + row, next_stage + column);
            }
            if (k == 0) copies.start(free_stage);
            sums.add(factors[k % 2]);
        }
        free_stage = stage;
        stage = next_stage;
    }
}
