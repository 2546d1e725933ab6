// dgrad-mma-scaled: the kernel of mma-scaled on dy, with filters turned and transposed.
//
// Technique: dgrad as a convolution of dy with turned filters; scaled fp16 operands on tensor cores (mma.sync).
// Read next: turned_filters.cuh, then mma/mma_scaled.cu.
// Run: alexconv run --rungs dgrad-mma-scaled --layers 3
//
// Parent: dgrad-direct, whose products are one by one on CUDA cores.  The forward kernel rounds scaled operands to
// fp16: tf32's accuracy from tensor cores, in NCHW, for small batches.  At stride 1 the gradient of the input is itself
// a convolution: of dy, padded by what a filter reaches beyond the layer's own padding, with each filter rotated and
// channels in place of filters.  So all that the forward kernel does for the forward pass it does here.
//
// The kernels are those of the forward rung, compiled for the turned layer, on dy in place of x and dx in place of y;
// those that prepare filters read them turned.
#include "turned_filters.cuh"
#include "../mma/mma_scaled.cu"
