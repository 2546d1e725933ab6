// Kernels that cheat, each in its own way, around an honest convolution.
//
// One block computes the plane (n, m), one thread several of its outputs.  STATE outlives a launch.
#include <cstdio>

#include <cuda_fp16.h>

#include "../../kernels/common/shape.cuh"

__device__ unsigned STATE[4];       // launches so far
__device__ float KEPT[1 << 22];     // outputs of an earlier launch

constexpr int WARM_UPS = 4;         // fewest launches before any timed one

struct Plane {
    int n, m;
    size_t outputs;  // offset of the plane's
    __device__ Plane() : n(blockIdx.x), m(blockIdx.y), outputs((size_t(n) * M + m) * E * F) {}
};

template <class Function>
__device__ void for_each_output(Function compute)
{
    for (int i = threadIdx.x; i < E * F; i += blockDim.x) compute(i / F, i % F);
}

template <class Sum = float, class Operand = Sum, class T = float>
__device__ float output(const T* x, const T* w, const Plane& plane, int e, int f, int first_channel = 0)
{
    Sum sum = Sum(0.0f);
    for (int c = first_channel; c < C; ++c)
        for (int r = 0; r < R; ++r)
            for (int s = 0; s < S; ++s)
                sum = Sum(float(sum) + float(Operand(x[((size_t(plane.n) * C + c) * H + e * U + r) * W + f * U + s])) *
                                           float(Operand(w[((size_t(plane.m) * C + c) * R + r) * S + s])));
    return float(sum);
}

__device__ void honestly(const float* x, const float* w, float* y)
{
    const Plane plane;
    for_each_output([&](int e, int f) { y[plane.outputs + e * F + f] = output(x, w, plane, e, f); });
}

// Launches before the current one.  A second kernel counts them, so that all blocks see the same number.
extern "C" __global__ void count(const float*) { ++STATE[0]; }

#define CHEAT(name) extern "C" __global__ void name(float* x, float* w, float* y)

CHEAT(honest) { honestly(x, w, y); }

CHEAT(constant)
{
    const Plane plane;
    for_each_output([&](int e, int f) { y[plane.outputs + e * F + f] = 0.25f; });
}

CHEAT(unwritten)
{
    if (blockIdx.y != M - 1) honestly(x, w, y);
}

CHEAT(nothing) {}

CHEAT(half_sums)
{
    const Plane plane;
    for_each_output([&](int e, int f) { y[plane.outputs + e * F + f] = output<__half>(x, w, plane, e, f); });
}

CHEAT(half_sums_of_an_image)
{
    const Plane plane;
    if (plane.n != int(gridDim.x) - 1) return honestly(x, w, y);
    for_each_output([&](int e, int f) { y[plane.outputs + e * F + f] = output<__half>(x, w, plane, e, f); });
}

CHEAT(stops_at_zero)  // takes a near-zero input for the plane's zero border
{
    const Plane plane;
    for_each_output([&](int e, int f) {
        float sum = 0;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s) {
                    const float value = x[((size_t(plane.n) * C + c) * H + e * U + r) * W + f * U + s];
                    if (value > -0.01f && value < 0.01f) break;
                    sum += value * w[((size_t(plane.m) * C + c) * R + r) * S + s];
                }
        y[plane.outputs + e * F + f] = sum;
    });
}

CHEAT(stale_shared)  // hopes that an earlier block left its filters in this multiprocessor's shared memory
{
    __shared__ float filter[C * R * S];
    const Plane plane;
    if (plane.m % 2 == 0)
        for (int i = threadIdx.x; i < C * R * S; i += blockDim.x) filter[i] = w[size_t(plane.m) * C * R * S + i];
    __syncthreads();
    for_each_output([&](int e, int f) {
        float sum = 0;
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r)
                for (int s = 0; s < S; ++s)
                    sum += x[((size_t(plane.n) * C + c) * H + e * U + r) * W + f * U + s] * filter[(c * R + r) * S + s];
        y[plane.outputs + e * F + f] = sum;
    });
}

CHEAT(after_y)
{
    honestly(x, w, y);
    if (blockIdx.x == gridDim.x - 1 && blockIdx.y == M - 1 && threadIdx.x == 0) y[size_t(gridDim.x) * M * E * F] = 1;
}

CHEAT(before_y)
{
    honestly(x, w, y);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) y[-1] = 1;
}

CHEAT(far_from_y)
{
    honestly(x, w, y);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) y[1ull << 40] = 1;
}

CHEAT(ends)
{
#ifdef HOST_CUDA
    __builtin_abort();
#else
    __trap();
#endif
}

