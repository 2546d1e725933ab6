// The weights that a warp multiplies, in that order and through all stages, on their way into its shared memory.
//
// Gives: Stream; Segment; SLOT_BYTES; steps_of.
// Needs: SLOTS, a constant; network.cuh; LADDER_PERSISTENT_THREADS.
//
// Weights depend on nothing that the network computes, so their copies (TMA, in bulk) run ahead of the products, also
// while the block waits for others: as far as there are slots.  A warp fills the slot that it has just used.
#pragma once
#include "../arch/hopper.cuh"
#include "network.cuh"

constexpr int THREADS = LADDER_PERSISTENT_THREADS, WARP = 32, WARPS = THREADS / WARP;
constexpr int FRAGMENT_BYTES = ROWS * DEPTH * int(sizeof(Half));  // of a product
constexpr int SLOT_BYTES = 2 * FRAGMENT_BYTES;

// Steps of DEPTH through a stage's taps and channels, which the warps share slot by slot.
constexpr int steps_of(int s)
{
    return STAGES[s].R * STAGES[s].S * STAGES[s].C / DEPTH;
}

// Filters of a tile: from `x` to before `y`, in vectors of 16 bytes.  After a block's last one come two from NONE on.
using Segment = uint2;
constexpr unsigned NONE = 0x80000000;

struct Stream {
    static constexpr unsigned VECTORS = SLOT_BYTES / 16;  // of a slot

    const uint4* weights;
    const Segment* segments;  // the block's, after the next one
    char* slots;              // [SLOTS][SLOT_BYTES], the warp's
    Mbarrier* arrived;        // [SLOTS]
    int warp;
    unsigned at = 0, end = 0;  // vectors: what is copied next, and where the tile's filters end
    Segment next_segment;
    int slot = 0;  // that is taken next, and filled again
    unsigned parity = 0;

    __device__ __forceinline__ Stream(const char* weights, const Segment* segments, char* slots, Mbarrier* arrived,
                                      int warp)
        : weights(reinterpret_cast<const uint4*>(weights)), segments(segments + 1), slots(slots), arrived(arrived),
          warp(warp), next_segment(segments[0])
    {
    }

    // Begins to fill all slots.
    __device__ __forceinline__ void begin()
    {
        if (threadIdx.x % WARP == 0) {
            for (int i = 0; i < SLOTS; ++i) mbarrier_init(arrived + i, 1);
            mbarrier_init_fence();
        }
        __syncwarp();
        pass_on();
#pragma unroll 1
        for (int i = 0; i < SLOTS; ++i) fill(i);
    }

    // Passes on to the next slot of the warp, maybe in a later segment.
    __device__ __forceinline__ void pass_on()
    {
        at += WARPS * VECTORS;
        while (at >= end) {
            at = next_segment.x + warp * VECTORS;
            end = next_segment.y;
            if (next_segment.x < NONE) next_segment = *segments++;  // before it is asked for
        }
    }

    // Begins the copy of the next weights to a slot that is free.
    __device__ __forceinline__ void fill(int slot)
    {
        if (at >= NONE) return;
        if (threadIdx.x % WARP == 0) {
            const unsigned bytes = min(VECTORS, end - at) * 16;
            mbarrier_arrive_expect_tx(arrived + slot, bytes);
            tma_load_bulk(slots + slot * SLOT_BYTES, weights + at, arrived + slot, bytes);
        }
        pass_on();
    }

    // Waits for the next slot's weights.
    __device__ __forceinline__ const uint4* take()
    {
        mbarrier_wait(arrived + slot, parity);
        return reinterpret_cast<const uint4*>(slots + slot * SLOT_BYTES);
    }

    // Gives the slot back.
    __device__ __forceinline__ void give_back()
    {
        __syncwarp();  // no lane still reads the slot
        fill(slot);
        slot = slot + 1 == SLOTS ? 0 : slot + 1;
        parity ^= slot == 0;
    }
};
