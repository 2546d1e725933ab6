// What a course's kernel file may use in addition to its kernels, in the translated file (wrapping.py).
//
// On the CPU the launch code runs once to record its launches: each launch, allocation or copy to a constant prints a
// line on standard output.  Pointers are symbolic there: y, x and w are the addresses 1, 2 and 3 times 2^32.
#pragma once

#ifdef HOST_CUDA
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#define ALEXCONV_DYNAMIC_SHARED(type, name) type* const name = static_cast<type*>(host_cuda::dynamic_shared())

using cudaError_t = int;
using cudaStream_t = void*;
constexpr cudaError_t cudaSuccess = 0;
enum cudaMemcpyKind { cudaMemcpyHostToHost, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice, cudaMemcpyDefault };

namespace course {

inline void argument(float value) { std::printf(" f%.9g", value); }
inline void argument(double value) { std::printf(" f%.17g", value); }
template <class T>
void argument(T* value)
{
    std::printf(" p%zu", reinterpret_cast<std::size_t>(value));
}
template <class T>
void argument(T value)
{
    std::printf(" i%lld", static_cast<long long>(value));
}

// kernel<<<grid, block, shared, stream>>>(arguments)
struct Config {
    dim3 grid, block;
    std::size_t shared;
    Config(dim3 grid, dim3 block, std::size_t shared = 0, cudaStream_t = nullptr) : grid(grid), block(block), shared(shared) {}
};
template <class... Arguments>
void launch(const char* kernel, const Config& at, Arguments... arguments)
{
    std::printf("launch %s %u %u %u %u %u %u %zu", kernel, at.grid.x, at.grid.y, at.grid.z, at.block.x, at.block.y,
                at.block.z, at.shared);
    (argument(arguments), ...);
    std::printf("\n");
}

inline std::size_t next_allocation = 16;
template <class T>
cudaError_t allocate(T** pointer, std::size_t bytes)
{
    std::printf("allocate %zu %zu\n", next_allocation << 32, bytes);
    *pointer = reinterpret_cast<T*>(next_allocation++ << 32);
    return cudaSuccess;
}
inline cudaError_t to_symbol(const char* symbol, std::size_t size, const void* from, std::size_t bytes,
                             std::size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice)
{
    std::printf("symbol %s %zu %zu %zu %zu\n", symbol, size, reinterpret_cast<std::size_t>(from), bytes, offset);
    return cudaSuccess;
}
inline cudaError_t unsupported(const char* what)
{
    std::printf("unsupported %s\n", what);
    return cudaSuccess;
}

}  // namespace course

#define ALEXCONV_LAUNCH(kernel, config, ...) course::launch(#kernel, course::Config config, ##__VA_ARGS__)
#define cudaMalloc(pointer, bytes) course::allocate(pointer, bytes)
#define cudaMemcpyToSymbol(symbol, ...) course::to_symbol(#symbol, sizeof(symbol), __VA_ARGS__)
#define cudaMemcpy(...) course::unsupported("cudaMemcpy")
#define cudaMemset(...) course::unsupported("cudaMemset")
inline cudaError_t cudaFree(void*) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }
#else
#include <cstdio>
#include <cstdlib>
#include <iostream>
#define ALEXCONV_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#define ALEXCONV_LAUNCH(...) ((void)0)
#endif
