// How Python launches a kernel: the request it fills in, and one exported function per entry point that takes it.
#pragma once

namespace host_cuda {

enum Kind : int { INTEGER, REAL };

enum Turns : int { NO_TURNS, WHEN_WAITING, WITH_ARRIVALS };

// A kernel argument; a pointer travels as an integer.  Laid out as _Argument in runtime.py.
struct Argument {
    Kind kind;
    union {
        long long integer;
        double real;
    };
};

// Laid out as _Request in runtime.py.
struct Request {
    unsigned grid[3], block[3];
    size_t dynamic_shared;      // bytes
    unsigned workers;           // OS threads at most
    int cancelled;              // set from outside to abandon the launch
    const unsigned* order;      // [threads of a block]: linear thread numbers in the order they start
    const Argument* arguments;  // [argument_count]
    unsigned argument_count;
    Turns turns;       // of a cooperative launch, or one in clusters: when a block's turn ends
    unsigned cluster;  // blocks of a cluster whose blocks wait for each other; 0 if they do not
    char message[1024];  // what went wrong, if the launch failed
};

template <class Parameter>
bool accepts(const Argument& argument)
{
    static_assert(std::is_pointer_v<Parameter> || std::is_arithmetic_v<Parameter>,
                  "the host executor passes pointers, integers and floats to a kernel, nothing else");
    if constexpr (std::is_floating_point_v<Parameter>)
        return true;
    else if constexpr (std::is_pointer_v<Parameter>)
        return argument.kind == INTEGER;
    else
        return argument.kind == INTEGER && (sizeof(Parameter) == 8 || (Parameter)argument.integer == argument.integer);
}

template <class Parameter>
Parameter value(const Argument& argument)
{
    if constexpr (std::is_floating_point_v<Parameter>)
        return argument.kind == REAL ? Parameter(argument.real) : Parameter(argument.integer);
    else
        return (Parameter)argument.integer;
}

using Kernel = void (*)(const Argument* arguments);

// Runs the kernel over the grid; false, with a message in the request, if it failed.
bool run_grid(const char* name, Kernel kernel, Request& request);

bool refuse_count(const char* name, size_t parameters, Request& request);
bool refuse_argument(const char* name, size_t position, Request& request);

template <auto kernel>
struct Entry;

template <class... Parameters, void (*kernel)(Parameters...)>
struct Entry<kernel> {
    static bool launch(const char* name, Request& request)
    {
        if (request.argument_count != sizeof...(Parameters)) return refuse_count(name, sizeof...(Parameters), request);
        size_t accepted = 0;  // arguments before the first that the kernel cannot take
        (void)((accepts<Parameters>(request.arguments[accepted]) && ++accepted) && ...);
        if (accepted < sizeof...(Parameters)) return refuse_argument(name, accepted, request);
        return run_grid(name, run_thread, request);
    }

    static void run_thread(const Argument* arguments) { call(arguments, std::index_sequence_for<Parameters...>()); }

    template <size_t... position>
    static void call(const Argument* arguments, std::index_sequence<position...>)
    {
        kernel(value<Parameters>(arguments[position])...);
    }
};

}  // namespace host_cuda

// On a GPU a kernel is found by its name: the redeclaration is an error unless it is extern "C".
#define HOST_CUDA_ENTRY(kernel)                                                                                    \
    extern "C" decltype(kernel) kernel;                                                                            \
    extern "C" __attribute__((visibility("default"))) bool host_cuda_launch_##kernel(host_cuda::Request& request) \
    {                                                                                                              \
        return host_cuda::Entry<kernel>::launch(#kernel, request);                                                \
    }
