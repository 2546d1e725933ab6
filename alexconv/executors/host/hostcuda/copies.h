// cp.async: a thread copies into shared memory and continues.  Here the copy completes immediately, so a kernel that
// forgets to wait for it goes unnoticed; the build for async hazards delays it (hazards.h).
#pragma once

namespace host_cuda {

// 16 bytes, which is what these copies move and what a swizzle permutes.  It may alias other types.
using Chunk = unsigned short __attribute__((vector_size(16), may_alias));
constexpr int HALVES = sizeof(Chunk) / 2;  // of a chunk
using Word = unsigned __attribute__((may_alias));

inline size_t misalignment(const void* address, size_t alignment)
{
    return reinterpret_cast<size_t>(address) % alignment;
}

template <class T>
void copy_async(void* to, const void* from, bool valid, const char* misaligned, Site site)
{
    if (misalignment(to, sizeof(T)) || misalignment(from, sizeof(T))) fail(misaligned, site);
    const auto carry_out = [=]() __attribute__((always_inline)) {
        *static_cast<T*>(to) = valid ? *static_cast<const T*>(from) : T{};
    };
    hazards::start_copy(to, valid ? from : nullptr, sizeof(T), site, carry_out);
}

}  // namespace host_cuda

inline int load_now(const int* address) { return *address; }
inline float load_now(const float* address) { return *address; }

// An address in shared memory as a number; here its lower half, enough for alignments and distances.
inline unsigned shared_address(const void* address) { return unsigned(reinterpret_cast<size_t>(address)); }

inline void copy_async_16(void* to, const void* from, bool valid, host_cuda::Site site = host_cuda::here())
{
    host_cuda::copy_async<host_cuda::Chunk>(to, from, valid, "copy_async_16 needs addresses aligned to 16 bytes", site);
}

inline void copy_async_4(void* to, const void* from, bool valid, host_cuda::Site site = host_cuda::here())
{
    host_cuda::copy_async<host_cuda::Word>(to, from, valid, "copy_async_4 needs addresses aligned to 4 bytes", site);
}

inline void copy_async_commit_group() { host_cuda::hazards::commit_copies(); }

template <int open>
void copy_async_wait_group()
{
    static_assert(open >= 0);
    host_cuda::hazards::wait_for_copies(open);
}
