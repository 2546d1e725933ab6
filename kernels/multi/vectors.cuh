// The convolution of channels-vector and channels-atomic: vectorized loads, and fully unrolled loops along filter rows.
//
// Gives: SHARED_FLOATS; convolve_slice; split_k.cuh.
// Needs: PLANE_SHARED, CHANNELS, THREAD_OUTPUTS and COALESCED, constants of the rung; LADDER_FILTER_ROWS and
// LADDER_PLANE_PITCH, which the ladder computes.
//
// A thread loads filter rows into registers and multiplies each with a window of the input: the part of one row that
// serves one output, or several adjacent ones.  Each load is as wide as its alignment allows:
//
// * Filter: it begins the shared memory, which is declared as vectors, and FILTER_PITCH is a multiple of VECTOR, so
//   each load is aligned to 16 bytes.
// * Plane in shared memory: the filter before it ends on a multiple of 16 bytes.  A window starts a multiple of
//   WINDOW_STRIDE from the start of its row, and rows are PLANE_PITCH apart; WINDOW_VECTOR divides both.  It is 4 or 2
//   if WINDOW_STRIDE is a multiple of that, as at stride 4.  At stride 1 with one output per window, windows start
//   anywhere and it is 1.
// * Global memory: a plane starts at (n*C + c)*H*W floats, which may be odd, and W puts the rows anywhere.  So planes are
//   read float by float; where they are staged, a warp's loads are coalesced and fill whole sectors anyway.  (A float3
//   is no wider: with the alignment of a float it becomes three loads.)
#pragma once
#include "split_k.cuh"

constexpr int VECTOR = 4;  // floats in the widest load

constexpr int round_up(int count, int unit)
{
    return (count + unit - 1) / unit * unit;
}

// Outputs along F that share one window of the input: all outputs of a thread if they are adjacent.  In global memory
// each has its own, because the window of outputs beyond the plane would reach beyond the array.
constexpr int GROUP = PLANE_SHARED && !COALESCED ? THREAD_OUTPUTS : 1;
constexpr int WINDOW = (GROUP - 1) * U + S;
constexpr int WINDOW_STRIDE = GROUP * U;  // columns from a thread's window to its neighbour's
constexpr int WINDOW_VECTOR = !PLANE_SHARED ? 1 : WINDOW_STRIDE % 4 == 0 ? 4 : WINDOW_STRIDE % 2 == 0 ? 2 : 1;

// Filter rows that are in registers together: all of a small filter, so that fewer loads are cut short by a row's end
// and neighbouring outputs share their inputs; else one.
constexpr int FILTER_ROWS = LADDER_FILTER_ROWS;
constexpr int FILTER_TAPS = FILTER_ROWS * S;
constexpr int FILTER_PITCH = round_up(FILTER_TAPS, VECTOR);
constexpr int FILTER_FLOATS = R / FILTER_ROWS * FILTER_PITCH;
static_assert(R % FILTER_ROWS == 0);

// The shared plane covers all that the block's threads read, including outputs beyond E x F: their sums are dropped, so
// their inputs need not be initialized.
constexpr int PLANE_ROWS = (BLOCK_ROWS * THREAD_OUTPUTS - 1) * U + R;
constexpr int PLANE_COLUMNS = round_up((BLOCK_COLUMNS * THREAD_OUTPUTS - 1) * U + S, WINDOW_VECTOR);

// Floats from a row of the shared plane to the next, padded against bank conflicts.  A warp covers several rows of
// threads.  If their windows are as many banks apart as the windows of BLOCK_COLUMNS neighbours would be, a warp has no
// more bank conflicts than a single row of threads.  The ladder finds the smallest such pitch (multi/ladder.py).
constexpr int PLANE_PITCH = LADDER_PLANE_PITCH;
static_assert(!PLANE_SHARED || (PLANE_PITCH >= PLANE_COLUMNS && PLANE_PITCH % WINDOW_VECTOR == 0));

constexpr int SHARED_FLOATS = FILTER_FLOATS + PLANE_SHARED * PLANE_ROWS * PLANE_PITCH;

// N floats in one load.
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
        // undefined: inputs of outputs beyond the plane, which are not stored
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

// Adds one channel to the accumulators of the thread's outputs.
__device__ __forceinline__ void add_channel(float (&sums)[THREAD_OUTPUTS][THREAD_OUTPUTS],
                                            const float* filter,  // [R / FILTER_ROWS][FILTER_PITCH], shared
                                            const float* plane)   // [PLANE_ROWS][PLANE_PITCH] shared, or [H][W] global
{
    constexpr int pitch = PLANE_SHARED ? PLANE_PITCH : W;
    for (int first = 0; first < R; first += FILTER_ROWS) {
        const Row<FILTER_TAPS, VECTOR> taps(filter + first / FILTER_ROWS * FILTER_PITCH);
#pragma unroll
        for (int i = 0; i < THREAD_OUTPUTS; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_OUTPUTS; j += GROUP) {
                const int e = output_row(i), f = output_column(j);
                if (!PLANE_SHARED && (e >= E || f >= F)) continue;
#pragma unroll
                for (int r = 0; r < FILTER_ROWS; ++r) {
                    const Row<WINDOW, WINDOW_VECTOR> window(plane + (e * U + first + r) * pitch + f * U);
#pragma unroll
                    for (int k = 0; k < GROUP; ++k)
#pragma unroll
                        for (int s = 0; s < S; ++s) sums[i][j + k] += window[k * U + s] * taps[r * S + s];
                }
            }
    }
}

// Sums of the thread's outputs over the block's channels.
__device__ __forceinline__ void convolve_slice(float (&sums)[THREAD_OUTPUTS][THREAD_OUTPUTS],
                                               const float* __restrict__ x,  // [N][C][H][W]
                                               const float* __restrict__ w)  // [M][C][R][S]
{
    DYNAMIC_SHARED(Vector<VECTOR>, shared);
    float* const filter = shared->at;                    // [R / FILTER_ROWS][FILTER_PITCH]
    float* const shared_plane = filter + FILTER_FLOATS;  // [PLANE_ROWS][PLANE_PITCH] if PLANE_SHARED
    const int n = blockIdx.x, m = blockIdx.y;
    const int first = first_channel();
    for (int c = first; c < end_channel(); ++c) {
        const float* const global_plane = x + ((size_t)n * C + c) * H * W;
        if (c > first) __syncthreads();  // every thread is done with the previous channel before it is overwritten
        stage_rows<FILTER_TAPS, FILTER_PITCH>(filter, w + ((size_t)m * C + c) * R * S, R / FILTER_ROWS, FILTER_TAPS);
        if (PLANE_SHARED) stage_rows<(F - 1) * U + S, PLANE_PITCH>(shared_plane, global_plane, (E - 1) * U + R, W);
        __syncthreads();  // all threads have written their part of filter and plane before any thread reads them
        add_channel(sums, filter, PLANE_SHARED ? shared_plane : global_plane);
    }
}
