// Implicit GEMM whose filters stay in shared memory, of floats in two parts each.
//
// The gather of warpgroups.cuh brings the filters again with every tile, and a pixel once for each tap that meets it.
// Here a block has all filters, both parts, as long as it lives, and a stage is one row of the filter in 16 channels:
// as the rows of a tile are neighbouring positions of the blocked input's rows, what the next tap of the row meets lies
// one row further, so that a stage serves all taps of its row.
//
// Nothing is swizzled: eight channels of neighbouring pixels are 16 bytes each and follow each other, in memory and in
// shared memory, and a matrix may begin with any of them.
//
// Each of two consumers has tiles of its own, and they take turns on the tensor cores: while one multiplies the other
// stores its sums.
#pragma once
#include "study_output.cuh"

constexpr int PARTS = 2, SLICE_CHUNKS = STEP / CHUNK;  // of a factor; of the channels of one product
constexpr int SLICES = (BLOCKED_C + STEP - 1) / STEP;
constexpr int STAGES_OF_TILE = BLOCKED_R * SLICES;
constexpr int POSITIONS = E * BLOCKED_W;          // of an image; those beyond the outputs of their row are no outputs
constexpr int STAGE_ROWS = UNIT + BLOCKED_S - 1;  // what the taps of a row meet
constexpr int FILTER_ROWS = PARTS * TILE_FILTERS;
constexpr int STAGE_PLANE = STAGE_ROWS * sizeof(Chunk), FILTER_PLANE = FILTER_ROWS * sizeof(Chunk);
static_assert(M <= TILE_FILTERS && UNITS == 1 && CONSUMERS == 2);

// A tensor core truncates when it adds: so the products of big parts have sums of their own, and those of the first
// half of a tile's stages others than those of the second.
constexpr int HALVES = 2, FIRST_STAGES = (STAGES_OF_TILE + 1) / HALVES;

// One row of the filter's taps, in 16 channels.
struct ResidentStage {
    Chunk planes[PARTS * SLICE_CHUNKS][STAGE_ROWS];  // of each part, eight channels at a time
};

using FilterSlice = Chunk[SLICE_CHUNKS][FILTER_ROWS];  // of one tap: the big parts of all filters, then the small ones

struct Resident {
    FilterSlice filters[STAGES_OF_TILE][BLOCKED_S];
    ResidentStage stages[STAGES];
    alignas(sizeof(Chunk)) unsigned char output[StudyOutput<EveryRow>::BYTES];
    Barrier full[STAGES], empty[STAGES], filters_there[STAGES_OF_TILE], turn[CONSUMERS];
};

// Rows of the sums are positions.
struct ResidentPositions {
    int images;

    // The pixel of a position, or -1.
    __device__ __forceinline__ int pixel(int row) const
    {
        const int n = row / POSITIONS, e = row % POSITIONS / BLOCKED_W, f = row % BLOCKED_W;
        return n < images && f < F ? n * PIXELS + e * F + f : -1;
    }
};

// Each warp of the producer brings a plane of every stage, eight channels of one part; the first also brings, before
// the first stage of each kind, the filters that meet it.
constexpr int PRODUCERS = PARTS * SLICE_CHUNKS;
static_assert(PRODUCERS == WARPGROUP / LANES);

__device__ __forceinline__ void produce(Resident& shared,
                                        // Both [N][CHUNKS][PLANE_H][PLANE_W][CHUNK]:
                                        const __half* const (&pixels)[PARTS],
                                        const __half* filters,  // [STAGES_OF_TILE][BLOCKED_S] slices
                                        int images, int tiles, int warp)
{
    const int chunk = warp % SLICE_CHUNKS;
    const __half* const plane = warp < SLICE_CHUNKS ? pixels[0] : pixels[1];
    Place<STAGES> place;
    for (int tile = blockIdx.x; tile < tiles; tile += BLOCKS) {
        const int first = tile * UNIT, rows = min(STAGE_ROWS, images * POSITIONS - first);
        const int first_n = first / POSITIONS, first_position = first % POSITIONS;
        for (int i = 0; i < STAGES_OF_TILE; ++i) {
            if (warp == 0 && tile == blockIdx.x) {
                constexpr int BYTES = sizeof(shared.filters[i]);
                barrier_arrive_expecting(&shared.filters_there[i], BYTES);
                load_bytes(shared.filters[i], filters + i * (BYTES / sizeof(__half)), &shared.filters_there[i], BYTES);
            }
            // With an odd number of chunks the last is brought twice, and meets zeros.
            const int of_pixel = min(i % SLICES * SLICE_CHUNKS + chunk, CHUNKS - 1);
            Barrier* const full = &shared.full[place.stage];
            barrier_wait(&shared.empty[place.stage], place.parity ^ 1);  // a consumer has read the stage
            barrier_arrive_expecting(full, rows * sizeof(Chunk));
            int n = first_n, position = first_position;
            for (int row = 0; row < rows; ++n, position = 0) {  // images that the tile has rows of
                const int together = min(rows - row, POSITIONS - position);
                const size_t from = ((size_t)n * CHUNKS + of_pixel) * (BLOCKED_H * BLOCKED_W) +
                                    i / SLICES * BLOCKED_W + position;
                load_bytes(&shared.stages[place.stage].planes[warp][row], plane + from * CHUNK, full,
                           together * sizeof(Chunk));
                row += together;
            }
            place.advance();
        }
    }
}

