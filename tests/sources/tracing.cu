// What alexconv.profile.trace has to find: requests of known shape, and races, which FIXED=1 removes.
#include <cuda_fp16.h>

extern "C" __global__ void strided(const float* x, float* y, int stride, int offset)
{
    y[threadIdx.x] = x[threadIdx.x * stride + offset];
}

extern "C" __global__ void shared_strided(float* y, int stride)
{
    float* const values = static_cast<float*>(host_cuda::dynamic_shared());
    values[threadIdx.x * stride] = 1;
    __syncthreads();
    y[threadIdx.x] = values[threadIdx.x * stride];
}

extern "C" __global__ void half_of_the_lanes(const float* x, float* y)
{
    if (threadIdx.x % 32 < 16) y[threadIdx.x] = x[threadIdx.x];
}

// The lanes take the loop's two branches in turn, and reconverge in each iteration.
extern "C" __global__ void two_ways(const float* x, float* y, int count)
{
    float sum = 0;
    for (int i = 0; i < count; ++i) {
        if ((threadIdx.x + i) % 2)
            sum += x[threadIdx.x];  // odd
        else
            sum -= x[threadIdx.x + 32];  // even
        y[threadIdx.x * count + i] = sum;  // all
    }
}

extern "C" __global__ void wide(const float4* x, float4* y)
{
    const float4 value = x[threadIdx.x];
    y[threadIdx.x] = make_float4(value.w, value.z, value.y, value.x);
}

extern "C" __global__ void narrow(const __half* x, __half* y)
{
    y[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]);
}

extern "C" __global__ void pairs(const __half2* x, __half2* y)
{
    y[threadIdx.x] = __hmul2(x[threadIdx.x], __float2half2_rn(2));
}

extern "C" __global__ void counted(float* y)
{
    atomicAdd(&y[threadIdx.x / 8], 1);
}

extern "C" __global__ void from_next(float* y)
{
    __shared__ float values[64];
    values[threadIdx.x] = 1;  // from_next writes
    if (FIXED) __syncthreads();
    y[threadIdx.x] = values[(threadIdx.x + 1) % 64];  // from_next reads
}

extern "C" __global__ void from_previous(float* y)
{
    __shared__ float values[64];
    values[threadIdx.x] = 1;  // from_previous writes
    if (FIXED) __syncthreads();
    y[threadIdx.x] = values[(threadIdx.x + 63) % 64];  // from_previous reads
}

extern "C" __global__ void overwritten(float* y)
{
    __shared__ float values[64];
    values[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = values[63 - threadIdx.x];  // overwritten reads
    if (FIXED) __syncthreads();
    values[threadIdx.x] = 2;  // overwritten writes
}

// A sum within a warp; the last step reads what another lane has just written.
extern "C" __global__ void warp_sum(float* y)
{
    __shared__ float values[32];
    values[threadIdx.x] = 1;
    for (int step = 16; step > 1; step /= 2) {
        __syncwarp();
        const float sum = values[threadIdx.x] + values[threadIdx.x ^ step];
        __syncwarp();
        values[threadIdx.x] = sum;  // warp_sum writes
    }
    if (FIXED) __syncwarp();
    y[threadIdx.x] = values[threadIdx.x] + values[threadIdx.x ^ 1];  // warp_sum reads
}

// A shuffle synchronizes the lanes, but does not order their memory accesses.
extern "C" __global__ void shuffled(float* y)
{
    __shared__ float values[32];
    values[threadIdx.x] = __shfl_xor_sync(0xffffffff, float(threadIdx.x), 1);  // shuffled writes
    __shfl_xor_sync(0xffffffff, 1.0f, 1);
    if (FIXED) __syncwarp();
    y[threadIdx.x] = values[threadIdx.x ^ 1];  // shuffled reads
}

// All blocks store to the same elements.
extern "C" __global__ void same_elements(float* y)
{
    y[FIXED * blockIdx.x * 32 + threadIdx.x] = 1;  // same_elements writes, same_elements reads
}

extern "C" __global__ void global_neighbours(float* y)
{
    y[threadIdx.x] = 1;  // global_neighbours writes
    if (FIXED) __syncthreads();
    const float sum = y[threadIdx.x] + y[threadIdx.x ^ 33];  // global_neighbours reads
    if (FIXED) __syncthreads();
    y[threadIdx.x] = sum;
}

extern "C" __global__ void last_block_stores(float* y)
{
    y[1 + blockIdx.x * blockDim.x + threadIdx.x] = y[0];  // last_block_stores reads
    __syncthreads();
    if (!FIXED && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) y[0] = 1;  // last_block_stores writes
}

struct Wide {
    float values[64];
};

extern "C" __global__ void structs(const Wide* x, Wide* y) { y[threadIdx.x] = x[threadIdx.x]; }
