// The weights that a warp multiplies, in that order and through all stages, on their way into its part of shared memory.
//
// Gives: Stream; SLOTS, SLOT_BYTES; first_step.
// Needs: SLOTS, a constant; network.cuh.
//
// Weights depend on nothing that the network computes, so their copies run ahead of the products, also while the block
// waits for others: as far as there are slots.  A warp fills the slot that it has just used, so no other warp need wait.
#pragma once
#include "../arch/hopper.cuh"
#include "network.cuh"

constexpr int THREADS = LADDER_PERSISTENT_THREADS, WARP = 32, WARPS = THREADS / WARP;
constexpr int FRAGMENT_BYTES = ROWS * DEPTH * int(sizeof(Half));  // of a product
constexpr int SLOT_BYTES = 2 * FRAGMENT_BYTES;

// Steps of DEPTH through a stage's taps and channels, which the warps share.
constexpr int steps_of(int s)
{
    return STAGES[s].R * STAGES[s].S * STAGES[s].C / DEPTH;
}
__device__ __forceinline__ int first_step(int steps, int warp)
{
    return steps * warp / WARPS;
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
    char* slots;         // [SLOTS][SLOT_BYTES], the warp's
    Mbarrier* arrivals;  // [SLOTS], likewise
    int warp;
    int stage = -1, tile = 0;  // what is copied next
    size_t at = 0, end = 0;    // bytes
    int filled = 0, taken = 0;  // slots
    unsigned parity = 0;        // of the slot that is taken next

    __device__ __forceinline__ Stream(const char* weights, char* slots, Mbarrier* arrivals, int warp)
        : weights(weights), slots(slots), arrivals(arrivals), warp(warp)
    {
        next_tile();
        for (int slot = 0; slot < SLOTS; ++slot) fill();
    }

    // The bytes of a tile's filters, of this warp's steps.
    __device__ __forceinline__ void bytes_of(const Source& source, int tile, size_t& first, size_t& last) const
    {
        const size_t steps = (size_t)(tile % source.filter_tiles) * source.steps, begin = (size_t)source.begin * 16;
        first = begin + (steps + first_step(source.steps, warp)) * source.step_bytes;
        last = begin + (steps + first_step(source.steps, warp + 1)) * source.step_bytes;
    }

    __device__ __forceinline__ void next_tile()
    {
        while (at == end && stage < COUNT) {
            tile += gridDim.x;
            while (stage < 0 || tile >= SOURCES[stage].tiles) {
                tile = blockIdx.x;
                if (++stage == COUNT) return;
            }
            bytes_of(SOURCES[stage], tile, at, end);
        }
    }

    // Begins the copy of the next weights to the slot that is free.
    __device__ __forceinline__ void fill()
    {
        if (stage == COUNT) return;
        const unsigned bytes = end - at < SLOT_BYTES ? unsigned(end - at) : SLOT_BYTES;
        if (threadIdx.x % WARP == 0) {
            mbarrier_arrive_expect_tx(&arrivals[filled], bytes);
            tma_load_bulk(slots + filled * SLOT_BYTES, weights + at, &arrivals[filled], bytes);
        }
        filled = filled + 1 == SLOTS ? 0 : filled + 1;
        at += bytes;
        next_tile();
    }

    // Waits for the next slot's weights.
    __device__ __forceinline__ const char* take()
    {
        mbarrier_wait(&arrivals[taken], parity);
        return slots + taken * SLOT_BYTES;
    }

    // Gives the slot back.
    __device__ __forceinline__ void give_back()
    {
        __syncwarp();  // every lane has read its weights
        fill();
        if (++taken == SLOTS) taken = 0, parity ^= 1;
    }
};
