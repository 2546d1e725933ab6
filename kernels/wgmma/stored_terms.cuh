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
static_assert(GROUPS == 1 && Y_CHANNELS == M && !HAS_RESIDUAL && M % CHUNK == 0 && TILE_FILTERS % TERM_FILTERS == 0);
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
struct TermsEpilogue : StudyEpilogue<Where, STORES_TERMS> {
    using Study = StudyEpilogue<Where, STORES_TERMS>;
    static constexpr int GROUPS_OF_FILTERS = TILE_FILTERS / TERM_FILTERS;

    unsigned* ranges;       // [N][STORED_RANGES][E * F]
    __half* planes[terms];  // [N][E * F][M]

    // Those of Study, and of a thread's two rows of each wgmma, of which it has pairs of filters.  A lane has the factor and
    // the bias of the filter with its number in each group, which shuffles pass on: a thread's own, loaded in the epilogue,
    // would not fit beside the accumulators.
    struct Rows {
        typename Study::Rows outputs;
        int first;
        RowFactor rows[WGMMAS][2];
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
                    found.rows[u][half].find(this->exponents,
                                             this->where.pixel(found.first + u * WGMMA_ROWS + 8 * half));
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

    __device__ __forceinline__ void store(const float (&accumulators)[WGMMAS][ACCUMULATORS], const Rows& found,
                                          int first_filter, unsigned char* memory) const
    {
        if constexpr (STORES_TERMS) {
            float outputs[WGMMAS][ACCUMULATORS];
#pragma unroll
            for (int group = 0; group < GROUPS_OF_FILTERS; ++group) {
                finish(accumulators, found, group, outputs);
#pragma unroll
                for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
                    for (int half = 0; half < 2; ++half) store_terms(outputs[u], found, u, half, first_filter, group);
            }
            Study::store(outputs, found.outputs, first_filter, memory);
        } else {
            Study::store(accumulators, found.outputs, first_filter, memory);
        }
    }

    // The outputs of a group of TERM_FILTERS filters.
    static __device__ __forceinline__ void finish(const float (&accumulators)[WGMMAS][ACCUMULATORS], const Rows& found,
                                                  int group, float (&outputs)[WGMMAS][ACCUMULATORS])
    {
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int column = 0; column < 2; ++column) {
                const int filter = j * CHUNK + threadIdx.x % 4 * 2 + column;  // of the group
                const float factor = __shfl_sync(0xffffffff, found.factors[group], filter);
                float bias = 0;
                if constexpr (HAS_BIAS) bias = __shfl_sync(0xffffffff, found.biases[group], filter);
#pragma unroll
                for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int place = group * 16 + j * 4 + 2 * half + column;
                        const float sum = found.rows[u][half].scaled(accumulators[u][place], factor);
                        outputs[u][place] = activated(HAS_BIAS ? sum + bias : sum);
                    }
            }
    }

    // Stores the terms and the range of a group of a row's outputs, together with the row's other three threads.
    __device__ __forceinline__ void store_terms(const float (&outputs)[ACCUMULATORS], const Rows& found, int u, int half,
                                                int first_filter, int group) const
    {
        const int quarter = threadIdx.x % 4, pixel = this->where.pixel(found.first + u * WGMMA_ROWS + 8 * half);
        const float power = power_of_two(USUAL_EXPONENT);
        unsigned pairs[terms][4];
        float largest = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            __half of_value[2][terms];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const float value = outputs[group * 16 + j * 4 + 2 * half + i];
                largest = max_nan(largest, fabsf(value));
                split(value * power, of_value[i]);
            }
#pragma unroll
            for (int term = 0; term < terms; ++term) {
                const __half2 pair = __halves2half2(of_value[0][term], of_value[1][term]);
                pairs[term][j] = *reinterpret_cast<const unsigned*>(&pair);
            }
        }
        const int group_filter = first_filter + group * TERM_FILTERS, filter = group_filter + quarter * CHUNK;
        const bool there = pixel >= 0 && (M % TILE_FILTERS == 0 || filter < M);
#pragma unroll
        for (int term = 0; term < terms; ++term) {
            const Chunk chunk = chunk_of_row(pairs[term], quarter);
            if (there) *reinterpret_cast<Chunk*>(planes[term] + (size_t)pixel * M + filter) = chunk;
        }
        unsigned range = found.scaled[group] && found.rows[u][half].has_exponent() ? magnitude(largest) : UNKNOWN_RANGE;
#pragma unroll
        for (int distance = 1; distance < 4; distance *= 2)
            range = max(range, __shfl_xor_sync(0xffffffff, range, distance));
        if (there && quarter == 0)
            ranges[(pixel / PIXELS * STORED_RANGES + group_filter / TERM_FILTERS) * PIXELS + pixel % PIXELS] = range;
    }
};
