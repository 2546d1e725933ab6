// The epilogue for the study's arrays: accumulators to float y [N][M][E][F], with the scaling removed.
//
// Gives: StudyEpilogue<Where>, an Epilogue of warpgroups.cuh, window.cuh and resident.cuh.
//
// Threads that share a row of accumulators have neighbouring filters, whose outputs lie a plane apart.  So accumulators
// are transposed through shared memory and stored along the rows, whose pixels are mostly neighbours in y too.
//
// Needs: TILE_FILTERS, a constant of the rung.
#pragma once
#include "../common/bias.cuh"
#include "blocked.cuh"
#include "scaling.cuh"
#include "warpgroups.cuh"

static_assert(WGMMAS_ACROSS == 1);
constexpr int SKEW = 4;  // floats of padding per filter: a row's four threads write 8 banks apart, no bank conflicts

// Where a row's outputs go, and their factor: two powers of two, with the filter's applied between them, so that no
// product leaves a float's range unless the output does.
struct OutputRow {
    long long plane;  // its place in y in the plane of filter 0; negative where the row is no output
    float first, second;

    __device__ __forceinline__ void find(const int* exponents, int pixel)
    {
        const int n = pixel < 0 ? 0 : pixel / PIXELS;
        const int exponent = -load_now(exponents + n);
        plane = pixel < 0 ? -1 : (long long)n * Y_CHANNELS * PIXELS + pixel % PIXELS;
        first = power_of_two(exponent / 2);
        second = power_of_two(exponent - exponent / 2);
    }

    __device__ __forceinline__ float scaled(float sum, float of_filter) const { return sum * first * of_filter * second; }

    // Whether the image has an exponent: all others are less than NO_EXPONENT.
    __device__ __forceinline__ bool has_exponent() const { return second > power_of_two(NO_EXPONENT / 2 - NO_EXPONENT); }

    // Stores this row's output of each `step`-th filter from `filter` on, up to `end`, given the filters' factors and
    // biases.
    template <int count>
    __device__ __forceinline__ void store(float* y, const Addends<float>& added, const float (&sums)[count],
                                          const float (&factors)[count], const float (&biases)[count], int filter,
                                          int step, int end) const
    {
        if (plane < 0) return;
        const size_t first_place = plane + (size_t)filter * PIXELS;
        const int pitch = step * PIXELS;
#pragma unroll
        for (int i = 0; i < count; ++i)
            if (KNOWN(PRODUCT_M % TILE_FILTERS == 0) || filter + i * step < end) {
                const size_t place = first_place + i * pitch;
                const float sum = scaled(sums[i], factors[i]);
                y[place] = added.activated_at(place, HAS_BIAS ? sum + biases[i] : sum);
            }
    }
};

// The shared-memory transpose: writes some filters' accumulators of a tile as [filters][pitch], from filter `first` on.
template <int filters, int pitch>
__device__ __forceinline__ void write_transposed(const float (&accumulators)[ACCUMULATORS], int first,
                                                 float* transposed)
{
    const int lane = threadIdx.x % LANES, warp = threadIdx.x % WARPGROUP / LANES;
    float* const writes = transposed + lane % 4 * 2 * pitch + warp * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < filters / 2; ++i)
        writes[(i / 4 * 8 + i % 2) * pitch + i / 2 % 2 * 8] = accumulators[first / 2 + i];
}

// The consumers store their accumulators, a tile at a time.  Where: maps a row of the product to a pixel of the batch,
// or to none (EveryRow, OutputPositions, ResidentPositions).
template <class Where>
struct StudyEpilogue {
    // Filters transposed at a time, double-buffered: while some are stored, the next are written to the other buffer.
    static constexpr int FILTERS = 16, BUFFERS = 2, PITCH = WGMMA_ROWS + SKEW;
    static constexpr int BYTES = CONSUMERS * BUFFERS * FILTERS * PITCH * sizeof(float);
    static_assert(TILE_FILTERS % (BUFFERS * FILTERS) == 0);

    float* y;                     // [N][Y_CHANNELS][E][F]
    const int* exponents;         // [N]: of the inputs' powers of two
    const int* filter_exponents;  // [M]
    Where where;
    Addends<float> added;

    // A thread's two rows of each wgmma, and the factors and biases of the filters with the thread's number in the
    // tile, or WARPGROUP more.  Loaded before the products: after a tile's stores a load would wait long.
    static constexpr int OWN_FILTERS = (TILE_FILTERS + WARPGROUP - 1) / WARPGROUP;

