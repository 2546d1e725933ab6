// direct-groups: narrow groups, whose products are too few for tensor cores.
//
// Technique: direct convolution with register tiles; the group's input window and filters in shared memory; vector
// loads; implicit padding; programmatic dependent launch.
// Read next: single/direct_few.cu.
// Run: alexconv run --rungs direct-groups --workload resnext-regnet --layers 1
//
// Parent: direct-any, whose threads load two operands for each product, from the caches.  A group of four or eight
// channels and filters has few products for each value that it reads and writes, so the layer is bound by memory if the
// products keep up, and one pass suffices: no prepared copy of the input.  Here a block reads the window of its outputs
// once, in rows of whole vectors, and a thread's outputs share its operands: a vector of inputs serves neighbouring
// columns, several rows and filters.
//
// A block computes TILE_ROWS rows of a group's outputs of an image.  A thread computes FILTERS filters at THREAD_ROWS x
// VECTOR outputs.
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "../common/padding.cuh"

constexpr int VECTOR = 4, THREAD_ROWS = 2, FILTERS = GROUP_M <= 4 ? 4 : 8;  // of a thread's outputs
constexpr int ROW_THREADS = (F + VECTOR - 1) / VECTOR, ROWS_OF_THREADS = TILE_ROWS / THREAD_ROWS;
constexpr int FILTER_THREADS = (GROUP_M + FILTERS - 1) / FILTERS;
constexpr int WORKERS = ROW_THREADS * ROWS_OF_THREADS * FILTER_THREADS;  // threads with outputs
constexpr int THREADS = (WORKERS + 31) / 32 * 32;
constexpr int TILES = (E + TILE_ROWS - 1) / TILE_ROWS;
static_assert(TILE_ROWS % THREAD_ROWS == 0);

// The window [GROUP_C][WINDOW_ROWS][PITCH], with its padding: rows and columns count from the padded plane's.
constexpr int WINDOW_ROWS = (TILE_ROWS - 1) * U + PATCH_ROWS;
constexpr int VECTORS_READ = ((VECTOR - 1) * V + PATCH_COLUMNS + VECTOR - 1) / VECTOR;  // of a row, by a thread
constexpr int PITCH = (ROW_THREADS - 1) * VECTOR * V + VECTORS_READ * VECTOR;
constexpr int LINES = GROUP_C * WINDOW_ROWS, WINDOW = LINES * PITCH;
constexpr int COLUMNS = LEFT + W < PITCH ? W : PITCH - LEFT;  // of a line that are in the plane; the others are zeros

// The filters [GROUP_C][R * S][FILTER_PITCH], zeros beyond the group's last.
constexpr int FILTER_PITCH = FILTER_THREADS * FILTERS, TAPS = GROUP_C * R * S;
constexpr int BYTES = (WINDOW + TAPS * FILTER_PITCH) * sizeof(float);

// Loads the window into shared memory, in vectors where rows of the input are aligned.
__device__ __forceinline__ void load_window(float* window, const float* __restrict__ x,  // [GROUP_C][H][W]
                                            int first_row)
{
    constexpr int WIDTH = W % VECTOR == 0 && COLUMNS % VECTOR == 0 ? VECTOR : 1, LOADS = COLUMNS / WIDTH;
    constexpr int BORDER = PITCH - COLUMNS;  // values of a line beside the input
#pragma unroll 4
    for (int i = threadIdx.x; i < LINES * LOADS; i += THREADS) {
        const int line = i / LOADS, column = i % LOADS * WIDTH;
        const int c = line / WINDOW_ROWS, h = first_row + line % WINDOW_ROWS - TOP;
        const float* const from = x + ((size_t)c * H + h) * W + column;
        float* const to = window + line * PITCH + LEFT + column;
        const bool there = unsigned(h) < unsigned(H);
        if constexpr (WIDTH == VECTOR) {
            const float4 four = there ? __ldg(reinterpret_cast<const float4*>(from)) : make_float4(0, 0, 0, 0);
            to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
        } else {
            *to = there ? __ldg(from) : 0;
        }
    }
    for (int i = threadIdx.x; i < LINES * BORDER; i += THREADS) {
        const int column = i % (BORDER > 0 ? BORDER : 1);
        window[i / (BORDER > 0 ? BORDER : 1) * PITCH + (column < LEFT ? column : column + COLUMNS)] = 0;
    }
}

