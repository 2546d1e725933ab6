// half and half2: 16 bits of storage; every operation is done in float, or in double where float is too narrow, or, a
// multiply-add, by an instruction where the CPU has one; and rounds once, to nearest even.
//
// float has more than twice the digits of half, so rounding a sum, difference, product, quotient or root to float first
// changes nothing (Figueroa, "When is double rounding innocuous?", 1995).  For a fused multiply-add it would.
#pragma once

namespace host_cuda {

// A half as the compiler's own 16-bit type stays in a vector register, where conversions work on it; as an integer it
// would go to another register and back, which a chain of additions waits for.  Older compilers have no such type.
#if defined(__aarch64__)
using Binary16 = __fp16;  // g++ has the type _Float16 there from version 13 only, though it defines its limits before
#elif defined(__FLT16_MAX__)
using Binary16 = _Float16;
#elif defined(__F16C__)  // every x86-64 CPU since 2013; the builtins spare us the large header of the intrinsics
using Halves = short __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(16)));
constexpr int NEAREST = 0;

struct Binary16 {
    short bits;

    Binary16() = default;
    explicit Binary16(float value) : bits(__builtin_ia32_vcvtps2ph(Floats{value}, NEAREST)[0]) {}
    explicit operator float() const { return __builtin_ia32_vcvtph2ps(Halves{bits})[0]; }
};
#endif

// The two conversions of one value, without the instructions that compilers put before them to clear the rest of the
// register: a chain of multiply-adds would wait for these.  clang takes no _Float16 as an operand without AVX512-FP16.
#if defined(__F16C__) && defined(__FLT16_MAX__) && !defined(__clang__)
inline float widened(Binary16 value)
{
    float wide;
    asm("vcvtph2ps %1, %0" : "=x"(wide) : "x"(value));
    return wide;
}
inline Binary16 narrowed(float value)
{
    Binary16 nearest;
    asm("vcvtps2ph $0, %1, %0" : "=x"(nearest) : "x"(value));
    return nearest;
}
#else
inline float widened(Binary16 value) { return float(value); }
inline Binary16 narrowed(float value) { return Binary16(value); }
#endif

inline float widen(unsigned short bits)
{
    Binary16 value;
    memcpy(&value, &bits, sizeof bits);
    return float(value);
}

// Rounds to odd in float first: the odd last bit marks an inexact value, so that the second rounding does not see a tie
// that the first one made (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", 2008).
inline Binary16 narrow(double value)
{
    float rounded = float(value);
    if (double(rounded) != value && value == value) {
        int bits;
        memcpy(&bits, &rounded, sizeof bits);
        bits -= fabs(double(rounded)) > fabs(value);
        bits |= 1;
        memcpy(&rounded, &bits, sizeof bits);
    }
    return Binary16(rounded);
}

}  // namespace host_cuda

struct alignas(2) __half {
    host_cuda::Binary16 stored;

    __half() = default;
    __half(host_cuda::Binary16 value) : stored(value) {}
    __half(float value) : stored(host_cuda::Binary16(value)) {}
    __half(double value) : stored(host_cuda::narrow(value)) {}
    __half(int value) : __half(double(value)) {}
    __half(unsigned value) : __half(double(value)) {}
    operator float() const { return float(stored); }
};

struct alignas(4) __half2 {
    __half x, y;
};

using half = __half;
using half2 = __half2;

inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half a) { return {a, a}; }

// An operation on halves gives its twin on pairs: operator, compound assignment and CUDA's named functions.
#define HOST_CUDA_HALF_OPERATION(sign, name, name2)                                          \
    inline __half operator sign(__half a, __half b) { return float(a) sign float(b); }       \
    inline __half& operator sign##=(__half& a, __half b) { return a = a sign b; }            \
    inline __half2 operator sign(__half2 a, __half2 b) { return {a.x sign b.x, a.y sign b.y}; } \
    inline __half2& operator sign##=(__half2& a, __half2 b) { return a = a sign b; }         \
    inline __half name(__half a, __half b) { return a sign b; }                              \
    inline __half2 name2(__half2 a, __half2 b) { return a sign b; }

HOST_CUDA_HALF_OPERATION(+, __hadd, __hadd2)
HOST_CUDA_HALF_OPERATION(-, __hsub, __hsub2)
HOST_CUDA_HALF_OPERATION(*, __hmul, __hmul2)
HOST_CUDA_HALF_OPERATION(/, __hdiv, __h2div)

#undef HOST_CUDA_HALF_OPERATION

#define HOST_CUDA_HALF_COMPARISON(sign, name)                                              \
    inline bool operator sign(__half a, __half b) { return float(a) sign float(b); }       \
    inline bool name(__half a, __half b) { return a sign b; }

HOST_CUDA_HALF_COMPARISON(==, __heq)
HOST_CUDA_HALF_COMPARISON(!=, __hneu)
HOST_CUDA_HALF_COMPARISON(<, __hlt)
HOST_CUDA_HALF_COMPARISON(<=, __hle)
HOST_CUDA_HALF_COMPARISON(>, __hgt)
HOST_CUDA_HALF_COMPARISON(>=, __hge)

#undef HOST_CUDA_HALF_COMPARISON

inline __half operator-(__half a) { return -float(a); }
inline __half2 operator-(__half2 a) { return {-a.x, -a.y}; }

#ifdef __AVX512FP16__  // one instruction, which rounds once
inline __half __hfma(__half a, __half b, __half c)
{
    asm("vfmadd231sh %2, %1, %0" : "+v"(c.stored) : "v"(a.stored), "v"(b.stored));
    return c;
}
#else
// The product of two halves is exact in float, so the sum is the only rounding before the last.  It matters where it
// ends on a tie between two halves, which among normal numbers shows in the 13 bits that a half lacks.  Then double, in
// which such a sum is exact, decides.
__attribute__((noinline, cold)) inline __half __hfma_near_tie(float a, float b, float c)
{
    return double(a) * double(b) + double(c);
}
inline __half __hfma(__half a, __half b, __half c)
{
    constexpr unsigned lacking = 0x1fff, tie = 0x1000, magnitude = 0x7fffffff;
    constexpr unsigned smallest_normal = 0x38800000;  // 2^-14
    const float sum = float(a) * float(b) + host_cuda::widened(c.stored);
    unsigned bits;
    memcpy(&bits, &sum, sizeof bits);
    // Zero minus one wraps to the largest value: zeros are common, and need no branch.
    const bool enough = (bits & magnitude) - 1 >= smallest_normal - 1;
    if (((bits & lacking) != tie) & enough) return host_cuda::narrowed(sum);
    return __hfma_near_tie(a, b, c);
}
#endif
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }

inline __half __float2half(float a) { return a; }
inline __half __float2half_rn(float a) { return a; }
inline __half __double2half(double a) { return a; }
inline float __half2float(__half a) { return a; }
inline __half2 __float2half2_rn(float a) { return {a, a}; }
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline float2 __half22float2(__half2 a) { return {a.x, a.y}; }

inline __half __low2half(__half2 a) { return a.x; }
inline __half __high2half(__half2 a) { return a.y; }

inline unsigned short __half_as_ushort(__half a)
{
    unsigned short bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}
