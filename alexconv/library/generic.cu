// A convolution whose shape is an argument of the launch: one compilation serves every shape, stride, padding, dilation
// and number of groups, in any order of axes.  alexconv.library uses it for layers that no rung takes, and for the
// first calls of a shape while its rung compiles and no rung's build for every shape takes it.  No rung uses it.
//
// convolve_tiles: implicit GEMM on CUDA cores.  A block computes TILE filters of a group at TILE output pixels of the
// batch, TAPS taps at a time through shared memory; a thread has SIDE x SIDE accumulators in fp32.  Where a tap lies takes
// several divisions, as no size is known: one thread of the block finds it, a stage ahead, for all that load it.
// convolve_each: a thread per output, for groups with few filters (depthwise).
// finish: adds bias and residual to outputs and applies the activation, in place, for rungs that do not.
#include "activation.cuh"

#if ELEMENT_BYTES == 2
#include <cuda_fp16.h>
using Element = __half;
#else
using Element = float;
#endif

constexpr int TILE = 64, TAPS = 16, SIDE = 4, THREADS = (TILE / SIDE) * (TILE / SIDE);  // as in library/generic.py

struct Steps {
    long long n, c, h, w;  // elements from one to the next along each axis
};

struct Shape {
    long long N, H, W;          // input
    long long M, C, R, S;       // filters of a group; channels of a group
    long long E, F;             // output
    long long U, V, top, left;  // strides, rows and columns of zeros before the plane
    long long apart_r, apart_s, groups;
    Activation activation;
    Steps x, w, y;  // of the filters: along M, C, R, S
};

__device__ __forceinline__ void store(const Shape& shape, const Element* bias, Element* y, long long m, float sum)
{
    if (bias) sum += float(bias[m]);
    *y = Element(activated(shape.activation, sum));
}

__device__ __forceinline__ float input(const Shape& shape, const Element* plane, int h, int w)
{
    const bool inside = h >= 0 && h < shape.H && w >= 0 && w < shape.W;
    return inside ? float(plane[h * shape.x.h + w * shape.x.w]) : 0.0f;
}

// Where a tap of a filter lies: elements from the first tap, in the input and among the filters; rows and columns.
struct Tap {
    long long of_image, of_filter;
    int row, column;