// Adds the taps of a channel to the thread's sums.  A row of inputs serves all rows of outputs that it lies under.
__device__ __forceinline__ void add_channel(float (&sums)[FILTERS][THREAD_ROWS][VECTOR],
                                            const float* inputs,   // the channel's, from the thread's first on
                                            const float* filters)  // [R * S][FILTER_PITCH], from its first on
{
#pragma unroll
    for (int i = 0; i < (THREAD_ROWS - 1) * U + PATCH_ROWS; ++i) {
        float values[VECTORS_READ * VECTOR];
#pragma unroll
        for (int j = 0; j < VECTORS_READ; ++j) {
            const float4 four = reinterpret_cast<const float4*>(inputs + i * PITCH)[j];
            values[4 * j] = four.x, values[4 * j + 1] = four.y, values[4 * j + 2] = four.z, values[4 * j + 3] = four.w;
        }
#pragma unroll
        for (int row = 0; row < THREAD_ROWS; ++row) {
            const int above = i - row * U, r = above / DILATION_ROWS;
            if (above < 0 || above % DILATION_ROWS != 0 || r >= R) continue;
#pragma unroll
            for (int s = 0; s < S; ++s) {
                float of_tap[FILTERS];
#pragma unroll
                for (int j = 0; j < FILTERS / VECTOR; ++j) {
                    const float4 four = reinterpret_cast<const float4*>(filters + (r * S + s) * FILTER_PITCH)[j];
                    of_tap[4 * j] = four.x, of_tap[4 * j + 1] = four.y;
                    of_tap[4 * j + 2] = four.z, of_tap[4 * j + 3] = four.w;
                }
#pragma unroll
                for (int filter = 0; filter < FILTERS; ++filter)
#pragma unroll
                    for (int column = 0; column < VECTOR; ++column)
                        sums[filter][row][column] += of_tap[filter] * values[column * V + s * DILATION_COLUMNS];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    direct_groups(const float* __restrict__ x,  // [N][C][H][W]
                  const float* __restrict__ w,  // [M][GROUP_C][R][S]
                  float* __restrict__ y         // [N][M][E][F]
                  BIAS_PARAMETER(float))        // [M]
{
    DYNAMIC_SHARED(float4, memory);
    float* const window = reinterpret_cast<float*>(memory);
    float* const filters = window + WINDOW;
    const int tile = blockIdx.x % TILES, group = blockIdx.x / TILES % GROUPS;
    const long long n = blockIdx.x / (TILES * GROUPS);
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    for (int i = threadIdx.x; i < TAPS * FILTER_PITCH; i += THREADS) {
        const int filter = i % FILTER_PITCH, tap = i / FILTER_PITCH;
        filters[i] = filter < GROUP_M ? w[(size_t)(group * GROUP_M + filter) * TAPS + tap] : 0;
    }
    load_window(window, x + ((size_t)n * C + group * GROUP_C) * H * W, tile * TILE_ROWS * U);
    __syncthreads();  // window and filters are complete before any thread reads them
    if (threadIdx.x >= WORKERS) return;
    const int column = threadIdx.x % ROW_THREADS * VECTOR;
    const int row = threadIdx.x / ROW_THREADS % ROWS_OF_THREADS * THREAD_ROWS;
    const int filter = threadIdx.x / (ROW_THREADS * ROWS_OF_THREADS) * FILTERS;
    float sums[FILTERS][THREAD_ROWS][VECTOR] = {};
#pragma unroll 1
    for (int c = 0; c < GROUP_C; ++c)
        add_channel(sums, window + (c * WINDOW_ROWS + row * U) * PITCH + column * V,
                    filters + c * R * S * FILTER_PITCH + filter);
#pragma unroll
    for (int i = 0; i < FILTERS; ++i) {
        const int m = group * GROUP_M + filter + i;
        if (GROUP_M % FILTERS != 0 && filter + i >= GROUP_M) continue;
#pragma unroll
        for (int j = 0; j < THREAD_ROWS; ++j) {
            const int e = tile * TILE_ROWS + row + j;
            if (e >= E) continue;
            float* const out = y + (((size_t)n * M + m) * E + e) * F + column;
            float four[VECTOR];
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) four[k] = with_bias_and_relu<float>(sums[i][j][k], BIAS, m);
            if constexpr (F % VECTOR == 0) {
                *reinterpret_cast<float4*>(out) = make_float4(four[0], four[1], four[2], four[3]);
            } else {
#pragma unroll
                for (int k = 0; k < VECTOR; ++k)
                    if (column + k < F) out[k] = four[k];
            }
        }
    }
}

ASSERT_BLOCK(DIRECT_GROUPS, THREADS, 1);
ASSERT_GRID(DIRECT_GROUPS, TILES * GROUPS, 1, 1);
ASSERT_SHARED_BYTES(DIRECT_GROUPS, BYTES);
