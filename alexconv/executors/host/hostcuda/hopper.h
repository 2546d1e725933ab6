// The twins of kernels/arch/ptx.cuh, which names PTX instructions of Ampere and Hopper GPUs as functions.
//
// Whatever is asynchronous on a GPU is done at once here.
#pragma once

#include "copies.h"
#include "products.h"
#include "barriers.h"
#include "tensor_map.h"
#include "warpgroup.h"

inline int same_in_warp(int value, host_cuda::Site site = host_cuda::here())
{
    return __shfl_sync(0xffffffff, value, 0, warpSize, site);
}

// Launches come one after the other.
inline void let_next_launch_start() {}
inline void wait_for_launches_before() {}
