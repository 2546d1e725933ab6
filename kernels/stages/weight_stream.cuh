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

// What a stage's stream is made of; a stage of few channels has none.
struct Source {
    unsigned begin;  // bytes / 16
    int tiles, filter_tiles, steps, step_bytes;
};
template <int s>
constexpr Source source_of()
{
    using Tiles = Tiling<s>;
    return {unsigned(STAGES[s].WEIGHTS), s < COUNT && !Tiles::FEW_CHANNELS ? Tiles::TILES : 0, Tiles::FILTER_TILES,
            steps_of(s), STAGES[s].FILTER_ROWS * FRAGMENT_BYTES};
}
__constant__ Source SOURCES[MOST] = {source_of<0>(), source_of<1>(), source_of<2>(), source_of<3>(),
                                     source_of<4>(), source_of<5>(), source_of<6>(), source_of<7>(),
                                     source_of<8>(), source_of<9>(), source_of<10>(), source_of<11>()};

struct Stream {
    const char* weights;
    char* slots;  // [SLOTS][SLOT_BYTES], the warp's
    int warp;
    int stage = -1, tile = 0;   // what is copied next
    size_t at = 0, end = 0;     // bytes
    int filled = 0, taken = 0;  // slots

    __device__ __forceinline__ Stream(const char* weights, char* slots, int warp)
        : weights(weights), slots(slots), warp(warp)
    {
        next_tile();
        for (int slot = 0; slot < SLOTS; ++slot) fill();
    }

    // Where a tile's filters begin.
    __device__ __forceinline__ size_t begin_of(const Source& source, int tile) const
    {
        return (size_t)source.begin * 16 + (size_t)(tile % source.filter_tiles) * source.steps * source.step_bytes;
    }

    __device__ __forceinline__ void next_tile()
    {
        while (at >= end && stage < COUNT) {
            tile += gridDim.x;
            while (stage < 0 || tile >= SOURCES[stage].tiles) {
                tile = blockIdx.x;
                if (++stage == COUNT) return;
            }
            const Source& source = SOURCES[stage];
            at = begin_of(source, tile);
            end = at + (size_t)source.steps * source.step_bytes;
            at += (size_t)warp * SLOT_BYTES;
        }
    }

    // Begins the copy of the next weights to the slot that is free.
    __device__ __forceinline__ void fill()
    {
        constexpr int TOGETHER = WARP * 16;  // bytes
        if (stage < COUNT) {
            const int lane_bytes = threadIdx.x % WARP * 16;
#pragma unroll
            for (int i = 0; i < SLOT_BYTES; i += TOGETHER)
                if (at + i < end)
                    copy_async_16(slots + filled * SLOT_BYTES + i + lane_bytes, weights + at + i + lane_bytes, true);
            filled = filled + 1 == SLOTS ? 0 : filled + 1;
            at += WARPS * SLOT_BYTES;
            next_tile();
        }
        copy_async_commit_group();  // perhaps an empty one: their number says which slot is full
    }

    // Waits for the next slot's weights.
    __device__ __forceinline__ const char* take()
    {
        copy_async_wait_group<SLOTS - 1>();
        return slots + taken * SLOT_BYTES;
    }

    // Gives the slot back.
    __device__ __forceinline__ void give_back()
    {
        fill();
        taken = taken + 1 == SLOTS ? 0 : taken + 1;
    }
};
