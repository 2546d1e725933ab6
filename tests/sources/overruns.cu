// One access beyond each kind of array, and a misaligned one.  The line numbers of this file are part of its tests.
#ifdef HOST_CUDA
#define DYNAMIC(name) float* const name = static_cast<float*>(host_cuda::dynamic_shared())
#else
#define DYNAMIC(name) extern __shared__ float name[]
#endif

extern "C" __global__ void global_read(const float* x, float* y, int n) { y[threadIdx.x] = x[threadIdx.x + n]; }

extern "C" __global__ void global_write(const float* x, float* y, int n)
{
    y[threadIdx.x + n] = x[threadIdx.x];  // line 12
}

extern "C" __global__ void static_shared(const float* x, float* y, int n)
{
    __shared__ float tile[32];
    tile[threadIdx.x + n] = x[threadIdx.x];  // line 18
    __syncthreads();
    y[threadIdx.x] = tile[31 - threadIdx.x];
}

extern "C" __global__ void dynamic_shared(const float* x, float* y, int n)
{
    DYNAMIC(tile);
    tile[threadIdx.x + n] = x[threadIdx.x];  // line 26
    __syncthreads();
    y[threadIdx.x] = tile[31 - threadIdx.x];
}

extern "C" __global__ void local(const float* x, float* y, int n)
{
    float window[8];
    for (int i = 0; i < 8; ++i) window[i] = x[i];
    __syncthreads();
    y[threadIdx.x] = window[threadIdx.x / 4 + n];  // line 36
}

extern "C" __global__ void misaligned(const float* x, float* y, int n)
{
    const float2 pair = *reinterpret_cast<const float2*>(x + threadIdx.x / 4 * 2 + n);  // line 41
    y[threadIdx.x] = pair.x + pair.y;
}

extern "C" __global__ void across_the_end(const float* x, float* y, int n)
{
    __align__(16) float window[6] = {};
    __syncthreads();
    *reinterpret_cast<float4*>(window + 4 * n) = make_float4(x[0], x[1], x[2], x[3]);  // line 49
    y[threadIdx.x] = window[threadIdx.x / 8];
}
