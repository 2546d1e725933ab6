// Implicit GEMM from a window of the input that stays in shared memory.
//
// The gather of warpgroups.cuh brings every input once for each tap of the filter that meets it.  Here the rows of a tile
// are neighbouring positions of the blocked input itself, some of which are no outputs: then what tap (r, s) meets lies
// r * BLOCKED_W + s rows further, for all rows alike.  So a tile's inputs come once, as one window, and a tap is another
// place to begin reading it.  The filters stay in shared memory as long as the block, which takes a layer of few.
//
// Rows have 128 bytes, of which BLOCKED_C halves are used.  Each of two consumers has tiles of its own, and they take
// turns on the tensor cores: while one multiplies the other stores its sums.
#pragma once
#include "blocked.cuh"
#include "warpgroups.cuh"

constexpr int TAPS_OF_FILTER = BLOCKED_R * BLOCKED_S;
constexpr int STEPS_OF_TAP = (BLOCKED_C + STEP - 1) / STEP;
constexpr int POSITIONS = BLOCKED_H * BLOCKED_W;  // of an image
constexpr int TILE_POSITIONS = UNITS * UNIT;      // of a consumer
constexpr int BOX = 64;                           // rows that the copy engine brings at a time
constexpr int FURTHEST = (BLOCKED_R - 1) * BLOCKED_W + BLOCKED_S - 1;
constexpr int WINDOW_BYTES = (TILE_POSITIONS + FURTHEST + BOX - 1) / BOX * BOX * ROW_BYTES;
static_assert(STAGES > 1, "a consumer that skips a phase could not tell it from the next");
static_assert(BLOCKED_C <= TAPS && M <= TILE_FILTERS && FILTER_UNITS == 1 && CONSUMERS == 2);

// Rows of the sums are positions; those in the last columns and rows of the blocked input are no outputs.
struct OutputPositions {
    int images;

    // The pixel of a position, or -1.
    __device__ __forceinline__ int pixel(int row) const
    {
        const int n = row / POSITIONS, h = row % POSITIONS / BLOCKED_W, w = row % POSITIONS % BLOCKED_W;
        return n < images && h < E && w < F ? n * PIXELS + h * F + w : -1;
    }
};

template <int output_bytes>
struct Windows {
    unsigned char windows[STAGES][WINDOW_BYTES];
    unsigned char filters[TAPS_OF_FILTER][FILTER_BYTES];
    unsigned char output[output_bytes];  // for what stores the sums
    Barrier full[STAGES], empty[STAGES], filters_there, turn[CONSUMERS];
};

// Starts the products of a tap for one unit: d = or += the pixels that meet it times its filters.
__device__ __forceinline__ void multiply_tap(float (&d)[SUMS], MatrixDescriptor window, MatrixDescriptor filters, int unit,
                                             int tap, bool add)
{
    constexpr int STEP_BYTES = STEP * sizeof(__half);
    const int row = unit * UNIT + tap / BLOCKED_S * BLOCKED_W + tap % BLOCKED_S;
#pragma unroll
    for (int step = 0; step < STEPS_OF_TAP; ++step)
        multiply_half(d, shift_matrix(window, row * ROW_BYTES + step * STEP_BYTES),
                      shift_matrix(filters, tap * FILTER_BYTES + step * STEP_BYTES), add || step > 0);
}

// A tile's sums, which the tensor cores add up; they truncate each time.
struct TruncatedSums {
    float sums[UNITS][SUMS];

    // Starts all products.
    __device__ __forceinline__ void multiply(MatrixDescriptor window, MatrixDescriptor filters)
    {
        warpgroup_fence();
#pragma unroll
        for (int tap = 0; tap < TAPS_OF_FILTER; ++tap)
#pragma unroll
            for (int u = 0; u < UNITS; ++u) multiply_tap(sums[u], window, filters, u, tap, tap > 0);
        warpgroup_close_group();
    }

    // Waits for the last.
    __device__ __forceinline__ void finish() { warpgroup_wait<0>(); }
};

// The same, but what the tensor cores add up is the sum of a tap, and taps are added up in registers, to nearest: those
// of one unit while the next unit's products are under way.
struct RoundedSums {
    static constexpr int LAST = TAPS_OF_FILTER * UNITS - 1;
    float sums[UNITS][SUMS], of_tap[2][SUMS];

