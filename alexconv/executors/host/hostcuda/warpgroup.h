// wgmma: products of a warpgroup, 128 threads, with operands in shared memory; for tf32 the first is in registers.
//
// The last thread to arrive multiplies for all, immediately.  A GPU continues meanwhile: a kernel that reads the
// product before it waits for it, or that overwrites an operand too early, goes unnoticed; the build for async hazards
// delays the product (hazards.h).
#pragma once

// The address of the first row's first half, in units of 16 bytes; above it, for a matrix in planes and for a
// transposed one, the planes' distance in the same units, and zero for a swizzled one.
using MatrixDescriptor = uint64_t;

namespace host_cuda {

constexpr int LANES = 8;
using Vector = float __attribute__((vector_size(4 * LANES)));
using LooseVector __attribute__((aligned(4), may_alias)) = Vector;

constexpr int ADDRESS_BITS = 48;  // of a descriptor
constexpr MatrixDescriptor ADDRESS_MASK = (MatrixDescriptor(1) << ADDRESS_BITS) - 1;

inline void widen(const Chunk& halves, float* values)
{
#ifdef __F16C__
    using Eight = short __attribute__((vector_size(16)));
    *reinterpret_cast<LooseVector*>(values) = __builtin_ia32_vcvtph2ps256(Eight(halves));
#else
    for (int i = 0; i < HALVES; ++i) values[i] = widen(halves[i]);
#endif
}

// d = a b, or d += a b.  Floats 4 j + 2 h + i of thread t are columns 8 j + 2 (t % 4) + i of row t / 4, counted in rows
// 0 to 7, 16 to 23, ..., and the row eight further down, for h = 0 and 1.
// Transposed, a row's halves are one of each of 16 rows in memory, which have a value of K and 64 rows of the matrix.
template <int count, bool transposed = false>
struct GroupProduct {
    static constexpr int K = 16, row_pairs = WARPGROUP / 4, quarters = 4, vectors = count / LANES;

    float* d;  // [count]
    MatrixDescriptor a, b;
    bool add;
    Site site;

    // The address of one of a row's chunks: it follows the previous one in the atom's row, or is in the next plane.
    // Transposed, of eight rows' chunks of K: chunk `row % 8` of the second eight follows those of the first.
    static uint64_t chunk_address(MatrixDescriptor matrix, int row, int j)
    {
        const uint64_t first = matrix & ADDRESS_MASK, distance = matrix >> ADDRESS_BITS;
        if (transposed) return value_chunk(matrix, row / HALVES, row % HALVES * (K / HALVES) + j);
        const uint64_t in_atoms = first + uint64_t(row) * ROW_CHUNKS + j;
        const uint64_t swizzled = in_atoms ^ (in_atoms / ROW_CHUNKS % ATOM_ROWS);
        const uint64_t chunk = distance ? first + uint64_t(row) + j * distance : swizzled;
        return chunk * sizeof(Chunk);
    }

    // Of a transposed matrix: the address of the chunk that has a value of K of eight rows.
    static uint64_t value_chunk(MatrixDescriptor matrix, int eight, int k)
    {
        const uint64_t first = matrix & ADDRESS_MASK, distance = matrix >> ADDRESS_BITS;
        const uint64_t row = first + eight / ROW_CHUNKS * distance + uint64_t(k) * ROW_CHUNKS;
        return (row + (eight % ROW_CHUNKS ^ int(row / ROW_CHUNKS % ATOM_ROWS))) * sizeof(Chunk);
    }

    // The 16 halves of a row as floats.
    static void read_row(MatrixDescriptor matrix, int row, float (&values)[K])
    {
        if (transposed) {
            for (int k = 0; k < K; ++k)
                values[k] = widen((*reinterpret_cast<const Chunk*>(value_chunk(matrix, row / HALVES, k)))[row % HALVES]);
            return;
        }
        for (int j = 0; j < K / HALVES; ++j)
            widen(*reinterpret_cast<const Chunk*>(chunk_address(matrix, row, j)), values + j * HALVES);
    }

