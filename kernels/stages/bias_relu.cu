// bias-relu: bias and ReLU of a layer, in place, after its product.
//
// Technique: element-wise kernel in place, by 16-byte vectors.
// Read next: stages/normalize.cu.
// Run: alexconv run --network alexnet-2012 --schedule stream --N 1
//
// The product's epilogue does the same on values that are still in registers; this kernel reads and writes the whole
// output once more.
//
// A block computes THREADS vectors of consecutive outputs, a thread one of them.
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "values.cuh"

constexpr int THREADS = 256, IMAGE = M * E * F;
constexpr int WIDTH = IMAGE % VECTOR == 0 ? VECTOR : 1;  // else images are not aligned

extern "C" __global__ void __launch_bounds__(THREADS)
    bias_relu(Value* __restrict__ y,  // [N] planes of E x F with M channels
              long long N BIAS_PARAMETER(Value))  // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();
    const long long first = ((long long)blockIdx.x * THREADS + threadIdx.x) * WIDTH;
    if (first >= N * IMAGE) return;
    float values[WIDTH];
    load_vector<WIDTH == VECTOR, WIDTH>(y + first, values);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        const int place = first % IMAGE + i, m = CHANNELS_LAST ? place % M : place / (E * F);
        values[i] = with_bias_and_relu<Value>(values[i], BIAS, m);
    }
    store_vector<WIDTH == VECTOR, WIDTH>(values, y + first);
}

ASSERT_BLOCK(BIAS_RELU, THREADS, 1);
ASSERT_GRID(BIAS_RELU, (IMAGE / WIDTH + THREADS - 1) / THREADS, 1, 1);
