// Shuffles, votes and block-wide votes.  One block, one dimension.
constexpr unsigned ALL = 0xffffffff;

// Sum of x by shuffles within warps, shared memory between them.
extern "C" __global__ void sum(const int* x,   // [blockDim.x]
                               int* total)     // [1]
{
    __shared__ int partial[32];
    int value = x[threadIdx.x];
    for (int distance = warpSize / 2; distance > 0; distance /= 2) value += __shfl_down_sync(ALL, value, distance);
    if (threadIdx.x % warpSize == 0) partial[threadIdx.x / warpSize] = value;
    __syncthreads();  // every warp has written its part
    if (threadIdx.x >= warpSize) return;
    value = threadIdx.x < blockDim.x / warpSize ? partial[threadIdx.x] : 0;
    for (int distance = warpSize / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(ALL, value, distance);
    if (threadIdx.x == 0) *total = value;
}

extern "C" __global__ void shuffles(const double* x,  // [32]
                                    double* y)        // [5][32]
{
    const int lane = threadIdx.x;
    y[lane] = __shfl_sync(ALL, x[lane], 5);
    y[32 + lane] = __shfl_sync(ALL, x[lane], lane + 1, 8);
    y[64 + lane] = __shfl_up_sync(ALL, x[lane], 3, 16);
    y[96 + lane] = __shfl_down_sync(ALL, x[lane], 3, 16);
    y[128 + lane] = __shfl_xor_sync(ALL, x[lane], 6);
}

extern "C" __global__ void votes(unsigned* y)  // [7]
{
    const int thread = threadIdx.x;
    const unsigned ballot = __ballot_sync(ALL, thread % 3 == 0);
    const int any = __any_sync(ALL, thread == 7), all = __all_sync(ALL, thread != 7);
    unsigned half_ballot = 0;
    if (thread % 32 < 16)
        half_ballot = __ballot_sync(0xffff, thread % 2);  // each half of the warp votes for itself
    else
        __syncwarp(0xffff0000);
    const int count = __syncthreads_count(thread < 10);
    const int both = __syncthreads_and(thread < 64), either = __syncthreads_or(thread == 40);
    if (thread != 0) return;
    const unsigned results[] = {ballot,          unsigned(any),  unsigned(all),   half_ballot,
                                unsigned(count), unsigned(both), unsigned(either)};
    for (int i = 0; i < 7; ++i) y[i] = results[i];
}

// Threads that have exited are not waited for.
extern "C" __global__ void exited(int* y)  // [64]
{
    y[threadIdx.x] = 1;
    if (threadIdx.x % 2) return;
    __syncwarp();
    y[threadIdx.x] += 1;
    if (threadIdx.x > 40) return;
    __syncthreads();
    y[threadIdx.x] = y[threadIdx.x] + __popc(__ballot_sync(ALL, 1));
}
