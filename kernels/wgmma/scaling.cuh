// Filters and images as fp16 operands, scaled by powers of two: one for each filter, one for each image.
//
// Gives: prepare_scaled_filters, prepare_usual_input, prepare_outlier_input; PixelMasks; ASSERT_INPUT_TILES; the ranges
// that a layer with CONV_TAKES_TERMS gets in place of `seen` (stored_terms.cuh): TERM_FILTERS, TAKEN_RANGES.
//
// Whether an image's values suit a power is known only when the whole image has been read.  So images are converted
// with the usual power, and the few outliers are converted again.  An image suits a power if each of its pixels is zero
// in all channels (of a block), or has one whose scaled magnitude is LEAST_STRONG or more: then a patch has a large
// value for each nonzero pixel, and its error is small in comparison.  With a stride it is enough that every square of
// stride x stride pixels has such a value, since every patch has a whole square.  An image that suits none has no
// exponent.
//
// Template parameters.  Filters: write(w, operands, power) writes a block's filters (BlockedFilters, WinogradFilters).
// Tile: a block's part of an image, one of SLICES x TILES; read(x, power, least, masks) and write(operands)
// (BlockedTile, WinogradTile); its pixels have MASKS words of masks from each of SHARERS warps, which read different
// channels.
#pragma once
#include "../common/range.cuh"
#include "preparation.cuh"

static_assert(BLOCK_THREADS == RANGE_THREADS);
constexpr unsigned WEAK = 1;  // bit of a word of `seen`

#ifdef CONV_TAKES_TERMS
constexpr bool TAKES_TERMS = true;
#else
constexpr bool TAKES_TERMS = false;
#endif
constexpr int TERM_FILTERS = 32;                // channels of a pixel of which the layer before stored a largest magnitude
constexpr unsigned UNKNOWN_RANGE = 0xffffffff;  // in its place, where it computes them again afterwards
SIZE(TAKEN_RANGES, (C + TERM_FILTERS - 1) / TERM_FILTERS);  // words of a pixel

// The least scaled magnitude next to which the errors of smaller values do not count: those of fp16 are 2^-25 at most,
// and an operand's relative error may be 2^-22 with two terms, 2^-11 with one.
template <int terms>
constexpr int LEAST_STRONG = terms == 2 ? 0 : -8;  // as an exponent of two

// The magnitude that 2^exponent scales to it.
template <int terms>
__device__ __forceinline__ unsigned least_strong(int exponent)
{
    return magnitude(power_of_two(-exponent) * power_of_two(LEAST_STRONG<terms>));
}

// Whether a pixel whose channels several warps have read is too faint; to be called after a barrier.
template <class Tile>
__device__ __forceinline__ bool has_faint_pixel(const PixelMasks* masks)  // [SHARERS][MASKS]
{
    bool faint = false;
    if constexpr (Tile::SHARERS > 1) {
#pragma unroll
        for (int i = 0; i < Tile::MASKS; ++i) {
            PixelMasks all = {0, 0};
#pragma unroll
            for (int sharer = 0; sharer < Tile::SHARERS; ++sharer) {
                all.present |= masks[sharer * Tile::MASKS + i].present;
                all.strong |= masks[sharer * Tile::MASKS + i].strong;
            }
            faint |= (all.present & ~all.strong) != 0;
        }
    }
    return faint;
}

// Block (r, m) writes row r of filter m, scaled by the filter's power of two.
template <class Filters, int terms>
__device__ __forceinline__ void prepare_scaled_filters(const float* __restrict__ w,            // [M][C][R][S]
                                                       const int* __restrict__ exponents,      // [M]
                                                       __half* const (&operands)[terms])  // in the form of Filters
{
    Filters::write(w, operands, power_of_two(exponents[blockIdx.y]));
}

// Block (tile, slice, n) writes a tile of image n, scaled by the usual power, and a word to `seen`: the largest
// magnitude rounded up to an even number, with the sign bit set if a pixel was too faint, and WEAK if a square was.
template <class Tile, int terms>
__device__ __forceinline__ void prepare_usual_input(const float* __restrict__ x,       // [N][C][H][W]
                                                    unsigned* __restrict__ seen,       // [N][SLICES][TILES]
                                                    __half* const (&operands)[terms])  // in the form of Tile
{
    DYNAMIC_SHARED(float4, tile_memory);
    __shared__ PixelMasks masks[Tile::SHARERS * Tile::MASKS];
    const Tile tile(tile_memory, blockIdx.x, blockIdx.y, blockIdx.z);
    // Its barrier also completes the tile and the masks.
    const Seen of_block = seen_in_block<BLOCK_THREADS>(
        tile.read(x, power_of_two(USUAL_EXPONENT), least_strong<terms>(USUAL_EXPONENT), masks));
    if (threadIdx.x == 0) {
        const bool faint = of_block.faint || has_faint_pixel<Tile>(masks);
        seen[((size_t)blockIdx.z * OF(Tile, SLICES) + blockIdx.y) * OF(Tile, TILES) + blockIdx.x] =
            ((min(of_block.largest, ~SIGN - 1) + 1) & ~WEAK) | (faint ? SIGN : 0) | (of_block.weak ? WEAK : 0);
    }
    tile.write(operands);
}