    struct Rows {
        OutputRow rows[WGMMAS][2];
        float factors[OWN_FILTERS], biases[HAS_BIAS ? OWN_FILTERS : 1];
    };

    __device__ __forceinline__ Rows find(int first_row, int first_filter) const
    {
        Rows found;
#pragma unroll
        for (int i = 0; i * WARPGROUP < TILE_FILTERS; ++i) {
            const int filter = first_filter + i * WARPGROUP + threadIdx.x % WARPGROUP;
            found.factors[i] = power_of_two(-load_now(filter_exponents + min(filter, M - 1)));
            if constexpr (HAS_BIAS) found.biases[i] = bias_of(added.bias, min(filter, M - 1));
        }
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int row = first_row + u * WGMMA_ROWS + half * LANES + threadIdx.x % LANES;
                found.rows[u][half].find(exponents, where.pixel(row));
            }
        return found;
    }

    __device__ __forceinline__ void store(const float (&accumulators)[WGMMAS][ACCUMULATORS], const Rows& found,
                                          int first_filter, unsigned char* memory) const
    {
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
            store_tile(accumulators[u], found, u, first_filter, memory);
    }

    __device__ __forceinline__ void store_tile(const float (&accumulators)[ACCUMULATORS], const Rows& found, int u,
                                               int first_filter, unsigned char* memory) const
    {
        const OutputRow &low = found.rows[u][0], &high = found.rows[u][1];
        const int consumer = threadIdx.x / WARPGROUP - 1, warp = threadIdx.x % WARPGROUP / LANES;
        const int lane = threadIdx.x % LANES;
        float* const buffers = reinterpret_cast<float*>(memory) + consumer * BUFFERS * FILTERS * PITCH;
        constexpr int GROUPS_OF_FILTERS = TILE_FILTERS / FILTERS, WARPS = WARPGROUP / LANES, COUNT = FILTERS / WARPS;
        write_transposed<FILTERS, PITCH>(accumulators, 0, buffers);
        write_factors(found, 0, buffers);
#pragma unroll
        for (int group = 0; group < GROUPS_OF_FILTERS; ++group) {
            // All values of these filters are written; those of the previous group are read, which the next overwrites.
            named_barrier(1 + consumer, WARPGROUP);
            // A warp stores 32 neighbouring rows of every fourth filter, and then the next 32.  All are loaded before
            // the first is stored, and the next group is written meanwhile: volatile, or the compiler would sink each
            // load to the store of its value.
            const volatile float* const column = buffers + (group % BUFFERS * FILTERS + warp) * PITCH + lane;
            float of_low[COUNT], of_high[COUNT], factors[COUNT], biases[COUNT];
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                of_low[i] = column[i * WARPS * PITCH];
                of_high[i] = column[i * WARPS * PITCH + LANES];
                factors[i] = column[i * WARPS * PITCH + WGMMA_ROWS - lane];
                if constexpr (HAS_BIAS) biases[i] = column[i * WARPS * PITCH + WGMMA_ROWS + 1 - lane];
            }
            if (group + 1 < GROUPS_OF_FILTERS) {
                float* const next = buffers + (group + 1) % BUFFERS * FILTERS * PITCH;
                write_transposed<FILTERS, PITCH>(accumulators, (group + 1) * FILTERS, next);
                write_factors(found, group + 1, next);
            }
            const int filter = first_filter + group * FILTERS + warp;
            low.store(y, added, of_low, factors, biases, filter, WARPS, end_of_product(first_filter));
            high.store(y, added, of_high, factors, biases, filter, WARPS, end_of_product(first_filter));
        }
    }

    // Writes the factors and biases of a group of filters into the padding after their rows.
    static __device__ __forceinline__ void write_factors(const Rows& found, int group, float* transposed)
    {
        constexpr int GROUPS = WARPGROUP / FILTERS;  // of filters, served by one factor per thread
        const int filter = threadIdx.x % WARPGROUP;
        if (filter / FILTERS == group % GROUPS) {
            transposed[filter % FILTERS * PITCH + WGMMA_ROWS] = found.factors[group / GROUPS];
            if constexpr (HAS_BIAS) transposed[filter % FILTERS * PITCH + WGMMA_ROWS + 1] = found.biases[group / GROUPS];
        }
    }
};
