// Atomic functions.  Blocks run on several cores at once, so these are truly atomic; relaxed, as CUDA's are.
#pragma once

#include "trace.h"

namespace host_cuda {

// Keeps a parameter out of template deduction: atomicAdd(&sum, 1) works for a float sum.
template <class T>
struct As {
    using type = T;
};
template <class T>
using as = typename As<T>::type;

// Replaces *address by change(*address) and returns the old value.  T is any type of 2, 4 or 8 bytes.
template <class T, class Change>
T update(T* address, Change change)
{
    T old, replacement;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    do replacement = change(old);
    while (!__atomic_compare_exchange(address, &old, &replacement, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return old;
}

inline bool is_subnormal(float value) { return value != 0 && fabsf(value) < 0x1p-126f; }
inline float flushed(float value) { return is_subnormal(value) ? copysignf(0, value) : value; }

// The sum that atomicAdd leaves: in global memory subnormal operands and sums become zero (PTX ISA, atom and red).
inline float atomic_sum(const float* address, float old, float value)
{
    const float sum = old + value;
    if (!(is_subnormal(old) | is_subnormal(value) | is_subnormal(sum)) || in_shared_memory(address)) return sum;
    return flushed(flushed(old) + flushed(value));
}

}  // namespace host_cuda

template <class T>
T atomicAdd(T* address, host_cuda::as<T> value)
{
    return host_cuda::update(address, [=](T old) {
        if constexpr (std::is_same_v<T, float>)
            return host_cuda::atomic_sum(address, old, value);
        else
            return T(old + value);
    });
}

template <class T>
T atomicExch(T* address, host_cuda::as<T> value)
{
    return host_cuda::update(address, [=](T) { return value; });
}

template <class T>
T atomicMin(T* address, host_cuda::as<T> value)
{
    return host_cuda::update(address, [=](T old) { return value < old ? value : old; });
}

template <class T>
T atomicMax(T* address, host_cuda::as<T> value)
{
    return host_cuda::update(address, [=](T old) { return old < value ? value : old; });
}

template <class T>
T atomicOr(T* address, host_cuda::as<T> value)
{
    return host_cuda::update(address, [=](T old) { return T(old | value); });
}

// Counts up to `last`, then starts again from zero.
inline unsigned atomicInc(unsigned* address, unsigned last)
{
    return host_cuda::update(address, [=](unsigned old) { return old >= last ? 0 : old + 1; });
}

template <class T>
T atomicCAS(T* address, host_cuda::as<T> expected, host_cuda::as<T> value)
{
    __atomic_compare_exchange(address, &expected, &value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// atomicInc with acquire and release semantics; the twin of that in kernels/arch/basics.cuh.
inline unsigned atomic_inc_acq_rel(unsigned* counter, unsigned last)
{
    __threadfence();
    const unsigned before = atomicInc(counter, last);
    __threadfence();
    host_cuda::trace::acquires();
    return before;
}
