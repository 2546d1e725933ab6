// What networks compute between convolutions, of arrays with the channels innermost: batch norms with their activation,
// gates and pooling.  The shape is an argument of the launch; one compilation serves every shape.  No rung uses it.
//
// All are bound by memory: a thread loads and stores 16 bytes of a pixel's channels at a time, and computes in fp32.
// Arrays may be slices of channels of larger ones: a pixel begins PITCH elements after the one before.
//
// affine: the activation of x times a factor and plus a shift of each channel.  gate: x times the sigmoid of a number of
// each image and channel.  pool: the largest value of a window, or the mean; windows end at the plane's border.  means:
// the mean of each plane; a block sums some chunks of channels of an image, its threads' sums are added in a tree.
// pool_planes: pool of x in planes, so that a large array need not be brought into the other order before it is pooled; a
// warp computes neighbouring pixels of a row, so that its loads are coalesced.  layer_norm: a warp normalizes a pixel's
// channels, which stay in its registers.
#include "activation.cuh"

#if ELEMENT_BYTES == 2
#include <cuda_fp16.h>
using Element = __half;
#else
using Element = float;
#endif

constexpr int THREADS = 256, VECTOR = 16 / sizeof(Element);  // as in library/pixels.py

union Chunk {
    uint4 word;
    Element values[VECTOR];
};

__device__ __forceinline__ Chunk load(const Element* from) { return {*reinterpret_cast<const uint4*>(from)}; }

__device__ __forceinline__ void store(Element* to, const float (&values)[VECTOR])
{
    Chunk chunk;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) chunk.values[i] = Element(values[i]);
    *reinterpret_cast<uint4*>(to) = chunk.word;
}

// A thread's pixel of all, and its first channel.
struct Place {
    long long pixel;
    int c;

    __device__ __forceinline__ static Place of(long long channels)
    {
        const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
        const int chunks = channels / VECTOR;
        if (i >> 32) return {i / chunks, int(i % chunks) * VECTOR};
        return {unsigned(i) / unsigned(chunks), int(unsigned(i) % unsigned(chunks)) * VECTOR};  // a quarter of the time
    }
};

struct Affine {
    long long pixels, C, x_pitch, y_pitch;
    Activation activation;
};

constexpr int TOGETHER = 4;  // pixels of a thread: all are loaded before the first is stored

extern "C" __global__ void __launch_bounds__(THREADS)
    affine(const Element* __restrict__ x,      // [pixels][C], x_pitch apart
           const float* __restrict__ factors,  // [C]
           const float* __restrict__ shifts,   // [C]
           Element* __restrict__ y,            // [pixels][C], y_pitch apart
           Affine of)
{
    const Place place = Place::of(of.C);
    const long long first = place.pixel * TOGETHER;
    if (first >= of.pixels) return;
    Chunk chunks[TOGETHER];
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k)
        if (first + k < of.pixels) chunks[k] = load(x + (first + k) * of.x_pitch + place.c);
    alignas(16) float of_chunk[2][VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i += 4) {
        *reinterpret_cast<float4*>(of_chunk[0] + i) = *reinterpret_cast<const float4*>(factors + place.c + i);
        *reinterpret_cast<float4*>(of_chunk[1] + i) = *reinterpret_cast<const float4*>(shifts + place.c + i);
    }
#pragma unroll
    for (int k = 0; k < TOGETHER; ++k) {
        if (first + k >= of.pixels) return;
        float values[VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR; ++i)
            values[i] = activated(of.activation, float(chunks[k].values[i]) * of_chunk[0][i] + of_chunk[1][i]);
        store(y + (first + k) * of.y_pitch + place.c, values);
    }
}

struct Gate {
    long long pixels, plane, C, x_pitch;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    gate(const Element* __restrict__ x,      // [pixels][C], x_pitch apart
         const Element* __restrict__ gates,  // [N][C], before the sigmoid
         Element* __restrict__ y,            // [pixels][C]
         Gate of)
{
    const Place place = Place::of(of.C);
    if (place.pixel >= of.pixels) return;
    const Chunk chunk = load(x + place.pixel * of.x_pitch + place.c);
    const Chunk own = load(gates + place.pixel / of.plane * of.C + place.c);
    float values[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) values[i] = __fdividef(float(chunk.values[i]), 1 + __expf(-float(own.values[i])));
    store(y + place.pixel * of.C + place.c, values);
}

struct Pool {
    long long N, H, W, C, E, F, R, S, U, V, top, left, x_pitch, y_pitch, mean;
};

extern "C" __global__ void __launch_bounds__(THREADS)
    pool(const Element* __restrict__ x,  // [N][H][W][C], pixels x_pitch apart
         Element* __restrict__ y,        // [N][E][F][C], pixels y_pitch apart
         Pool of)
{
    const Place place = Place::of(of.C);
    const int E = of.E, F = of.F, W = of.W;
    if (place.pixel >= of.N * E * F) return;
    const int n = place.pixel / (E * F), e = place.pixel / F % E, f = place.pixel % F;
    const int top = e * int(of.U) - int(of.top), left = f * int(of.V) - int(of.left);
    const int bottom = min(top + int(of.R), int(of.H)), right = min(left + int(of.S), W);
    x += (long long)n * of.H * W * of.x_pitch + place.c;
    float values[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) values[i] = of.mean ? 0 : -INFINITY;
    for (int h = max(top, 0); h < bottom; ++h)
        for (int w = max(left, 0); w < right; ++w) {
            const Chunk chunk = load(x + ((long long)h * W + w) * of.x_pitch);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                const float value = chunk.values[i];
                if (of.mean)
                    values[i] += value;
                else if (values[i] == values[i] && !(value <= values[i]))  // the first NaN is the largest
                    values[i] = value;
            }
        }
    if (of.mean)
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) values[i] /= of.R * of.S;
    store(y + place.pixel * of.y_pitch + place.c, values);
}

