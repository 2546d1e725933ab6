// The block's tile of an image's output matrix [M][PIXELS].
//
// Gives: OutputTile, output_tile; OUTPUT_TILES, the grid for one image; product.cuh.
#pragma once
#include "../common/product.cuh"

// The image, first row (a filter) and first column (a pixel).
struct OutputTile {
    int n, row, column;
};

template <int rows>
constexpr int TILES_DOWN = (M + rows - 1) / rows;
template <int columns>
constexpr int TILES_ACROSS = (PIXELS + columns - 1) / columns;
template <int rows, int columns>
constexpr int OUTPUT_TILES = TILES_DOWN<rows> * TILES_ACROSS<columns>;

// The block's tile of rows x columns outputs.  The grid is one-dimensional because only x may exceed 65535; the tiles of
// an image follow each other, so that blocks that run at the same time find its inputs in the L2 cache.
template <int rows, int columns>
__device__ __forceinline__ OutputTile output_tile()
{
    constexpr int across = TILES_ACROSS<columns>;
    const int tile = blockIdx.x % OUTPUT_TILES<rows, columns>;
    return {int(blockIdx.x / OUTPUT_TILES<rows, columns>), tile / across * rows, tile % across * columns};
}