    __device__ __forceinline__ static Tap at(const Shape& shape, int k)
    {
        const int R = shape.R, S = shape.S, s = k % S, rows = k / S, r = rows % R, c = rows / R;
        return {c * shape.x.c, c * shape.w.c + r * shape.w.h + s * shape.w.w, r * (int)shape.apart_r,
                s * (int)shape.apart_s};
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    convolve_tiles(const Element* __restrict__ x,     // [N][groups C][H][W]
                   const Element* __restrict__ w,     // [groups M][C][R][S]
                   const Element* __restrict__ bias,  // [groups M] or none
                   Element* __restrict__ y,           // [N][groups M][E][F]
                   Shape shape)
{
    __shared__ float inputs[TAPS][TILE], filters[TAPS][TILE + 4];  // rows of filters stay aligned to 16 bytes
    __shared__ Tap places[2][TAPS];                                // of this stage and of the next
    const int t = threadIdx.x, M = shape.M, taps = shape.C * shape.R * shape.S;
    const long long plane = shape.E * shape.F, pixels = shape.N * plane;
    const int filter_tiles = (M + TILE - 1) / TILE;
    const long long pixel_tile = blockIdx.x / filter_tiles;
    const int first_m = blockIdx.x % filter_tiles * TILE, group = blockIdx.y;
    x += group * shape.C * shape.x.c;
    w += group * M * shape.w.n;

    // The pixel whose inputs this thread loads, and the input coordinates of its first tap.
    const long long pixel = pixel_tile * TILE + t % TILE;
    const bool valid = pixel < pixels;
    const int e = pixel % plane / shape.F, f = pixel % shape.F;
    const int h = e * (int)shape.U - (int)shape.top, v = f * (int)shape.V - (int)shape.left;
    const Element* const image = x + (valid ? pixel / plane : 0) * shape.x.n;

    float sums[SIDE][SIDE] = {};
    const int row = t / (TILE / SIDE) * SIDE, column = t % (TILE / SIDE) * SIDE;
    if (t < TAPS) places[0][t] = Tap::at(shape, t);
    __syncthreads();  // the first stage's places are complete
    for (int first = 0, stage = 0; first < taps; first += TAPS, stage ^= 1) {
        for (int i = t / TILE; i < TAPS; i += THREADS / TILE) {
            const Tap tap = places[stage][i];
            const bool present = valid && first + i < taps;
            inputs[i][t % TILE] = present ? input(shape, image + tap.of_image, h + tap.row, v + tap.column) : 0.0f;
        }
        const long long of_filter = places[stage][t % TAPS].of_filter;
        for (int i = t / TAPS; i < TILE; i += THREADS / TAPS) {
            const int m = first_m + i;
            const bool present = m < M && first + t % TAPS < taps;
            filters[t % TAPS][i] = present ? float(w[m * shape.w.n + of_filter]) : 0.0f;
        }
        if (t < TAPS) places[stage ^ 1][t] = Tap::at(shape, first + TAPS + t);
        __syncthreads();  // the stage, and the next one's places, are complete
#pragma unroll
        for (int k = 0; k < TAPS; ++k)
            for (int i = 0; i < SIDE; ++i)
                for (int j = 0; j < SIDE; ++j) sums[i][j] += filters[k][row + i] * inputs[k][column + j];
        __syncthreads();  // the stage is read
    }

    for (int j = 0; j < SIDE; ++j) {
        const long long p = pixel_tile * TILE + column + j;
        if (p >= pixels) break;
        Element* const at = y + p / plane * shape.y.n + p % plane / shape.F * shape.y.h + p % shape.F * shape.y.w;
        for (int i = 0; i < SIDE; ++i) {
            const long long m = first_m + row + i;
            if (m < M) store(shape, bias, at + (group * M + m) * shape.y.c, group * M + m, sums[i][j]);
        }
    }
}

// The output with a thread's index, in memory order: channels innermost, or pixels.
struct Output {
    long long n, m;
    int e, f;

    __device__ Output(const Shape& shape, long long i)
    {
        if (i >> 32)
            divide(shape, i);
        else
            divide(shape, unsigned(i));  // in a quarter of the time
    }

    template <class Index>
    __device__ __forceinline__ void divide(const Shape& shape, Index i)
    {
        const Index filters = shape.groups * shape.M, E = shape.E, F = shape.F;
        const bool channels_last = shape.y.c < shape.y.w;
        if (channels_last) m = i % filters, i /= filters;
        f = i % F, i /= F;
        e = i % E, i /= E;
        if (!channels_last) m = i % filters, i /= filters;
        n = i;
    }

    __device__ long long place(const Steps& of) const { return n * of.n + m * of.c + e * of.h + f * of.w; }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    convolve_each(const Element* __restrict__ x, const Element* __restrict__ w, const Element* __restrict__ bias,
                  Element* __restrict__ y, Shape shape)
{
    const long long i = (long long)blockIdx.x * THREADS + threadIdx.x;
    const Output output(shape, i);
    if (output.n >= shape.N) return;
    const int h = output.e * (int)shape.U - (int)shape.top, v = output.f * (int)shape.V - (int)shape.left;
    x += output.n * shape.x.n + output.m / shape.M * shape.C * shape.x.c;
    w += output.m * shape.w.n;
    float sum = 0;
    for (int c = 0; c < shape.C; ++c)
        for (int r = 0; r < shape.R; ++r)
            for (int s = 0; s < shape.S; ++s)
                sum += float(w[c * shape.w.c + r * shape.w.h + s * shape.w.w]) *
                       input(shape, x + c * shape.x.c, h + r * (int)shape.apart_r, v + s * (int)shape.apart_s);
    store(shape, bias, y + output.place(shape.y), output.m, sum);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    finish(const Element* __restrict__ bias,      // [groups M] or none
           const Element* __restrict__ residual,  // [N][groups M][E][F] or none, at the steps of x
           Element* __restrict__ y,               // [N][groups M][E][F]
           Shape shape)
{
    const Output output(shape, (long long)blockIdx.x * THREADS + threadIdx.x);
    if (output.n >= shape.N) return;
    Element* const at = y + output.place(shape.y);
    store(shape, bias, at, output.m, float(*at) + (residual ? float(residual[output.place(shape.x)]) : 0.0f));
}
