// CUDA's vector types, their alignment, and the functions that make them.
#pragma once

#define HOST_CUDA_VECTORS(type, name)                                                                    \
    struct name##1 { type x; };                                                                          \
    struct alignas(2 * sizeof(type)) name##2 { type x, y; };                                             \
    struct name##3 { type x, y, z; };                                                                    \
    struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { type x, y, z, w; };          \
    constexpr name##1 make_##name##1(type x) { return {x}; }                                             \
    constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }                                  \
    constexpr name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                       \
    constexpr name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

HOST_CUDA_VECTORS(signed char, char)
HOST_CUDA_VECTORS(unsigned char, uchar)
HOST_CUDA_VECTORS(short, short)
HOST_CUDA_VECTORS(unsigned short, ushort)
HOST_CUDA_VECTORS(int, int)
HOST_CUDA_VECTORS(unsigned, uint)
HOST_CUDA_VECTORS(long long, longlong)
HOST_CUDA_VECTORS(unsigned long long, ulonglong)
HOST_CUDA_VECTORS(float, float)
HOST_CUDA_VECTORS(double, double)

#undef HOST_CUDA_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
