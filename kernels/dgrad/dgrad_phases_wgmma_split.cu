// dgrad-phases-wgmma-split: the kernel of wgmma-split on dy, with the phases of the stride as channels.
//
// Technique: dgrad of a strided layer as one convolution of dy at stride 1 (sub-pixel convolution: filters taken apart
// by phase, depth-to-space); split-fp16 emulation of fp32 with wgmma and TMA.
// Read next: dgrad/phases.cuh, then wgmma/wgmma_split.cu.
// Run: alexconv run --rungs dgrad-phases-wgmma-split --layers 1
//
// Parent: dgrad-phases, whose products are one by one on CUDA cores.  Here the problems of all phases are one, with U x
// U filters for each channel, that the forward kernel computes on tensor cores: hi and lo fp16 terms, fp32's accuracy.
//
// interleave: a thread writes values of dx, from their phases' outputs.  The other kernels are those of the forward rung,
// compiled for the convolution of dy; those that prepare filters read them turned.
#include "phases.cuh"
#include "../wgmma/wgmma_split.cu"

extern "C" __global__ void __launch_bounds__(INTERLEAVE_THREADS)
    interleave(const float* __restrict__ phases,  // [N][M][E][F]
               const float* __restrict__ dy,      // [N][LAYER_M][LAYER_E][LAYER_F]
               const float* __restrict__ w,       // [LAYER_M][LAYER_C][LAYER_R][LAYER_S]
               float* __restrict__ dx,            // [N][LAYER_C][LAYER_H][LAYER_W]
               long long N)
{
    interleave_phases<false>(phases, dy, w, dx, N);
}
