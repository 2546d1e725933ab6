// Barriers that threads do not reach together.  The line numbers of this file are part of its tests.
extern "C" __global__ void divergent(int* y)
{
    if (threadIdx.x < 40) {
        __syncthreads();  // line 5
        y[threadIdx.x] = 1;
    } else {
        __syncthreads();  // line 8
        y[threadIdx.x] = 2;
    }
}

extern "C" __global__ void divergent_on_one_line(int* y)
{
    if (threadIdx.x < 40) { __syncthreads(); y[0] = 1; } else { __syncthreads(); y[1] = 1; }  // line 15
}

extern "C" __global__ void deadlock(int* y)
{
    if (threadIdx.x == 3) __syncthreads();  // line 20
    __syncwarp();                           // line 21
    y[threadIdx.x] = 1;
    __syncthreads();
}

extern "C" __global__ void different_functions(int* y)
{
    if (threadIdx.x == 0)
        y[0] = __any_sync(0xffffffff, 1);
    else
        y[0] = __shfl_sync(0xffffffff, 1, 0);
}

extern "C" __global__ void not_in_mask(int* y) { y[0] = __any_sync(1, 1); }

extern "C" __global__ void trap(int* y)
{
    if (blockIdx.x == 2 && threadIdx.x == 1) __trap();  // line 38
    y[0] = 1;
}

extern "C" __global__ void endless(volatile int* y)
{
    for (y[0] = 1;;) __syncthreads();
}

extern "C" __global__ void different_shuffles(int* y)
{
    if (threadIdx.x < 16)
        y[0] = __shfl_sync(0xffffffff, 1, 0);
    else
        y[0] = __shfl_xor_sync(0xffffffff, 1, 1);
}

extern "C" __global__ void different_votes(int* y)
{
    if (threadIdx.x < 16)
        y[0] = __any_sync(0xffffffff, 1);
    else
        y[0] = __ballot_sync(0xffffffff, 1);
}

extern "C" __global__ void width_of_24(int* y) { y[0] = __shfl_xor_sync(0xffffffff, 1, 1, 24); }  // line 63
