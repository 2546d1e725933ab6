// Which outputs of an E x F plane a thread computes, when one block covers the plane.
//
// A block has at most 1024 threads, so a thread takes OUTPUTS x OUTPUTS outputs of a larger plane.  COALESCED = 1: they
// lie a block apart, and the threads of a warp touch neighbouring addresses.  COALESCED = 0: they lie side by side, and
// neighbouring threads are OUTPUTS addresses apart.  Rows and columns beyond the plane are the caller's to skip.
#pragma once
#include "shape.cuh"

__device__ __forceinline__ int output_row(int i)
{
    return COALESCED ? i * blockDim.y + threadIdx.y : threadIdx.y * OUTPUTS + i;
}

__device__ __forceinline__ int output_column(int j)
{
    return COALESCED ? j * blockDim.x + threadIdx.x : threadIdx.x * OUTPUTS + j;
}