// The products of a tap, added to the sums of big parts and to those of big with small ones, or the first of them.
// `pixels` describes its big parts and `filters` those of all filters; the small ones lie further.
__device__ __forceinline__ void multiply_tap(float (&big)[SUMS], float (&small)[SUMS], MatrixDescriptor pixels,
                                             MatrixDescriptor filters, bool add_big, bool add_small)
{
    const MatrixDescriptor small_pixels = shift_matrix(pixels, SLICE_CHUNKS * STAGE_PLANE);
    const MatrixDescriptor small_filters = shift_matrix(filters, TILE_FILTERS * int(sizeof(Chunk)));
    warpgroup_fence();
    multiply_half(small, small_pixels, filters, add_small);
    multiply_half(small, pixels, small_filters, true);
    multiply_half(big, pixels, filters, add_big);  // the product of two small parts is below the sum's precision
    warpgroup_close_group();
}

// Products are short here, and few can wait in line: whatever else there is to do for a stage is done between the taps
// of the one before, a little at a time.  All stages are written out, so that with a ring of one tile's stages every
// address is known but for a constant.
__device__ __forceinline__ void consume(Resident& shared, const StudyOutput<ResidentPositions>& output, int tiles)
{
    const int consumer = same_in_warp(threadIdx.x / WARPGROUP) - 1;
    const MatrixDescriptor first_pixels = describe_planes(shared.stages[0].planes[0], STAGE_PLANE);
    const MatrixDescriptor first_filters = describe_planes(shared.filters[0][0][0], FILTER_PLANE);
    Place<STAGES> place;
    if (consumer == 1) place.skip<STAGES_OF_TILE>();
    unsigned waits_for = consumer == 0 ? 1 : 0;  // the first consumer has the first turn
    auto rows = output.find((blockIdx.x + consumer * BLOCKS) * UNIT);
    for (int tile = blockIdx.x + consumer * BLOCKS; tile < tiles; tile += CONSUMERS * BLOCKS) {
        const auto wait_for_stage = [&](int i) {
            if (tile < CONSUMERS * BLOCKS) barrier_wait(&shared.filters_there[i], 0);
            barrier_wait(&shared.full[place.stage], place.parity);  // the stage's bytes have come
            // The other consumer may begin: no stage of this tile is still to come, so it cannot take one for its own.
            if (i == STAGES_OF_TILE - 1) release(&shared.turn[1 - consumer]);
        };
        float big[HALVES][SUMS], small[SUMS];
        int current = 0, previous = 0;
        barrier_wait(&shared.turn[consumer], waits_for);  // the other consumer has all its stages
        wait_for_stage(0);
#pragma unroll
        for (int half = 0; half < HALVES; ++half) {
            const int first = half == 0 ? 0 : FIRST_STAGES, end = half == 0 ? FIRST_STAGES : STAGES_OF_TILE;
#pragma unroll
            for (int i = first; i < end; ++i) {
                current = place.stage;
                place.advance();
                const MatrixDescriptor pixels = shift_matrix(first_pixels, current * int(sizeof(ResidentStage)));
                const MatrixDescriptor filters = shift_matrix(first_filters, i * int(sizeof(shared.filters[0])));
#pragma unroll
                for (int s = 0; s < BLOCKED_S; ++s) {
                    multiply_tap(big[half], small, shift_matrix(pixels, s * int(sizeof(Chunk))),
                                 shift_matrix(filters, s * int(sizeof(FilterSlice))), i > first || s > 0,
                                 i > 0 || s > 0);
                    if (s == 0) {
                        warpgroup_wait<1>();
                        if (i > 0) release(&shared.empty[previous]);
                    }
                    if ((s == BLOCKED_S - 2 || BLOCKED_S == 1) && i < STAGES_OF_TILE - 1) wait_for_stage(i + 1);
                }
                previous = current;
            }
        }
        // Behind the stores of this tile the next one's exponents would come late.
        const auto next_rows = output.find((tile + CONSUMERS * BLOCKS) * UNIT);
        warpgroup_wait<0>();
        release(&shared.empty[previous]);
        float sums[1][SUMS];
#pragma unroll
        for (int i = 0; i < SUMS; ++i) {
            sums[0][i] = big[0][i] + small[i];
            if (FIRST_STAGES < STAGES_OF_TILE) sums[0][i] += big[1][i];
        }
        output.store(sums, rows, 0, shared.output);
        rows = next_rows;
        place.skip<STAGES_OF_TILE>();
        waits_for ^= 1;
    }
}

