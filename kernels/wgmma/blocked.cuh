// A layer in the form that tensor cores like: channels innermost, a multiple of eight of them, and stride 1.
//
// A stride of U becomes depth: U x U neighbouring pixels are one, with U*U times the channels, and the filter shrinks by
// U along each axis (space-to-depth).  Depth (c*U + i)*U + j of the pixel in row h, column w is input channel c at row
// h*U + i, column w*U + j; what lies beyond the input or the filter is zero.  With U = 1 only the order of the axes
// changes.
#pragma once
#include "halves.cuh"

constexpr int DEPTH = U * U;
constexpr int BLOCKED_C = (C * DEPTH + CHUNK - 1) / CHUNK * CHUNK;
constexpr int BLOCKED_R = (R + U - 1) / U, BLOCKED_S = (S + U - 1) / U;
constexpr int BLOCKED_H = E + BLOCKED_R - 1, BLOCKED_W = F + BLOCKED_S - 1;
// Neighbouring pixels of a row are neighbours in memory, so one row of a filter is one run of so many taps.
constexpr int RUN = BLOCKED_S * BLOCKED_C;

// What the product of matrices has (warpgroups.cuh): rows for the pixels of an image, and runs of taps.
constexpr int PIXELS = E * F, ROW_PIXELS = F, RUNS = BLOCKED_R;

// Eight halves, read or written at once.
struct alignas(16) Chunk {
    unsigned pairs[CHUNK / 2];
};

// A block writes BLOCK_DEPTH depths of BLOCK_PIXELS neighbouring pixels of a row of one image.  With stride 1 a whole
// plane is one row, PLANE_H x PLANE_W = 1 x BLOCKED_H * BLOCKED_W: nothing there depends on where its rows end.
constexpr int BLOCK_PIXELS = U <= 4 ? 64 : 32;
constexpr int BLOCK_C = U == 1 ? 64 : U == 2 ? 16 : U % 4 == 0 ? 4 : 8;
constexpr int BLOCK_DEPTH = BLOCK_C * DEPTH, BLOCK_CHUNKS = BLOCK_DEPTH / CHUNK;
constexpr int PLANE_H = U == 1 ? 1 : BLOCKED_H, PLANE_W = U == 1 ? BLOCKED_H * BLOCKED_W : BLOCKED_W;
constexpr int INPUT_H = U == 1 ? 1 : H, INPUT_W = U == 1 ? H * W : W;
constexpr int TILES_ACROSS = (PLANE_W + BLOCK_PIXELS - 1) / BLOCK_PIXELS;
// In shared memory a pixel's depths follow each other.  Its pitch is an odd number of 4-byte words, so neither lanes with
// neighbouring pixels nor lanes with neighbouring chunks meet in a bank.
constexpr int DEPTH_PITCH = BLOCK_DEPTH + 2;
static_assert(BLOCK_DEPTH % CHUNK == 0 && DEPTH_PITCH / 2 % 2 == 1);

// Tiles of an image: groups of channels, and for each so many tiles along the pixels.
constexpr int GROUPS = (BLOCKED_C + BLOCK_DEPTH - 1) / BLOCK_DEPTH, TILES = TILES_ACROSS * PLANE_H;

// How a blocked image lies: the place of a chunk, counted in chunks, and which pixel and chunk of a tile is the i-th
// that is written.  Neighbours in memory follow each other.
constexpr int CHUNKS = BLOCKED_C / CHUNK;

// [N][PLANE_H][PLANE_W][BLOCKED_C]
struct ChannelsInnermost {
    static __device__ __forceinline__ int chunk(int i) { return i % BLOCK_CHUNKS; }
    static __device__ __forceinline__ int pixel(int i) { return i / BLOCK_CHUNKS; }

    static __device__ __forceinline__ size_t place(int n, int h, int w, int depth)
    {
        return (((size_t)n * PLANE_H + h) * PLANE_W + w) * CHUNKS + depth / CHUNK;
    }
};

