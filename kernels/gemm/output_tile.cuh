// The block's tile of an image's output matrix [M][PIXELS].
//
// Gives: OutputTile, output_tile; OUTPUT_TILES, the grid for one image; product.cuh.
#pragma once
#include "../common/product.cuh"

// The image, first row (a filter) and first column (a pixel).
struct OutputTile {
    int n, row, column;
};

template <int rows, int columns>
constexpr int OUTPUT_TILES = (M + rows - 1) / rows * ((PIXELS + columns - 1) / columns);

// The block's tile of rows x columns outputs.  The grid is one-dimensional because only x may exceed 65535; the tiles
// of an image are consecutive, so that concurrent blocks find its inputs in the L2 cache.
template <int rows, int columns>
__device__ __forceinline__ OutputTile output_tile()
{
    constexpr int tiles = OUTPUT_TILES<rows, columns>, across = (PIXELS + columns - 1) / columns;
    const int tile = blockIdx.x % tiles;
    return {int(blockIdx.x / tiles), tile / across * rows, tile % across * columns};
}
