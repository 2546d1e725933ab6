// Outputs stored as the next layer's fp16 terms, too: its input need not be converted.
//
// Gives: TermsEpilogue<Where, terms>, an Epilogue of warpgroups.cuh, which without CONV_STORES_TERMS is StudyEpilogue;
// TERM_PARAMETER(type, name), a parameter of an entry point that has it with CONV_STORES_TERMS alone, and TERM(name),
// the argument.
//
// The next layer multiplies the terms of its input times the usual power of two (scaling.cuh).  Whether an image suits
// that is known only when all of it is there.  So the floats are stored as well, and for each pixel the largest magnitude
// of each TERM_FILTERS filters; prepare_outliers of the next layer looks at these, and converts an outlier from the floats.
#pragma once
#include "row_chunks.cuh"
#include "study_epilogue.cuh"

#ifdef CONV_STORES_TERMS
constexpr bool STORES_TERMS = true;
#define TERM_PARAMETER(type, name) , type* __restrict__ name
#define TERM(name) name
static_assert(GROUPS == 1 && Y_CHANNELS == M && M % CHUNK == 0 && TILE_FILTERS % TERM_FILTERS == 0);
#else
constexpr bool STORES_TERMS = false;
#define TERM_PARAMETER(type, name)
#define TERM(name) nullptr
#endif
#ifdef CONV_TAKES_TERMS
static_assert(SIDE == 1 && PRODUCTS == 1 && BLOCKED_C == C && BLOCKED_H == H && BLOCKED_W == W && !POOLS);
#endif

SIZE(STORED_RANGES, (M + TERM_FILTERS - 1) / TERM_FILTERS);  // words of a pixel

template <class Where, int terms>
struct TermsEpilogue : StudyEpilogue<Where> {
    using Study = StudyEpilogue<Where>;

    unsigned* ranges;       // [N][STORED_RANGES][E * F]
    __half* planes[terms];  // [N][E * F][M]

    struct Rows {
        typename Study::Rows outputs;
        int first;
    };

    __device__ __forceinline__ Rows find(int first_row, int first_filter) const
    {
        return {Study::find(first_row, first_filter), first_row};
    }

    __device__ __forceinline__ void store(const float (&accumulators)[WGMMAS][ACCUMULATORS], const Rows& found,
                                          int first_filter, unsigned char* memory) const
    {
        Study::store(accumulators, found.outputs, first_filter, memory);
        if constexpr (STORES_TERMS) store_terms(accumulators, found.first, first_filter);
    }

    // A thread has two rows of each wgmma, and their pairs of filters of TERM_FILTERS at a time.
    __device__ __forceinline__ void store_terms(const float (&accumulators)[WGMMAS][ACCUMULATORS], int first_row,
                                                int first_filter) const
    {
        const int lane = threadIdx.x % LANES, quarter = lane % 4;
        const int own_row = first_row + threadIdx.x % WARPGROUP / LANES * 16 + lane / 4;
        OutputRow rows[WGMMAS][2];
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
            for (int half = 0; half < 2; ++half)
                rows[u][half].find(this->exponents, this->where.pixel(own_row + u * WGMMA_ROWS + 8 * half));
#pragma unroll
        for (int group = 0; group < TILE_FILTERS / TERM_FILTERS; ++group) {
            const int filter = first_filter + group * TERM_FILTERS;
            const OfPairs own(*this, filter + quarter * 2);
#pragma unroll
            for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    store_row(&accumulators[u][group * 16 + 2 * half], rows[u][half],
                              own_row + u * WGMMA_ROWS + 8 * half, filter, own);
        }
    }

    // The factors and biases of a thread's pairs, from the first one's filter on.
    struct OfPairs {
        float factors[4][2], biases[4][2];
        bool scaled = true;  // whether all filters have an exponent

        __device__ __forceinline__ OfPairs(const TermsEpilogue& of, int first)
        {
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int filter = first + j * CHUNK + i;
                    const int exponent = filter < M ? of.filter_exponents[filter] : 0;
                    scaled &= exponent != NO_EXPONENT;
                    factors[j][i] = power_of_two(-exponent);
                    if constexpr (HAS_BIAS) biases[j][i] = filter < M ? of.added.bias[filter] : 0;
                }
        }
    };

    // Stores the terms and the range of a row's TERM_FILTERS outputs, together with its other three threads.
    __device__ __forceinline__ void store_row(const float* sums, const OutputRow& row, int of_product, int filter,
                                              const OfPairs& own) const
    {
        const int quarter = threadIdx.x % 4, pixel = this->where.pixel(of_product);
        const float power = power_of_two(USUAL_EXPONENT);
        unsigned pairs[terms][4], largest = own.scaled && row.has_exponent() ? 0 : UNKNOWN_RANGE;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            __half of_value[2][terms];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float sum = sums[j * 4 + i] * row.first * own.factors[j][i] * row.second;
                const float value = activated(HAS_BIAS ? sum + own.biases[j][i] : sum);
                largest = max(largest, magnitude(value));
                split(value * power, of_value[i]);
            }
#pragma unroll
            for (int term = 0; term < terms; ++term) {
                const __half2 pair = __halves2half2(of_value[0][term], of_value[1][term]);
                pairs[term][j] = *reinterpret_cast<const unsigned*>(&pair);
            }
        }
#pragma unroll
        for (int term = 0; term < terms; ++term) {
            const Chunk chunk = chunk_of_row(pairs[term], quarter);
            const int first = filter + quarter * CHUNK;
            if (pixel >= 0 && first < M) *reinterpret_cast<Chunk*>(planes[term] + (size_t)pixel * M + first) = chunk;
        }
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2)
            largest = max(largest, __shfl_xor_sync(0xffffffff, largest, distance));
        if (quarter == 0 && pixel >= 0 && filter < M)
            ranges[((size_t)(pixel / PIXELS) * STORED_RANGES + filter / TERM_FILTERS) * PIXELS + pixel % PIXELS] = largest;
    }
};