    __device__ __forceinline__ void multiply(MatrixDescriptor window, MatrixDescriptor filters)
    {
#pragma unroll
        for (int i = 0; i <= LAST; ++i) {
            const int tap = i / UNITS, u = i % UNITS;
            warpgroup_fence();
            multiply_tap(tap == 0 ? sums[u] : of_tap[i % 2], window, filters, u, tap, false);
            warpgroup_close_group();
            if (i > UNITS) {
                warpgroup_wait<1>();
                add(i - 1);
            }
        }
    }

    __device__ __forceinline__ void finish()
    {
        warpgroup_wait<0>();
        if (TAPS_OF_FILTER > 1) add(LAST);
    }

    __device__ __forceinline__ void add(int i)
    {
#pragma unroll
        for (int j = 0; j < SUMS; ++j) sums[i % UNITS][j] += of_tap[i % 2][j];
    }
};

// The whole kernel; `Sums` is one of the two above, and `output` as in warpgroups.cuh.
template <class Sums, class Output>
__device__ __forceinline__ void multiply_windows(const TensorMap* position_map,  // of [N * POSITIONS][BLOCKED_C]
                                                 const TensorMap* tap_map,       // of [M][TAPS_OF_FILTER][BLOCKED_C]
                                                 int images, Output output)
{
    DYNAMIC_SHARED(unsigned char, memory);
    const size_t address = reinterpret_cast<size_t>(memory);
    using Memory = Windows<Output::BYTES>;
    Memory& shared = *reinterpret_cast<Memory*>(memory + (ATOM_BYTES - address % ATOM_BYTES) % ATOM_BYTES);
    constexpr int WARPS = WARPGROUP / LANES;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&shared.full[stage], 1);
            barrier_init(&shared.empty[stage], WARPS);
        }
        for (int consumer = 0; consumer < CONSUMERS; ++consumer) barrier_init(&shared.turn[consumer], WARPS);
        barrier_init(&shared.filters_there, 1);
        barrier_init_fence();
    }
    __syncthreads();  // the barriers are ready before anybody uses one
    const int tiles = (images * POSITIONS + TILE_POSITIONS - 1) / TILE_POSITIONS;
    Place<STAGES> place;
    if (threadIdx.x < WARPGROUP) {
        warpgroup_give_registers<PRODUCER_REGISTERS>();
        if (threadIdx.x > 0) return;
        barrier_arrive_expecting(&shared.filters_there, sizeof(shared.filters));
        for (int tap = 0; tap < TAPS_OF_FILTER; ++tap)
            load_box(shared.filters[tap], tap_map, &shared.filters_there, 0, tap, 0);
        wait_for_launches_before();  // which write the positions
        for (int tile = blockIdx.x; tile < tiles; tile += BLOCKS) {
            barrier_wait(&shared.empty[place.stage], place.parity ^ 1);  // its consumer has read the window
            barrier_arrive_expecting(&shared.full[place.stage], WINDOW_BYTES);
            for (int row = 0; row < WINDOW_BYTES / ROW_BYTES; row += BOX)
                load_box(shared.windows[place.stage] + row * ROW_BYTES, position_map, &shared.full[place.stage], 0,
                         tile * TILE_POSITIONS + row, 0);
            place.advance();
        }
        return;
    }
    warpgroup_take_registers<CONSUMER_REGISTERS>();
    wait_for_launches_before();  // which write what the output needs
    const int consumer = same_in_warp(threadIdx.x / WARPGROUP) - 1;
    if (consumer == 1) place.advance();
    unsigned waits_for = consumer == 0 ? 1 : 0;  // the first consumer has the first turn
    barrier_wait(&shared.filters_there, 0);
    for (int tile = blockIdx.x + consumer * BLOCKS; tile < tiles; tile += CONSUMERS * BLOCKS) {
        const auto rows = output.find(tile * TILE_POSITIONS);
        Sums of_tile;
        barrier_wait(&shared.full[place.stage], place.parity);  // the window has come
        barrier_wait(&shared.turn[consumer], waits_for);        // the other consumer has started all its products
        of_tile.multiply(describe_matrix(shared.windows[place.stage]), describe_matrix(shared.filters[0]));
        release(&shared.turn[1 - consumer]);
        of_tile.finish();
        release(&shared.empty[place.stage]);
        output.store(of_tile.sums, rows, 0, shared.output);
        place.advance();
        place.advance();
        waits_for ^= 1;
    }
}
