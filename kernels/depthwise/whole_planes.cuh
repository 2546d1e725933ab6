// Depthwise convolution in NCHW of small planes, several of them in shared memory.
//
// Gives: PLANE_THREADS, PLANE_BLOCKS; WholePlanes: BYTES, convolve.
//
// A block copies PLANES neighbouring planes, which are contiguous in memory whatever their width, and returns their
// outputs the same way: all of its accesses to global memory are whole vectors of 16 bytes, if PLANES planes are.
//
// Needs: PLANES, a constant of the rung; TILE_ROWS, TILE_COLUMNS (strip.cuh).
#pragma once
#include "../arch/ampere.cuh"
#include "../arch/dependent_launch.cuh"
#include "strip.cuh"

constexpr int BLOCK_FILTERS = PLANES * MULTIPLIER, VECTOR_BYTES = 16;
constexpr int PLANE_THREADS = BLOCK_FILTERS * STRIPS * TILES_ACROSS;
constexpr int PLANE_BLOCKS = (C + PLANES - 1) / PLANES;  // of an image

template <class Value>
struct WholePlanes {
    static constexpr int WIDE = VECTOR_BYTES / sizeof(Value);  // values of a vector
    static constexpr int IN = PLANES * H * W, OUT = BLOCK_FILTERS * E * F;
    static constexpr int IN_ROUNDED = (IN + WIDE - 1) / WIDE * WIDE, OUT_ROUNDED = (OUT + WIDE - 1) / WIDE * WIDE;
    static constexpr int BYTES = (IN_ROUNDED + OUT_ROUNDED) * sizeof(Value);
    // Whether images and the planes of a block begin at a multiple of a vector.
    static constexpr bool IN_ALIGNED = IN % WIDE == 0 && C * H * W % WIDE == 0;
    static constexpr bool OUT_ALIGNED = OUT % WIDE == 0 && M * E * F % WIDE == 0;

    Value* planes;   // [PLANES][H][W], in shared memory
    Value* outputs;  // [BLOCK_FILTERS][E][F], in shared memory

    __device__ __forceinline__ explicit WholePlanes(uint4* memory)
        : planes(reinterpret_cast<Value*>(memory)), outputs(planes + IN_ROUNDED)
    {
    }

    __device__ __forceinline__ void convolve(const Value* __restrict__ x,           // [N][C][H][W]
                                             const Value* __restrict__ w,           // [M][1][R][S]
                                             Value* __restrict__ y,                 // [N][M][E][F]
                                             const Value* __restrict__ bias) const  // [M], or null
    {
        const int n = blockIdx.x / PLANE_BLOCKS, first_c = blockIdx.x % PLANE_BLOCKS * PLANES;
        const int present = min(PLANES, C - first_c);  // planes of this block
        load(x + ((size_t)n * C + first_c) * H * W, present * H * W);
        const int tile = threadIdx.x % (STRIPS * TILES_ACROSS), plane = threadIdx.x / (STRIPS * TILES_ACROSS);
        const int first_f = tile % TILES_ACROSS * TILE_COLUMNS, first_e = tile / TILES_ACROSS * TILE_ROWS;
        const int m = first_c * MULTIPLIER + plane;
        Strip<1> strip;
        strip.load_taps(w + (size_t)min(m, M - 1) * TAPS);
        copy_async_wait_group<0>();
        __syncthreads();  // the planes are complete before any thread reads them
        const Value* const of_channel = planes + plane / MULTIPLIER * H * W;
#pragma unroll
        for (int j = 0; j < WINDOW_ROWS; ++j) {
            const int row = first_e * U - TOP + j;
            float values[SPAN][1];
#pragma unroll
            for (int i = 0; i < SPAN; ++i) {
                const int column = first_f * V - LEFT + i;
                const bool inside = m < M && unsigned(row) < unsigned(H) && unsigned(column) < unsigned(W);
                values[i][0] = inside ? float(of_channel[row * W + column]) : 0;
            }
            strip.template add<0>(j, values);
        }
#pragma unroll
        for (int e = 0; e < TILE_ROWS; ++e)
#pragma unroll
            for (int f = 0; f < TILE_COLUMNS; ++f)
                if (m < M && first_e + e < E && first_f + f < F)
                    outputs[(plane * E + first_e + e) * F + first_f + f] =
                        Value(with_bias_and_relu(strip.sums[e][f][0], bias, m));
        __syncthreads();  // the outputs are complete before any thread stores them
        store(y + ((size_t)n * M + first_c * MULTIPLIER) * E * F, present * MULTIPLIER * E * F);
    }

  private:
    __device__ __forceinline__ void load(const Value* __restrict__ from, int count) const
    {
        if constexpr (IN_ALIGNED) {
#pragma unroll 4
            for (int i = threadIdx.x * WIDE; i < count; i += PLANE_THREADS * WIDE)
                copy_async_16(planes + i, from + i, true);
            copy_async_commit_group();
        } else {
#pragma unroll 4
            for (int i = threadIdx.x; i < count; i += PLANE_THREADS) planes[i] = from[i];
        }
    }

    __device__ __forceinline__ void store(Value* __restrict__ to, int count) const
    {
        if constexpr (OUT_ALIGNED) {
#pragma unroll 4
            for (int i = threadIdx.x * WIDE; i < count; i += PLANE_THREADS * WIDE)
                *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(outputs + i);
        } else {
#pragma unroll 4
            for (int i = threadIdx.x; i < count; i += PLANE_THREADS) to[i] = outputs[i];
        }
    }
};
