// One block per TILE x TILE tile of an output plane: which output a thread computes.
//
// Gives: THREADS; TILES; tile_row, tile_column; output_row, output_column; clear_output.
// Needs: TILE, a constant of the rung.
//
// blockIdx.z counts the tiles of a plane row by row.  Tiles at the lower and right edge reach beyond the plane, and so
// do some of their threads.
#pragma once
#include "shape.cuh"

constexpr int THREADS = TILE * TILE;
constexpr int TILES_ACROSS = (F + TILE - 1) / TILE;
constexpr int TILES = TILES_ACROSS * ((E + TILE - 1) / TILE);  // of an output plane

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

// Zeroes the block's tile of the plane (blockIdx.x, blockIdx.y), for rungs that accumulate in y with atomics.
__device__ __forceinline__ void clear_output(float* __restrict__ y)  // [N][M][E][F]
{
    const int e = output_row(), f = output_column();
    if (e < E && f < F) y[((size_t)blockIdx.x * M + blockIdx.y) * E * F + e * F + f] = 0;
}
