// A launch in a process of its own: a bad address or instruction ends that process, and the caller hears of it.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <initializer_list>

// Laid out as _Fault in apart.py; lies in memory that both processes share.
struct Fault {
    int signal;  // 0: none
    unsigned long address;
};

using Launch = bool (*)(void* request);

static Fault* shared;

static void report(int signal, siginfo_t* info, void*)
{
    shared->address = reinterpret_cast<unsigned long>(info->si_addr);
    shared->signal = signal;
    _exit(1);
}

// The process's number; its exit status is 0 if the launch succeeded.  Negative, with errno, if there is none.
extern "C" __attribute__((visibility("default"))) int launch_apart(Launch launch, void* request, Fault* fault)
{
    const int child = fork();
    if (child) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    shared = fault;
    struct sigaction action = {};
    action.sa_sigaction = report;
    action.sa_flags = SA_SIGINFO | SA_RESETHAND;
    for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP}) sigaction(signal, &action, nullptr);
    const bool succeeded = launch(request);
    std::fflush(nullptr);
    _exit(succeeded ? 0 : 1);
}