constexpr int LANES = 32;

extern "C" __global__ void __launch_bounds__(THREADS)
    pool_planes(const Element* __restrict__ x,  // [N][C][H][W]
                Element* __restrict__ y,        // [N][E][F][C], pixels y_pitch apart
                Pool of)
{
    const int E = of.E, F = of.F, H = of.H, W = of.W, C = of.C, tiles = (F + LANES - 1) / LANES;
    const int f = blockIdx.x % tiles * LANES + threadIdx.x % LANES, e = blockIdx.x / tiles % E;
    const long long n = blockIdx.x / tiles / E;
    if (f >= F) return;
    const int top = e * int(of.U) - int(of.top), left = f * int(of.V) - int(of.left);
    const int bottom = min(top + int(of.R), H), right = min(left + int(of.S), W);
    for (int c = threadIdx.x / LANES * VECTOR; c < C; c += THREADS / LANES * VECTOR) {
        float values[VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            const Element* const plane = x + (n * C + c + i) * H * W;
            float largest = -INFINITY;
            for (int h = max(top, 0); h < bottom; ++h)
                for (int w = max(left, 0); w < right; ++w) {
                    const float value = plane[h * W + w];
                    if (largest == largest && !(value <= largest)) largest = value;  // the first NaN is the largest
                }
            values[i] = largest;
        }
        store(y + ((n * E + e) * F + f) * of.y_pitch + c, values);
    }
}

constexpr int MOST_CHUNKS = 4;  // of a lane

struct LayerNorm {
    long long pixels, C, x_pitch, eps_bits;  // the bits of eps, a float
};

// The sum over a warp, in every lane.
__device__ __forceinline__ float of_warp(float value)
{
#pragma unroll
    for (int apart = LANES / 2; apart; apart /= 2) value += __shfl_xor_sync(0xffffffff, value, apart);
    return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    layer_norm(const Element* __restrict__ x,        // [pixels][C], x_pitch apart
               const Element* __restrict__ factors,  // [C]
               const Element* __restrict__ shifts,   // [C]
               Element* __restrict__ y,              // [pixels][C]
               LayerNorm of)
{
    const long long pixel = (long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    if (pixel >= of.pixels) return;
    const int lane = threadIdx.x % LANES, C = of.C;
    float values[MOST_CHUNKS][VECTOR] = {}, sum = 0, squares = 0;
#pragma unroll
    for (int j = 0; j < MOST_CHUNKS; ++j) {
        const int c = (j * LANES + lane) * VECTOR;
        if (c >= C) continue;
        const Chunk chunk = load(x + pixel * of.x_pitch + c);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) sum += values[j][i] = float(chunk.values[i]);
    }
    const float mean = of_warp(sum) / C;
#pragma unroll
    for (int j = 0; j < MOST_CHUNKS; ++j)
        if ((j * LANES + lane) * VECTOR < C)
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) squares += (values[j][i] - mean) * (values[j][i] - mean);
    const float scale = rsqrtf(of_warp(squares) / C + __int_as_float(int(of.eps_bits)));
#pragma unroll
    for (int j = 0; j < MOST_CHUNKS; ++j) {
        const int c = (j * LANES + lane) * VECTOR;
        if (c >= C) continue;
        const Chunk factor = load(factors + c), shift = load(shifts + c);
#pragma unroll
        for (int i = 0; i < VECTOR; ++i)
            values[j][i] = (values[j][i] - mean) * scale * float(factor.values[i]) + float(shift.values[i]);
        store(y + pixel * C + c, values[j]);
    }
}

constexpr int SUMMING_THREADS = 1024;

struct Means {
    long long N, pixels, C, x_pitch, columns;  // of pixels of an image; chunks of a block, a power of two
};

extern "C" __global__ void __launch_bounds__(SUMMING_THREADS)
    means(const Element* __restrict__ x,  // [N][pixels][C], pixels x_pitch apart
          Element* __restrict__ y,        // [N][C]
          Means of)
{
    __shared__ float sums[VECTOR][SUMMING_THREADS];  // neighbouring threads' in neighbouring banks
    const int columns = of.columns, chunks = of.C / VECTOR, blocks = (chunks + columns - 1) / columns;
    const long long n = blockIdx.x / blocks;
    const int chunk = blockIdx.x % blocks * columns + threadIdx.x % columns, pixels = of.pixels;
    float sum[VECTOR] = {};
    if (chunk < chunks) {
        x += n * pixels * of.x_pitch + chunk * VECTOR;
#pragma unroll 4
        for (int pixel = threadIdx.x / columns; pixel < pixels; pixel += SUMMING_THREADS / columns) {
            const Chunk values = load(x + pixel * of.x_pitch);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) sum[i] += float(values.values[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sums[i][threadIdx.x] = sum[i];
    for (int half = SUMMING_THREADS / 2; half >= columns; half /= 2) {
        __syncthreads();  // the sums that the next step adds are complete
        if (threadIdx.x < half)
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) sums[i][threadIdx.x] += sums[i][threadIdx.x + half];
    }
    if (threadIdx.x >= columns || chunk >= chunks) return;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sum[i] = sums[i][threadIdx.x] / pixels;
    store(y + n * of.C + chunk * VECTOR, sum);
}
