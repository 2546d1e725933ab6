// The weights that a warp multiplies, in that order and through all stages, on their way into its shared memory.
//
// Gives: Stream; SLOT_BYTES; steps_of.
// Needs: SLOTS, a constant; network.cuh; LADDER_PERSISTENT_THREADS.
//
// Weights depend on nothing that the network computes, so their copies (cp.async) run ahead of the products, also while
// the block waits for others: as far as there are slots.  A warp fills the slot that it has just used, a lane copies
// what it multiplies itself, and no other thread need wait.
#pragma once
#include "../arch/ampere.cuh"
#include "network.cuh"

constexpr int THREADS = LADDER_PERSISTENT_THREADS, WARP = 32, WARPS = THREADS / WARP;
constexpr int FRAGMENT_BYTES = ROWS * DEPTH * int(sizeof(Half));  // of a product
constexpr int SLOT_BYTES = 2 * FRAGMENT_BYTES;

// Steps of DEPTH through a stage's taps and channels, which the warps share slot by slot.
constexpr int steps_of(int s)
{
    return STAGES[s].R * STAGES[s].S * STAGES[s].C / DEPTH;
}

// The first linear layer; all stages after it are linear, too.
constexpr int first_linear()
{
    int s = 0;
    while (s < COUNT && STAGES[s].H * STAGES[s].W > 1) ++s;
    return s;
}
constexpr int LINEAR = first_linear();

// What a stage's stream is made of; a stage of few channels has none.
struct Source {
    unsigned begin;  // bytes
    int tiles, filter_tiles;
    unsigned tile_bytes;
};
template <int s>
constexpr Source source_of()
{
    using Tiles = Tiling<s>;
    return {unsigned(STAGES[s].WEIGHTS) * 16u, s < COUNT && !Tiles::FEW_CHANNELS ? Tiles::TILES : 0,
            Tiles::FILTER_TILES, unsigned(steps_of(s) * STAGES[s].FILTER_ROWS * FRAGMENT_BYTES)};
}
__constant__ Source SOURCES[MOST] = {source_of<0>(), source_of<1>(), source_of<2>(), source_of<3>(),
                                     source_of<4>(), source_of<5>(), source_of<6>(), source_of<7>(),
                                     source_of<8>(), source_of<9>(), source_of<10>(), source_of<11>()};

// A tile of the block, and what its warp has yet to copy of it: from a byte on, so many, the other warps' included.
struct Remaining {
    int stage, tile;
    unsigned at;
    int bytes;
};

// The next tile of the block of which the warp copies something.  A function of its own: code that runs once has to be
// fetched from memory first.
__device__ __noinline__ Remaining next_tile(int stage, int tile, int warp)
{
    Remaining next{stage, tile, 0, 0};
    while (next.bytes <= 0) {
        next.tile += gridDim.x;
        while (next.stage < 0 || next.tile >= SOURCES[next.stage].tiles) {
            next.tile = blockIdx.x;
            if (++next.stage == COUNT) return next;
        }
        const Source& source = SOURCES[next.stage];
        next.at = source.begin + next.tile % source.filter_tiles * source.tile_bytes + warp * SLOT_BYTES;
        next.bytes = int(source.tile_bytes) - warp * SLOT_BYTES;
    }
    return next;
}

struct Stream {
    const char* weights;
    char* slots;  // [SLOTS][SLOT_BYTES], the warp's
    int warp;
    Remaining next{-1, 0, 0, 0};
    int filled = 0, taken = 0;  // bytes of the ring

    __device__ __forceinline__ Stream(const char* weights, char* slots, int warp)
        : weights(weights), slots(slots), warp(warp)
    {
    }

    // Fills all slots, once.
    __device__ __forceinline__ void begin()
    {
        next = next_tile(-1, 0, warp);
#pragma unroll 1
        for (int slot = 0; slot < SLOTS; ++slot) fill();
    }

    // Begins the copy of the next weights to the slot that is free.
    __device__ __forceinline__ void fill()
    {
        constexpr int TOGETHER = WARP * 16;  // bytes
        const int lane_bytes = threadIdx.x % WARP * 16;
        const char* const from = weights + next.at + lane_bytes;
        char* const to = slots + filled + lane_bytes;
#pragma unroll
        for (int i = 0; i < SLOT_BYTES; i += TOGETHER)
            if (i < next.bytes) copy_async_16(to + i, from + i, true);
        copy_async_commit_group();  // perhaps an empty one: their number says which slot is full
        filled = filled + SLOT_BYTES == SLOTS * SLOT_BYTES ? 0 : filled + SLOT_BYTES;
        next.at += WARPS * SLOT_BYTES;
        next.bytes -= WARPS * SLOT_BYTES;
        if (next.bytes <= 0 && next.stage < COUNT) next = next_tile(next.stage, next.tile, warp);
    }

    // Waits for the next slot's weights.
    __device__ __forceinline__ const char* take()
    {
        copy_async_wait_group<SLOTS - 1>();
        return slots + taken;
    }

    // Gives the slot back.
    __device__ __forceinline__ void give_back()
    {
        fill();
        taken = taken + SLOT_BYTES == SLOTS * SLOT_BYTES ? 0 : taken + SLOT_BYTES;
    }
};
