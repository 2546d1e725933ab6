// linear: a linear layer of few images, as fast as its weights come from memory.
//
// Technique: matrix-vector product; warps share a row of weights, by 16-byte loads, several in flight; warp-shuffle
// reduction; weights loaded ahead of griddepcontrol.wait.
// Read next: stages/softmax.cu.
// Run: alexconv run --network alexnet-2012 --N 1
//
// Each weight is used once for each image, so the bytes of the weights decide, and what counts is how many are on their
// way: a warp keeps two rounds of AHEAD vectors in registers.  The first round does not depend on the layer before, and
// is loaded while that still runs.  SPLITS warps share a filter where there are too few filters to fill the GPU; a
// weight is multiplied with IMAGES images as it comes.
//
// A block computes WARPS / SPLITS filters for IMAGES images; SPLITS warps compute the sum of a filter, each of its lanes
// a part of it.
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "values.cuh"

constexpr int THREADS = 256, WARP = 32, WARPS = THREADS / WARP, FILTERS = WARPS / SPLITS;
constexpr int AHEAD = 4;                            // vectors of a round
constexpr int WIDTH = C % VECTOR == 0 ? VECTOR : 1;  // values of a vector: else rows are not aligned
constexpr int VECTORS = C / WIDTH, STEP = SPLITS * WARP;  // of a row; from a lane's vector to its next one
constexpr int ROUNDS = (VECTORS + STEP * AHEAD - 1) / (STEP * AHEAD);
static_assert(H == 1 && W == 1 && R == 1 && S == 1, "a linear layer is a convolution of one pixel");

struct Round {
    float values[AHEAD][WIDTH];
};

// A lane's vectors of a row in a round; zero beyond its end.
__device__ __forceinline__ void load_round(const Value* __restrict__ row,  // [C]
                                           int round, int lane, Round& into)
{
#pragma unroll
    for (int i = 0; i < AHEAD; ++i) {
        const int vector = (round * AHEAD + i) * STEP + lane;
        if (vector < VECTORS)
            load_vector<WIDTH == VECTOR, WIDTH>(row + (size_t)vector * WIDTH, into.values[i]);
        else
            for (int j = 0; j < WIDTH; ++j) into.values[i][j] = 0;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    linear(const Value* __restrict__ x,  // [N][C]
           const Value* __restrict__ w,  // [M][C]
           Value* __restrict__ y,        // [N][M]
           long long N BIAS_PARAMETER(Value))  // [M]
{
    __shared__ float parts[WARPS][IMAGES];  // sums of the warps
    const int warp = threadIdx.x / WARP, split = warp % SPLITS, lane = threadIdx.x % WARP + split * WARP;
    const int m = blockIdx.y * FILTERS + warp / SPLITS;
    const long long first = (long long)blockIdx.x * IMAGES;
    const Value* const row = w + (size_t)(m < M ? m : M - 1) * C;
    float sums[IMAGES] = {};
    Round weights, next;
    allow_dependent_launch();
    load_round(row, 0, lane, weights);
    wait_for_primary_launches();
    for (int round = 0; round < ROUNDS; ++round) {
        if (round + 1 < ROUNDS) load_round(row, round + 1, lane, next);
#pragma unroll
        for (int image = 0; image < IMAGES; ++image) {
            const long long n = first + image < N ? first + image : N - 1;
            Round inputs;
            load_round(x + n * C, round, lane, inputs);
#pragma unroll
            for (int i = 0; i < AHEAD; ++i)
#pragma unroll
                for (int j = 0; j < WIDTH; ++j) sums[image] += weights.values[i][j] * inputs.values[i][j];
        }
        weights = next;
    }
#pragma unroll
    for (int image = 0; image < IMAGES; ++image) {
#pragma unroll
        for (int apart = WARP / 2; apart > 0; apart /= 2)
            sums[image] += __shfl_xor_sync(0xffffffff, sums[image], apart);
        if (threadIdx.x % WARP == 0) parts[warp][image] = sums[image];
    }
    __syncthreads();  // all warps' sums are in `parts`
    for (int output = threadIdx.x; output < FILTERS * IMAGES; output += THREADS) {
        const int filter = output % FILTERS, image = output / FILTERS, of_block = blockIdx.y * FILTERS + filter;
        float sum = 0;
        for (int part = 0; part < SPLITS; ++part) sum += parts[filter * SPLITS + part][image];
        if (of_block < M && first + image < N)
            y[(first + image) * M + of_block] = Value(with_bias_and_relu<Value>(sum, BIAS, of_block));
    }
}

ASSERT_BLOCK(LINEAR, THREADS, 1);
ASSERT_GRID(LINEAR, 1, (M + FILTERS - 1) / FILTERS, 1);