    // In the order of a thread's floats: a row, twice, and the row eight further down, twice; and so again.
    static void read_rows(MatrixDescriptor matrix, int row, Vector (&values)[K])
    {
        float upper[K], lower[K];
        read_row(matrix, row, upper);
        read_row(matrix, row + 8, lower);
        for (int k = 0; k < K; ++k) {
            const float u = upper[k], l = lower[k];
            values[k] = Vector{u, u, l, l, u, u, l, l};
        }
    }

    // The columns of b that a quarter of the threads has, each pair twice.
    static void read_columns(MatrixDescriptor matrix, int quarter, Vector (&values)[K][vectors])
    {
        for (int v = 0; v < vectors; ++v) {
            float columns[4][K];
            for (int i = 0; i < 4; ++i) read_row(matrix, 16 * v + 8 * (i / 2) + 2 * quarter + i % 2, columns[i]);
            for (int k = 0; k < K; ++k) {
                const float p = columns[0][k], q = columns[1][k], r = columns[2][k], s = columns[3][k];
                values[k][v] = Vector{p, q, p, q, r, s, r, s};
            }
        }
    }

    static void multiply(void* const* threads, unsigned)
    {
        const GroupProduct& first = *static_cast<GroupProduct*>(threads[0]);
        for (unsigned t = 0; t < WARPGROUP; ++t) {
            const GroupProduct& other = *static_cast<GroupProduct*>(threads[t]);
            if (other.a != first.a || other.b != first.b || other.add != first.add)
                fail("the threads of a warpgroup multiply different matrices", first.site);
        }
        for (const MatrixDescriptor matrix : {first.a, first.b})
            if (transposed && matrix % (ROW_CHUNKS * ATOM_ROWS))
                fail("transposed, wgmma needs planes aligned to 1024 bytes", first.site);
            else if (!(matrix >> ADDRESS_BITS) && matrix % ROW_CHUNKS % 2)
                fail("wgmma needs rows aligned to 128 bytes, or 32, 64 or 96 bytes further", first.site);
        start(threads);
    }

#ifdef HOST_CUDA_HAZARDS
    static void start(void* const* threads)
    {
        constexpr int rows = WARPGROUP / 2, columns = 2 * count, chunks = K / HALVES;
        GroupProduct products[WARPGROUP];
        float* accumulators[WARPGROUP];
        for (unsigned t = 0; t < WARPGROUP; ++t) {
            products[t] = *static_cast<GroupProduct*>(threads[t]);
            accumulators[t] = products[t].d;
        }
        uint64_t of_a[rows * chunks], of_b[columns * chunks];
        for (int row = 0; row < rows * chunks; ++row) of_a[row] = chunk_address(products[0].a, row / chunks, row % chunks);
        for (int row = 0; row < columns * chunks; ++row)
            of_b[row] = chunk_address(products[0].b, row / chunks, row % chunks);
        const hazards::Product product{of_a, of_b, rows * chunks, columns * chunks, accumulators, count};
        std::vector<GroupProduct> copies(products, products + WARPGROUP);
        hazards::start_product(product, products[0].site, [copies]() mutable {
            void* threads[WARPGROUP];
            for (unsigned t = 0; t < WARPGROUP; ++t) threads[t] = &copies[t];
            carry_out(threads);
        });
    }
#else
    static void start(void* const* threads) { carry_out(threads); }
#endif

    static void carry_out(void* const* threads)
    {
        const GroupProduct& first = *static_cast<GroupProduct*>(threads[0]);
        Vector a[row_pairs][K];
        for (int pair = 0; pair < row_pairs; ++pair) read_rows(first.a, pair / 8 * 16 + pair % 8, a[pair]);
        for (int quarter = 0; quarter < quarters; ++quarter) {
            Vector b[K][vectors];
            read_columns(first.b, quarter, b);
            for (int pair = 0; pair < row_pairs; ++pair)
                static_cast<GroupProduct*>(threads[pair * quarters + quarter])->take(a[pair], b);
        }
    }

