// wgrad-shared: tiles of the input and of dy in shared memory, each value read once for many weights.
//
// Technique: direct wgrad; shared-memory tiling of both operands; several weights per thread; ordered reduction.
// Read next: wgrad/weights.cuh, then wgrad/wgrad_matmul.cu.
// Run: alexconv run --rungs wgrad-shared --layers 3
//
// Parent: wgrad-partial, whose threads load both operands of each product from global memory, where an input serves M
// weights for each of its taps, and a value of dy C * R * S weights.  Here a block computes a tile of TILE_FILTERS x
// TILE_CHANNELS filters' channels, all taps of each, and copies the TILE_ROWS rows of outputs, and the inputs under them,
// that its products need to shared memory first.  Padding is written there as zeros, so the loop has no tests.
//
// wgrad_shared: a block computes one tile over the images of one slice, a thread every THREADS-th of its weights.
// reduce_slices: a thread adds the partial sums of one weight, in a fixed order.
#include "weights.cuh"

constexpr int THREADS = 256;
constexpr int TILE_WEIGHTS = TILE_FILTERS * TILE_CHANNELS * R * S;
constexpr int OF_THREAD = (TILE_WEIGHTS + THREADS - 1) / THREADS;                      // weights
constexpr int INPUT_ROWS = (TILE_ROWS - 1) * U + PATCH_ROWS, INPUT_COLUMNS = (F - 1) * V + PATCH_COLUMNS;
constexpr int GRADIENT_FLOATS = TILE_FILTERS * TILE_ROWS * F, INPUT_FLOATS = TILE_CHANNELS * INPUT_ROWS * INPUT_COLUMNS;
constexpr int TILES_DOWN = (M + TILE_FILTERS - 1) / TILE_FILTERS;
constexpr int TILES_ACROSS = (C + TILE_CHANNELS - 1) / TILE_CHANNELS;

extern "C" __global__ void __launch_bounds__(THREADS)
    wgrad_shared(const float* __restrict__ x,   // [N][C][H][W]
                 const float* __restrict__ dy,  // [N][M][E][F]
                 float* __restrict__ partial,   // [slices][WEIGHTS]
                 long long N)
{
    DYNAMIC_SHARED(float, memory);
    float *const gradients = memory;                  // [TILE_FILTERS][TILE_ROWS][F]
    float *const inputs = memory + GRADIENT_FLOATS;   // [TILE_CHANNELS][INPUT_ROWS][INPUT_COLUMNS]
    const int m = blockIdx.x / TILES_ACROSS * TILE_FILTERS, c = blockIdx.x % TILES_ACROSS * TILE_CHANNELS;
    const float *of_weight_gradients[OF_THREAD], *of_weight_inputs[OF_THREAD];  // a weight's first of both
#pragma unroll
    for (int i = 0; i < OF_THREAD; ++i) {
        const int number = min(int(threadIdx.x) + i * THREADS, TILE_WEIGHTS - 1);
        const int r = number / S % R, s = number % S, channel = number / (R * S) % TILE_CHANNELS;
        of_weight_gradients[i] = gradients + number / (R * S * TILE_CHANNELS) * TILE_ROWS * F;
        of_weight_inputs[i] =
            inputs + (channel * INPUT_ROWS + r * DILATION_ROWS) * INPUT_COLUMNS + s * DILATION_COLUMNS;
    }
    const long long first = (long long)blockIdx.y * IMAGES, end = min(first + IMAGES, N);
    float sums[OF_THREAD] = {};
    for (long long n = first; n < end; ++n) {
        float of_image[OF_THREAD] = {};
        for (int e = 0; e < E; e += TILE_ROWS) {
            __syncthreads();  // no thread still reads the rows before, which are now overwritten
            for (int i = threadIdx.x; i < GRADIENT_FLOATS; i += THREADS) {
                const int filter = m + i / (TILE_ROWS * F), row = e + i / F % TILE_ROWS;
                gradients[i] = filter < M && row < E ? dy[((size_t)n * M + filter) * PIXELS + row * F + i % F] : 0;
            }
            for (int i = threadIdx.x; i < INPUT_FLOATS; i += THREADS) {
                const int channel = c + i / (INPUT_ROWS * INPUT_COLUMNS);
                const int row = e * U + i / INPUT_COLUMNS % INPUT_ROWS, column = i % INPUT_COLUMNS;
                const float* const plane = x + ((size_t)n * C + channel) * H * W;
                inputs[i] = channel < C && in_plane(row, column) ? plane[(row - TOP) * W + column - LEFT] : 0;
            }
            __syncthreads();  // all values are in shared memory before any thread reads them
            for (int row = 0; row < TILE_ROWS && e + row < E; ++row)
                for (int f = 0; f < F; ++f)
#pragma unroll
                    for (int i = 0; i < OF_THREAD; ++i)
                        of_image[i] +=
                            of_weight_gradients[i][row * F + f] * of_weight_inputs[i][row * U * INPUT_COLUMNS + f * V];
        }
#pragma unroll
        for (int i = 0; i < OF_THREAD; ++i) sums[i] += of_image[i];
    }
    partial += (size_t)blockIdx.y * WEIGHTS;
#pragma unroll
    for (int i = 0; i < OF_THREAD; ++i) {
        const int number = threadIdx.x + i * THREADS;
        const int filter = m + number / (R * S * TILE_CHANNELS), channel = c + number / (R * S) % TILE_CHANNELS;
        if (number < TILE_WEIGHTS && filter < M && channel < C)
            partial[(filter * C + channel) * R * S + number % (R * S)] = sums[i];
    }
}

extern "C" __global__ void __launch_bounds__(REDUCTION_THREADS)
    reduce_slices(const float* __restrict__ partial,  // [slices][WEIGHTS]
                  float* __restrict__ dw,             // [M][C][R][S]
                  long long N)
{
    add_slices(partial, dw, (N + IMAGES - 1) / IMAGES);
}

ASSERT_BLOCK(WGRAD_SHARED, THREADS, 1);
ASSERT_GRID(WGRAD_SHARED, TILES_DOWN * TILES_ACROSS, 1, 1);
ASSERT_SHARED_BYTES(WGRAD_SHARED, (GRADIENT_FLOATS + INPUT_FLOATS) * sizeof(float));
ASSERT_ELEMENTS(PARTIAL, WEIGHTS);
ASSERT_BLOCK(REDUCE_SLICES, REDUCTION_THREADS, 1);
ASSERT_GRID(REDUCE_SLICES, (WEIGHTS + REDUCTION_THREADS - 1) / REDUCTION_THREADS, 1, 1);
