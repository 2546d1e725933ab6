// Shared and constant memory.  One block, one dimension.
#ifdef HOST_CUDA
#define DYNAMIC(name) float* const name = static_cast<float*>(host_cuda::dynamic_shared())
#else
#define DYNAMIC(name) extern __shared__ float name[]
#endif

__constant__ float weights[4];

// The block's values in reverse, through dynamic shared memory.
extern "C" __global__ void reversed(const float* x,  // [blockDim.x]
                                    float* y)        // [blockDim.x]
{
    DYNAMIC(tile);
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();  // all values are written
    y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void reversed_without_barrier(const float* x, float* y)
{
    DYNAMIC(tile);
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

// A neighbour's value, which in forward order happens to be written already.
extern "C" __global__ void shifted_without_barrier(const float* x, float* y)
{
    __shared__ float tile[1024];
    tile[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = threadIdx.x == 0 ? 0 : tile[threadIdx.x - 1];
}

extern "C" __global__ void weighted(const float* x, float* y)
{
    y[threadIdx.x] = x[threadIdx.x] * weights[threadIdx.x % 4];
}

// What shared memory holds when a block starts, after an earlier block has written to it.
extern "C" __global__ void stale(float* y)  // [gridDim.x]
{
    __shared__ float value;
    y[blockIdx.x] = value;
    value = 1;
}

template <int SIZE>
__device__ void fill(float* y)
{
    __shared__ float tile[SIZE];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();  // the whole block has written
    y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

extern "C" __global__ void within_static_limit(float* y)
{
    __shared__ float tile[6 * 1024];
    tile[threadIdx.x] = threadIdx.x;
    __syncthreads();  // the whole block has written
    y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}

#ifdef ABOVE
extern "C" __global__ void above_static_limit(float* y) { fill<12 * 1024 + 1>(y); }
#endif

#ifdef FRAME
extern "C" __global__ void large_frame(volatile float* y, int i)
{
    volatile float local[FRAME];
    for (int k = 0; k < FRAME; ++k) local[k] = y[k];
    y[0] = local[i];
}
#endif
