// Outputs stored as the next layer's fp16 terms, too: its input need not be converted.
//
// Gives: TermsEpilogue<Where, terms>, an Epilogue of warpgroups.cuh, which without CONV_STORES_TERMS is StudyEpilogue;
// RANGE_PARAMETER(name) and TERM_PARAMETER(name), parameters of an entry point that has them with CONV_STORES_TERMS alone,
// and TERM(name), the argument.
//
// The next layer multiplies the terms of its input times the usual power of two (scaling.cuh).  Whether an image suits
// that is known only when all of it is there.  So the floats are stored as well, and for each pixel the largest magnitude
// of each TERM_FILTERS filters; prepare_outliers of the next layer looks at these, and converts an outlier from the floats.
//
// Needs: TILE_FILTERS, a constant of the rung.
#pragma once
#include "row_chunks.cuh"
#include "study_epilogue.cuh"

#ifdef CONV_STORES_TERMS
constexpr bool STORES_TERMS = true;
#define RANGE_PARAMETER(name) , unsigned* __restrict__ name
#define TERM_PARAMETER(name) , __half* __restrict__ name
#define TERM(name) name
static_assert(GROUPS == 1 && Y_CHANNELS == M && !HAS_RESIDUAL && M % CHUNK == 0 && TILE_FILTERS % TERM_FILTERS == 0);
#else
constexpr bool STORES_TERMS = false;
#define RANGE_PARAMETER(name)
#define TERM_PARAMETER(name)
#define TERM(name) nullptr
#endif
#ifdef CONV_TAKES_TERMS
static_assert(SIDE == 1 && PRODUCTS == 1 && BLOCKED_C == C && BLOCKED_H == H && BLOCKED_W == W && !POOLS);
#endif

SIZE(STORED_RANGES, (M + TERM_FILTERS - 1) / TERM_FILTERS);  // words of a pixel

template <class Where, int terms>
struct TermsEpilogue : StudyEpilogue<Where> {
    using Study = StudyEpilogue<Where>;
    static constexpr int GROUPS_OF_FILTERS = TILE_FILTERS / TERM_FILTERS;

    unsigned* ranges;       // [N][STORED_RANGES][E * F]
    __half* planes[terms];  // [N][E * F][M]

    // Besides those of Study a thread's two rows of each wgmma, of which it has pairs of filters.  A lane has the factor and
    // the bias of the filter with its number in each group, which shuffles pass on: a thread's own, loaded in the epilogue,
    // would not fit beside the accumulators.
    struct Rows {
        typename Study::Rows outputs;
        int first;
        OutputRow rows[WGMMAS][2];
        float factors[GROUPS_OF_FILTERS], biases[HAS_BIAS ? GROUPS_OF_FILTERS : 1];
        bool scaled[GROUPS_OF_FILTERS];  // whether all filters of a group have an exponent
    };

    __device__ __forceinline__ Rows find(int first_row, int first_filter) const
    {
        Rows found;
        found.outputs = Study::find(first_row, first_filter);
        found.first = first_row + threadIdx.x % WARPGROUP / LANES * 16 + threadIdx.x % LANES / 4;
        if constexpr (STORES_TERMS) {
#pragma unroll
            for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    found.rows[u][half].find(this->exponents, pixel_of(found, u, half));
#pragma unroll
            for (int group = 0; group < GROUPS_OF_FILTERS; ++group) {
                const int filter = min(first_filter + group * TERM_FILTERS + int(threadIdx.x % LANES), M - 1);
                const int exponent = load_now(this->filter_exponents + filter);
                found.factors[group] = power_of_two(-exponent);
                found.scaled[group] = __all_sync(0xffffffff, exponent != NO_EXPONENT);
                if constexpr (HAS_BIAS) found.biases[group] = load_now(this->added.bias + filter);
            }
        }
        return found;
    }

    __device__ __forceinline__ int pixel_of(const Rows& found, int u, int half) const
    {
        return this->where.pixel(found.first + u * WGMMA_ROWS + 8 * half);
    }

    __device__ __forceinline__ void store(const float (&accumulators)[WGMMAS][ACCUMULATORS], const Rows& found,
                                          int first_filter, unsigned char* memory) const
    {
        Study::store(accumulators, found.outputs, first_filter, memory);
        if constexpr (STORES_TERMS)
#pragma unroll
            for (int group = 0; group < GROUPS_OF_FILTERS; ++group) store_group(accumulators, found, first_filter, group);
    }

    // Stores the terms and ranges of TERM_FILTERS filters of the thread's rows.
    __device__ __forceinline__ void store_group(const float (&accumulators)[WGMMAS][ACCUMULATORS], const Rows& found,
                                                int first_filter, int group) const
    {
        float factors[4][2], biases[4][2];  // of the thread's pairs
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int filter = j * CHUNK + threadIdx.x % 4 * 2 + i;  // of the group
                factors[j][i] = __shfl_sync(0xffffffff, found.factors[group], filter);
                if constexpr (HAS_BIAS) biases[j][i] = __shfl_sync(0xffffffff, found.biases[group], filter);
            }
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const OutputRow& row = found.rows[u][half];
                float outputs[4][2];
#pragma unroll
                for (int j = 0; j < 4; ++j)
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        const float sum = row.scaled(accumulators[u][group * 16 + j * 4 + 2 * half + i], factors[j][i]);
                        outputs[j][i] = activated(HAS_BIAS ? sum + biases[j][i] : sum);
                    }
                store_row(outputs, pixel_of(found, u, half), first_filter + group * TERM_FILTERS,
                          found.scaled[group] && row.has_exponent());
            }
    }

    // Stores the terms and the range of TERM_FILTERS outputs of a pixel, together with its other three threads; the range
    // is unknown where these are not the layer's outputs yet.
    __device__ __forceinline__ void store_row(const float (&outputs)[4][2], int pixel, int first_filter, bool known) const
    {
        const int quarter = threadIdx.x % 4, filter = first_filter + quarter * CHUNK;
        const bool there = pixel >= 0 && (M % TILE_FILTERS == 0 || filter < M);
        const float power = power_of_two(USUAL_EXPONENT);
        unsigned pairs[terms][4];
        float largest = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            __half of_pair[2][terms];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                largest = max_nan(largest, fabsf(outputs[j][i]));
                split(outputs[j][i] * power, of_pair[i]);
            }
#pragma unroll
            for (int term = 0; term < terms; ++term) {
                const __half2 pair = __halves2half2(of_pair[0][term], of_pair[1][term]);
                pairs[term][j] = *reinterpret_cast<const unsigned*>(&pair);
            }
        }
#pragma unroll
        for (int term = 0; term < terms; ++term) {
            const Chunk chunk = chunk_of_row(pairs[term], quarter);
            if (there) *reinterpret_cast<Chunk*>(planes[term] + (size_t)pixel * M + filter) = chunk;
        }
        unsigned range = known ? magnitude(largest) : UNKNOWN_RANGE;
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2)
            range = max(range, __shfl_xor_sync(0xffffffff, range, distance));
        if (there && quarter == 0) {
            const int words = pixel / PIXELS * STORED_RANGES + first_filter / TERM_FILTERS;
            ranges[(size_t)words * PIXELS + pixel % PIXELS] = range;
        }
    }
};
