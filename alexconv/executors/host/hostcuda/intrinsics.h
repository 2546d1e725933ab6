// CUDA's scalar functions.  The approximate ones (rsqrtf, __expf) are as accurate as the others.
//
// No rung of the ladder uses some twins: here __stcs, __trap, __saturatef and the bit, byte, rounding and high-product
// functions, in warp.h the votes and __shfl_up_sync, __shfl_down_sync, in threads.h __syncthreads_and and
// __syncthreads_count.  They are for kernels that users write; tests cover them.
#pragma once

// Loads and stores with cache hints, which have no effect here.
#define HOST_CUDA_LOAD(name) \
    template <class T>       \
    T name(const T* address) \
    {                        \
        return *address;     \
    }
HOST_CUDA_LOAD(__ldg)
HOST_CUDA_LOAD(__ldcg)
#undef HOST_CUDA_LOAD

template <class T>
void __stcs(T* address, host_cuda::as<T> value)
{
    *address = value;
}

// CUDA's min and max of floats return the number when the other is a NaN.
#define HOST_CUDA_MIN_MAX(type)                                        \
    constexpr type min(type a, type b) { return b < a ? b : a; }       \
    constexpr type max(type a, type b) { return a < b ? b : a; }
HOST_CUDA_MIN_MAX(int)
HOST_CUDA_MIN_MAX(unsigned)
HOST_CUDA_MIN_MAX(long)
HOST_CUDA_MIN_MAX(unsigned long)
HOST_CUDA_MIN_MAX(long long)
HOST_CUDA_MIN_MAX(unsigned long long)
#undef HOST_CUDA_MIN_MAX
constexpr unsigned min(int a, unsigned b) { return min(unsigned(a), b); }
constexpr unsigned min(unsigned a, int b) { return min(a, unsigned(b)); }
constexpr unsigned max(int a, unsigned b) { return max(unsigned(a), b); }
constexpr unsigned max(unsigned a, int b) { return max(a, unsigned(b)); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(float a, double b) { return fmin(a, b); }
inline double min(double a, float b) { return fmin(a, b); }
inline double max(float a, double b) { return fmax(a, b); }
inline double max(double a, float b) { return fmax(a, b); }

namespace host_cuda {

// Keeps the compiler from fusing a result into the operation that takes it: __fmul_rn and its like promise their own
// rounding.
inline float rounded(float value)
{
#if defined(__x86_64__)
    asm("" : "+x"(value));
#elif defined(__aarch64__)
    asm("" : "+w"(value));
#else
    asm("" : "+m"(value));
#endif
    return value;
}

// As a GPU's conversions do (PTX ISA, cvt): the nearest integer that there is, and zero for NaN.
inline int integer(float a)
{
    constexpr float END = 0x1p31f;  // the first beyond the largest
    if (a >= END) return 0x7fffffff;
    return a >= -END ? int(a) : a < -END ? -0x7fffffff - 1 : 0;
}

inline float reciprocal_root(float a) { return 1 / sqrtf(a); }
inline float exponential(float a) { return expf(a); }

template <class To, class From>
To same_bits(From value)
{
    static_assert(sizeof(To) == sizeof(From));
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

}  // namespace host_cuda

inline float __fadd_rn(float a, float b) { return host_cuda::rounded(a + b); }
inline float __fmul_rn(float a, float b) { return host_cuda::rounded(a * b); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }

// Macros, because C libraries may have functions of these names.
#define rsqrtf host_cuda::reciprocal_root
#define __expf host_cuda::exponential

// As a GPU's approximate division (PTX ISA, div.approx), which multiplies by a reciprocal: beyond 2^126 that is zero.
inline float __fdividef(float a, float b) { return fabsf(b) > 0x1p126f ? a * copysignf(0, b) : a / b; }
inline float __saturatef(float a) { return fminf(fmaxf(a, 0), 1); }

inline int __float_as_int(float a) { return host_cuda::same_bits<int>(a); }
inline unsigned __float_as_uint(float a) { return host_cuda::same_bits<unsigned>(a); }
inline float __int_as_float(int a) { return host_cuda::same_bits<float>(a); }
inline float __uint_as_float(unsigned a) { return host_cuda::same_bits<float>(a); }
inline int __float2int_rn(float a) { return host_cuda::integer(rintf(a)); }
inline int __float2int_rz(float a) { return host_cuda::integer(a); }
inline int __float2int_rd(float a) { return host_cuda::integer(floorf(a)); }

inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __clz(int a) { return a ? __builtin_clz(unsigned(a)) : 32; }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }

inline unsigned __brev(unsigned a)
{
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (a >> bit & 1) << (31 - bit);
    return reversed;
}

// Picks four of the eight bytes of b:a; each nibble of `selector` names one.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector)
{
    const unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned picked = 0;
    for (int i = 0; i < 4; ++i) picked |= unsigned(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
    return picked;
}

// The upper, or lower, half of hi:lo shifted by up to 31 bits.
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift)
{
    return unsigned(((unsigned long long)hi << 32 | lo) << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift)
{
    return unsigned(((unsigned long long)hi << 32 | lo) >> (shift & 31));
}

inline void __trap(host_cuda::Site site = host_cuda::here()) { host_cuda::fail("__trap()", site); }