    void take(const Vector (&a)[K], const Vector (&b)[K][vectors]) const
    {
        for (int v = 0; v < vectors; ++v) {
            Vector sum = add ? Vector(*reinterpret_cast<const LooseVector*>(d + v * LANES)) : Vector{};
            for (int k = 0; k < K; ++k) sum += a[k] * b[k][v];
            *reinterpret_cast<LooseVector*>(d + v * LANES) = sum;
        }
    }
};

// d = a b, or d += a b, of tf32: a is 64 x 8, two rows' values of K of each thread, b lies in shared memory.
template <int count>
struct GroupProductTf32 {
    static constexpr int K = 8, ROWS = WARPGROUP / 2, COLUMNS = 2 * count, FLOATS = sizeof(Chunk) / sizeof(float);
    static constexpr unsigned TF32 = ~0u << 13;  // the bits of a float that count

    float* d;  // [count]
    unsigned a[4];
    MatrixDescriptor b;
    bool add;
    Site site;

    static float cut(unsigned bits)
    {
        bits &= TF32;
        float value;
        memcpy(&value, &bits, sizeof(value));
        return value;
    }

    static void multiply(void* const* threads, unsigned)
    {
        const GroupProductTf32& first = *static_cast<GroupProductTf32*>(threads[0]);
        for (unsigned t = 0; t < WARPGROUP; ++t) {
            const GroupProductTf32& other = *static_cast<GroupProductTf32*>(threads[t]);
            if (other.b != first.b || other.add != first.add)
                fail("the threads of a warpgroup multiply different matrices", first.site);
        }
        if (first.b % ROW_CHUNKS % 2) fail("wgmma needs rows aligned to 128 bytes, or 32, 64 or 96 bytes further", first.site);
        start(threads);
    }

#ifdef HOST_CUDA_HAZARDS
    static void start(void* const* threads)
    {
        constexpr int chunks = K / FLOATS;
        float* accumulators[WARPGROUP];
        std::vector<GroupProductTf32> copies;
        for (unsigned t = 0; t < WARPGROUP; ++t) {
            copies.push_back(*static_cast<GroupProductTf32*>(threads[t]));
            accumulators[t] = copies[t].d;
        }
        uint64_t of_b[COLUMNS * chunks];
        for (int row = 0; row < COLUMNS * chunks; ++row)
            of_b[row] = GroupProduct<count>::chunk_address(copies[0].b, row / chunks, row % chunks);
        const hazards::Product product{nullptr, of_b, 0, COLUMNS * chunks, accumulators, count};
        const Site site = copies[0].site;
        hazards::start_product(product, site, [copies]() mutable {
            void* threads[WARPGROUP];
            for (unsigned t = 0; t < WARPGROUP; ++t) threads[t] = &copies[t];
            carry_out(threads);
        });
    }
#else
    static void start(void* const* threads) { carry_out(threads); }
#endif

    // Thread t has rows 16 (t / 32) + t % 32 / 4 and eight further; in a[2 j + h] value t % 4 + 4 j of K.
    static void carry_out(void* const* threads)
    {
        const GroupProductTf32& first = *static_cast<GroupProductTf32*>(threads[0]);
        float columns[K][COLUMNS];
        for (int column = 0; column < COLUMNS; ++column)
            for (int k = 0; k < K; ++k) {
                const uint64_t chunk = GroupProduct<count>::chunk_address(first.b, column, k / FLOATS);
                columns[k][column] = cut(reinterpret_cast<const unsigned*>(chunk)[k % FLOATS]);
            }
        for (int row = 0; row < ROWS; ++row) {
            const int half = row / 8 % 2, of_row = row / 16 * 32 + row % 8 * 4;
            GroupProductTf32* quarters[4];
            for (int i = 0; i < 4; ++i) quarters[i] = static_cast<GroupProductTf32*>(threads[of_row + i]);
            float sums[COLUMNS] = {};
            if (first.add)
                for (int column = 0; column < COLUMNS; ++column)
                    sums[column] = quarters[column / 2 % 4]->d[column / 8 * 4 + 2 * half + column % 2];
            for (int k = 0; k < K; ++k) {
                const float factor = cut(quarters[k % 4]->a[k / 4 * 2 + half]);
                for (int column = 0; column < COLUMNS; ++column) sums[column] += factor * columns[k][column];
            }
            for (int column = 0; column < COLUMNS; ++column)
                quarters[column / 2 % 4]->d[column / 8 * 4 + 2 * half + column % 2] = sums[column];
        }
    }
};

}  // namespace host_cuda

