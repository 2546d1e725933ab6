// mma: matrices spread over the lanes of a warp as the PTX ISA lays them out, and their products.
//
// With g = lane / 4 and t = lane % 4, a word of two halves, or one tf32 number, of a lane stands for
//   A, 16 rows:     row g in words 0 and 2, row g + 8 in words 1 and 3; the first half of K in words 0 and 1
//   B, 8 columns:   column g; the first half of K in word 0, the second in word 1
//   within a half of K: halves 2 t and 2 t + 1, or tf32 number t
//   d, 16 x 8:      row g in floats 0 and 1, row g + 8 in floats 2 and 3; columns 2 t and 2 t + 1
// (PTX ISA, "Matrix fragments for mma.m16n8k16" and "for mma.m16n8k8".)  Turing multiplies one half of K, then the other.
#pragma once

namespace host_cuda {

// Two halves in a word.
struct HalfPairs {
    static constexpr int count = 2;

    static void read(unsigned word, float* values)
    {
        values[0] = widen(word & 0xffff);
        values[1] = widen(word >> 16);
    }
};

// A float, of which tensor cores do not see the lower 13 bits.
struct Tf32 {
    static constexpr int count = 1;
    static constexpr unsigned unseen = 0x1fff;

    static void read(unsigned word, float* values) { values[0] = same_bits<float>(word & ~unseen); }
};

// d += a b.  The last lane to arrive multiplies for all.
template <class Word>
struct WarpProduct {
    static constexpr int rows = 16, columns = 8, K = 8 * Word::count;
#if __CUDA_ARCH__ < 800
    static constexpr int DEPTH = K / 2;  // of an instruction
#else
    static constexpr int DEPTH = K;
#endif

    float* d;           // [4]
    const unsigned* a;  // [4]
    const unsigned* b;  // [2]
    Site site;

    static void multiply(void* const* lanes, unsigned present)
    {
        const WarpProduct& first = *static_cast<WarpProduct*>(lanes[__builtin_ctz(present)]);
        if (present != ALL_LANES) fail("a product needs all 32 lanes of a warp", first.site);
        float a[rows][K], b[columns][K], transposed[K][columns];
        for (unsigned lane = 0; lane < WARP; ++lane) {
            const WarpProduct& mine = *static_cast<WarpProduct*>(lanes[lane]);
            const unsigned g = lane / 4, k = lane % 4 * Word::count;
            for (int word = 0; word < 4; ++word) Word::read(mine.a[word], &a[g + word % 2 * 8][k + word / 2 * K / 2]);
            for (int word = 0; word < 2; ++word) Word::read(mine.b[word], &b[g][k + word * K / 2]);
        }
        for (int k = 0; k < K; ++k)
            for (int n = 0; n < columns; ++n) transposed[k][n] = b[n][k];
        for (unsigned g = 0; g < 8; ++g)
            for (int lower = 0; lower < 2; ++lower)
                for (int first = 0; first < K; first += DEPTH) {
                    float sums[columns] = {};
                    for (int k = first; k < first + DEPTH; ++k)
                        for (int n = 0; n < columns; ++n) sums[n] += a[g + 8 * lower][k] * transposed[k][n];
                    for (int n = 0; n < columns; ++n)
                        static_cast<WarpProduct*>(lanes[g * 4 + n / 2])->d[2 * lower + n % 2] += sums[n];
                }
    }
};

template <class Word>
void multiply_in_warp(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], Site site)
{
    WarpProduct<Word> mine{d, a, b, site};
    wait_for_warp(ALL_LANES, WarpProduct<Word>::multiply, &mine, site);
}

}  // namespace host_cuda

inline void warp_mma_fp16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                          host_cuda::Site site = host_cuda::here())
{
    host_cuda::multiply_in_warp<host_cuda::HalfPairs>(d, a, b, site);
}

inline void warp_mma_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                          host_cuda::Site site = host_cuda::here())
{
    host_cuda::multiply_in_warp<host_cuda::Tf32>(d, a, b, site);
}

// Adding half of the last bit that stays, to the magnitude, rounds to nearest and ties away from zero.
inline unsigned to_tf32(float value)
{
    constexpr unsigned half = (host_cuda::Tf32::unseen + 1) / 2, a_nan = 0x7fffffff;
    if (value != value) return a_nan;
    return (__float_as_uint(value) + half) & ~host_cuda::Tf32::unseen;
}
