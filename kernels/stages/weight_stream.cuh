// The weights that a warp multiplies, in that order and through all stages, on their way into its shared memory.
//
// Gives: Stream; the Segments of a block that it takes, and SEGMENT_BYTES of them; SLOT_BYTES; steps_of.
// Needs: SLOTS and AHEAD, constants; network.cuh; LADDER_PERSISTENT_THREADS; LADDER_SEGMENTS, the most that a block has.
//
// Weights depend on nothing that the network computes, so their copies (cp.async) run ahead of the products, also while
// the block waits for others: as far as there are slots.  A warp fills the slot that it has just used, a lane copies
// what it multiplies itself, and no other thread need wait.  AHEAD slots before a copy begins, its bytes are brought
// into the L2 cache, which holds more than shared memory does.
#pragma once
#include "../arch/ampere.cuh"
#include "../arch/prefetch.cuh"
#include "network.cuh"

constexpr int THREADS = LADDER_PERSISTENT_THREADS, WARP = 32, WARPS = THREADS / WARP;
constexpr int FRAGMENT_BYTES = ROWS * DEPTH * int(sizeof(Half));  // of a product
constexpr int SLOT_BYTES = 2 * FRAGMENT_BYTES;

// Steps of DEPTH through a stage's taps and channels, which the warps share slot by slot.
constexpr int steps_of(int s)
{
    return STAGES[s].R * STAGES[s].S * STAGES[s].C / DEPTH;
}

// What a stage's stream is made of, in vectors of 16 bytes; a stage of few channels has none.
struct Source {
    unsigned begin;
    int tiles, filter_tiles, tile_vectors;
};
template <int s>
constexpr Source source_of()
{
    using Tiles = Tiling<s>;
    return {unsigned(STAGES[s].WEIGHTS), s < COUNT && !Tiles::FEW_CHANNELS ? Tiles::TILES : 0, Tiles::FILTER_TILES,
            steps_of(s) * STAGES[s].FILTER_ROWS * FRAGMENT_BYTES / 16};
}
__constant__ Source SOURCES[MOST] = {source_of<0>(), source_of<1>(), source_of<2>(), source_of<3>(),
                                     source_of<4>(), source_of<5>(), source_of<6>(), source_of<7>(),
                                     source_of<8>(), source_of<9>(), source_of<10>(), source_of<11>()};

// Filters of a tile: from `x` to before `y`, in vectors of 16 bytes.
using Segment = uint2;
constexpr unsigned NONE = 0x80000000;  // vectors, where there is no further segment
constexpr int SEGMENT_BYTES = quotient_up(LADDER_SEGMENTS * int(sizeof(Segment)), 128) * 128;

// Writes the segments of a block's tiles in order, and the end; a thread those of a stage.
__device__ __forceinline__ void write_segments(Segment* segments)
{
    const int stage = threadIdx.x;
    if (stage > COUNT) return;
    for (int s = 0; s < stage; ++s)
        if (SOURCES[s].tiles > blockIdx.x) segments += (SOURCES[s].tiles - 1 - blockIdx.x) / gridDim.x + 1;
    if (stage == COUNT) {
        *segments = make_uint2(NONE, ~0u);
        return;
    }
    const Source source = SOURCES[stage];
    for (int tile = blockIdx.x; tile < source.tiles; tile += gridDim.x) {
        const unsigned begin = source.begin + unsigned(tile % source.filter_tiles) * source.tile_vectors;
        *segments++ = make_uint2(begin, begin + source.tile_vectors);
    }
}

// A place in a warp's stream: the next slot's vectors.
struct Cursor {
    int segment = 0;  // the next one
    unsigned at = 0, end = 0;

    __device__ __forceinline__ bool at_end() const { return at >= NONE; }

    // Passes on to the next slot of the warp, maybe in a later segment.
    __device__ __forceinline__ void next(const Segment* segments, int warp)
    {
        constexpr int VECTORS = SLOT_BYTES / 16;
        at += WARPS * VECTORS;
        while (at >= end) {
            const Segment vectors = segments[segment++];
            at = vectors.x + warp * VECTORS;
            end = vectors.y;
        }
    }
};

struct Stream {
    const uint4* weights;
    const Segment* segments;  // the block's
    char* slots;              // [SLOTS][SLOT_BYTES], the warp's
    int warp;
    Cursor copied = {}, prefetched = {};  // what is copied next, and what is brought into the L2 cache
    int filled = 0, taken = 0;            // slots

    __device__ __forceinline__ Stream(const char* weights, const Segment* segments, char* slots, int warp)
        : weights(reinterpret_cast<const uint4*>(weights)), segments(segments), slots(slots), warp(warp)
    {
    }

    // Begins to fill all slots.
    __device__ __forceinline__ void begin()
    {
        copied.next(segments, warp);
#pragma unroll 1
        for (int slot = 0; slot < SLOTS; ++slot) fill();
        prefetched = copied;
#pragma unroll 1
        for (int slot = 0; slot < AHEAD; ++slot) prefetch();
    }

    // Begins to bring the next weights into the L2 cache.
    __device__ __forceinline__ void prefetch()
    {
        if (AHEAD == 0 || prefetched.at_end()) return;
        const unsigned bytes = (prefetched.end - prefetched.at) * 16;
        if (threadIdx.x % WARP == 0)
            prefetch_l2(weights + prefetched.at, bytes < SLOT_BYTES ? bytes : SLOT_BYTES);
        prefetched.next(segments, warp);
    }

    // Begins the copy of the next weights to the slot that is free.
    __device__ __forceinline__ void fill()
    {
        if (!copied.at_end()) {
            const int lane = threadIdx.x % WARP;
#pragma unroll
            for (int i = 0; i < SLOT_BYTES / 16; i += WARP)
                if (copied.at + i < copied.end)
                    copy_async_16(slots + filled * SLOT_BYTES + (i + lane) * 16, weights + copied.at + i + lane, true);
            filled = filled + 1 == SLOTS ? 0 : filled + 1;
            copied.next(segments, warp);
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
        prefetch();
        taken = taken + 1 == SLOTS ? 0 : taken + 1;
    }
};
