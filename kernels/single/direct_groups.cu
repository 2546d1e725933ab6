// direct-groups: narrow groups, whose products are too few for tensor cores.
//
// Technique: direct convolution with register tiles; filters and windows of channels in shared memory; multistage cp.async
// pipeline; implicit padding; programmatic dependent launch.
// Read next: single/direct_few.cu.
// Run: alexconv run --rungs direct-groups --workload resnext-regnet --layers 1
//
// Parent: direct-any, whose threads load two operands for each product, from the caches.  A group of four or eight
// channels and filters has few products for each value that it reads and writes, so the layer is bound by memory if the
// products keep up, and one pass suffices: no prepared copy of the input.  Here a block copies each channel's window of
// its outputs to shared memory once, asynchronously, some channels ahead, and a thread's outputs share its operands: a
// vector of inputs serves neighbouring columns, several rows and filters.
//
// A block computes TILE_ROWS rows of the outputs of BLOCK_GROUPS groups of an image, one group after the other.  A thread
// computes FILTERS filters at THREAD_ROWS x VECTOR outputs.
#include "../arch/ampere.cuh"
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "../common/padding.cuh"

constexpr int VECTOR = 4, THREAD_ROWS = 2, FILTERS = GROUP_M <= 4 ? 4 : 8;  // of a thread's outputs
constexpr int ROW_THREADS = (F + VECTOR - 1) / VECTOR, ROWS_OF_THREADS = TILE_ROWS / THREAD_ROWS;
constexpr int FILTER_THREADS = (GROUP_M + FILTERS - 1) / FILTERS;
constexpr int WORKERS = ROW_THREADS * ROWS_OF_THREADS * FILTER_THREADS;  // threads with outputs
constexpr int THREADS = (WORKERS + 31) / 32 * 32, RESIDENT = THREADS > 512 ? 1 : 512 / THREADS;
constexpr int TILES = (E + TILE_ROWS - 1) / TILE_ROWS;
static_assert(TILE_ROWS % THREAD_ROWS == 0 && GROUPS % BLOCK_GROUPS == 0);

// A channel's window [WINDOW_ROWS][PITCH], with its padding.  Where rows of the input are whole vectors, the first is
// aligned in shared memory too: BEFORE columns precede it, of which LEFT are padding.
constexpr bool ALIGNED = W % VECTOR == 0;
constexpr int BEFORE = ALIGNED ? (LEFT + VECTOR - 1) / VECTOR * VECTOR : LEFT, UNUSED = BEFORE - LEFT;
constexpr int WINDOW_ROWS = (TILE_ROWS - 1) * U + PATCH_ROWS;
constexpr int VECTORS_READ = (UNUSED + (VECTOR - 1) * V + PATCH_COLUMNS + VECTOR - 1) / VECTOR;  // of a row, by a thread
constexpr int READ = (ROW_THREADS - 1) * VECTOR * V + VECTORS_READ * VECTOR;
constexpr int PITCH = READ > BEFORE + W ? READ : (BEFORE + W + VECTOR - 1) / VECTOR * VECTOR;
constexpr int WINDOW = WINDOW_ROWS * PITCH, BORDER = PITCH - W;  // BORDER: columns of a row beside the input

// The filters [BLOCK_GROUPS][GROUP_C][R * S][FILTER_PITCH], zeros beyond a group's last.
constexpr int FILTER_PITCH = FILTER_THREADS * FILTERS, TAPS = GROUP_C * R * S;
constexpr int BYTES = (STAGES * WINDOW + BLOCK_GROUPS * TAPS * FILTER_PITCH) * sizeof(float);

// Issues the copies of a channel's window as a group; zeros above and below the plane.
__device__ __forceinline__ void copy_window(float* window, const float* __restrict__ x,  // [H][W]
                                            int first_row)
{
    constexpr int WIDTH = ALIGNED ? VECTOR : 1, COPIES = W / WIDTH;  // of a row
#pragma unroll 4
    for (int i = threadIdx.x; i < WINDOW_ROWS * COPIES; i += THREADS) {
        const int row = i / COPIES, column = i % COPIES * WIDTH, h = first_row + row - TOP;
        float* const to = window + row * PITCH + BEFORE + column;
        const float* const from = x + h * W + column;
        if constexpr (ALIGNED)
            copy_async_16(to, from, unsigned(h) < unsigned(H));
        else
            copy_async_4(to, from, unsigned(h) < unsigned(H));
    }
}

// Adds the taps of a channel to the thread's sums.  A row of inputs serves all rows of outputs that it lies under.
__device__ __forceinline__ void add_channel(float (&sums)[FILTERS][THREAD_ROWS][VECTOR],
                                            const float* inputs,   // of the channel, from the thread's first vector on
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
                        sums[filter][row][column] += of_tap[filter] * values[UNUSED + column * V + s * DILATION_COLUMNS];
            }
        }
    }
}

