// Loads an array by lines that the L2 cache is asked to keep, or by ordinary ones.

constexpr int THREADS = 256;

template <bool kept>
__device__ __forceinline__ void load(const float4* __restrict__ values, unsigned long long count, float* __restrict__ sum)
{
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    float found = 0;
    for (unsigned long long i = blockIdx.x * (unsigned long long)THREADS + threadIdx.x; i < count;
         i += gridDim.x * (unsigned long long)THREADS) {
        float4 value;
        if (kept)
            asm volatile("ld.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                         : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                         : "l"(values + i), "l"(policy));
        else
            asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                         : "l"(values + i));
        found += value.x + value.y + value.z + value.w;
    }
    if (found != 0) *sum = found;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    load_kept(const float4* __restrict__ values, unsigned long long count, float* __restrict__ sum)
{
    load<true>(values, count, sum);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    load_ordinary(const float4* __restrict__ values, unsigned long long count, float* __restrict__ sum)
{
    load<false>(values, count, sum);
}
