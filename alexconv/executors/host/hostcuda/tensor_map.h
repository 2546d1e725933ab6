// TMA copies boxes of an array into shared memory, in swizzled rows of 128 bytes; or plain bytes.
//
// The thread that starts a copy carries it out, and its bytes, zeros for elements outside included, count at the
// barrier immediately; the build for async hazards delays it (hazards.h).
#pragma once

// Made by Python: laid out as _TensorMap in maps.py, where its limits are checked too.
struct alignas(64) TensorMap {
    static constexpr unsigned most_dims = 4;
    const char* base;
    uint64_t strides[most_dims - 1];  // bytes, of all dimensions but the innermost
    unsigned dims[most_dims];         // innermost first
    unsigned box[most_dims];          // tiled: as dims; im2col: channels, pixels
    // im2col, along w and h: the corners of the bounding box, relative to the array's, and the steps of its pixels;
    // tiled: zeros
    int lower[2], upper[2];
    unsigned steps[2];
    unsigned rank;
};

constexpr int ROW_BYTES = 128, ATOM_BYTES = 1024;

namespace host_cuda {

// In an array of two-byte elements a chunk may begin at any element.
using LooseHalf = unsigned short __attribute__((may_alias));
using LooseChunk __attribute__((aligned(2))) = Chunk;

constexpr int ROW_CHUNKS = ROW_BYTES / int(sizeof(Chunk)), ATOM_ROWS = ATOM_BYTES / ROW_BYTES;
constexpr int ROW_HALVES = ROW_CHUNKS * HALVES;

// Writes row number `row` of a box: elements [first, first + ROW_HALVES) of a line of `length` elements, and zeros for
// those outside it; without a line all are zero.
inline void bring_row(void* box, unsigned row, const char* line, int first, int length)
{
    Chunk* const to = static_cast<Chunk*>(box) + size_t(row) * ROW_CHUNKS;
    const auto* const elements = reinterpret_cast<const LooseHalf*>(line);
    for (int j = 0; j < ROW_CHUNKS; ++j) {
        Chunk chunk{};
        const int begin = first + j * HALVES;
        if (line && begin >= 0 && begin + HALVES <= length)
            chunk = *reinterpret_cast<const LooseChunk*>(elements + begin);
        else if (line)
            for (int i = 0; i < HALVES; ++i)
                if (begin + i >= 0 && begin + i < length) chunk[i] = elements[begin + i];
        to[j ^ int(row % ATOM_ROWS)] = chunk;
    }
}

inline bool inside(int64_t i, unsigned extent) { return i >= 0 && i < int64_t(extent); }

inline void check_copy(const void* to, const TensorMap* map, unsigned rank, bool im2col, Site site)
{
    if (misalignment(to, ATOM_BYTES)) fail("TMA needs a destination aligned to 1024 bytes here", site);
    if (map->rank != rank || (map->steps[0] != 0) != im2col)
        fail(im2col ? "tma_load_im2col needs an im2col map" : "tma_load_box needs a tiled map of three dimensions", site);
}

}  // namespace host_cuda

inline void tma_load_box(void* to, const TensorMap* map, Mbarrier* barrier, int i0, int i1, int i2,
                     host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    check_copy(to, map, 3, false, site);
    const trace::Pause pause;  // no warp issues these accesses
    const unsigned bytes = map->box[1] * map->box[2] * ROW_BYTES;
    hazards::start_bulk_copy(to, map->base, bytes, barrier, site, [=] {
        const unsigned* const box = map->box;
        for (unsigned j2 = 0; j2 < box[2]; ++j2)
            for (unsigned j1 = 0; j1 < box[1]; ++j1) {
                const int64_t l1 = int64_t(i1) + j1, l2 = int64_t(i2) + j2;
                const bool exists = inside(l1, map->dims[1]) && inside(l2, map->dims[2]);
                const char* const line =
                    exists ? map->base + uint64_t(l1) * map->strides[0] + uint64_t(l2) * map->strides[1] : nullptr;
                bring_row(to, j2 * box[1] + j1, line, i0, int(map->dims[0]));
            }
        count(barrier, 0, 0, int(bytes), site);
    });
}

// Pixels run through the bounding box, where the window lies inside the padded plane; the offset in the window is added
// last.
inline void tma_load_im2col(void* to, const TensorMap* map, Mbarrier* barrier, int channel, int w, int h, int n,
                        unsigned short dw, unsigned short dh, host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    check_copy(to, map, 4, true, site);
    const unsigned* const dims = map->dims;
    const int left = map->lower[0], top = map->lower[1], across = int(map->steps[0]), down = int(map->steps[1]);
    const int end_w = int(dims[1]) + map->upper[0], end_h = int(dims[2]) + map->upper[1];
    if (w < left || w >= end_w || (w - left) % across || h < top || h >= end_h || (h - top) % down)
        fail("tma_load_im2col begins at a pixel outside the output plane", site);
    if (channel % HALVES) fail("tma_load_im2col begins at a channel that is no multiple of 16 bytes", site);
    const trace::Pause pause;
    const unsigned bytes = map->box[1] * ROW_BYTES;
    hazards::start_bulk_copy(to, map->base, bytes, barrier, site, [=]() mutable {
        for (unsigned pixel = 0; pixel < map->box[1]; ++pixel) {
            const int64_t column = int64_t(w) + dw, row = int64_t(h) + dh;
            const bool exists = inside(column, dims[1]) && inside(row, dims[2]) && inside(n, dims[3]);
            const char* const line = exists ? map->base + uint64_t(column) * map->strides[0] +
                                                  uint64_t(row) * map->strides[1] + uint64_t(n) * map->strides[2]
                                            : nullptr;
            bring_row(to, pixel, line, channel, int(dims[0]));
            if ((w += across) < end_w) continue;
            w = left;
            if ((h += down) < end_h) continue;
            h = top;
            ++n;
        }
        count(barrier, 0, 0, int(bytes), site);
    });
}

inline void tma_load_bulk(void* to, const void* from, Mbarrier* barrier, unsigned bytes,
                       host_cuda::Site site = host_cuda::here())
{
    using namespace host_cuda;
    if (misalignment(to, sizeof(Chunk)) || misalignment(from, sizeof(Chunk)) || bytes % sizeof(Chunk))
        fail("tma_load_bulk needs addresses and a size that are multiples of 16 bytes", site);
    const trace::Pause pause;
    hazards::start_bulk_copy(to, from, bytes, barrier, site, [=] {
        for (unsigned i = 0; i < bytes / sizeof(Chunk); ++i)
            static_cast<Chunk*>(to)[i] = static_cast<const Chunk*>(from)[i];
        count(barrier, 0, 0, int(bytes), site);
    });
}