// Stores a thread's sums, from filter `m`, row `e` and a column on, and clears them; `filters`: those of the group.
__device__ __forceinline__ void store(float* __restrict__ y,  // [M][E][F], of the image
                                      float (&sums)[FILTERS][THREAD_ROWS][VECTOR], int m, int filters, int e,
                                      int column, const float* __restrict__ bias)  // [M]
{
#pragma unroll
    for (int i = 0; i < FILTERS; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_ROWS; ++j) {
            float* const out = y + ((size_t)(m + i) * E + e + j) * F + column;
            float four[VECTOR];
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) {
                four[k] = sums[i][j][k];
                sums[i][j][k] = 0;
            }
            if (e + j >= E || (GROUP_M % FILTERS != 0 && i >= filters)) continue;
#pragma unroll
            for (int k = 0; k < VECTOR; ++k) four[k] = with_bias_and_relu(four[k], bias, m + i);
            if constexpr (F % VECTOR == 0) {
                *reinterpret_cast<float4*>(out) = make_float4(four[0], four[1], four[2], four[3]);
            } else {
#pragma unroll
                for (int k = 0; k < VECTOR; ++k)
                    if (column + k < F) out[k] = four[k];
            }
        }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    direct_groups(const float* __restrict__ x,  // [N][C][H][W]
                  const float* __restrict__ w,  // [M][GROUP_C][R][S]
                  float* __restrict__ y         // [N][M][E][F]
                  BIAS_PARAMETER(float))        // [M]
{
    DYNAMIC_SHARED(float4, memory);
    float* const windows = reinterpret_cast<float*>(memory);  // [STAGES][WINDOW]
    float* const filters = windows + STAGES * WINDOW;
    constexpr int BLOCKS_OF_IMAGE = GROUPS / BLOCK_GROUPS * TILES, CHANNELS = BLOCK_GROUPS * GROUP_C;
    const int tile = blockIdx.x % TILES, first_group = blockIdx.x % BLOCKS_OF_IMAGE / TILES * BLOCK_GROUPS;
    const int n = blockIdx.x / BLOCKS_OF_IMAGE;
    allow_dependent_launch();
    wait_for_primary_launches();  // which may write x, and still read y
    x += ((size_t)n * C + first_group * GROUP_C) * H * W;
    y += (size_t)n * M * E * F;
#pragma unroll
    for (int c = 0; c < STAGES - 1; ++c) {
        if (c < CHANNELS) copy_window(windows + c * WINDOW, x + (size_t)c * H * W, tile * TILE_ROWS * U);
        copy_async_commit_group();
    }
    for (int i = threadIdx.x; i < BLOCK_GROUPS * TAPS * FILTER_PITCH; i += THREADS) {
        const int filter = i % FILTER_PITCH, tap = i / FILTER_PITCH % TAPS, group = i / (FILTER_PITCH * TAPS);
        const int m = (first_group + group) * GROUP_M + filter;
        filters[i] = filter < GROUP_M ? w[(size_t)m * TAPS + tap] : 0;
    }
    // The columns beside the input stay zero: no copy reaches them.
    for (int i = threadIdx.x; BORDER > 0 && i < STAGES * WINDOW_ROWS * BORDER; i += THREADS) {
        const int column = i % (BORDER > 0 ? BORDER : 1);
        windows[i / (BORDER > 0 ? BORDER : 1) * PITCH + (column < BEFORE ? column : column + W)] = 0;
    }
    const bool works = threadIdx.x < WORKERS;
    const int column = threadIdx.x % ROW_THREADS * VECTOR;
    const int row = threadIdx.x / ROW_THREADS % ROWS_OF_THREADS * THREAD_ROWS;
    const int filter = threadIdx.x / (ROW_THREADS * ROWS_OF_THREADS) * FILTERS;
    float sums[FILTERS][THREAD_ROWS][VECTOR] = {};
    int stage = 0, group = first_group;
#pragma unroll 1
    for (int c = 0, of_group = 0; c < CHANNELS; ++c) {
        copy_async_wait_group<STAGES - 2>();
        __syncthreads();  // the channel's window is complete, and no thread still reads the one that is overwritten next
        const int ahead = c + STAGES - 1, to = stage == 0 ? STAGES - 1 : stage - 1;
        if (ahead < CHANNELS) copy_window(windows + to * WINDOW, x + (size_t)ahead * H * W, tile * TILE_ROWS * U);
        copy_async_commit_group();
        if (works)
            add_channel(sums, windows + stage * WINDOW + row * U * PITCH + column * V,
                        filters + c * R * S * FILTER_PITCH + filter);
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        if (++of_group == GROUP_C) {
            if (works)
                store(y, sums, group * GROUP_M + filter, GROUP_M - filter, tile * TILE_ROWS + row, column, BIAS);
            of_group = 0, ++group;
        }
    }
}

ASSERT_BLOCK(DIRECT_GROUPS, THREADS, 1);
ASSERT_GRID(DIRECT_GROUPS, GROUPS / BLOCK_GROUPS * TILES, 1, 1);
ASSERT_SHARED_BYTES(DIRECT_GROUPS, BYTES);
