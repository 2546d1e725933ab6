// Input channels in parallel: which of them a block sums, and how the partial planes are added.
#pragma once
#include "../common/plane.cuh"

constexpr int PARTS = (C + CHANNELS - 1) / CHANNELS;  // partial planes of one output plane

__device__ __forceinline__ int first_channel()
{
    return blockIdx.z * CHANNELS;
}

// One past the block's last channel.  Where all parts are alike, the compiler learns their length.
__device__ __forceinline__ int end_channel()
{
    const int end = first_channel() + CHANNELS;
    return C % CHANNELS == 0 || end < C ? end : C;
}

// The block's partial plane in an array [N][M][PARTS][E][F].
template <class T>
__device__ __forceinline__ T* partial_plane(T* partial)
{
    return partial + (((size_t)blockIdx.x * M + blockIdx.y) * PARTS + blockIdx.z) * E * F;
}

// The second kernel: adds the partial planes of each output.  Grid N x M, block as the first kernel's.
template <class T>
__device__ __forceinline__ void add_parts(const T* __restrict__ partial,  // [N][M][PARTS][E][F]
                                          T* __restrict__ y)              // [N][M][E][F]
{
    const size_t plane = (size_t)blockIdx.x * M + blockIdx.y;
    partial += plane * PARTS * E * F;
    y += plane * E * F;
    for_each_output([&](int e, int f) {
        float sum = 0;
        for (int part = 0; part < PARTS; ++part) sum += (float)partial[(part * E + e) * F + f];
        y[e * F + f] = (T)sum;
    });
}
