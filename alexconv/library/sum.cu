// The gradient of a layer's bias: for each filter the sum of dy over the pixels of all images.  Its shape is an argument
// of the launch, its axes lie in any order.  No rung uses it.
//
// sum_slices: a block sums some images of `across` filters: of one, or of 32 whose values are neighbours, so that loads
// are coalesced.  Each thread sums its pixels of an image, then images; the threads' sums are added in a tree.
// sum_partials: a thread adds the slices of a filter one after the other.  No sum depends on which block ends first, so
// every run has the same bits.
#if ELEMENT_BYTES == 2
#include <cuda_fp16.h>
using Element = __half;
#else
using Element = float;
#endif

constexpr int THREADS = 256;  // as in library/generic.py

struct Planes {
    long long N, M, E, F;   // of dy
    long long n, m, e, f;   // elements from one to the next along each axis
    long long across, images;  // filters of a block, images of a slice
};

extern "C" __global__ void __launch_bounds__(THREADS)
    sum_slices(const Element* __restrict__ dy,  // [N][M][E][F] in any order
               float* __restrict__ partial,     // [slices][M]
               Planes planes)
{
    __shared__ float sums[THREADS];
    const int across = planes.across, pixels = planes.E * planes.F, columns = planes.F;
    const long long m = blockIdx.x * planes.across + threadIdx.x % across;
    const long long first = blockIdx.y * planes.images;
    float sum = 0;
    if (m < planes.M)
        for (long long n = first; n < first + planes.images && n < planes.N; ++n) {
            const Element* plane = dy + n * planes.n + m * planes.m;
            float of_image = 0;
            for (int pixel = threadIdx.x / across; pixel < pixels; pixel += THREADS / across)
                of_image += float(plane[pixel / columns * planes.e + pixel % columns * planes.f]);
            sum += of_image;
        }
    sums[threadIdx.x] = sum;
    for (int half = THREADS / 2; half >= across; half /= 2) {
        __syncthreads();  // the sums that the next step adds are complete
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x < across && m < planes.M) partial[blockIdx.y * planes.M + m] = sums[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(THREADS)
    sum_partials(const float* __restrict__ partial,  // [slices][M]
                 Element* __restrict__ sums,         // [M]
                 long long M, long long slices)
{
    const long long m = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (m >= M) return;
    float sum = 0;
    for (long long slice = 0; slice < slices; ++slice) sum += partial[slice * M + m];
    sums[m] = Element(sum);
}
