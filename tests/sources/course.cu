// As a student writes it: a tiled kernel with the course's usual macros, and its own launch code.
#include <cuda_runtime.h>
#include <stdio.h>
#define TILE_WIDTH 8

__global__ void conv_forward_kernel(float *y, const float *x, const float *w, const int B, const int M, const int C,
                                    const int H, const int W, const int K, const int S)
{
#define y4d(i3, i2, i1, i0) y[(i3) * (M * H_out * W_out) + (i2) * (H_out * W_out) + (i1) * (W_out) + i0]
#define x4d(i3, i2, i1, i0) tile[((i2) * X_tile + (i1)) * X_tile + i0]
#define w4d(i3, i2, i1, i0) w[(i3) * (C * K * K) + (i2) * (K * K) + (i1) * (K) + i0]
    extern __shared__ float tile[];
    const int H_out = (H - K) / S + 1, W_out = (W - K) / S + 1, X_tile = (TILE_WIDTH - 1) * S + K;
    const int W_size = (W_out + TILE_WIDTH - 1) / TILE_WIDTH;
    const int m = blockIdx.x, b = blockIdx.z;
    const int h0 = blockIdx.y / W_size * TILE_WIDTH, w0 = blockIdx.y % W_size * TILE_WIDTH;
    for (int c = 0; c < C; c++)
        for (int i = threadIdx.y; i < X_tile; i += TILE_WIDTH)
            for (int j = threadIdx.x; j < X_tile; j += TILE_WIDTH) {
                const int h = h0 * S + i, v = w0 * S + j;
                x4d(b, c, i, j) = h < H && v < W ? x[((b * C + c) * H + h) * W + v] : 0.0f;
            }
    __syncthreads();
    const int h = h0 + threadIdx.y, v = w0 + threadIdx.x;
    if (h >= H_out || v >= W_out) return;
    float acc = 0.0f;
    for (int c = 0; c < C; c++)
        for (int p = 0; p < K; p++)
            for (int q = 0; q < K; q++) acc += x4d(b, c, threadIdx.y * S + p, threadIdx.x * S + q) * w4d(m, c, p, q);
    y4d(b, m, h, v) = acc;
}

void conv_forward(float *y, const float *x, const float *w, int B, int M, int C, int H, int W, int K, int S)
{
    const int H_out = (H - K) / S + 1, W_out = (W - K) / S + 1;
    const int W_size = (W_out + TILE_WIDTH - 1) / TILE_WIDTH, H_size = (H_out + TILE_WIDTH - 1) / TILE_WIDTH;
    const int X_tile = (TILE_WIDTH - 1) * S + K;
    dim3 blockDim(TILE_WIDTH, TILE_WIDTH, 1);
    dim3 gridDim(M, W_size * H_size, B);
    conv_forward_kernel<<<gridDim, blockDim, C * X_tile * X_tile * sizeof(float)>>>(
        y, x, w, B, M, C, H, W, K, S);
    cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess) printf("CUDA error: %s\n", cudaGetErrorString(error));
}
