// Shared by the kernels that prepare fp16 operands: block sizes, and floats split into fp16 terms.
//
// Gives: CHUNK, LANES, BLOCK_THREADS, RESIDENT_BLOCKS; split; PixelMasks.
#pragma once
#include "../common/shape.cuh"

constexpr int CHUNK = 8;   // fp16 values in the widest access, 16 bytes
constexpr int LANES = 32;  // of a warp
constexpr int BLOCK_THREADS = 256, BLOCK_WARPS = BLOCK_THREADS / LANES;
// Resident blocks per multiprocessor: 40 registers a thread, and enough loads in flight to saturate memory.
constexpr int RESIDENT_BLOCKS = 6;

// Of 32 pixels, those with a nonzero channel, and those with a large one (scaling.cuh).
struct PixelMasks {
    unsigned present, strong;
};

// A float as one fp16 value, or as two terms whose sum has twice the precision: hi, the nearest fp16 value, and lo, the
// nearest to what remains.
template <int terms>
__device__ __forceinline__ void split(float value, __half (&halves)[terms])
{
    halves[0] = __float2half_rn(value);
    if constexpr (terms == 2) halves[1] = __float2half_rn(value - __half2float(halves[0]));
}
