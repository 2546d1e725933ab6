// pixels.cu's kernels with their shapes passed by address: launches on the host take no structs.
#include "../../alexconv/library/pixels.cu"

extern "C" __global__ void affine_at(const Element* x, const float* factors, const float* shifts, Element* y,
                                     const Affine* of)
{
    affine(x, factors, shifts, y, *of);
}

extern "C" __global__ void gate_at(const Element* x, const Element* gates, Element* y, const Gate* of)
{
    gate(x, gates, y, *of);
}

extern "C" __global__ void pool_at(const Element* x, Element* y, const Pool* of) { pool(x, y, *of); }

extern "C" __global__ void means_at(const Element* x, Element* y, const Means* of) { means(x, y, *of); }

extern "C" __global__ void pool_planes_at(const Element* x, Element* y, const Pool* of) { pool_planes(x, y, *of); }

extern "C" __global__ void layer_norm_at(const Element* x, const Element* factors, const Element* shifts, Element* y,
                                         const LayerNorm* of)
{
    layer_norm(x, factors, shifts, y, *of);
}
