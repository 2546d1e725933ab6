// nvcuda::wmma: products of 16 x 16 x 16 matrices of halves (also 32 x 8 x 16 and 8 x 32 x 16), by the lanes of a warp.
//
// CUDA leaves open which lane holds which element.  Here lane l holds row-major elements [l * n, (l + 1) * n) with
// n = num_elements; on a GPU the elements of A and B are held twice, so use num_elements and never a number.
#pragma once

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K>
struct Extent;  // rows and columns of a fragment
template <int M, int N, int K>
struct Extent<matrix_a, M, N, K> {
    static constexpr int rows = M, columns = K;
};
template <int M, int N, int K>
struct Extent<matrix_b, M, N, K> {
    static constexpr int rows = K, columns = N;
};
template <int M, int N, int K>
struct Extent<accumulator, M, N, K> {
    static constexpr int rows = M, columns = N;
};

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment : Extent<Use, M, N, K> {
    static_assert(K == 16 && M * N == 256 && M >= 8 && N >= 8, "wmma of halves: 16x16x16, 32x8x16 or 8x32x16");
    static constexpr int num_elements = fragment::rows * fragment::columns / int(host_cuda::WARP);
    T x[num_elements];
};

// Where element i of this lane lies in memory; consecutive rows, or columns, are `stride` elements apart.
template <class Fragment>
size_t offset(int i, unsigned stride, layout_t layout)
{
    const unsigned element = host_cuda::lane() * Fragment::num_elements + i;
    const size_t row = element / Fragment::columns, column = element % Fragment::columns;
    return layout == mem_row_major ? row * stride + column : column * stride + row;
}

// What CUDA asks of an address and a stride; a GPU would fault or read elsewhere.
template <class T>
void check_alignment(const T* address, unsigned stride, host_cuda::Site site)
{
    constexpr size_t address_bytes = 32, stride_bytes = 16;
    if (reinterpret_cast<size_t>(address) % address_bytes)
        host_cuda::fail("wmma needs an address aligned to 32 bytes", site);
    if (stride * sizeof(T) % stride_bytes)
        host_cuda::fail("wmma needs a stride that is a multiple of 16 bytes", site);
}

template <class Layout>
constexpr layout_t memory_layout = std::is_same_v<Layout, col_major> ? mem_col_major : mem_row_major;

template <class Use, int M, int N, int K, class T, class Layout, class Value>
void fill_fragment(fragment<Use, M, N, K, T, Layout>& f, const Value& value)
{
    for (T& x : f.x) x = value;
}

template <class Use, int M, int N, int K, class T, class Layout>
void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& f, const T* address, unsigned stride,
                      host_cuda::Site site = host_cuda::here())
{
    check_alignment(address, stride, site);
    using Fragment = fragment<Use, M, N, K, T, Layout>;
    for (int i = 0; i < f.num_elements; ++i) f.x[i] = address[offset<Fragment>(i, stride, memory_layout<Layout>)];
}

template <int M, int N, int K, class T>
void load_matrix_sync(fragment<accumulator, M, N, K, T>& f, const T* address, unsigned stride, layout_t layout,
                      host_cuda::Site site = host_cuda::here())
{
    check_alignment(address, stride, site);
    using Fragment = fragment<accumulator, M, N, K, T>;
    for (int i = 0; i < f.num_elements; ++i) f.x[i] = address[offset<Fragment>(i, stride, layout)];
}

template <int M, int N, int K, class T>
void store_matrix_sync(T* address, const fragment<accumulator, M, N, K, T>& f, unsigned stride, layout_t layout,
                       host_cuda::Site site = host_cuda::here())
{
    check_alignment(address, stride, site);
    using Fragment = fragment<accumulator, M, N, K, T>;
    for (int i = 0; i < f.num_elements; ++i) address[offset<Fragment>(i, stride, layout)] = f.x[i];
}

// D = A B + C.  The last lane to arrive multiplies for all: the others' fragments stay on their stacks.
template <int M, int N, int K, class D, class A, class B, class C>
struct Product {
    D* d;
    const A* a;
    const B* b;
    const C* c;
    host_cuda::Site site;

    template <class Fragment>
    static void gather(void* const* lanes, const Fragment* Product::*part, float* matrix)
    {
        for (unsigned lane = 0; lane < host_cuda::WARP; ++lane)
            for (const auto& element : (static_cast<Product*>(lanes[lane])->*part)->x) *matrix++ = float(element);
    }

    static void multiply(void* const* lanes, unsigned present)
    {
        const Product& first = *static_cast<Product*>(lanes[__builtin_ctz(present)]);
        if (present != host_cuda::ALL_LANES) host_cuda::fail("mma_sync needs all 32 lanes of a warp", first.site);
        float a[M * K], b[K * N], c[M * N];
        gather(lanes, &Product::a, a);
        gather(lanes, &Product::b, b);
        gather(lanes, &Product::c, c);
        for (int m = 0; m < M; ++m)
            for (int k = 0; k < K; ++k)
                for (int n = 0; n < N; ++n) c[m * N + n] += a[m * K + k] * b[k * N + n];
        const float* result = c;
        for (unsigned lane = 0; lane < host_cuda::WARP; ++lane)
            for (auto& element : static_cast<Product*>(lanes[lane])->d->x) element = *result++;
    }
};

template <int M, int N, int K, class TD, class LA, class LB, class TC>
void mma_sync(fragment<accumulator, M, N, K, TD>& d, const fragment<matrix_a, M, N, K, __half, LA>& a,
              const fragment<matrix_b, M, N, K, __half, LB>& b, const fragment<accumulator, M, N, K, TC>& c,
              host_cuda::Site site = host_cuda::here())
{
    using Operands = Product<M, N, K, fragment<accumulator, M, N, K, TD>, fragment<matrix_a, M, N, K, __half, LA>,
                             fragment<matrix_b, M, N, K, __half, LB>, fragment<accumulator, M, N, K, TC>>;
    Operands mine{&d, &a, &b, &c, site};
    host_cuda::wait_for_warp(host_cuda::ALL_LANES, Operands::multiply, &mine, site);
}

}  // namespace nvcuda::wmma
