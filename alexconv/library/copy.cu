// Copies a batch of planes into another order of axes, with or without a border of zeros: for arrays that
// alexconv.library cannot pass to a rung in place.  No rung uses it.
//
// An array is seen as [images][outer][middle][inner], its axes in the target's order.  Every element of the target is
// written: along each axis `count` elements after a `border` come from the source, the others are zero.
//
// copy_elements: a thread for ELEMENTS of the target, a block's threads apart.  copy_transposed: for a source that is
// contiguous along the outer or middle axis, through a tile in shared memory, so that both loads and stores are
// coalesced.
#if ELEMENT_BYTES == 2
using Element = unsigned short;
#else
using Element = unsigned;
#endif

constexpr int ALONG_TILE = 64, INNER_TILE = 32;  // of copy_transposed
constexpr int LANES = 32, ROWS = 4;              // a block has LANES x ROWS threads
constexpr int ELEMENTS = 8;                      // of a thread of copy_elements

struct Axis {
    long long extent;       // of the target
    long long target_step;  // elements from one to the next
    long long source_step;
    long long border, count;  // the target's elements border <= i < border + count come from the source

    __device__ __forceinline__ bool has(long long i) const { return i >= border && i < border + count; }
    __device__ __forceinline__ long long from(long long i) const { return (i - border) * source_step; }
};

extern "C" __global__ void copy_elements(const Element* __restrict__ source, Element* __restrict__ target, Axis images,
                                         Axis outer, Axis middle, Axis inner, long long blocks_of_image)
{
    const long long n = blockIdx.x / blocks_of_image;
    const unsigned i = (blockIdx.x % blocks_of_image) * blockDim.x * ELEMENTS + threadIdx.x;
    const unsigned columns = inner.extent, rows = middle.extent;
    unsigned x = i % columns, y = i / columns % rows, z = i / columns / rows;
    const unsigned right = blockDim.x % columns, down = blockDim.x / columns % rows, further = blockDim.x / columns / rows;
    source += n * images.source_step;
    target += n * images.target_step;
    Element values[ELEMENTS];
    Element* targets[ELEMENTS];
#pragma unroll
    for (int k = 0; k < ELEMENTS; ++k) {
        const bool inside = outer.has(z) && middle.has(y) && inner.has(x);
        values[k] = inside ? source[outer.from(z) + middle.from(y) + inner.from(x)] : Element(0);
        targets[k] = z < outer.extent
                         ? target + z * outer.target_step + y * middle.target_step + x * inner.target_step
                         : nullptr;
        x += right;
        const unsigned next_row = x >= columns;
        x -= next_row ? columns : 0;
        y += down + next_row;
        const unsigned next_plane = y >= rows;
        y -= next_plane ? rows : 0;
        z += further + next_plane;
    }
#pragma unroll
    for (int k = 0; k < ELEMENTS; ++k)
        if (targets[k]) *targets[k] = values[k];
}

// `along` is the axis of the source's rows, `inner` that of the target's; `other` is the third.  A thread has all of its
// loads in flight at once.
extern "C" __global__ void __launch_bounds__(LANES * ROWS)
    copy_transposed(const Element* __restrict__ source, Element* __restrict__ target, Axis images, Axis other,
                    Axis along, Axis inner)
{
    constexpr int WORD = 4, PITCH = ALONG_TILE + WORD / ELEMENT_BYTES;  // lanes of a column in different banks
    __shared__ Element tile[INNER_TILE][PITCH];
    const unsigned tiles_inner = (unsigned(inner.extent) + INNER_TILE - 1) / INNER_TILE;
    const unsigned tiles_along = (unsigned(along.extent) + ALONG_TILE - 1) / ALONG_TILE;
    const unsigned plane = blockIdx.x / tiles_inner / tiles_along;
    const long long first_inner = blockIdx.x % tiles_inner * INNER_TILE;
    const long long first_along = blockIdx.x / tiles_inner % tiles_along * ALONG_TILE;
    const long long z = plane % unsigned(other.extent), n = plane / unsigned(other.extent);
    const int x = threadIdx.x, row = threadIdx.y;
    {
        // Along each axis the tile's elements from -first on, fewer than count, come from the source.
        const int first_inner_inside = first_inner - inner.border + row, first_along_inside = first_along - along.border + x;
        const unsigned count_inner = other.has(z) ? inner.count : 0, count_along = along.count;
        source += n * images.source_step + other.from(z) + first_inner_inside * inner.source_step +
                  first_along_inside * along.source_step;
        const long long next_row = ROWS * inner.source_step, next_lanes = LANES * along.source_step;
        Element values[INNER_TILE / ROWS][ALONG_TILE / LANES];
#pragma unroll
        for (int i = 0; i < INNER_TILE / ROWS; ++i, source += next_row)
#pragma unroll
            for (int j = 0; j < ALONG_TILE / LANES; ++j) {
                const bool inside = unsigned(first_inner_inside + i * ROWS) < count_inner &&
                                    unsigned(first_along_inside + j * LANES) < count_along;
                values[i][j] = inside ? source[j * next_lanes] : Element(0);
            }
#pragma unroll
        for (int i = 0; i < INNER_TILE / ROWS; ++i)
#pragma unroll
            for (int j = 0; j < ALONG_TILE / LANES; ++j) tile[i * ROWS + row][j * LANES + x] = values[i][j];
    }
    __syncthreads();  // the tile is complete before any thread reads it
    if (first_inner + x >= inner.extent) return;
    target += n * images.target_step + z * other.target_step + (first_along + row) * along.target_step +
              (first_inner + x) * inner.target_step;
    const int rows = along.extent - first_along < ALONG_TILE ? along.extent - first_along : ALONG_TILE;
    const long long next_row = ROWS * along.target_step;
#pragma unroll
    for (int i = 0; i < ALONG_TILE / ROWS; ++i, target += next_row)
        if (i * ROWS + row < rows) *target = tile[x][i * ROWS + row];
}
static_assert(INNER_TILE == LANES, "a lane stores a column of the tile");
