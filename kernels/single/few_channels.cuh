// Direct convolution of few channels with register tiles: the window of a block's outputs, and all its filters' taps,
// in shared memory.
//
// Gives: FewChannels: load, multiply; a thread's pixels and filters; FEW_THREADS, FEW_BYTES.
//
// A block computes TILE_FILTERS filters at TILE_ROWS x TILE_COLUMNS outputs, a warp one row of them.  A thread computes
// two vectors of four neighbouring outputs of the row for two vectors of four neighbouring filters: 64 accumulators for
// 16 operands of a tap.  The two lie half a tile apart, so that the lanes of a warp access neighbouring vectors.
//
// Needs: TILE_ROWS, a constant of the rung.
#pragma once
#include "../common/bias.cuh"
#include "../common/padding.cuh"

constexpr int LANES = 32, TAPS = C * R * S, VECTOR = 4, HALVES = 2;
constexpr int FILTER_LANES = 8, PIXEL_LANES = LANES / FILTER_LANES;
constexpr int TILE_FILTERS = FILTER_LANES * VECTOR * HALVES, TILE_COLUMNS = PIXEL_LANES * VECTOR * HALVES;
constexpr int FEW_THREADS = TILE_ROWS * LANES, FEW_RESIDENT = 512 / FEW_THREADS;  // threads, blocks of a multiprocessor
constexpr int TILES_DOWN = (E + TILE_ROWS - 1) / TILE_ROWS, TILES_ACROSS = (F + TILE_COLUMNS - 1) / TILE_COLUMNS;
constexpr int WINDOW_ROWS = (TILE_ROWS - 1) * U + PATCH_ROWS, WINDOW_COLUMNS = (TILE_COLUMNS - 1) * V + PATCH_COLUMNS;
constexpr int WINDOW = C * WINDOW_ROWS * WINDOW_COLUMNS, OUTPUTS = VECTOR * HALVES;  // of a thread along each axis
// Floats from a tap's filters to the next tap's, so that a filter's taps, which neighbouring lanes write, lie in eight
// banks, not all in one.
constexpr int PITCH = TILE_FILTERS + VECTOR;
constexpr int FEW_BYTES = (TAPS * PITCH + WINDOW) * sizeof(float);

// Value: float or __half, of inputs, filters and bias; sums are floats.
template <class Value>
struct FewChannels {
    float* filters;  // [TAPS][PITCH], in shared memory
    float* window;   // [C][WINDOW_ROWS][WINDOW_COLUMNS], in shared memory
    int n, first_row, first_column, first_filter;

    __device__ __forceinline__ explicit FewChannels(float4* memory)
        : filters(reinterpret_cast<float*>(memory)),
          window(filters + TAPS * PITCH),
          n(blockIdx.x / (TILES_DOWN * TILES_ACROSS)),
          first_row(blockIdx.x / TILES_ACROSS % TILES_DOWN * TILE_ROWS),
          first_column(blockIdx.x % TILES_ACROSS * TILE_COLUMNS),
          first_filter(blockIdx.y * TILE_FILTERS)
    {
    }

    // Loads filters and window into shared memory, zeros beyond the last filter and in the padding; ends with a
    // barrier.  `place` gives the offset in x of a channel, row and column of the image.
    template <class Place>
    __device__ __forceinline__ void load(const Value* __restrict__ x, const Value* __restrict__ w,  // w [M][C][R][S]
                                         Place place) const
    {
        for (int i = threadIdx.x; i < TAPS * TILE_FILTERS; i += FEW_THREADS) {
            const int m = i / TAPS, tap = i % TAPS;
            filters[tap * PITCH + m] = first_filter + m < M ? float(w[(size_t)first_filter * TAPS + i]) : 0;
        }
        x += (size_t)n * C * H * W;
#pragma unroll 4
        for (int i = threadIdx.x; i < WINDOW; i += FEW_THREADS) {
            const int c = i / (WINDOW_ROWS * WINDOW_COLUMNS);
            const int row = first_row * U + i / WINDOW_COLUMNS % WINDOW_ROWS;
            const int column = first_column * V + i % WINDOW_COLUMNS;
            window[i] = in_plane(row, column) ? float(x[place(c, row - TOP, column - LEFT)]) : 0;
        }
        __syncthreads();  // filters and window are complete before any thread reads them
    }

    static __device__ __forceinline__ int filter_lane() { return threadIdx.x % FILTER_LANES; }
    static __device__ __forceinline__ int pixel_lane() { return threadIdx.x % LANES / FILTER_LANES; }

    // The row, and the j-th column and i-th filter of this thread's outputs.
    __device__ __forceinline__ int row() const { return first_row + threadIdx.x / LANES; }
    static __device__ __forceinline__ int column_of(int j) { return j / VECTOR * (TILE_COLUMNS / 2) + j % VECTOR; }
    __device__ __forceinline__ int column(int j) const { return first_column + pixel_lane() * VECTOR + column_of(j); }
    __device__ __forceinline__ int filter(int i) const
    {
        return first_filter + filter_lane() * VECTOR + i / VECTOR * (TILE_FILTERS / 2) + i % VECTOR;
    }

    // Adds all taps to the thread's sums.
    __device__ __forceinline__ void multiply(float (&sums)[OUTPUTS][OUTPUTS]) const  // [filter][column]
    {
        const float* const inputs =
            window + threadIdx.x / LANES * U * WINDOW_COLUMNS + pixel_lane() * VECTOR * V;
        const float4* const taps = reinterpret_cast<const float4*>(filters) + filter_lane();
#pragma unroll 1
        for (int c = 0; c < C; ++c)
#pragma unroll
            for (int r = 0; r < R; ++r)
#pragma unroll
                for (int s = 0; s < S; ++s) {
                    const int tap = (c * R + r) * S + s;
                    const float* const under =
                        inputs + (c * WINDOW_ROWS + r * DILATION_ROWS) * WINDOW_COLUMNS + s * DILATION_COLUMNS;
                    const float4 low = taps[tap * (PITCH / VECTOR)];
                    const float4 high = taps[tap * (PITCH / VECTOR) + FILTER_LANES];
                    const float of_filters[OUTPUTS] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
                    for (int j = 0; j < OUTPUTS; ++j) {
                        const float input = under[column_of(j) * V];
#pragma unroll
                        for (int i = 0; i < OUTPUTS; ++i) sums[i][j] += of_filters[i] * input;
                    }
                }
    }
};
