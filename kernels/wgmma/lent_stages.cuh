// An epilogue that the next tile's products overlap: outputs leave through stages of the pipeline, by TMA stores.
//
// Gives: StagedEpilogue, an Epilogue of warpgroups.cuh; AccumulateAndLendStages, its Mainloop.
//
// A tile's outputs take about half of the pipeline's shared memory, which between two tiles holds stages that have been
// read.  The producer lends the stages after a tile's last to its epilogue, and fills those that follow with the next
// tile's first operands meanwhile.  Each warp writes its outputs to a lent stage, starts a TMA store for each row, and
// goes on; it releases the stages when the next tile's first products are in flight and the stores have read them.
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
    static_assert(Registers::CHUNKS, "rows of outputs consist of whole chunks");

    static constexpr int WARP_ROWS = 16, ROW_TILES = WGMMAS / WGMMAS_ACROSS;
    // Bytes from a row to the next: one chunk more than a row, against bank conflicts of a warp's writes.
    static constexpr int PITCH = TILE_FILTERS * sizeof(__half) + sizeof(Chunk);
    static constexpr int STAGE_ROWS = sizeof(Stage<1>) / (WARP_ROWS * PITCH) * WARP_ROWS;  // whole warps' rows
    static constexpr int LENT_STAGES = (TILE_PIXELS + STAGE_ROWS - 1) / STAGE_ROWS;
    static_assert(LENT_STAGES < STAGES, "one stage is left for the next tile");

    // Where a warp's rows of a row tile lie, `lent` being the first stage lent.
    static __device__ __forceinline__ unsigned char* place(Stage<1>* stages, int lent, int row_tile)
    {
        const int consumer = threadIdx.x / WARPGROUP - 1, warp = threadIdx.x % WARPGROUP / LANES;
        const int row = (consumer * ROW_TILES + row_tile) * WGMMA_ROWS + warp * WARP_ROWS;
        const int stage = lent + row / STAGE_ROWS;
        return reinterpret_cast<unsigned char*>(stages + (stage < STAGES ? stage : stage - STAGES)) +
               row % STAGE_ROWS * PITCH;
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
        __syncwarp();  // all lanes have written and fenced the rows that one lane stores
        const int filters = min(TILE_FILTERS, end_of_product(first_filter) - first_filter);
        const int warp = threadIdx.x % WARPGROUP / LANES;
        for (int i = threadIdx.x % LANES; i < ROW_TILES * WARP_ROWS; i += LANES) {
            const int row_tile = i / WARP_ROWS, row = i % WARP_ROWS;
            const int pixel = this->where.pixel(rows.first + row_tile * WGMMA_ROWS + warp * WARP_ROWS + row);
            if (pixel >= 0)
                tma_store_bulk(this->y + (size_t)pixel * Y_CHANNELS + first_filter, place(stages, lent, row_tile) + row * PITCH,
                               filters * sizeof(__half));
        }
        tma_store_commit_group();
    }

    // Writes an accumulator tile's outputs, from the filter `across` of the tile on: a thread holds pairs of two rows.
    __device__ __forceinline__ void write(const float (&accumulators)[ACCUMULATORS], const Rows& rows, int row_tile,
                                          int first_filter, int across, unsigned char* to) const
    {
        const int lane = threadIdx.x % LANES, quarter = lane % 4, end = end_of_product(first_filter);
        const int row = rows.first + row_tile * WGMMA_ROWS + threadIdx.x % WARPGROUP / LANES * WARP_ROWS + lane / 4;
        to += lane / 4 * PITCH + (across + quarter * 2) * sizeof(__half);
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
                    *reinterpret_cast<__half2*>(to + half * 8 * PITCH + (group * 4 + j) * sizeof(Chunk)) =
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