inline MatrixDescriptor swizzled_descriptor(const void* rows, host_cuda::Site site = host_cuda::here())
{
    if (host_cuda::misalignment(rows, sizeof(host_cuda::Chunk)))
        host_cuda::fail("wgmma needs rows aligned to 128 bytes, or 32, 64 or 96 bytes further", site);
    return reinterpret_cast<size_t>(rows) / sizeof(host_cuda::Chunk);
}

inline MatrixDescriptor unswizzled_descriptor(const void* rows, int distance, host_cuda::Site site = host_cuda::here())
{
    constexpr int UNIT = sizeof(host_cuda::Chunk), MOST = 1 << 14;  // a descriptor of a GPU has 14 bits for a distance
    if (host_cuda::misalignment(rows, UNIT) || distance % UNIT || distance < UNIT || distance / UNIT >= MOST)
        host_cuda::fail("wgmma needs planes aligned to 16 bytes, less than 2^18 bytes apart", site);
    return reinterpret_cast<size_t>(rows) / UNIT | MatrixDescriptor(distance / UNIT) << host_cuda::ADDRESS_BITS;
}

inline MatrixDescriptor transposed_descriptor(const void* rows, int distance, host_cuda::Site site = host_cuda::here())
{
    constexpr int UNIT = sizeof(host_cuda::Chunk), MOST = 1 << 14;
    if (host_cuda::misalignment(rows, ATOM_BYTES) || distance % ATOM_BYTES || distance < ATOM_BYTES || distance / UNIT >= MOST)
        host_cuda::fail("transposed, wgmma needs planes aligned to 1024 bytes, less than 2^18 bytes apart", site);
    return reinterpret_cast<size_t>(rows) / UNIT | MatrixDescriptor(distance / UNIT) << host_cuda::ADDRESS_BITS;
}

inline MatrixDescriptor advance_descriptor(MatrixDescriptor matrix, int bytes)
{
    return matrix + MatrixDescriptor(bytes / int(sizeof(host_cuda::Chunk)));
}

template <int count>
void wgmma_fp16(float (&d)[count], MatrixDescriptor a, MatrixDescriptor b, bool add,
                   host_cuda::Site site = host_cuda::here())
{
    static_assert(count == 16 || count == 32 || count == 48 || count == 64 || count == 80 || count == 96 || count == 128,
                  "products of a warpgroup have 32, 64, 96, 128, 160, 192 or 256 columns");
    host_cuda::GroupProduct<count> mine{d, a, b, add, site};
    host_cuda::wait_for_warpgroup(host_cuda::GroupProduct<count>::multiply, &mine, site);
}

template <int count>
void wgmma_fp16_transposed(float (&d)[count], MatrixDescriptor a, MatrixDescriptor b, bool add,
                           host_cuda::Site site = host_cuda::here())
{
    static_assert(count % 8 == 0 && count <= 128, "products of a warpgroup have up to 256 columns");
    using Product = host_cuda::GroupProduct<count, true>;
    Product mine{d, a, b, add, site};
    host_cuda::wait_for_warpgroup(Product::multiply, &mine, site);
}

template <int count>
void wgmma_tf32(float (&d)[count], const unsigned (&a)[4], MatrixDescriptor b, bool add,
                host_cuda::Site site = host_cuda::here())
{
    static_assert(count == 32 || count == 48 || count == 64 || count == 96 || count == 128,
                  "products of a warpgroup have 64, 96, 128, 192 or 256 columns");
    host_cuda::GroupProductTf32<count> mine{d, {a[0], a[1], a[2], a[3]}, b, add, site};
    host_cuda::wait_for_warpgroup(host_cuda::GroupProductTf32<count>::multiply, &mine, site);
}

inline void warpgroup_fence() { host_cuda::hazards::fence_products(); }
inline void warpgroup_commit_group() { host_cuda::hazards::commit_products(); }

template <int open>
void warpgroup_wait_group()
{
    static_assert(open >= 0);
    host_cuda::hazards::wait_for_products(open);
}

template <int registers>
void warpgroup_reg_alloc()
{
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0);
}

template <int registers>
void warpgroup_reg_dealloc()
{
    static_assert(registers >= 24 && registers <= 256 && registers % 8 == 0);
}
