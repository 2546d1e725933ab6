// CUDA C++ for a CPU: this header comes before every kernel that the host executor compiles.
//
// A kernel is compiled unchanged.  CUDA's keywords become macros, its types and functions plain C++ (types.h, half.h,
// intrinsics.h, atomics.h, warp.h, wmma.h, hopper.h).  A launch (launch.cpp) hands the blocks of the grid to one worker
// per core; a worker (worker.cpp) runs one block at a time, and the threads of that block take turns on it: each runs
// until it waits for others, then the next one runs.  Shared memory is thread_local, so every worker has its own.
//
// What a kernel must keep to
//   - Entry points are `extern "C" __global__ void name(...)`; their arguments are pointers, integers and floats.
//   - Dynamic shared memory comes from host_cuda::dynamic_shared(), on a GPU from `extern __shared__`: one macro hides
//     the difference.
//   - Threads meet at __syncthreads(), __syncwarp(), the *_sync functions and those of hopper.h, nowhere else.  The
//     threads of a warp are not in lockstep, and a thread that spins on memory hangs: nothing preempts it.  Blocks of a
//     cooperative launch wait for each other through the functions of residents.h, those of a cluster through cluster.h.
//   - Inline PTX needs a C++ twin: here for the functions of kernels/arch/, elsewhere under `#ifdef HOST_CUDA`.
//   - The local arrays of a function take 32 KiB at most, which the compiler checks, and recursion stays shallow.
//   - A `__constant__` array can be written through HostModule.symbol.
//
// Where it differs from a GPU
//   - Order.  Threads run in the order that the launch asks for, switching at barriers only; a GPU guarantees no order.
//     A missing barrier may therefore go unnoticed in one order: compare several.  Shared memory starts every block as
//     NaN, so a value read before it is written shows (static arrays excepted in the build for AddressSanitizer).
//   - Barriers.  As on GPUs since Volta, a barrier waits for the threads of the block that have not exited.  Threads
//     that wait at different __syncthreads() of the source are an error here; so is a deadlock.
//   - float.  a * b + c is fused into one rounding where the compiler sees fit, as nvcc does by default, but not
//     necessarily in the same places.  Subnormals are kept, as nvcc does by default, except by atomicAdd in global
//     memory, which flushes them as a GPU's does.  The approximate functions (rsqrtf) are the accurate ones.
//     A cast to int of a float beyond its range, or of NaN, is what the CPU makes of it; a GPU takes the nearest int, and
//     zero for NaN, as __float2int_rz and its like do here too.
//   - half.  Every operation rounds once, to nearest even; a GPU may fuse a * b + c of halves into one rounding.
//   - wmma.  The products of a fragment are summed in float, one after the other and to nearest; a tensor core aligns
//     several products, adds and truncates.  The place of an element in a fragment is different, as CUDA allows.
//   - mma, wgmma.  Summed as wmma's fragments are; the elements lie where the PTX ISA puts them.
//   - Asynchronous copies and products are complete when the call returns: a missing wait, fence or proxy fence goes
//     unnoticed, except in the build for async hazards (hazards.h), which reports it.  Waiting for a barrier's phase
//     that never ends is a deadlock, and an error like any other.
//   - Memory.  There is one address space: a bad address goes unnoticed unless it faults, which ends the process of the
//     launch.  Use the build for AddressSanitizer, which names the array and the source line and lives on.
//   - Alignment.  A misaligned vector load or store, which faults on a GPU, goes unnoticed, except in g++'s build for
//     AddressSanitizer.
//   - `__device__` variables.  Each run of a rung's launches begins with their first values, except in the builds that
//     watch; on a GPU they keep what the run before has left.
//   - Limits of a kernel alone.  `__launch_bounds__` is ignored: a larger block, which a GPU refuses, runs.
//   - Time says nothing about a GPU.
//
// Loads and stores stay plain C++, so the compiler's own instrumentation can watch every one of them.
#pragma once

// Keeps C++17's special functions (std::beta, std::riemann_zeta ...) out of libstdc++'s <math.h>: no kernel uses them,
// and they take as long to parse as everything else here.
#define _GLIBCXX_BITS_SPECFUN_H 1

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <type_traits>
#include <utility>

#define HOST_CUDA 1

#define __global__
#define __host__
#define __device__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__  // none: libstdc++ 13 spells __attribute__((__noinline__)), and a list of attributes may be empty
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)

// Visible, so that it can be found by its name; used, so that the compiler keeps it although nothing here writes to it.
#define __constant__ __attribute__((visibility("default"), used))

// AddressSanitizer puts no red zones around thread_local variables; that build has a single worker instead.  Used, or the
// compiler takes an array that no kernel writes for zeros.
// __constinit: before an array of halves g++ would test a byte, among the shared arrays, whether it is constructed.
#ifdef HOST_CUDA_ASAN
#define __shared__ static __attribute__((used))
#elif defined(__clang__)
#define __shared__ static thread_local __attribute__((used))
#else
#define __shared__ static thread_local __constinit __attribute__((used))
#endif

#include "types.h"
#include "half.h"
#include "threads.h"
#include "atomics.h"
#include "intrinsics.h"
#include "warp.h"
#include "wmma.h"
#include "trace.h"
#include "hazards.h"
#include "hopper.h"
#include "launch.h"
