// Copies a batch of planes into another order of axes, with or without a border of zeros: for arrays that
// alexconv.library cannot pass to a rung in place.  No rung uses it.
//
// An array is seen as [images][outer][middle][inner], its axes in the target's order.  Every element of the target is
// written: along each axis `count` elements after a `border` come from the source, the others are zero.
//
// copy_elements: a thread per element of the target.  copy_transposed: for a source that is contiguous along the outer
// or middle axis, through a tile in shared memory, so that both loads and stores are coalesced.
#if ELEMENT_BYTES == 2
using Element = unsigned short;
#else
using Element = unsigned;
#endif

constexpr int TILE = 32, ROWS = 8;  // a block has TILE x ROWS threads

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
    const unsigned i = (blockIdx.x % blocks_of_image) * blockDim.x + threadIdx.x;
    const unsigned columns = inner.extent, rows = middle.extent;
    const unsigned x = i % columns, row = i / columns, y = row % rows, z = row / rows;
    if (z >= outer.extent) return;
    const bool inside = outer.has(z) && middle.has(y) && inner.has(x);
    target[n * images.target_step + z * outer.target_step + y * middle.target_step + x * inner.target_step] =
        inside ? source[n * images.source_step + outer.from(z) + middle.from(y) + inner.from(x)] : Element(0);
}

// `along` is the axis of the source's rows, `inner` that of the target's; `other` is the third.
extern "C" __global__ void copy_transposed(const Element* __restrict__ source, Element* __restrict__ target,
                                           Axis images, Axis other, Axis along, Axis inner)
{
    __shared__ Element tile[TILE][TILE + 1];
    const long long tiles_inner = (inner.extent + TILE - 1) / TILE, tiles_along = (along.extent + TILE - 1) / TILE;
    long long block = blockIdx.x;
    const long long first_inner = block % tiles_inner * TILE;
    block /= tiles_inner;
    const long long first_along = block % tiles_along * TILE;
    block /= tiles_along;
    const long long z = block % other.extent, n = block / other.extent;
    source += n * images.source_step + other.from(z);
    target += n * images.target_step + z * other.target_step;
    for (int i = threadIdx.y; i < TILE; i += ROWS) {
        const long long x = first_inner + i, a = first_along + threadIdx.x;
        const bool inside = other.has(z) && inner.has(x) && along.has(a);
        tile[i][threadIdx.x] = inside ? source[inner.from(x) + along.from(a)] : Element(0);
    }
    __syncthreads();
    for (int i = threadIdx.y; i < TILE; i += ROWS) {
        const long long a = first_along + i, x = first_inner + threadIdx.x;
        if (a >= along.extent || x >= inner.extent) continue;
        target[a * along.target_step + x * inner.target_step] = tile[threadIdx.x][i];
    }
}
