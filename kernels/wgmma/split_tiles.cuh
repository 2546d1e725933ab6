// Split-K for few tiles: SPLITS blocks share the stages of a tile, and the last of them adds their sums.
//
// Gives: SplitKTiles, a Work of warpgroups.cuh; SplitKEpilogue, an Epilogue around one that stores from registers;
// SplitKSums; PARTIAL_SUMS, ARRIVAL_COUNTERS.
//
// A block has one slice of one tile.  Each warp stores its accumulators in `partial` and counts itself as arrived; the
// last warp with the same rows and filters adds all slices, always in their order.
//
// Needs: SPLITS and TILE_PIXELS, constants of the rung, and the others of warpgroups.cuh.
#pragma once
#include "warpgroups.cuh"

#ifdef DYNAMIC_SHAPE
DIVISOR(SPLITS, );
#endif

constexpr int FIRST_CONSUMER = WARPGROUP / LANES, TILE_WARPS = CONSUMERS * WARPGROUP / LANES;
constexpr int WARP_SUMS = WGMMAS * ACCUMULATORS * LANES;
// Slices whose sums are loaded at a time.
#ifdef DYNAMIC_SHAPE
constexpr int SLICES_TOGETHER = WGMMAS * ACCUMULATORS <= 32 ? 4 : 1;
#else
constexpr int SLICES_TOGETHER = SPLITS;
#endif
SIZE(IMAGE_TILES, (PIXELS + TILE_PIXELS - 1) / TILE_PIXELS * TILES_OF_FILTERS);  // of one image alone
// Elements of the arrays for one image; one where a tile has one block.
SIZE(PARTIAL_SUMS, SPLITS > 1 ? IMAGE_TILES * SPLITS * TILE_WARPS * WARP_SUMS : 1);
SIZE(ARRIVAL_COUNTERS, SPLITS > 1 ? IMAGE_TILES * TILE_WARPS : 1);

// A block's slice of a tile; its neighbours have the others.  With SPLITS = 1 the same as PersistentTiles.
template <class Problem>
struct SplitKTiles : PersistentTiles<Problem> {
    using All = PersistentTiles<Problem>;
    MEMBER_SIZE(STAGES_OF_TILE, OF(KStages<Problem>, PER_TILE));
#ifndef DYNAMIC_SHAPE
    static_assert(SPLITS <= STAGES_OF_TILE, "a slice has a stage at least");
#endif

    __device__ __forceinline__ explicit SplitKTiles(int images) : All(images)
    {
        IF_SHAPE (SPLITS > 1) this->tile = blockIdx.x / SPLITS;
    }

    __device__ __forceinline__ void next()
    {
        IF_SHAPE (SPLITS > 1)
            this->tile = this->count;
        else
            All::next();
    }

    __device__ __forceinline__ int first_stage() const
    {
        return blockIdx.x % SPLITS * OF(SplitKTiles, STAGES_OF_TILE) / SPLITS;
    }
    __device__ __forceinline__ int end_stage() const
    {
        return (blockIdx.x % SPLITS + 1) * OF(SplitKTiles, STAGES_OF_TILE) / SPLITS;
    }
};

// The reduction of the slices' sums.
struct SplitKSums {
    float4* partial;    // [tiles][SPLITS][TILE_WARPS][WARP_SUMS]
    unsigned* arrived;  // [tiles][TILE_WARPS]: SPLITS - 1 or all ones before a launch; counting wraps to zero there

    // Adds the sums of all slices; false in warps that are not the last.
    __device__ __forceinline__ bool add(const float (&accumulators)[WGMMAS][ACCUMULATORS],
                                        float (&sums)[WGMMAS][ACCUMULATORS]) const
    {
        constexpr unsigned ALL_LANES = 0xffffffff;
        constexpr int VECTORS = ACCUMULATORS / 4, OF_WARP = WARP_SUMS / 4;
        const int tile = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS;
        const int warp = threadIdx.x / LANES - FIRST_CONSUMER, lane = threadIdx.x % LANES;
        float4* const of_tile = partial + ((size_t)tile * SPLITS * TILE_WARPS + warp) * OF_WARP + lane;
        float4* const own = of_tile + split * (TILE_WARPS * OF_WARP);
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
            for (int i = 0; i < VECTORS; ++i) {
                const float* const four = &accumulators[u][4 * i];
                own[(u * VECTORS + i) * LANES] = make_float4(four[0], four[1], four[2], four[3]);
            }
        __syncwarp();  // all lanes have stored their sums before the warp counts as arrived
        unsigned before = 0;
        if (lane == 0) before = atomic_inc_acq_rel(arrived + tile * TILE_WARPS + warp, SPLITS - 1);
        before = __shfl_sync(ALL_LANES, before, 0);
        if (before != SPLITS - 2u) return false;
        __syncwarp();  // the other blocks' sums, which lane 0 has observed, are visible to all lanes
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
            for (int i = 0; i < ACCUMULATORS; ++i) sums[u][i] = 0;
#pragma unroll SLICES_TOGETHER
        for (int other = 0; other < SPLITS; ++other)
#pragma unroll
            for (int u = 0; u < WGMMAS; ++u)
#pragma unroll
                for (int i = 0; i < VECTORS; ++i) {
                    const float4 four = __ldcg(of_tile + other * (TILE_WARPS * OF_WARP) + (u * VECTORS + i) * LANES);
                    float* const sum = &sums[u][4 * i];
                    sum[0] += four.x, sum[1] += four.y, sum[2] += four.z, sum[3] += four.w;
                }
        return true;
    }
};

// An epilogue in which the last warp to arrive stores the sums of all; Epilogue stores from a warp's registers alone.
template <class Epilogue>
struct SplitKEpilogue {
    static constexpr int BYTES = Epilogue::BYTES;

    Epilogue outputs;
    SplitKSums slices;

    __device__ __forceinline__ auto find(int first_row, int first_filter) const
    {
        return outputs.find(first_row, first_filter);
    }

    template <class Rows>
    __device__ __forceinline__ void store(const float (&accumulators)[WGMMAS][ACCUMULATORS], const Rows& rows,
                                          int first_filter, unsigned char* memory) const
    {
        IF_SHAPE (SPLITS == 1) {
            outputs.store(accumulators, rows, first_filter, memory);
        } else {
            float sums[WGMMAS][ACCUMULATORS];
            if (slices.add(accumulators, sums)) outputs.store(sums, rows, first_filter, memory);
        }
    }
};