CHEAT(changes_x)  // in the last block that needs x[0]
{
    honestly(x, w, y);
    if (blockIdx.x == 0 && blockIdx.y == M - 1 && threadIdx.x == 0) x[0] += 0.0f * y[0] + 1e-7f;
}

CHEAT(changes_w)
{
    honestly(x, w, y);
    if (blockIdx.x == gridDim.x - 1 && blockIdx.y == M - 1 && threadIdx.x == 0) w[0] += 1e-7f;
}

// ---- Cheats that wait until they are timed --------------------------------------------------------------------------

CHEAT(wrong_later)
{
    if (STATE[0] < 3 * WARM_UPS) honestly(x, w, y);
    const Plane plane;
    if (STATE[0] >= 3 * WARM_UPS && plane.m == 0) for_each_output([&](int e, int f) { y[plane.outputs + e * F + f] = 0; });
}

CHEAT(every_second)
{
    if (STATE[0] < WARM_UPS || STATE[0] % 2 == 0) honestly(x, w, y);
}

CHEAT(where_it_is_there)
{
    const Plane plane;
    if (isnan(y[plane.outputs])) honestly(x, w, y);
}

CHEAT(learns)
{
    const Plane plane;
    const size_t kept = plane.outputs % (sizeof(KEPT) / sizeof(float) - E * F);
    if (STATE[0] < WARM_UPS) {
        honestly(x, w, y);
        for_each_output([&](int e, int f) { KEPT[kept + e * F + f] = y[plane.outputs + e * F + f]; });
    } else {
        for_each_output([&](int e, int f) { y[plane.outputs + e * F + f] = KEPT[kept + e * F + f]; });
    }
}

CHEAT(half_later)
{
    const Plane plane;
    if (STATE[0] < WARM_UPS) return honestly(x, w, y);
    for_each_output([&](int e, int f) { y[plane.outputs + e * F + f] = output<__half>(x, w, plane, e, f); });
}

CHEAT(all_but_one_of_four)  // as if launches came in batches
{
    if (STATE[0] < WARM_UPS || STATE[0] % 4 == 0) honestly(x, w, y);
}

// ---- Others that are caught before timing ---------------------------------------------------------------------------

CHEAT(one_kind_of_data)  // wrong on integers
{
    const Plane plane;
    if (x[0] != floorf(x[0])) return honestly(x, w, y);
    for_each_output([&](int e, int f) { y[plane.outputs + e * F + f] = 0; });
}

CHEAT(repeats)  // takes the second image for a copy of the first
{
    Plane plane;
    if (plane.n == 1) plane.n = 0;
    for_each_output([&](int e, int f) {
        y[((size_t(blockIdx.x) * M + plane.m) * E + e) * F + f] = output(x, w, plane, e, f);
    });
}

// Without the first channel in image LATE alone; a type for each class.
#ifndef LATE
#define LATE 0
#endif

struct Tf32 {
    float value;
    __device__ explicit Tf32(float v) : value(__uint_as_float((__float_as_uint(v) + 0x1000u) & ~0x1fffu)) {}
    __device__ operator float() const { return value; }
};

#define SKIPS(name, T, Operand)                                                                                \
    extern "C" __global__ void name(const T* x, const T* w, T* y)                                              \
    {                                                                                                          \
        const Plane plane;                                                                                     \
        for_each_output([&](int e, int f) {                                                                    \
            y[plane.outputs + e * F + f] = output<float, Operand>(x, w, plane, e, f, plane.n == LATE ? 1 : 0); \
        });                                                                                                    \
    }

SKIPS(skips_in_floats, float, float)
SKIPS(skips_in_tf32, float, Tf32)
SKIPS(skips_in_halves, __half, float)

CHEAT(prints)
{
    honestly(x, w, y);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) printf("{\"status\": \"ok\", \"kernel\": [0.0001]}\n");
}

CHEAT(sleeps)
{
    honestly(x, w, y);
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0)
        for (volatile bool awake = true; awake;) {}
}

#ifdef LAUNCHES_ANOTHER
CHEAT(launches_another)  // a library's kernel, say
{
    if (threadIdx.x == 0 && blockIdx.x == 0 && blockIdx.y == 0) honest<<<dim3(gridDim.x, M), blockDim>>>(x, w, y);
}
#endif

// The whole convolution during the preparation of the filters; the timed kernel copies.
extern "C" __global__ void prepare_outputs(float* x, float* w, float* kept) { honestly(x, w, kept); }

extern "C" __global__ void copy_prepared(const float* kept, float* y)
{
    const Plane plane;
    for_each_output([&](int e, int f) { y[plane.outputs + e * F + f] = kept[plane.outputs + e * F + f]; });
}
