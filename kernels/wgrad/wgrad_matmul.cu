// wgrad-matmul: the input unrolled into a matrix, then the product of dy with its transpose.
//
// Technique: im2col + tiled matmul (explicit GEMM); shared-memory tiling; split-K over images with an ordered reduction.
// Read next: wgrad/weights.cuh, then wgrad/wgrad_igemm.cu.
// Run: alexconv run --rungs wgrad-matmul --layers 3
//
// Parent: wgrad-shared, whose tiles depend on the shapes of plane and filter.  As a matrix product, dw [M][K] is the sum
// over images of dy [M][PIXELS] times the unrolled input [K][PIXELS] transposed, and a tile of TILE x TILE weights costs
// 2 / TILE loads from global memory per product in every layer.  The price is the unrolled input, R * S / U^2 times as
// large as the input, which is written and read again.
//
// unroll: a thread writes one value of the unrolled input.  multiply: a block computes TILE filters at TILE taps over
// the images of one slice, a thread one weight.  reduce_slices: a thread adds the partial sums of one weight, in a fixed
// order.
#include "weights.cuh"

constexpr int THREADS = TILE * TILE, UNROLL_THREADS = 256;
constexpr int TILES_DOWN = (M + TILE - 1) / TILE, TILES_ACROSS = (TAPS + TILE - 1) / TILE;

extern "C" __global__ void __launch_bounds__(UNROLL_THREADS)
    unroll(const float* __restrict__ x,   // [N][C][H][W]
           float* __restrict__ unrolled)  // [N][TAPS][PIXELS]
{
    const int pixel = blockIdx.z * UNROLL_THREADS + threadIdx.x, tap = blockIdx.y;
    if (pixel >= PIXELS) return;
    x += ((size_t)blockIdx.x * C + tap / (R * S)) * H * W;
    unrolled[((size_t)blockIdx.x * TAPS + tap) * PIXELS + pixel] =
        input_at(x, pixel / F, pixel % F, tap / S % R, tap % S);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    multiply(const float* __restrict__ dy,        // [N][M][PIXELS]
             const float* __restrict__ unrolled,  // [N][TAPS][PIXELS]
             float* __restrict__ partial,         // [slices][WEIGHTS]
             long long N)
{
    __shared__ float gradients[TILE][TILE];   // rows: filters, columns: pixels
    __shared__ float inputs[TILE][TILE + 1];  // rows: taps, columns: pixels; padded against bank conflicts
    const int first_m = blockIdx.x / TILES_ACROSS * TILE, first_tap = blockIdx.x % TILES_ACROSS * TILE;
    const int m = first_m + threadIdx.y, loaded_tap = first_tap + threadIdx.y, tap = first_tap + threadIdx.x;
    const long long first = (long long)blockIdx.y * IMAGES, end = min(first + IMAGES, N);
    float sum = 0;
    for (long long n = first; n < end; ++n) {
        float of_image = 0;
        for (int pixels = 0; pixels < PIXELS; pixels += TILE) {
            const int pixel = pixels + threadIdx.x;
            __syncthreads();  // every thread is done with the previous tiles before they are overwritten
            gradients[threadIdx.y][threadIdx.x] =
                m < M && pixel < PIXELS ? dy[((size_t)n * M + m) * PIXELS + pixel] : 0;
            inputs[threadIdx.y][threadIdx.x] =
                loaded_tap < TAPS && pixel < PIXELS ? unrolled[((size_t)n * TAPS + loaded_tap) * PIXELS + pixel] : 0;
            __syncthreads();  // all threads have written their value of both tiles before any thread reads them
            for (int k = 0; k < TILE; ++k) of_image += gradients[threadIdx.y][k] * inputs[threadIdx.x][k];
        }
        sum += of_image;
    }
    if (m < M && tap < TAPS) partial[((size_t)blockIdx.y * M + m) * TAPS + tap] = sum;
}

extern "C" __global__ void __launch_bounds__(REDUCTION_THREADS)
    reduce_slices(const float* __restrict__ partial,  // [slices][WEIGHTS]
                  float* __restrict__ dw,             // [M][C][R][S]
                  long long N)
{
    add_slices(partial, dw, (N + IMAGES - 1) / IMAGES);
}

ASSERT_BLOCK(UNROLL, UNROLL_THREADS, 1);
ASSERT_GRID(UNROLL, 1, TAPS, (PIXELS + UNROLL_THREADS - 1) / UNROLL_THREADS);
ASSERT_ELEMENTS(UNROLLED, 1ll * TAPS * PIXELS);
ASSERT_BLOCK(MULTIPLY, TILE, TILE);
ASSERT_GRID(MULTIPLY, TILES_DOWN * TILES_ACROSS, 1, 1);
ASSERT_ELEMENTS(PARTIAL, WEIGHTS);
ASSERT_BLOCK(REDUCE_SLICES, REDUCTION_THREADS, 1);
ASSERT_GRID(REDUCE_SLICES, (WEIGHTS + REDUCTION_THREADS - 1) / REDUCTION_THREADS, 1, 1);
