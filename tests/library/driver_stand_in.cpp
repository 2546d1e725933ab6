// A stand-in for libcuda.so.1: records launches, and answers the library's queries on contexts, streams and captures.
#include <cstring>
#include <semaphore.h>

struct Attribute {
    int id, pad, value[16];
};
struct Config {
    unsigned grid[3], block[3], shared;
    void* stream;
    Attribute* attributes;
    unsigned count;
};
constexpr int MOST_PARAMETERS = 12;  // as in stand_ins.py
constexpr int CONTEXT = 5;           // the library's, as in stand_ins.py
constexpr int INVALID_CONTEXT = 201;

struct Noted {
    unsigned grid[3], block[3], shared, dependent;
    long long stream, function, words[MOST_PARAMETERS];
};

extern "C" {
Noted noted[256];
int launches, status, capturing, relaxed_calls, dependencies, node_type;
thread_local int mode_now;
long long context, capture, implicit, captured;  // `captured`: the one captured stream, 0 for all
void (*destroy)(void*) = nullptr;
void* destroyed = nullptr;

// Records the first word of each parameter.
int cuLaunchKernelEx(const Config* config, void* function, void** parameters, void**)
{
    if (status) return status;
    if (context != CONTEXT) return INVALID_CONTEXT;
    Noted& note = noted[launches++ % 256];
    memcpy(note.grid, config->grid, sizeof note.grid);
    memcpy(note.block, config->block, sizeof note.block);
    note.shared = config->shared;
    note.stream = (long long)config->stream, note.function = (long long)function;
    note.dependent = config->count ? config->attributes[0].id * 10 + config->attributes[0].value[0] : 0;
    for (int i = 0; i < MOST_PARAMETERS; ++i) note.words[i] = *(long long*)parameters[i];
    return 0;
}
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_STAND_IN", 0; }
int cuCtxGetCurrent(long long* at) { return *at = context, 0; }
static bool is_captured(void* stream) { return capturing && (!captured || captured == (long long)stream); }
int cuStreamGetId(void* stream, unsigned long long* id)
{
    if (context != CONTEXT) return INVALID_CONTEXT;
    if (is_captured(stream)) return capturing = 2, 900;  // not permitted during a capture, which it invalidates
    return *id = 1000 + (long long)stream, 0;
}
void* last_node = (void*)55;
int cuStreamGetCaptureInfo_v2(void* stream, int* found, unsigned long long* id, void** graph, void*** nodes,
                              unsigned long* count)
{
    if (context != CONTEXT) return INVALID_CONTEXT;
    if ((long long)stream < 2) return *found = 0, capturing && implicit ? 906 : 0;
    *found = is_captured(stream) ? capturing : 0, *id = capture, *graph = (void*)99, *nodes = &last_node, *count = dependencies;
    return 0;
}
int cuGraphNodeGetType(void* node, int* type) { return *type = node == last_node ? node_type : -1, 0; }
int cuThreadExchangeStreamCaptureMode(int* mode)
{
    const int before = mode_now;
    mode_now = *mode, *mode = before, ++relaxed_calls;
    return 0;
}
int cuUserObjectCreate(void** object, void* given, void (*function)(void*), unsigned, unsigned)
{
    return *object = (void*)3, destroyed = given, destroy = function, 0;
}
int cuGraphRetainUserObject(void* graph, void*, unsigned, unsigned) { return graph == (void*)99 ? 0 : 1; }
void reset()
{
    launches = status = capturing = relaxed_calls = mode_now = dependencies = node_type = 0;
    context = 5, capture = 77, implicit = captured = 0;
}
void end_graph() { destroy(destroyed); }
}
