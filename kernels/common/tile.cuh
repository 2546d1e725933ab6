// Which output a thread computes, when a block covers a tile of an output plane.
//
// A block has TILE x TILE threads, whatever the plane's size, and blockIdx.z says which of the plane's tiles is its own,
// row by row.  At the plane's lower and right edge the tiles reach beyond it, and so do some threads.
#pragma once
#include "shape.cuh"

constexpr int THREADS = TILE * TILE;
constexpr int TILES_ACROSS = (F + TILE - 1) / TILE;

// First output row of the block's tile.
__device__ __forceinline__ int tile_row()
{
    return blockIdx.z / TILES_ACROSS * TILE;
}

// First output column of the block's tile.
__device__ __forceinline__ int tile_column()
{
    return blockIdx.z % TILES_ACROSS * TILE;
}

__device__ __forceinline__ int output_row()
{
    return tile_row() + threadIdx.y;
}

__device__ __forceinline__ int output_column()
{
    return tile_column() + threadIdx.x;
}
