// The activation of a kernel whose shape is an argument.
#pragma once

struct Activation {
    long long relu, ceiling, silu, gelu;  // ReLU with the largest output that it passes, or 0; SiLU; GELU
};

// NaN stays NaN.
__device__ __forceinline__ float activated(const Activation& of, float value)
{
    if (of.silu) return __fdividef(value, 1 + __expf(-value));
    if (of.gelu) return 0.5f * value * (1 + erff(value * 0.70710678f));
    if (of.ceiling && value > of.ceiling) value = of.ceiling;
    return of.relu && value < 0 ? 0 : value;
}
