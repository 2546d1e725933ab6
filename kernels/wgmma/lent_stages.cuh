// An epilogue that the next tile's products overlap: outputs leave through stages of the pipeline, by TMA stores.
//
// Gives: StagedEpilogue, an Epilogue of warpgroups.cuh; AccumulateAndLendStages, its Mainloop.
//
// A tile's outputs take about half of the pipeline's shared memory, which between two tiles holds stages that have been
// read.  The producer lends the stages after a tile's last to its epilogue, and fills those that follow with the next
// tile's first operands meanwhile.  Each warp writes its outputs to a lent stage, in boxes of 16 pixels and 64 filters,
// starts a TMA store for each box, and goes on; it releases the stages when the next tile's first products are in flight
// and the stores have read them.
//
// Needs: TILE_PIXELS, TILE_FILTERS and STAGES, constants of the rung.
#pragma once
#include "native_epilogue.cuh"

// Where: as of NativeEpilogue.
template <class Where>
struct StagedEpilogue : NativeEpilogue<Where> {
    using Registers = NativeEpilogue<Where>;
    using typename Registers::AddendsOfFour;
    using typename Registers::Rows;
    static_assert(Registers::CHUNKS, "outputs lie in whole chunks");

    static constexpr int WARP_ROWS = 16, ROW_TILES = WGMMAS / WGMMAS_ACROSS;
    static constexpr int BOX_FILTERS = ROW_BYTES / sizeof(__half), BOX_BYTES = WARP_ROWS * ROW_BYTES;
    static constexpr int BOX_CHUNKS = BOX_FILTERS / CHUNK;
    static constexpr int BOXES = TILE_FILTERS / BOX_FILTERS, ROWS_BYTES = BOXES * BOX_BYTES;  // of a warp's row tile
    static_assert(TILE_FILTERS % BOX_FILTERS == 0);
    static constexpr int STAGE_ROWS = sizeof(Stage<1>) / ROWS_BYTES * WARP_ROWS;
    static constexpr int LENT_STAGES = (TILE_PIXELS + STAGE_ROWS - 1) / STAGE_ROWS;
    static_assert(LENT_STAGES < STAGES, "one stage is left for the next tile");

    const TensorMap* output_map;  // of y [N E F][Y_CHANNELS], its first M channels

    // Where the boxes of a warp's rows of a row tile lie, `lent` being the first stage lent.
    static __device__ __forceinline__ unsigned char* place(Stage<1>* stages, int lent, int row_tile)
    {
        const int consumer = threadIdx.x / WARPGROUP - 1, warp = threadIdx.x % WARPGROUP / LANES;
        const int row = (consumer * ROW_TILES + row_tile) * WGMMA_ROWS + warp * WARP_ROWS;
        const int stage = lent + row / STAGE_ROWS;
        return reinterpret_cast<unsigned char*>(stages + (stage < STAGES ? stage : stage - STAGES)) +
               row % STAGE_ROWS / WARP_ROWS * ROWS_BYTES;
    }

    // Starts the stores of a warp's outputs.
    __device__ __forceinline__ void start(const float (&accumulators)[WGMMAS][ACCUMULATORS], const Rows& rows,
                                          int first_filter, Stage<1>* stages, int lent) const
    {
#pragma unroll
        for (int u = 0; u < WGMMAS; ++u)
            write(accumulators[u], rows, u / WGMMAS_ACROSS, first_filter, u % WGMMAS_ACROSS * WGMMA_FILTERS,
                  place(stages, lent, u / WGMMAS_ACROSS));
        async_proxy_fence();
        __syncwarp();  // all lanes have written and fenced the boxes that one lane stores
        if (threadIdx.x % LANES != 0) return;
        const int first_row = rows.first + threadIdx.x % WARPGROUP / LANES * WARP_ROWS;
#pragma unroll
        for (int row_tile = 0; row_tile < ROW_TILES; ++row_tile)
#pragma unroll
            for (int box = 0; box < BOXES; ++box)
                tma_store_box(output_map, place(stages, lent, row_tile) + box * BOX_BYTES,
                              first_filter + box * BOX_FILTERS, first_row + row_tile * WGMMA_ROWS, 0);
        tma_store_commit_group();
    }