// [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]
struct ChunkPlanes {
    static __device__ __forceinline__ int chunk(int i) { return i / BLOCK_PIXELS; }
    static __device__ __forceinline__ int pixel(int i) { return i % BLOCK_PIXELS; }

    static __device__ __forceinline__ size_t place(int n, int h, int w, int depth)
    {
        return (((size_t)n * CHUNKS + depth / CHUNK) * PLANE_H + h) * PLANE_W + w;
    }
};

// The tile of a block: where it begins, and the halves on their way from one order to the other.
template <int parts, class Layout = ChannelsInnermost>
struct InputTile {
    __half* depths;  // [parts][BLOCK_PIXELS][DEPTH_PITCH], in shared memory
    int n, h, first_w, first_c;

    __device__ __forceinline__ InputTile(float4* memory, int tile, int group, int image)
        : depths(reinterpret_cast<__half*>(memory)),
          n(image),
          h(tile / TILES_ACROSS),
          first_w(tile % TILES_ACROSS * BLOCK_PIXELS),
          first_c(group * BLOCK_C)
    {
    }

    // Reads floats times `power`; returns the thread's largest absolute value.  A line is a row of a channel: a warp reads
    // 32 neighbouring columns of it at a time, and a thread the same column of one line after the other.
    __device__ __forceinline__ float read(const float* __restrict__ x,  // [N][C][H][W]
                                          float power) const
    {
        constexpr int SEGMENTS = BLOCK_PIXELS * U / LANES, LINES = (C < BLOCK_C ? C : BLOCK_C) * U;
        constexpr int ABREAST = SEGMENTS < BLOCK_WARPS ? BLOCK_WARPS / SEGMENTS : 1;  // lines that the block reads at once
        constexpr int READS = (LINES + ABREAST - 1) / ABREAST;                        // of a thread
        constexpr int TOGETHER = READS < 8 ? READS : 8;                               // under way at a time
        static_assert(BLOCK_PIXELS * U % LANES == 0);
        const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES, first_line = warp / SEGMENTS;
        float largest = 0;
        for (int segment = warp % SEGMENTS; segment < SEGMENTS && first_line < ABREAST; segment += BLOCK_WARPS) {
            const int column = segment * LANES + lane, in_w = first_w * U + column;
            const float* const in = x + (((size_t)n * C + first_c) * INPUT_H + h * U) * INPUT_W + in_w;
            __half* const out = depths + column / U * DEPTH_PITCH + column % U;
#pragma unroll
            for (int first = 0; first < READS; first += TOGETHER) {
                float values[TOGETHER];
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    const int line = (first + i) * ABREAST + first_line, c = line / U, row = line % U;
                    values[i] = 0;
                    if (in_w < INPUT_W && h * U + row < INPUT_H && inside(line, LINES, c))
                        values[i] = in[((size_t)c * INPUT_H + row) * INPUT_W];
                }
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) {
                    const int line = (first + i) * ABREAST + first_line;
                    largest = fmaxf(largest, fabsf(values[i]));
                    if (inside(line, LINES, line / U)) put(out + line * U, values[i] * power);
                }
            }
        }
        return largest;
    }

    // Whether a line is one of the tile's; mostly known when the kernel is compiled.
    __device__ __forceinline__ bool inside(int line, int lines, int c) const
    {
        return line < lines && (C <= BLOCK_C || C % BLOCK_C == 0 || first_c + c < C);
    }

    __device__ __forceinline__ void put(__half* out, float value) const
    {
        __half halves[parts];
        split<parts>(value, halves);
#pragma unroll
        for (int part = 0; part < parts; ++part) out[part * BLOCK_PIXELS * DEPTH_PITCH] = halves[part];
    }

    // Reads halves whose channels are innermost: a thread the same column and channel of one row after the other.
    __device__ __forceinline__ void read(const __half* __restrict__ x) const  // [N][H][W][C]
    {
        constexpr int CHANNELS = C < BLOCK_C ? C : BLOCK_C;
#pragma unroll 4
        for (int i = threadIdx.x; i < BLOCK_PIXELS * U * CHANNELS; i += BLOCK_THREADS) {
            const int c = i % CHANNELS, column = i / CHANNELS, in_w = first_w * U + column;
            const __half* const in = x + (((size_t)n * INPUT_H + h * U) * INPUT_W + in_w) * C + first_c + c;
            __half* const out = depths + column / U * DEPTH_PITCH + c * DEPTH + column % U;
            if (first_c + c >= C) continue;
            __half values[U];
#pragma unroll
            for (int row = 0; row < U; ++row) {
                values[row] = __float2half_rn(0);
                if (in_w < INPUT_W && h * U + row < INPUT_H) values[row] = in[(size_t)row * INPUT_W * C];
            }
#pragma unroll
            for (int row = 0; row < U; ++row) out[row * U] = values[row];
        }
    }

    __device__ __forceinline__ void write(__half* const (&blocked)[parts]) const
    {
#pragma unroll
        for (int i = threadIdx.x; i < BLOCK_PIXELS * BLOCK_CHUNKS; i += BLOCK_THREADS) {
            const int chunk = Layout::chunk(i), pixel = Layout::pixel(i);
            const int w = first_w + pixel, depth = first_c * DEPTH + chunk * CHUNK;
            if (w >= PLANE_W || depth >= BLOCKED_C) continue;
#pragma unroll
            for (int part = 0; part < parts; ++part) {
                const __half* const from = depths + (part * BLOCK_PIXELS + pixel) * DEPTH_PITCH + chunk * CHUNK;
                Chunk halves;
#pragma unroll
                for (int pair = 0; pair < CHUNK / 2; ++pair) {
                    halves.pairs[pair] = reinterpret_cast<const unsigned*>(from)[pair];
                    if constexpr (BLOCKED_C > C * DEPTH) {  // nobody has written the depths beyond the last channel's
                        const int inside = C * DEPTH - depth - 2 * pair;
                        if (inside < 2) halves.pairs[pair] &= inside < 1 ? 0 : 0xffff;
                    }
                }
                // Counted in halves, the address would not tell the compiler that one store will do.
                reinterpret_cast<Chunk*>(blocked[part])[Layout::place(n, h, w, depth)] = halves;
            }
        }
    }
};

