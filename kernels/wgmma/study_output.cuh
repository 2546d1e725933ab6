// Stores sums as floats in the study's order, y [N][M][E][F], and takes the powers of two back out.
//
// Threads that share a row of sums have neighbouring filters, whose outputs lie a plane apart.  So the sums go through
// shared memory and leave it along the rows, whose pixels are mostly neighbours in y too.
#pragma once
#include "blocked.cuh"
#include "scaling.cuh"
#include "warpgroups.cuh"

static_assert(FILTER_UNITS == 1);
constexpr int SKEW = 4;  // floats that a filter's rows are longer: the four threads of a row write 8 banks apart

// Where the sums of a row go, and what they are to be multiplied with: two powers of two, since one may not do.
struct OutputRow {
    float* plane;  // of filter 0; none where the row is no output
    float first, second;

    __device__ __forceinline__ void find(float* y, const int* exponents, const int* filter_exponent, int pixel)
    {
        const int n = pixel < 0 ? 0 : pixel / PIXELS;
        const int exponent = -load_early(exponents + n) - load_early(filter_exponent);
        plane = pixel < 0 ? nullptr : y + (size_t)n * M * PIXELS + pixel % PIXELS;
        first = power_of_two(exponent / 2);
        second = power_of_two(exponent - exponent / 2);
    }

    // Stores this row's sum of each `step`-th filter from `filter` on.
    template <int count>
    __device__ __forceinline__ void store(const float (&sums)[count], int filter, int step) const
    {
        if (!plane) return;
#pragma unroll
        for (int i = 0; i < count; ++i)
            if (M % TILE_FILTERS == 0 || filter + i * step < M)
                plane[(size_t)(filter + i * step) * PIXELS] = sums[i] * first * second;
    }
};

// Writes some filters' sums of a unit to shared memory, [filters][pitch]; `first` is the first of them among the sums.
template <int filters, int pitch>
__device__ __forceinline__ void turn(const float (&sums)[SUMS], int first, float* turned)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x % WARPGROUP / LANES;
    float* const writes = turned + lane % 4 * 2 * pitch + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < filters / 2; ++i)
        writes[(i / 4 * 8 + i % 2) * pitch + i / 2 % 2 * 8] = sums[first / 2 + i];
}

// The consumers store their sums themselves, a unit at a time.  `Where` says which pixel of the batch a row is.
template <class Where>
struct StudyOutput {
    // Filters on their way at a time.  While some are stored, the next are written to the other of two buffers.
    static constexpr int FILTERS = 16, BUFFERS = 2, PITCH = UNIT + SKEW;
    static constexpr int BYTES = CONSUMERS * BUFFERS * FILTERS * PITCH * sizeof(float);
    static_assert(TILE_FILTERS % (BUFFERS * FILTERS) == 0);

    float* y;                    // [N][M][E][F]
    const int* exponents;        // [N]: of the inputs' powers of two
    const int* filter_exponent;  // [1]
    Where where;

    // A thread's two rows of each unit.  Found before the products: behind the stores of a tile a load waits for long.
    struct Rows {
        OutputRow rows[UNITS][2];
    };

    __device__ __forceinline__ Rows find(int first_row) const
    {
        Rows found;
#pragma unroll
        for (int u = 0; u < UNITS; ++u)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + u * UNIT + half * LANES + threadIdx.x % LANES;
                found.rows[u][half].find(y, exponents, filter_exponent, where.pixel(row));
            }
        return found;
    }

    __device__ __forceinline__ void store(const float (&sums)[UNITS][SUMS], const Rows& found, int first_filter,
                                          unsigned char* memory) const
    {
#pragma unroll
        for (int u = 0; u < UNITS; ++u) store_unit(sums[u], found.rows[u][0], found.rows[u][1], first_filter, memory);
    }

    __device__ __forceinline__ void store_unit(const float (&sums)[SUMS], const OutputRow& low, const OutputRow& high,
                                               int first_filter, unsigned char* memory) const
    {
        const int consumer = threadIdx.x / WARPGROUP - 1, warp = threadIdx.x % WARPGROUP / LANES;
        const int lane = threadIdx.x % LANES;
        float* const buffers = reinterpret_cast<float*>(memory) + consumer * BUFFERS * FILTERS * PITCH;
        constexpr int GROUPS_OF_FILTERS = TILE_FILTERS / FILTERS, WARPS = WARPGROUP / LANES, COUNT = FILTERS / WARPS;
        turn<FILTERS, PITCH>(sums, 0, buffers);
#pragma unroll
        for (int group = 0; group < GROUPS_OF_FILTERS; ++group) {
            // All sums of these filters are there; and all of the group before are read, which the next overwrites.
            named_barrier(1 + consumer, WARPGROUP);
            // A warp stores 32 neighbouring rows of every fourth filter, and then the next 32.  All are loaded before
            // the first is stored, and the next group is written meanwhile: volatile, or the compiler would put each
            // load where its value is stored.
            const volatile float* const column = buffers + (group % BUFFERS * FILTERS + warp) * PITCH + lane;
            float of_low[COUNT], of_high[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                of_low[i] = column[i * WARPS * PITCH];
                of_high[i] = column[i * WARPS * PITCH + LANES];
            }
            if (group + 1 < GROUPS_OF_FILTERS)
                turn<FILTERS, PITCH>(sums, (group + 1) * FILTERS, buffers + (group + 1) % BUFFERS * FILTERS * PITCH);
            low.store(of_low, first_filter + group * FILTERS + warp, WARPS);
            high.store(of_high, first_filter + group * FILTERS + warp, WARPS);
        }
    }
};
