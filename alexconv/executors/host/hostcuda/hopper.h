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

// Programmatic dependent launch: here each launch starts when the previous one has ended.
inline void allow_dependent_launch() {}
inline void wait_for_primary_launches() { host_cuda::hazards::wait_for_primary_launches(); }
