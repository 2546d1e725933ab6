// Halves, vectors, atomics, scalars and tensor-core products.
#include <cuda_fp16.h>
#include <mma.h>

extern "C" __global__ void halves(const half* a,  // [n]
                                  const half* b,  // [n]
                                  const half* c,  // [n]
                                  half* y,        // [6][n]
                                  int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = a[i] + b[i];
    y[n + i] = a[i] - b[i];
    y[2 * n + i] = a[i] * b[i];
    y[3 * n + i] = a[i] / b[i];
    y[4 * n + i] = __hfma(a[i], b[i], c[i]);
    const half2 pair = __hfma2(__halves2half2(a[i], b[i]), __half2half2(c[i]), __halves2half2(b[i], a[i]));
    y[5 * n + i] = __hadd(__low2half(pair), __high2half(pair));
}

extern "C" __global__ void conversions(const double* x,  // [n]
                                       half* from_float, // [n]
                                       half* from_double, // [n]
                                       float* back,      // [n]
                                       int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    from_float[i] = __float2half(float(x[i]));
    from_double[i] = __double2half(x[i]);
    back[i] = __half2float(from_double[i]);
}

extern "C" __global__ void vectors(const float4* x,  // [n/4]
                                   float2* y,        // [n/4]
                                   float scale, size_t offset)
{
    const float4 v = __ldg(&x[threadIdx.x]);
    float2 sums = make_float2(v.x + v.y, v.z + v.w);
    sums.x = fmaf(sums.x, scale, 1.f);
    __stcs(&y[threadIdx.x], make_float2(max(sums.x, 0.f), sums.y + offset));
}

extern "C" __global__ void atomics(int* i,           // [6]
                                   unsigned* u,      // [1]
                                   float* f,         // [1]
                                   double* d,        // [1]
                                   half2* h)         // [1]
{
    const int rank = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&i[0], rank);
    atomicMax(&i[1], rank);
    atomicMin(&i[2], -rank);
    atomicOr(&i[3], 1 << rank % 31);
    if (rank == 7) atomicExch(&i[4], rank);
    int old = i[5], seen;
    do {
        seen = old;
        old = atomicCAS(&i[5], seen, seen + 2);
    } while (old != seen);
    atomicInc(u, 9);
    atomicAdd(f, 1);
    atomicAdd(d, 0.5);
    if (rank < 100) atomicAdd(h, __floats2half2_rn(1, 2));
}

// Each thread adds to its own element of global, static shared and dynamic shared memory.
extern "C" __global__ void underflow(const float* a,  // [n], n of 64 at most
                                     const float* b,  // [n]
                                     float* y)        // [3][n]
{
#ifdef HOST_CUDA
    float* dynamic = static_cast<float*>(host_cuda::dynamic_shared());
#else
    extern __shared__ float dynamic[];
#endif
    __shared__ float shared[64];
    const int i = threadIdx.x, n = blockDim.x;
    y[i] = shared[i] = dynamic[i] = a[i];
    atomicAdd(&y[i], b[i]);
    atomicAdd(&shared[i], b[i]);
    atomicAdd(&dynamic[i], b[i]);
    y[n + i] = shared[i];
    y[2 * n + i] = dynamic[i];
}

extern "C" __global__ void bits(const unsigned* a,  // [n]
                                const unsigned* b,  // [n]
                                unsigned* y)        // [9][n]
{
    const int i = threadIdx.x, n = blockDim.x;
    const unsigned results[] = {unsigned(__popc(a[i])), unsigned(__clz(a[i])), unsigned(__ffs(a[i])), __brev(a[i]),
                                __umulhi(a[i], b[i]), unsigned(__mulhi(a[i], b[i])), __byte_perm(a[i], b[i], 0x2705),
                                __funnelshift_l(a[i], b[i], 9), __funnelshift_r(a[i], b[i], 9)};
    for (int k = 0; k < 9; ++k) y[k * n + i] = results[k];
}

extern "C" __global__ void functions(const float* a,  // [n]
                                     const float* b,  // [n]
                                     float* y)        // [9][n]
{
    const int i = threadIdx.x, n = blockDim.x;
    const float results[] = {__fmaf_rn(a[i], b[i], 1), __fadd_rn(__fmul_rn(a[i], b[i]), 1), float(__float2int_rn(a[i])),
                             float(__float2int_rz(a[i])), float(__float2int_rd(a[i])), __saturatef(a[i]),
                             rsqrtf(fabsf(a[i])), __int_as_float(__float_as_int(a[i]) & 0x7fffffff),
                             __fdividef(a[i], b[i])};
    for (int k = 0; k < 9; ++k) y[k * n + i] = results[k];
}

// D = A B + C for one 16 x 16 x 16 product, with A or B transposed in memory as the types say.
template <class LayoutA, class LayoutB, class T>
__device__ void product(const half* a, const half* b, const T* c, T* d)
{
    using namespace nvcuda;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, LayoutA> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, LayoutB> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, T> fc;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::load_matrix_sync(fc, c, 16, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc);
    for (int i = 0; i < fc.num_elements; ++i) fc.x[i] = fc.x[i] * T(2.f);
    wmma::store_matrix_sync(d, fc, 16, wmma::mem_row_major);
}

extern "C" __global__ void wmma_float(const half* a, const half* b, const float* c, float* d)  // [16][16] each
{
    using namespace nvcuda::wmma;
    product<row_major, col_major, float>(a, b, c, d);
}

extern "C" __global__ void wmma_half(const half* a, const half* b, const half* c, half* d)  // [16][16] each
{
    using namespace nvcuda::wmma;
    product<col_major, row_major, half>(a, b, c, d);
}

extern "C" __global__ void wmma_misaligned(const half* a, const half* b, const float* c, float* d)
{
    using namespace nvcuda::wmma;
    product<row_major, row_major, float>(a + 1, b, c, d);
}
