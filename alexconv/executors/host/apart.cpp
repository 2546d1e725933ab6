// Runs a compiled library's launches in a separate process, where a kernel with a bad address does no harm:
//
//     launcher LIBRARY FILE OFFSET
//
// At OFFSET in the file that is open as the descriptor FILE is a text that apart.py writes, a line for each:
//
//     array FILE ADDRESS GUARD_BYTES BYTES WRITABLE    mapped where the caller has it, with its guards
//     fault ADDRESS                                    where a Fault is reported
//     constant NAME ADDRESS BYTES                      the bytes of a __constant__ array
//     launch NAME ADDRESS                              an entry point's launcher and its request
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// The exit status, as in apart.py.
enum Status { SUCCEEDED, FAILED, OCCUPIED, NOT_LOADED };

// Laid out as _Fault in apart.py.
struct Fault {
    int signal;  // 0: none
    unsigned launch;  // the running one, or the last
    unsigned long address;
    char message[1024];  // why the library is not loaded
};

struct Line {
    std::string name;
    void* address;
    unsigned long bytes;
};

static Fault* shared;

// Threads may fault at the same time: the first reports, the others wait for the process to end.
static std::atomic_flag reported = ATOMIC_FLAG_INIT;

static void report(int signal, siginfo_t* info, void*)
{
    while (reported.test_and_set()) pause();
    shared->address = reinterpret_cast<unsigned long>(info->si_addr);
    shared->signal = signal;
    _exit(FAILED);
}

static bool map(int file, unsigned long address, unsigned long guard, unsigned long bytes, int writable)
{
    char* const base = reinterpret_cast<char*>(address);
    const int flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
    if (mmap(base, guard + bytes + guard, PROT_READ | PROT_WRITE, flags, file, 0) != base) return false;
    close(file);
    mprotect(base, guard, PROT_NONE);
    mprotect(base + guard, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ);
    mprotect(base + guard + bytes, guard, PROT_NONE);
    return true;
}

// An exported symbol of the library; ends the process if it has none, or is not loaded.
static void* symbol_of(void* library, const std::string& name)
{
    if (void* symbol = library ? dlsym(library, name.c_str()) : nullptr) return symbol;
    std::snprintf(shared->message, sizeof shared->message, "%s", dlerror());
    _exit(NOT_LOADED);
}

int main(int, char** words)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = std::atoi(words[2]);
    struct stat facts;
    if (fstat(file, &facts)) return OCCUPIED;
    void* const job = mmap(nullptr, facts.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (job == MAP_FAILED) return OCCUPIED;
    close(file);
    const char* text = static_cast<const char*>(job) + std::strtoul(words[3], nullptr, 10);

    std::vector<Line> constants, launches;
    while (*text) {
        const char* const end = std::strchr(text, '\n');
        const std::string line(text, end);
        text = end + 1;
        char name[512];
        unsigned long address, guard, bytes;
        int array, writable;
        const char* const row = line.c_str();
        if (std::sscanf(row, "array %d %lu %lu %lu %d", &array, &address, &guard, &bytes, &writable) == 5) {
            if (!map(array, address, guard, bytes, writable)) return OCCUPIED;
        } else if (std::sscanf(row, "fault %lu", &address) == 1)
            shared = reinterpret_cast<Fault*>(address);
        else if (std::sscanf(row, "constant %511s %lu %lu", name, &address, &bytes) == 3)
            constants.push_back({name, reinterpret_cast<void*>(address), bytes});
        else if (std::sscanf(row, "launch %511s %lu", name, &address) == 2)
            launches.push_back({name, reinterpret_cast<void*>(address), 0});
    }
    munmap(job, facts.st_size);

    void* const library = dlopen(words[1], RTLD_NOW);
    for (const Line& constant : constants)
        std::memcpy(symbol_of(library, constant.name), constant.address, constant.bytes);
    std::vector<bool (*)(void*)> entries;
    for (const Line& launch : launches)
        entries.push_back(reinterpret_cast<bool (*)(void*)>(symbol_of(library, launch.name)));

    struct sigaction action = {};
    action.sa_sigaction = report;
    action.sa_flags = SA_SIGINFO;
    sigfillset(&action.sa_mask);  // a fault in report ends the process
    for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP}) sigaction(signal, &action, nullptr);
    bool succeeded = true;
    for (unsigned i = 0; succeeded && i < entries.size(); ++i) {
        shared->launch = i;
        succeeded = entries[i](launches[i].address);
    }
    std::fflush(nullptr);
    _exit(succeeded ? SUCCEEDED : FAILED);
}