// Converts an image again, with a power; returns its range.
template <class Tile, int terms>
__device__ __forceinline__ Seen convert_again(const float* __restrict__ x,       // [N][C][H][W]
                                              __half* const (&operands)[terms],  // in the form of Tile
                                              int n, int exponent)
{
    DYNAMIC_SHARED(float4, tile_memory);
    __shared__ PixelMasks masks[Tile::SHARERS * Tile::MASKS];
    Seen of_image = {0, false, false};
    for (int i = 0; i < OF(Tile, SLICES) * OF(Tile, TILES); ++i) {
        const Tile tile(tile_memory, i % OF(Tile, TILES), i / OF(Tile, TILES), n);
        __syncthreads();  // the previous tile has been written out, its masks have been read
        const Seen seen = tile.read(x, power_of_two(exponent), least_strong<terms>(exponent), masks);
        of_image.faint |= __syncthreads_or(seen.faint);  // the tile is complete before it is read transposed
        of_image.faint |= has_faint_pixel<Tile>(masks);
        of_image.weak |= seen.weak;
        of_image.largest = max(of_image.largest, seen.largest);
        tile.write(operands);
    }
    return seen_in_block<BLOCK_THREADS>(of_image);
}

// The range of an image whose terms the layer before has stored; where that is unknown, converts it first.
template <class Tile, int terms>
__device__ __forceinline__ Seen range_of_terms(const float* __restrict__ x,          // [N][C][H][W]
                                               const unsigned* __restrict__ ranges,  // [N][TAKEN_RANGES][H * W]
                                               __half* const (&operands)[terms], int n)
{
    SHAPE_CONST int PLANE = H * W;
    Seen found = {0, false, true};
    for (int pixel = threadIdx.x; pixel < PLANE; pixel += BLOCK_THREADS) {
        unsigned of_pixel = 0;
#pragma unroll 8
        for (int i = 0; i < TAKEN_RANGES; ++i)
            of_pixel = max(of_pixel, ranges[((size_t)n * TAKEN_RANGES + i) * PLANE + pixel]);
        found.largest = max(found.largest, of_pixel);
        found.faint |= of_pixel != 0 && of_pixel < least_strong<terms>(USUAL_EXPONENT);
    }
    found = seen_in_block<BLOCK_THREADS>(found);
    return found.largest == UNKNOWN_RANGE ? convert_again<Tile>(x, operands, n, USUAL_EXPONENT) : found;
}

// The range of an image that prepare_usual_input has converted.
template <class Tile>
__device__ __forceinline__ Seen range_of_tiles(const unsigned* __restrict__ seen,  // [N][SLICES][TILES]
                                               int n)
{
    SHAPE_CONST int COUNT = OF(Tile, SLICES) * OF(Tile, TILES);
    Seen found = {0, false, false};
#pragma unroll 8
    for (int i = threadIdx.x; i < COUNT; i += BLOCK_THREADS) {
        const unsigned of_block = seen[(size_t)n * COUNT + i];
        found.largest = max(found.largest, of_block & ~(SIGN | WEAK));
        found.faint |= (of_block & SIGN) != 0;
        found.weak |= (of_block & WEAK) != 0;
    }
    return seen_in_block<BLOCK_THREADS>(found);
}

// Block n stores the exponent of image n, and converts the image again if it is not the usual one.
template <class Tile, int terms>
__device__ __forceinline__ void prepare_outlier_input(const float* __restrict__ x,        // [N][C][H][W]
                                                      const unsigned* __restrict__ seen,  // [N][SLICES][TILES], or ranges
                                                      int* __restrict__ exponents,        // [N]
                                                      __half* const (&operands)[terms])   // in the form of Tile
{
    const int n = blockIdx.z;
    Seen found;
    if constexpr (TAKES_TERMS)
        found = range_of_terms<Tile>(x, seen, operands, n);
    else
        found = range_of_tiles<Tile>(seen, n);
    found.faint &= found.weak;
    int exponent = found.faint ? best_exponent(found.largest) : scaling_exponent(found.largest);
    if (found.largest >= INFINITE)
        exponent = NO_EXPONENT;
    else if (exponent != USUAL_EXPONENT) {
        const Seen again = convert_again<Tile>(x, operands, n, exponent);
        if (again.faint && again.weak) exponent = NO_EXPONENT;
    } else if (found.faint)
        exponent = NO_EXPONENT;
    if (threadIdx.x == 0) exponents[n] = exponent;
}

// The kernels of a rung with these tiles.
#define ASSERT_INPUT_TILES(Tile)                                  \
    ASSERT_BLOCK(PREPARE_INPUT, BLOCK_THREADS, 1);                \
    ASSERT_GRID(PREPARE_INPUT, Tile::TILES, Tile::SLICES, 1);     \
    ASSERT_SHARED_BYTES(PREPARE_INPUT, Tile::BYTES);              \
    ASSERT_BLOCK(PREPARE_OUTLIERS, BLOCK_THREADS, 1);             \
    ASSERT_GRID(PREPARE_OUTLIERS, 1, 1, 1);                       \
    ASSERT_SHARED_BYTES(PREPARE_OUTLIERS, Tile::BYTES);           \
    ASSERT_ELEMENTS(SEEN, TAKES_TERMS ? TAKEN_RANGES * H * W : Tile::SLICES * Tile::TILES)
