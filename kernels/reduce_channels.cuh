// Second kernel of the multi-kernel rungs: adds the partial planes of each output.  Grid N x M, block as the first's.
#pragma once
#include "plane.cuh"

constexpr int PARTS = (C + CHANNELS - 1) / CHANNELS;  // partial planes of one output plane

extern "C" __global__ void reduce_channels(const float* __restrict__ partial,  // [N][M][PARTS][E][F]
                                           float* __restrict__ y)              // [N][M][E][F]
{
    const size_t plane = (size_t)blockIdx.x * M + blockIdx.y;
    partial += plane * PARTS * E * F;
    y += plane * E * F;
    for (int i = 0; i < OUTPUTS; ++i)
        for (int j = 0; j < OUTPUTS; ++j) {
            const int e = output_row(i), f = output_column(j);
            if (e >= E || f >= F) continue;
            float sum = 0;
            for (int part = 0; part < PARTS; ++part) sum += partial[(part * E + e) * F + f];
            y[e * F + f] = sum;
        }
}
