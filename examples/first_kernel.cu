// Adds two arrays on a GPU: a kernel, its launch, memory, errors.  docs/book/00-first.md goes through it.
//
//     nvcc -o first_kernel examples/first_kernel.cu
//     ./first_kernel
#include <cstdio>
#include <cstdlib>

// Ends the program if a CUDA call fails, with the line and the reason.
#define CHECK(call) check(call, __LINE__)

void check(cudaError_t error, int line)
{
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "first_kernel.cu:%d: %s\n", line, cudaGetErrorString(error));
    std::exit(1);
}

// A thread computes one element of the sum.
__global__ void add(const float* a, const float* b, float* sum, int n)  // [n] each
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}

int main()
{
    constexpr int N = 1000, THREADS = 256, BLOCKS = (N + THREADS - 1) / THREADS;
    static float host_a[N], host_b[N], host_sum[N];
    for (int i = 0; i < N; ++i) host_a[i] = i, host_b[i] = 2 * i;

    float *a, *b, *sum;  // [N] each, in the GPU's memory
    CHECK(cudaMalloc(&a, sizeof host_a));
    CHECK(cudaMalloc(&b, sizeof host_b));
    CHECK(cudaMalloc(&sum, sizeof host_sum));
    CHECK(cudaMemcpy(a, host_a, sizeof host_a, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, host_b, sizeof host_b, cudaMemcpyHostToDevice));

    add<<<BLOCKS, THREADS>>>(a, b, sum, N);
    CHECK(cudaGetLastError());  // a launch returns nothing: an error of its own is asked for here
    CHECK(cudaMemcpy(host_sum, sum, sizeof host_sum, cudaMemcpyDeviceToHost));  // waits for the kernel

    for (int i = 0; i < N; ++i)
        if (host_sum[i] != 3 * i) std::printf("sum[%d] is %g, not %d\n", i, host_sum[i], 3 * i);
    std::printf("%d blocks of %d threads: sum[%d] = %g\n", BLOCKS, THREADS, N - 1, host_sum[N - 1]);
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(sum));
}
