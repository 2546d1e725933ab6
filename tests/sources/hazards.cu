// Kernels with one hazard each, which FIXED=1 removes.  A comment marks the line to be reported.
#define SHIFTED(i) ((i + 32) % blockDim.x)

extern "C" __global__ void copy_without_wait(const float* x, float* y)
{
    __shared__ __align__(16) float stage[128];
    copy_async_4(stage + threadIdx.x, x + threadIdx.x, true);
    copy_async_commit_group();
    if (FIXED) copy_async_wait_group<0>();
    y[threadIdx.x] = stage[threadIdx.x];  // copy_without_wait
}

extern "C" __global__ void copy_without_commit(const float* x, float* y)
{
    __shared__ __align__(16) float stage[128];
    copy_async_4(stage + threadIdx.x, x + threadIdx.x, true);
    if (FIXED) copy_async_commit_group();
    copy_async_wait_group<0>();
    y[threadIdx.x] = stage[threadIdx.x];  // copy_without_commit
}

extern "C" __global__ void copy_without_barrier(const float* x, float* y)
{
    __shared__ __align__(16) float stage[128];
    copy_async_4(stage + threadIdx.x, x + threadIdx.x, true);
    copy_async_commit_group();
    copy_async_wait_group<0>();
    if (FIXED) __syncthreads();
    y[threadIdx.x] = stage[SHIFTED(threadIdx.x)];  // copy_without_barrier
}

// Waits for all but the two newest groups, although the older of these copies the stage that it reads.
extern "C" __global__ void older_group(const float* x, float* y)
{
    __shared__ __align__(16) float stages[3][128];
    for (int i = 0; i < 3; ++i) {
        copy_async_4(stages[i] + threadIdx.x, x + i * 128 + threadIdx.x, true);
        copy_async_commit_group();
    }
    copy_async_wait_group<FIXED ? 1 : 2>();
    y[threadIdx.x] = stages[1][threadIdx.x];  // older_group
}

// A warp tells the one that overwrites the stage that it has read it before it does, and two other warps read it after.
extern "C" __global__ void early_arrival(const float* x, float* y)
{
    constexpr unsigned READERS = 96;
    __shared__ float stage[32];
    __shared__ Mbarrier empty;
    if (threadIdx.x == 0) mbarrier_init(&empty, READERS);
    if (threadIdx.x < 32) stage[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const bool early = !FIXED && threadIdx.x < 32;
    if (threadIdx.x < READERS) {
        if (early) mbarrier_arrive(&empty);
        y[threadIdx.x] = stage[threadIdx.x % 32];  // early_arrival
        if (!early) mbarrier_arrive(&empty);
    } else {
        mbarrier_wait(&empty, 0);
        stage[threadIdx.x % 32] = 0;
    }
}

// There is only one stage, which is refilled while it is still being read.
extern "C" __global__ void early_refill(const float* x, float* y)
{
    __shared__ __align__(16) float stage[128];
    copy_async_4(stage + threadIdx.x, x + threadIdx.x, true);
    copy_async_commit_group();
    copy_async_wait_group<0>();
    __syncthreads();
    y[threadIdx.x] = stage[SHIFTED(threadIdx.x)];
    if (FIXED) __syncthreads();
    copy_async_4(stage + threadIdx.x, x + 128 + threadIdx.x, true);  // early_refill
    copy_async_commit_group();
    copy_async_wait_group<0>();
    __syncthreads();
    y[128 + threadIdx.x] = stage[SHIFTED(threadIdx.x)];
}

#define BARRIER_OF(arrivals)                                \
    __shared__ Mbarrier full;                               \
    if (threadIdx.x == 0) mbarrier_init(&full, arrivals);   \
    if (threadIdx.x == 0) mbarrier_init_fence();            \
    __syncthreads();

extern "C" __global__ void bulk_without_wait(const float* x, float* y)
{
    __shared__ __align__(16) float stage[128];
    BARRIER_OF(1)
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&full, sizeof stage);
        tma_load_bulk(stage, x, &full, sizeof stage);
    }
    if (FIXED || threadIdx.x == 0) mbarrier_wait(&full, 0);
    y[threadIdx.x] = stage[threadIdx.x];  // bulk_without_wait
}