    // Writes an accumulator tile's outputs, from the filter `across` of the tile on: a thread holds pairs of two rows.
    __device__ __forceinline__ void write(const float (&accumulators)[ACCUMULATORS], const Rows& rows, int row_tile,
                                          int first_filter, int across, unsigned char* to) const
    {
        const int lane = threadIdx.x % LANES, quarter = lane % 4, end = end_of_product(first_filter);
        const int row = rows.first + row_tile * WGMMA_ROWS + threadIdx.x % WARPGROUP / LANES * WARP_ROWS + lane / 4;
        to += lane / 4 * ROW_BYTES + quarter * sizeof(__half2);
#pragma unroll
        for (int group = 0; group < ACCUMULATORS / 16; ++group)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                AddendsOfFour of_four = Registers::bias_of(rows, across, group, quarter);
                if constexpr (HAS_RESIDUAL) {
                    const int pixel = this->where.pixel(row + 8 * half);
                    const int filter = first_filter + across + group * 4 * CHUNK;
                    if (pixel >= 0) this->add_residual(of_four, (size_t)pixel * Y_CHANNELS + filter, end - filter, quarter);
                }
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int i = (group * 4 + j) * 4 + 2 * half;
                    const int chunk = (across + group * 4 * CHUNK) / CHUNK + j, box = chunk / BOX_CHUNKS;
                    // In the order of the 128-byte swizzle: so a warp's writes have no bank conflicts either.
                    unsigned char* const at = to + box * BOX_BYTES + half * 8 * ROW_BYTES +
                                              (chunk % BOX_CHUNKS ^ lane / 4) * sizeof(Chunk);
                    *reinterpret_cast<__half2*>(at) =
                        __floats2half2_rn(Registers::output(accumulators[i], of_four.of[j][0]),
                                          Registers::output(accumulators[i + 1], of_four.of[j][1]));
                }
            }
    }
};

// As AccumulateInTensorCores, for an epilogue that borrows stages.
template <class Borrower>
struct AccumulateAndLendStages {
    static constexpr int TERMS = 1, LENT_STAGES = Borrower::LENT_STAGES;

    template <class Problem, class Work, class Epilogue>
    static __device__ __forceinline__ void consume(SharedStorage<1, Epilogue::BYTES>& shared, Work work,
                                                   Epilogue epilogue)
    {
        const int consumer = threadIdx.x / WARPGROUP - 1;
        PipelineState<STAGES> state;
        int lent = -1;  // the first stage that the last tile's outputs are stored from
        const auto give_back = [&] {
            if (lent < 0) return;
            tma_store_wait_read();
            __syncwarp();  // the stores of all lanes have read the stages that the warp releases
            for (int i = 0; i < LENT_STAGES; ++i) release(&shared.empty[(lent + i) % STAGES]);
        };
        for (; work.more(); work.next()) {
            const int first_row = consumer * (WGMMAS / WGMMAS_ACROSS) * WGMMA_ROWS;
            const auto rows = epilogue.find(work.rows_from(first_row), work.filter());
            float accumulators[WGMMAS][ACCUMULATORS];
            accumulate_tile<Problem>(accumulators, shared, work, state, give_back);
            lent = state.stage;
            for (int i = 0; i < LENT_STAGES; ++i, state.advance())
                mbarrier_wait(&shared.full[state.stage], state.parity);  // no warp still reads the stage
            epilogue.start(accumulators, rows, work.filter(), shared.stages, lent);
        }
        tma_store_wait_read();  // before the block and its shared memory end
    }
};
