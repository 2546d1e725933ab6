// Floats as halves, and what the kernels that write them have in common.
#pragma once
#include "../common/shape.cuh"

constexpr int CHUNK = 8;   // halves in the widest access, 16 bytes
constexpr int LANES = 32;  // of a warp
constexpr int BLOCK_THREADS = 256, BLOCK_WARPS = BLOCK_THREADS / LANES;
// Blocks that a multiprocessor is to have room for: 40 registers a thread, and enough loads under way for its memory.
constexpr int RESIDENT_BLOCKS = 6;

// A float as one half, or as two whose sum has twice the precision: the nearest half and the rest.
template <int parts>
__device__ __forceinline__ void split(float value, __half (&halves)[parts])
{
    halves[0] = __float2half_rn(value);
    if constexpr (parts == 2) halves[1] = __float2half_rn(value - __half2float(halves[0]));
}