// Parity 1 stands for the phase before the first, which counts as complete.
extern "C" __global__ void wrong_parity(const float* x, float* y)
{
    __shared__ __align__(16) float stage[128];
    BARRIER_OF(1)
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&full, sizeof stage);
        tma_load_bulk(stage, x, &full, sizeof stage);
        mbarrier_wait(&full, 0);
    }
    mbarrier_wait(&full, FIXED || threadIdx.x == 0 ? 0 : 1);  // wrong_parity
    y[threadIdx.x] = stage[threadIdx.x];  // wrong_parity
}

extern "C" __global__ void bulk_over_readers(const float* x, float* y)
{
    __shared__ __align__(16) float stage[128];
    BARRIER_OF(1)
    for (int phase = 0; phase < 2; ++phase) {
        if (threadIdx.x == 0) {
            mbarrier_arrive_expect_tx(&full, sizeof stage);
            tma_load_bulk(stage, x + 128 * phase, &full, sizeof stage);  // bulk_over_readers
        }
        mbarrier_wait(&full, phase);  // bulk_over_readers
        y[128 * phase + threadIdx.x] = stage[threadIdx.x];
        if (FIXED) __syncthreads();
    }
}

extern "C" __global__ void bulk_in_flight(const float* x, float* y)
{
    __shared__ __align__(16) float stage[128];
    BARRIER_OF(1)
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&full, sizeof stage);
        tma_load_bulk(stage, x, &full, sizeof stage);  // bulk_in_flight
    }
    if (FIXED) mbarrier_wait(&full, 0);
    y[threadIdx.x] = x[threadIdx.x];
}

extern "C" __global__ void unfenced_barrier(const float* x, float* y)
{
    __shared__ __align__(16) float stage[128];
    __shared__ Mbarrier full;
    if (threadIdx.x == 0) mbarrier_init(&full, 1);
    if (FIXED && threadIdx.x == 0) mbarrier_init_fence();
    __syncthreads();
    if (threadIdx.x == 0) {
        mbarrier_arrive_expect_tx(&full, sizeof stage);
        tma_load_bulk(stage, x, &full, sizeof stage);  // unfenced_barrier
    }
    mbarrier_wait(&full, 0);
    y[threadIdx.x] = stage[threadIdx.x];
}

// wgmma may read what threads have stored only after a fence.proxy.async, which mbarrier_init_fence() contains.
extern "C" __global__ void unfenced_operand(const float* x, float* y)
{
    __shared__ __align__(1024) unsigned char rows[64 * 128];
    for (int i = threadIdx.x; i < 64 * 32; i += blockDim.x) reinterpret_cast<float*>(rows)[i] = 0;
    if (FIXED) mbarrier_init_fence();
    __syncthreads();
    float sums[32];
    warpgroup_fence();
    const MatrixDescriptor matrix = swizzled_descriptor(rows);
    wgmma_fp16(sums, matrix, matrix, false);  // unfenced_operand
    warpgroup_commit_group();
    warpgroup_wait_group<0>();
    y[threadIdx.x] = sums[threadIdx.x % 32] + x[threadIdx.x];
}

// The threads that store the lower half of each word have no fence.
extern "C" __global__ void half_unfenced_operand(const float* x, float* y)
{
    __shared__ __align__(1024) unsigned short rows[64 * 64];
    for (int i = threadIdx.x; i < 64 * 64; i += blockDim.x) rows[i] = 0;
    if (FIXED || threadIdx.x % 2) mbarrier_init_fence();
    __syncthreads();
    float sums[32];
    warpgroup_fence();
    const MatrixDescriptor matrix = swizzled_descriptor(rows);
    wgmma_fp16(sums, matrix, matrix, false);  // half_unfenced_operand
    warpgroup_commit_group();
    warpgroup_wait_group<0>();
    y[threadIdx.x] = sums[threadIdx.x % 32] + x[threadIdx.x];
}

