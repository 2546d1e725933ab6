// bias-relu: bias and ReLU of a layer, in place, after its product.
//
// Technique: element-wise kernel in place.
// Read next: stages/normalize.cu.
// Run: alexconv run --network alexnet-2012 --schedule stream --N 1
//
// The product's epilogue does the same on values that are still in registers; this kernel reads and writes the whole
// output once more.
//
// A block computes THREADS consecutive outputs, a thread one of them.
#include "../arch/dependent_launch.cuh"
#include "../common/bias.cuh"
#include "values.cuh"

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
    bias_relu(Value* __restrict__ y,  // [N] planes of E x F with M channels
              long long N BIAS_PARAMETER(Value))  // [M]
{
    allow_dependent_launch();
    wait_for_primary_launches();
    const long long output = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (output >= N * M * E * F) return;
    const int m = CHANNELS_LAST ? output % M : output / (E * F) % M;
    y[output] = Value(with_bias_and_relu<Value>(float(y[output]), BIAS, m));
}

ASSERT_BLOCK(BIAS_RELU, THREADS, 1);
ASSERT_GRID(BIAS_RELU, (M * E * F + THREADS - 1) / THREADS, 1, 1);
