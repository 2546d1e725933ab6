// Launches in a process of their own: a bad address or instruction ends that process, and the caller hears of it.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <initializer_list>

// Laid out as _Fault in apart.py; lies in memory that both processes share.
struct Fault {
    int signal;  // 0: none
    unsigned launch;  // that runs, or ran last
    unsigned long address;
};

// Laid out as Start in apart.py.
struct Launch {
    bool (*run)(void* request);
    void* request;
};

static Fault* shared;

static void report(int signal, siginfo_t* info, void*)
{
    shared->address = reinterpret_cast<unsigned long>(info->si_addr);
    shared->signal = signal;
    _exit(1);
}

// Launches run in order up to the first that fails.  The process's number; its exit status is 0 if all succeeded.
// Negative, with errno, if there is none.
extern "C" __attribute__((visibility("default"))) int launch_apart(const Launch* launches, unsigned count, Fault* fault)
{
    const int child = fork();
    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    shared = fault;
    struct sigaction action = {};
    action.sa_sigaction = report;
    action.sa_flags = SA_SIGINFO | SA_RESETHAND;
    for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP}) sigaction(signal, &action, nullptr);
    bool succeeded = true;
    for (unsigned i = 0; succeeded && i < count; ++i) {
        shared->launch = i;
        succeeded = launches[i].run(launches[i].request);
    }
    std::fflush(nullptr);
    _exit(succeeded ? 0 : 1);
}
