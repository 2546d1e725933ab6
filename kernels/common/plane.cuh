// One block per output plane: which of the E x F outputs a thread computes.
//
// Gives: BLOCK_ROWS x BLOCK_COLUMNS = THREADS; output_row, output_column; for_each_output; stage.
// Needs: THREAD_OUTPUTS and COALESCED, constants of the rung.
//
// A block has at most 1024 threads, so in a larger plane a thread computes THREAD_OUTPUTS x THREAD_OUTPUTS outputs.
// COALESCED = 1: they lie a block apart, and the threads of a warp access neighbouring addresses.  COALESCED = 0: they are
// neighbours, and neighbouring threads are THREAD_OUTPUTS addresses apart.
#pragma once
#include "shape.cuh"

constexpr int BLOCK_ROWS = (E + THREAD_OUTPUTS - 1) / THREAD_OUTPUTS,
              BLOCK_COLUMNS = (F + THREAD_OUTPUTS - 1) / THREAD_OUTPUTS;
constexpr int THREADS = BLOCK_ROWS * BLOCK_COLUMNS;

__device__ __forceinline__ int thread_index()
{
    return threadIdx.y * BLOCK_COLUMNS + threadIdx.x;
}

__device__ __forceinline__ int output_row(int i)
{
    return COALESCED ? i * BLOCK_ROWS + threadIdx.y : threadIdx.y * THREAD_OUTPUTS + i;
}

__device__ __forceinline__ int output_column(int j)
{
    return COALESCED ? j * BLOCK_COLUMNS + threadIdx.x : threadIdx.x * THREAD_OUTPUTS + j;
}

// Calls body(e, f) for each of the thread's outputs, one at a time.
template <class Body>
__device__ __forceinline__ void for_each_output(Body body)
{
    for (int i = 0; i < THREAD_OUTPUTS; ++i)
        for (int j = 0; j < THREAD_OUTPUTS; ++j) {
            const int e = output_row(i), f = output_column(j);
            if (e < E && f < F) body(e, f);
        }
}

// Calls body(e, f, sum) for each of the thread's outputs.  Unrolled, so that the accumulators can stay in registers.
template <class Sum, class Body>
__device__ __forceinline__ void for_each_output(Sum (&sums)[THREAD_OUTPUTS][THREAD_OUTPUTS], Body body)
{
#pragma unroll
    for (int i = 0; i < THREAD_OUTPUTS; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_OUTPUTS; ++j) {
            const int e = output_row(i), f = output_column(j);
            if (e < E && f < F) body(e, f, sums[i][j]);
        }
}

// Copies `count` contiguous elements to shared memory with all threads of the block.
template <class T>
__device__ __forceinline__ void stage(T* __restrict__ shared, const T* __restrict__ from, int count)
{
    for (int i = thread_index(); i < count; i += THREADS) shared[i] = from[i];
}
