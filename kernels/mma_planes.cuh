// What mma_tile.cuh has to know of the study's layout in floats: channels lie plane after plane, a word is an input.
#pragma once
#include "mma_tile.cuh"

struct Planes {
    using Value = float;

    // Words from a row of inputs to the next: with stride 1, far enough apart in the banks for 8 pixels and 4 taps.
    static constexpr int PITCH = U > 1 || (W % 32 >= 12 && W % 32 <= 20) ? W : W + (44 - W % 32) % 32;
    static constexpr int PLANE = INPUT_ROWS * PITCH, WORDS = CHANNELS * R * S, INPUT_WORDS = CHANNELS * PLANE;

    // What a warp copies at a time: some rows of a channel where they are short, else a part of a row; and what it
    // copies before it goes on to the next channel or row.
    static constexpr int WARP_ROWS = W < WARP ? WARP / W : 1;
    static constexpr int UNIT_ROWS = W < WARP ? INPUT_ROWS : 1, UNITS = CHANNELS * INPUT_ROWS / UNIT_ROWS;

    // The tile's outputs in shared memory: a row of pixels per filter, whose length spreads a warp's over the banks.
    static constexpr int TILE_PITCH = TILE_PIXELS + (40 - TILE_PIXELS % 32) % 32;
    static constexpr int TILE_WORDS = TILE_FILTERS * TILE_PITCH;

    // Word k of a chunk's depth is tap (c, r, s), its inputs lie [CHANNELS][INPUT_ROWS][PITCH].
    static __device__ __forceinline__ int word(int k)
    {
        return k / (R * S) * PLANE + k / S % R * PITCH + k % S;
    }

    // The first input of a pixel's window, in the tile's `row` of outputs.
    static __device__ __forceinline__ int pixel(int row, int column)
    {
        return row * U * PITCH + column * U;
    }

    static __device__ __forceinline__ float filter(const float* w, int m, int chunk, int k)  // w [M][C][R][S]
    {
        const int c = chunk * CHANNELS + k / (R * S);
        return c < C ? w[((size_t)m * C + c) * R * S + k % (R * S)] : 0;
    }

    // Calls body(c, row, column) for the inputs of a chunk that this thread copies.
    template <class Body>
    static __device__ __forceinline__ void for_inputs(Body body)
    {
        const int lane = threadIdx.x % WARP, lane_row = W < WARP ? lane / W : 0, lane_column = lane - lane_row * W;
        if (lane_row >= WARP_ROWS) return;
        for (int unit = threadIdx.x / WARP; unit < UNITS; unit += WARPS) {
            const int c = unit * UNIT_ROWS / INPUT_ROWS, first = unit * UNIT_ROWS % INPUT_ROWS + lane_row;
#pragma unroll UNROLLED_COPIES
            for (int row = 0; row < UNIT_ROWS; row += WARP_ROWS)
#pragma unroll UNROLLED_COPIES
                for (int column = 0; column < W; column += WARP)
                    if ((row + WARP_ROWS <= UNIT_ROWS || row + lane_row < UNIT_ROWS) &&
                        (W < WARP || column + WARP <= W || column + lane < W))
                        body(c, first + row, lane_column + column);
        }
    }

    // Starts the copies of the rows from `first_row` on; what lies beyond the last row or channel becomes zero.
    template <int parts>
    static __device__ __forceinline__ void copy(unsigned* to, const float* x, int first_row, int chunk)  // x [C][H][W]
    {
        const int channels = C - chunk * CHANNELS, rows = H - first_row;
        x += ((size_t)chunk * CHANNELS * H + first_row) * W;
        for_inputs([=](int c, int row, int column) {
            copy_async_4(to + (c * PLANE + row * PITCH + column) * parts, x + (c * H + row) * W + column,
                         c < channels && row < rows);
        });
    }

    // Splits or rounds the inputs that this thread has copied.
    template <class Arithmetic>
    static __device__ __forceinline__ void round(unsigned* inputs)
    {
        for_inputs([=](int c, int row, int column) {
            unsigned* const at = inputs + (c * PLANE + row * PITCH + column) * Arithmetic::PARTS;
            Arithmetic::round(at, __uint_as_float(*at));
        });
    }

    static __device__ __forceinline__ int shared_place(int filter, int pixel)
    {
        return filter * TILE_PITCH + pixel;
    }

    static __device__ __forceinline__ int filter_of(int output)
    {
        return output / TILE_PIXELS;
    }

    static __device__ __forceinline__ int pixel_of(int output)
    {
        return output % TILE_PIXELS;
    }

    // Stores four pixels of a filter, which odd planes do not align.
    static __device__ __forceinline__ void store(float* y, int n, int m, int pixel, float4 outputs)  // y [N][M][PIXELS]
    {
        if (m >= M) return;
        y += ((size_t)n * M + m) * PIXELS + pixel;
        const float values[4] = {outputs.x, outputs.y, outputs.z, outputs.w};
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (pixel + i < PIXELS) y[i] = values[i];
    }
};
