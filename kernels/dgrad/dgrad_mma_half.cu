// dgrad-mma-half: the kernel of mma-half on dy, with filters turned and transposed.
//
// Technique: dgrad as a convolution of dy with turned filters; tensor cores (mma.sync) on fp16 operands in NHWC.
// Read next: turned_filters.cuh, then mma/mma_half.cu.
// Run: alexconv run --rungs dgrad-mma-half --layers 3
//
// Parent: dgrad-direct, whose products are one by one on CUDA cores, in fp32.  The forward kernel multiplies fp16
// operands, channels innermost, on tensor cores.  At stride 1 the gradient of the input is itself a convolution: of dy,
// padded by what a filter reaches beyond the layer's own padding, with each filter rotated and channels in place of
// filters.  So all that the forward kernel does for the forward pass it does here.
//
// The kernels are those of the forward rung, compiled for the turned layer, on dy in place of x and dx in place of y;
// those that prepare filters read them turned.
#include "turned_filters.cuh"
#include "../mma/mma_half.cu"
