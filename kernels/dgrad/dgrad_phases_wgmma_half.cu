// dgrad-phases-wgmma-half: the kernel of wgmma-half on dy, with the phases of the stride as channels.
//
// Technique: dgrad of a strided layer as one convolution of dy at stride 1 (sub-pixel convolution: filters taken apart
// by phase, depth-to-space); wgmma on fp16 operands in NHWC, TMA in im2col mode.
// Read next: dgrad/phases.cuh, then wgmma/wgmma_half.cu.
// Run: alexconv run --rungs dgrad-phases-wgmma-half --layers 1
//
// Parent: dgrad-phases, whose products are one by one on CUDA cores.  Here the problems of all phases are one, with U x
// U filters for each channel, that the forward kernel computes on tensor cores: fp16, channels innermost.
//
// interleave: a thread writes values of dx, from their phases' outputs.  The other kernels are those of the forward rung,
// compiled for the convolution of dy; those that prepare filters read them turned.
#include "phases.cuh"
#include "../wgmma/wgmma_half.cu"

extern "C" __global__ void __launch_bounds__(INTERLEAVE_THREADS)
    interleave(const __half* __restrict__ phases,  // [N][E][F][M]
               const __half* __restrict__ dy,      // [N][LAYER_E][LAYER_F][LAYER_M]
               const __half* __restrict__ w,       // [LAYER_M][LAYER_C][LAYER_R][LAYER_S]
               __half* __restrict__ dx,            // [N][LAYER_H][LAYER_W][LAYER_C]
               long long N)
{
    interleave_phases<true>(phases, dy, w, dx, N);
}
