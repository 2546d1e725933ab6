// $name: the forward pass of a convolution layer.
#include <cmath>
#include <cuda_runtime.h>
#include <iostream>

#define TILE_WIDTH 16

// y[b][m][h][w] is the sum, over channels c and the K x K filter, of x[b][c][h * S + p][w * S + q] * w[m][c][p][q].
// All arrays are float; H_out = (H - K) / S + 1, W_out = (W - K) / S + 1.
__global__ void conv_forward_kernel(float *y, const float *x, const float *w, int B, int M, int C, int H, int W, int K,
                                    int S)
{
    const int H_out = (H - K) / S + 1;
    const int W_out = (W - K) / S + 1;

#define y4d(i3, i2, i1, i0) y[(i3) * (M * H_out * W_out) + (i2) * (H_out * W_out) + (i1) * (W_out) + i0]
#define x4d(i3, i2, i1, i0) x[(i3) * (C * H * W) + (i2) * (H * W) + (i1) * (W) + i0]
#define w4d(i3, i2, i1, i0) w[(i3) * (C * K * K) + (i2) * (K * K) + (i1) * (K) + i0]

    // TODO: compute this thread's output.

#undef y4d
#undef x4d
#undef w4d
}

// Launches the kernel on arrays that are on the device already.
void conv_forward(float *y, const float *x, const float *w, int B, int M, int C, int H, int W, int K, int S)
{
    const int H_out = (H - K) / S + 1;
    const int W_out = (W - K) / S + 1;

    // TODO: choose the grid: every output needs a thread.
    dim3 block(TILE_WIDTH, TILE_WIDTH, 1);
    dim3 grid(1, 1, 1);
    conv_forward_kernel<<<grid, block>>>(y, x, w, B, M, C, H, W, K, S);

    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) std::cout << "CUDA error: " << cudaGetErrorString(error) << std::endl;
}