// Block (tile, group, n) writes a tile of blocked image n, from halves.
__device__ __forceinline__ void block_native_input(const __half* __restrict__ x,  // [N][H][W][C]
                                                   __half* __restrict__ pixels)   // [N][PLANE_H][PLANE_W][BLOCKED_C]
{
    DYNAMIC_SHARED(float4, tile_memory);
    const InputTile<1> tile(tile_memory, blockIdx.x, blockIdx.y, blockIdx.z);
    tile.read(x);
    __syncthreads();  // the tile is complete before it is read across
    tile.write({pixels});
}

// Block (r, m) writes row r of blocked filter m: [M][BLOCKED_R][RUN].
template <class Filter, int parts>
__device__ __forceinline__ void write_filters(const Filter* __restrict__ w,  // [M][C][R][S]
                                              __half* const (&blocked)[parts], float power)
{
    const int m = blockIdx.y, blocked_r = blockIdx.x;
    for (int i = threadIdx.x; i < RUN; i += BLOCK_THREADS) {
        const int depth = i % BLOCKED_C, c = depth / DEPTH;
        const int r = blocked_r * U + depth / U % U, s = i / BLOCKED_C * U + depth % U;
        const bool inside = c < C && r < R && s < S;
        __half halves[parts];
        split<parts>(inside ? float(w[(((size_t)m * C + c) * R + r) * S + s]) * power : 0.0f, halves);
#pragma unroll
        for (int part = 0; part < parts; ++part)
            blocked[part][((size_t)m * BLOCKED_R + blocked_r) * RUN + i] = halves[part];
    }
}