// The whole kernel.
__device__ __forceinline__ void multiply_resident(const __half* const (&pixels)[PARTS],
                                                  const __half* filters, int images,
                                                  const StudyOutput<ResidentPositions>& output)
{
    DYNAMIC_SHARED(Resident, resident);
    Resident& shared = *resident;
    if (threadIdx.x == 0) {
        constexpr int WARPS = WARPGROUP / LANES;
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&shared.full[stage], PRODUCERS);
            barrier_init(&shared.empty[stage], WARPS);
        }
        for (int i = 0; i < STAGES_OF_TILE; ++i) barrier_init(&shared.filters_there[i], 1);
        for (int consumer = 0; consumer < CONSUMERS; ++consumer) barrier_init(&shared.turn[consumer], WARPS);
        barrier_init_fence();
    }
    __syncthreads();  // the barriers are ready before anybody uses one
    const int tiles = (images * POSITIONS + UNIT - 1) / UNIT;
    if (threadIdx.x < WARPGROUP) {
        warpgroup_give_registers<PRODUCER_REGISTERS>();
        const int warp = same_in_warp(threadIdx.x / LANES);
        if (threadIdx.x % LANES == 0) produce(shared, pixels, filters, images, tiles, warp);
    } else {
        warpgroup_take_registers<CONSUMER_REGISTERS>();
        consume(shared, output, tiles);
    }
}

// Block (i, s) writes what meets tap s of the stages' i-th kind, scaled by a power of two that is the same for all, and
// is noted.  Rows beyond the filters and channels beyond the input's are zero.
__device__ __forceinline__ void prepare_resident_filters(const float* __restrict__ w,       // [M][C][R][S]
                                                         const float* __restrict__ ranges,  // [FILTER_RANGES]
                                                         int* __restrict__ exponent,        // [1]
                                                         // [STAGES_OF_TILE][BLOCKED_S] slices:
                                                         __half* __restrict__ filters)
{
    const float power = power_of_two(exponent_of_filters(ranges, exponent));
    const int blocked_r = blockIdx.x / SLICES, slice = blockIdx.x % SLICES, blocked_s = blockIdx.y;
    __half* const to = filters + (size_t)(blockIdx.x * BLOCKED_S + blocked_s) * (sizeof(FilterSlice) / sizeof(__half));
    for (int i = threadIdx.x; i < STEP * TILE_FILTERS; i += BLOCK_THREADS) {
        const int k = i % CHUNK, m = i / CHUNK % TILE_FILTERS, chunk = i / (CHUNK * TILE_FILTERS);
        const int depth = slice * STEP + chunk * CHUNK + k, c = depth / DEPTH;
        const int r = blocked_r * U + depth / U % U, s = blocked_s * U + depth % U;
        __half halves[PARTS];
        const bool inside = m < M && c < C && r < R && s < S;
        split<PARTS>(inside ? w[(((size_t)m * C + c) * R + r) * S + s] * power : 0.0f, halves);
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
            to[(chunk * FILTER_ROWS + part * TILE_FILTERS + m) * CHUNK + k] = halves[part];
    }
}
