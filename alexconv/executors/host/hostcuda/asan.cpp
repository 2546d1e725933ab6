// AddressSanitizer's findings, as failures of the launch.
//
// Instrumented code calls __asan_report_* before a bad access.  The run-time's own definitions of these functions take
// precedence over AddressSanitizer's, which would print and end the process: the access does not happen, the launch
// fails, the process lives on.  What its library checks itself, such as memset, still ends the process.
#ifdef HOST_CUDA_ASAN

#include "asan.h"

#include <pthread.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "host_cuda.h"

namespace host_cuda {

Stack asan::own_stack()
{
    pthread_attr_t attributes;
    void* bottom = nullptr;
    size_t bytes = 0;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &bottom, &bytes);
    pthread_attr_destroy(&attributes);
    return {static_cast<char*>(bottom), bytes};
}

constexpr size_t NAME = 128;

// The array nearest to the address, as a kernel's author knows it, and how far off.
static void describe(const char* address, char* text, size_t room)
{
    char name[NAME];
    void* region = nullptr;
    size_t bytes = 0;
    const char* kind = __asan_locate_address(const_cast<char*>(address), name, sizeof name, &region, &bytes);
    const char* const first = static_cast<char*>(region);
    if (!first) {
        std::snprintf(text, room, "address %p, near no array", static_cast<const void*>(address));
        return;
    }
    const char* what = "memory of";
    if (!std::strcmp(kind, "stack")) what = "local array";
    if (!std::strcmp(kind, "global")) what = "shared or constant array";
    if (!std::strcmp(kind, "heap")) what = first == running.dynamic_shared ? "dynamic shared memory of" : "a buffer of";
    name[std::strcspn(name, ".")] = 0;  // an inlined function's array may be called tile.i
    const ptrdiff_t before = first - address, beyond = -before - ptrdiff_t(bytes);
    char where[NAME] = "across the end of";
    if (before > 0) std::snprintf(where, sizeof where, "%td bytes before", before);
    if (beyond >= 0) std::snprintf(where, sizeof where, "%td bytes beyond", beyond);
    std::snprintf(text, room, "%s %s %s%s%zu bytes", where, what, name, *name ? " of " : "", bytes);
}

static Site site_of(const char* path, int line)
{
    const char* const folder = std::strrchr(path, '/');
    return {folder ? folder + 1 : path, line};
}

// AddressSanitizer of g++ knows the lines of what was loaded when it first looked; elsewhere it says "<null> 0".
[[noreturn]] static void report(const char* verb, const void* address, size_t bytes, const char* return_address)
{
    char where[NAME], place[2 * NAME], text[4 * NAME];
    __sanitizer_symbolize_pc(const_cast<char*>(return_address) - 1, "%s %l", where, sizeof where);
    describe(static_cast<const char*>(address), place, sizeof place);
    std::snprintf(text, sizeof text, "AddressSanitizer: %s %zu bytes, %s", verb, bytes, place);
    char* const line = std::strrchr(where, ' ');  // there always is one
    *line = 0;
    fail(text, site_of(where, std::atoi(line + 1)));
}

}  // namespace host_cuda

#define HOST_CUDA_REPORT(verb, name, bytes)                                                            \
    extern "C" void __asan_report_##name##bytes##_noabort(void* address)                               \
    {                                                                                                  \
        host_cuda::report(verb, address, bytes, static_cast<char*>(__builtin_return_address(0)));      \
    }
#define HOST_CUDA_REPORTS(verb, name)                                                                  \
    HOST_CUDA_REPORT(verb, name, 1)                                                                    \
    HOST_CUDA_REPORT(verb, name, 2)                                                                    \
    HOST_CUDA_REPORT(verb, name, 4)                                                                    \
    HOST_CUDA_REPORT(verb, name, 8)                                                                    \
    HOST_CUDA_REPORT(verb, name, 16)                                                                   \
    extern "C" void __asan_report_##name##_n_noabort(void* address, size_t bytes)                      \
    {                                                                                                  \
        host_cuda::report(verb, address, bytes, static_cast<char*>(__builtin_return_address(0)));      \
    }

// Of g++'s -fsanitize=alignment: the place and the type of an access.
struct Access {
    const char* file;
    std::uint32_t line, column;
    const struct {
        std::uint16_t kind, facts;
        char name[1];
    }* type;
    unsigned char log_alignment, deed;
};

extern "C" void __ubsan_handle_type_mismatch_v1(const Access* access, std::uintptr_t address)
{
    char text[256];
    const unsigned alignment = 1u << access->log_alignment;
    std::snprintf(text, sizeof text, "misaligned: %s needs a multiple of %u bytes, the address is %u beyond one",
                  access->type->name, alignment, unsigned(address % alignment));
    host_cuda::fail(text, host_cuda::site_of(access->file, int(access->line)));
}

HOST_CUDA_REPORTS("reads", load)
HOST_CUDA_REPORTS("writes", store)

#endif
