// Split-K for a direct convolution: the input channels are divided into slices, one block per slice of an output plane,
// and a second kernel reduces the partial planes.
//
// Gives: SLICES; first_channel, end_channel; partial_plane; add_slices (the reduction); plane.cuh.
// Needs: CHANNELS, THREAD_OUTPUTS and COALESCED, constants of the rung.
#pragma once
#include "../common/plane.cuh"

constexpr int SLICES = (C + CHANNELS - 1) / CHANNELS;  // partial planes of one output plane

__device__ __forceinline__ int first_channel()
{
    return blockIdx.z * CHANNELS;
}

// One past the block's last channel.  If all slices are equal, the compiler knows their length.
__device__ __forceinline__ int end_channel()
{
    const int end = first_channel() + CHANNELS;
    return C % CHANNELS == 0 || end < C ? end : C;
}

// The block's partial plane in an array [N][M][SLICES][E][F].
template <class T>
__device__ __forceinline__ T* partial_plane(T* partial)
{
    return partial + (((size_t)blockIdx.x * M + blockIdx.y) * SLICES + blockIdx.z) * E * F;
}

// The second kernel: adds the partial planes of each output in fp32.  Grid N x M, block as the first kernel's.
template <class T>
__device__ __forceinline__ void add_slices(const T* __restrict__ partial,  // [N][M][SLICES][E][F]
                                           T* __restrict__ y)              // [N][M][E][F]
{
    const size_t plane = (size_t)blockIdx.x * M + blockIdx.y;
    partial += plane * SLICES * E * F;
    y += plane * E * F;
    for_each_output([&](int e, int f) {
        float sum = 0;
        for (int slice = 0; slice < SLICES; ++slice) sum += (float)partial[(slice * E + e) * F + f];
        y[e * F + f] = (T)sum;
    });
}