// The two halves of a word are stored by two threads, and the first is loaded by a third.
extern "C" __global__ void race_of_halves(const float* x, float* y)
{
    __shared__ unsigned short halves[128];
    halves[threadIdx.x] = (unsigned short)(x[threadIdx.x]);
    if (FIXED) __syncthreads();
    y[threadIdx.x] = threadIdx.x >= 64 ? halves[(threadIdx.x - 64) * 2] : 0;  // race_of_halves
}

#define ONES                                                                                                  \
    __shared__ __align__(1024) unsigned char rows[64 * 128];                                                  \
    for (int i = threadIdx.x; i < 64 * 32; i += blockDim.x)                                                   \
        reinterpret_cast<unsigned*>(rows)[i] = 0x3c003c00;                                                    \
    mbarrier_init_fence();                                                                                    \
    __syncthreads();                                                                                          \
    const MatrixDescriptor matrix = swizzled_descriptor(rows);

extern "C" __global__ void sums_without_wait(const float* x, float* y)
{
    ONES
    float sums[32];
    warpgroup_fence();
    wgmma_fp16(sums, matrix, matrix, false);
    warpgroup_commit_group();
    if (FIXED) warpgroup_wait_group<0>();
    y[threadIdx.x] = sums[threadIdx.x % 32] + x[threadIdx.x];  // sums_without_wait
    warpgroup_wait_group<0>();
}

extern "C" __global__ void sums_without_fence(const float* x, float* y)
{
    ONES
    float sums[32];
    warpgroup_fence();
    wgmma_fp16(sums, matrix, matrix, false);
    warpgroup_commit_group();
    warpgroup_wait_group<0>();
    for (int i = 0; i < 32; ++i) sums[i] += x[threadIdx.x];
    if (FIXED) warpgroup_fence();
    wgmma_fp16(sums, matrix, matrix, true);  // sums_without_fence
    warpgroup_commit_group();
    warpgroup_wait_group<0>();
    y[threadIdx.x] = sums[threadIdx.x % 32];
}

extern "C" __global__ void operand_overwritten(const float* x, float* y)
{
    ONES
    float sums[32];
    warpgroup_fence();
    wgmma_fp16(sums, matrix, matrix, false);
    warpgroup_commit_group();
    if (FIXED) warpgroup_wait_group<0>();
    if (FIXED) __syncthreads();
    reinterpret_cast<float*>(rows)[threadIdx.x] = 1;  // operand_overwritten
    warpgroup_wait_group<0>();
    y[threadIdx.x] = sums[threadIdx.x % 32] + x[threadIdx.x];
}

// A programmatic dependent launch: the previous launch may still be writing x.
extern "C" __global__ void overtakes(const float* x, float* y)
{
    if (FIXED) wait_for_primary_launches();
    const float value = x[threadIdx.x];  // overtakes
    wait_for_primary_launches();
    y[threadIdx.x] = value;
}

extern "C" __global__ void plain_race(const float* x, float* y)
{
    __shared__ float values[128];
    values[threadIdx.x] = x[threadIdx.x];
    if (FIXED) __syncthreads();
    y[threadIdx.x] = values[SHIFTED(threadIdx.x)];  // plain_race
}

extern "C" __global__ void early_sum(const float* x, float* y)
{
    __shared__ float sum;
    if (threadIdx.x == 0) sum = 0;
    if (FIXED) __syncthreads();
    atomicAdd(&sum, x[threadIdx.x]);  // early_sum
    __syncthreads();
    y[threadIdx.x] = sum;
}
