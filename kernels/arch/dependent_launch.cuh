// Programmatic dependent launch (griddepcontrol): a launch that starts while the previous one on its stream still runs.
//
// Hopper and later; before Hopper both functions do nothing, and a launch starts when the previous one has ended.
// (PTX ISA, "griddepcontrol"; CUDA C++ Programming Guide, "Programmatic Dependent Launch": the earlier launch is the
// primary, the later one the secondary.)
#pragma once
#include "basics.cuh"

#ifndef HOST_CUDA
// Lets the next launch on the stream start (griddepcontrol.launch_dependents) if it has the attribute for that.
__device__ __forceinline__ void allow_dependent_launch()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the launches before this one have ended and their writes are visible (griddepcontrol.wait).
__device__ __forceinline__ void wait_for_primary_launches()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif
