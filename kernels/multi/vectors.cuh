// The convolution of channels-vector and channels-atomic: wide loads, and no loop along a filter row.
//
// A thread takes filter rows into registers and multiplies each with a window of the input, a part of one row that
// serves one output or several side by side.  Loads are as wide as their alignment is certain:
//
// * Filter: it begins the shared memory, which is declared as vectors, and TAPS_PITCH is a multiple of VECTOR, so what
//   a thread takes at a time starts on 16 bytes.
// * Plane in shared memory: the filter before it ends on 16 bytes.  A window starts STEP or a multiple of it from its
//   row's start, and rows are PLANE_PITCH apart; WIDTH divides both.  It is 4 or 2 where STEP is a multiple of that,
//   as at stride 4.  At stride 1 with one output per window, windows start anywhere and WIDTH is 1.
// * Global memory: a plane starts at (n*C + c)*H*W floats, which is sure to be a multiple of one only, and W puts the
//   rows anywhere.  So planes are read float by float; where they are staged, a warp's loads are neighbours and fill
//   whole sectors anyhow.  (A float3 is no wider: with the alignment of a float it becomes three loads.)
#pragma once
#include "parts.cuh"

constexpr int VECTOR = 4;  // floats in the widest load
constexpr int BANKS = 32;  // of shared memory, one float wide

constexpr int round_up(int count, int unit)
{
    return (count + unit - 1) / unit * unit;
}

// Outputs along F that share one window of the input: all of a thread's if they lie side by side.  In global memory
// each has its own, because the window of outputs beyond the plane would reach beyond the array.
constexpr int GROUP = PLANE_SHARED && !COALESCED ? OUTPUTS : 1;
constexpr int WINDOW = (GROUP - 1) * U + S;
constexpr int STEP = GROUP * U;  // columns from a thread's window to its neighbour's
constexpr int WIDTH = !PLANE_SHARED ? 1 : STEP % 4 == 0 ? 4 : STEP % 2 == 0 ? 2 : 1;

// Filter rows that are in registers together: all of a small filter, so that fewer loads are cut short by a row's end
// and neighbouring outputs share what they read of the plane; else one.
constexpr int FILTER_REGISTERS = 32;
constexpr int TAP_ROWS = R * S <= FILTER_REGISTERS ? R : 1;
constexpr int TAPS = TAP_ROWS * S;
constexpr int TAPS_PITCH = round_up(TAPS, VECTOR);

// The shared plane has all that the block's threads read, also those whose outputs lie beyond E x F: their sums are
// dropped, so what they read need not be written.
constexpr int PLANE_ROWS = (BLOCK_ROWS * OUTPUTS - 1) * U + R;
constexpr int PLANE_COLUMNS = round_up((BLOCK_COLUMNS * OUTPUTS - 1) * U + S, WIDTH);

// A warp covers several rows of threads.  If their windows lie as many banks apart as the windows of BLOCK_COLUMNS
// neighbours would, the warp's windows meet in a bank no more often than those of a single row.
constexpr int plane_pitch()
{
    for (int pitch = PLANE_COLUMNS; pitch < PLANE_COLUMNS + BANKS; pitch += WIDTH)
        if ((pitch - BLOCK_COLUMNS) * STEP % BANKS == 0) return pitch;
    return PLANE_COLUMNS;
}
constexpr int PLANE_PITCH = plane_pitch();

// N floats that are loaded at once.
template <int N>
struct alignas(N * sizeof(float)) Vector {
    float at[N];
};

// A row of LENGTH floats in registers, loaded from a multiple of N floats in vectors of N.
template <int LENGTH, int N>
struct Row {
    static constexpr int COUNT = (LENGTH + N - 1) / N;
    Vector<N> vectors[COUNT];

    __device__ __forceinline__ explicit Row(const float* from)
    {
#pragma unroll
        for (int k = 0; k < COUNT; ++k) vectors[k] = reinterpret_cast<const Vector<N>*>(from)[k];
    }

    __device__ __forceinline__ float operator[](int k) const
    {
        return vectors[k / N].at[k % N];
    }
};

// Copies rows of COLUMNS floats to shared memory, PITCH apart, with all threads of the block.
template <int COLUMNS, int PITCH>
__device__ __forceinline__ void stage_rows(float* __restrict__ shared, const float* __restrict__ from, int rows,
                                           int from_pitch)
{
    for (int i = thread_index(); i < rows * COLUMNS; i += THREADS)
        shared[i / COLUMNS * PITCH + i % COLUMNS] = from[i / COLUMNS * from_pitch + i % COLUMNS];
}

// Adds one channel to the sums of the thread's outputs.
__device__ __forceinline__ void add_channel(float (&sums)[OUTPUTS][OUTPUTS],
                                            const float* filter,  // [R / TAP_ROWS][TAPS_PITCH], shared
                                            const float* plane)   // [PLANE_ROWS][PLANE_PITCH] shared, or [H][W] global
{
    constexpr int pitch = PLANE_SHARED ? PLANE_PITCH : W;
    for (int first = 0; first < R; first += TAP_ROWS) {
        const Row<TAPS, VECTOR> taps(filter + first / TAP_ROWS * TAPS_PITCH);
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i)
#pragma unroll
            for (int j = 0; j < OUTPUTS; j += GROUP) {
                const int e = output_row(i), f = output_column(j);
                if (!PLANE_SHARED && (e >= E || f >= F)) continue;
#pragma unroll
                for (int r = 0; r < TAP_ROWS; ++r) {
                    const Row<WINDOW, WIDTH> window(plane + (e * U + first + r) * pitch + f * U);
#pragma unroll
                    for (int k = 0; k < GROUP; ++k)
#pragma unroll
                        for (int s = 0; s < S; ++s) sums[i][j + k] += window[k * U + s] * taps[r * S + s];
                }
            }
    }
}

// Sums of the thread's outputs over the block's channels.
__device__ __forceinline__ void convolve_part(float (&sums)[OUTPUTS][OUTPUTS],
                                              const float* __restrict__ x,  // [N][C][H][W]
                                              const float* __restrict__ w)  // [M][C][R][S]
{
    DYNAMIC_SHARED(Vector<VECTOR>, shared);
    float* const filter = shared->at;                                // [R / TAP_ROWS][TAPS_PITCH]
    float* const shared_plane = filter + R / TAP_ROWS * TAPS_PITCH;  // [PLANE_ROWS][PLANE_PITCH] if PLANE_SHARED
    const int n = blockIdx.x, m = blockIdx.y;
    const int first = first_channel();
    for (int c = first; c < end_channel(); ++c) {
        const float* const global_plane = x + ((size_t)n * C + c) * H * W;
        if (c > first) __syncthreads();  // no thread still reads the channel before, which is now overwritten
        stage_rows<TAPS, TAPS_PITCH>(filter, w + ((size_t)m * C + c) * R * S, R / TAP_ROWS, TAPS);
        if (PLANE_SHARED) stage_rows<(F - 1) * U + S, PLANE_PITCH>(shared_plane, global_plane, (E - 1) * U + R, W);
        __syncthreads();  // all threads have written their share of filter and plane before any thread reads them
        add_channel(sums, filter, PLANE_SHARED ? shared_plane : global_plane);
    }
}
