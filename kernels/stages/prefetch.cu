// prefetch: filters, or the first weights of a linear layer, into the L2 cache, while convolutions run.
//
// Technique: prefetch into L2 on a second branch of the graph.
// Read next: stages/linear.cu.
// Run: alexconv run --network alexnet-torchvision --precision fp16 --schedule prefetch --N 1
//
// With one image the convolutions wait for each other and leave the memory idle, and the linear layers then wait for
// the memory.  As many of their weights as the cache has room for can come meanwhile, and the filters of the later
// convolutions, which the linear weights of the last batch have displaced.
//
// A block prefetches every BLOCKS-th run of THREADS lines, a thread a line of each.
#include "../arch/prefetch.cuh"
#include "values.cuh"

constexpr int THREADS = 256, LINE = 128;  // bytes of a cache line
constexpr size_t LINES = LADDER_PREFETCHED_BYTES / LINE;
constexpr int BLOCKS = LADDER_PREFETCH_GRID_X;

extern "C" __global__ void __launch_bounds__(THREADS) prefetch(const Value* __restrict__ w)  // [M][C]
{
    const char* const bytes = reinterpret_cast<const char*>(w);
    for (size_t line = blockIdx.x * THREADS + threadIdx.x; line < LINES; line += BLOCKS * THREADS)
        prefetch_into_l2(bytes + line * LINE);
}

static_assert(LADDER_PREFETCHED_BYTES <= sizeof(Value) * M * C, "no more than the weights");
ASSERT_BLOCK(PREFETCH, THREADS, 1);
