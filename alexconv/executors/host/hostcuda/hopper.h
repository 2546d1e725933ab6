// The twins of the headers in kernels/arch/, which name PTX instructions of Ampere and Hopper GPUs as functions.
//
// Everything asynchronous on a GPU completes immediately here, except in the build for async hazards (hazards.h).
#pragma once

#include "copies.h"
#include "products.h"
#include "barriers.h"
#include "residents.h"
#include "tensor_map.h"
#include "cluster.h"
#include "warpgroup.h"

inline int warp_uniform(int value, host_cuda::Site site = host_cuda::here())
{
    return __shfl_sync(0xffffffff, value, 0, warpSize, site);
}

inline float max_nan(float a, float b) { return b > a || b != b ? b : a; }

inline unsigned max_nan_fp16x2(unsigned a, unsigned b)
{
    __half first[2], second[2];
    memcpy(first, &a, sizeof a);
    memcpy(second, &b, sizeof b);
    for (int i = 0; i < 2; ++i) first[i] = __half(max_nan(float(first[i]), float(second[i])));
    memcpy(&a, first, sizeof a);
    return a;
}

// Programmatic dependent launch: here each launch starts when the previous one has ended.
inline void allow_dependent_launch() {}
inline void wait_for_primary_launches() { host_cuda::hazards::wait_for_primary_launches(); }
