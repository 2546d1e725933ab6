// Peak rate of the arithmetic units: nothing but multiply-adds, CHAINS independent sums per thread, enough to cover the
// units' latency at full occupancy.  The factors come from memory, so nothing folds away.
#include <cuda_fp16.h>

template <class T, class Fma>
__device__ __forceinline__ T sum_of_chains(T factor, T addend, int steps, Fma fma)
{
    T chains[CHAINS];
    for (int i = 0; i < CHAINS; ++i) chains[i] = addend;
#pragma unroll 16  // so that loop overhead hardly counts
    for (int step = 0; step < steps; ++step)
#pragma unroll
        for (int i = 0; i < CHAINS; ++i) chains[i] = fma(chains[i], factor, addend);
    for (int i = 1; i < CHAINS; ++i) chains[0] = fma(chains[i], factor, chains[0]);
    return chains[0];
}

extern "C" __global__ void multiply_add_fp32(const float* in, float* out, int steps)
{
    const auto fma = [](float a, float b, float c) { return fmaf(a, b, c); };
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum_of_chains(in[0], in[1], steps, fma);
}

extern "C" __global__ void multiply_add_half(const float* in, float* out, int steps)
{
    const auto fma = [](__half2 a, __half2 b, __half2 c) { return __hfma2(a, b, c); };
    const __half2 sum = sum_of_chains(__float2half2_rn(in[0]), __float2half2_rn(in[1]), steps, fma);
    out[blockIdx.x * blockDim.x + threadIdx.x] = __low2float(sum) + __high2float(sum);
}
