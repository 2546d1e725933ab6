// dgrad-wgmma-split: the kernel of wgmma-split on dy, with filters turned and transposed.
//
// Technique: dgrad as a convolution of dy with turned filters; split-fp16 emulation of fp32 with wgmma and TMA.
// Read next: turned_filters.cuh, then wgmma/wgmma_split.cu.
// Run: alexconv run --rungs dgrad-wgmma-split --layers 3
//
// Parent: dgrad-direct, whose products are one by one on CUDA cores.  The forward kernel splits operands into hi and lo
// fp16 terms: fp32's accuracy from Hopper's tensor cores, for large batches.  At stride 1 the gradient of the input is
// itself a convolution: of dy, padded by what a filter reaches beyond the layer's own padding, with each filter rotated
// and channels in place of filters.  So all that the forward kernel does for the forward pass it does here.
//
// The kernels are those of the forward rung, compiled for the turned layer, on dy in place of x and dx in place of y;
// those that prepare filters read them turned.
#include "turned_filters.cuh"
#include "../wgmma/wgmma_split.cu"
