// Convolution as GEMM: filters [M][K] times the im2col matrix [K][PIXELS] of an image gives its output [M][PIXELS].
//
// Gives: K, PIXELS; shape.cuh.
//
// Column p of the im2col matrix, the unrolled input, holds the inputs of output pixel p = e*F + f; row
// k = (c*R + r)*S + s the inputs under tap (c, r, s) of every filter.  (Chellapilla, Puri, Simard, "High performance
// convolutional neural networks for document processing", 2006.)
#pragma once
#include "shape.cuh"

SIZE(K, C * R * S);
DIVISOR(PIXELS, E * F);
