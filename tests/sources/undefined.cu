// Kernels that load what nothing has written, and hide the value; the lines that do are marked.
#ifndef GOOD
#define GOOD 0  // nothing is undefined
#endif

__device__ __noinline__ float2 pair_of(float value) { return {value, value}; }

extern "C" __global__ void maximum(const float* x, float* y)
{
    __shared__ float values[128];
    if (GOOD || threadIdx.x % 2) values[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = fmaxf(values[threadIdx.x], 0);  // maximum
}

extern "C" __global__ void comparison(const float* x, float* y)
{
    __shared__ float values[128];
    if (GOOD) values[threadIdx.x] = x[threadIdx.x];
    float value = values[threadIdx.x];  // comparison
    if (value != value) value = 0;
    y[threadIdx.x] = value;
}

extern "C" __global__ void integer(const float* x, float* y)
{
    __shared__ int values[128];
    if (GOOD) values[threadIdx.x] = int(x[threadIdx.x]);
    y[threadIdx.x] = values[threadIdx.x] == -1 ? 0 : 1;  // integer
}

extern "C" __global__ void bytes(const float* x, float* y)
{
    __shared__ unsigned char values[128];
    if (GOOD || threadIdx.x != 5) values[threadIdx.x] = x[threadIdx.x] > 0;  // its neighbours in the word are written
    __syncthreads();
    y[threadIdx.x] = values[threadIdx.x] == 1;  // bytes
}

extern "C" __global__ void vector(const float* x, float* y)
{
    __shared__ float4 values[32];
    float* const elements = reinterpret_cast<float*>(values);
    if (GOOD || threadIdx.x % 4 < 3) elements[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const float4 four = values[threadIdx.x / 4];  // vector
    y[threadIdx.x] = four.x + fmaxf(four.w, 0);
}

extern "C" __global__ void sum(const float* x, float* y)
{
    __shared__ int total;
    if (GOOD && threadIdx.x == 0) total = 0;
    __syncthreads();
    atomicMax(&total, int(x[threadIdx.x]));  // sum
    __syncthreads();
    y[threadIdx.x] = total > 0;
}

extern "C" __global__ void array(const float* x, float* y)
{
    float values[8];
    for (int i = 0; i < 7 + GOOD; ++i) values[i] = x[i];
    float most = 0;
    for (int i = 0; i < 8; ++i) most = fmaxf(most, values[i]);  // array
    y[threadIdx.x] = most;
}

extern "C" __global__ void halves(const float* x, float* y)
{
    __half values[4];
    for (int i = 1 - GOOD; i < 4; ++i) values[i] = __float2half(x[i]);
    float most = 0;
    for (int i = 0; i < 4; ++i) most = fmaxf(most, __half2float(values[i]));  // halves
    y[threadIdx.x] = most;
}

extern "C" __global__ void registers(const float* x, float* y)
{
    float value;
    if (GOOD || x[threadIdx.x] > 100) value = x[threadIdx.x];
    y[threadIdx.x] = value > 1 ? 1 : 0;  // registers
}

extern "C" __global__ void count(const float* x, float* y)
{
    int count;
    if (GOOD) count = 0;
    for (int i = 0; i < 4; ++i)
        if (x[i] > 100) count = i;
    y[threadIdx.x] = count & 1;  // count
}

// All is written, in ways that are hard to see.
extern "C" __global__ void written(const float* x, float* y)
{
    __shared__ float cleared[128];
    __shared__ float2 pairs[128];
    __shared__ __half rounded[128];
    rounded[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x == 0) memset(cleared, 0, sizeof cleared);
    pairs[threadIdx.x] = pair_of(x[threadIdx.x]);
    float some[4], value;
    const bool there = x[threadIdx.x] < 100;
    if (there) value = x[threadIdx.x];
    for (int i = 0; i < 2; ++i) some[i] = x[i];
    float4 corner;
    corner.x = x[0];
    float4 copy = corner;
    __syncthreads();
    y[threadIdx.x] = rounded[127 - threadIdx.x];
    y[threadIdx.x] += cleared[threadIdx.x] + pairs[127 - threadIdx.x].y + some[1] + copy.x + (there ? value : 0);
}
