// The simulator's library: one function, which runs a multiprocessor and reports an exception as a message.
#include "blocks.h"
#include "issue.h"
#include "instructions.h"
#include "control.h"
#include "traffic.h"

extern "C" int simulate(const Setup* setup, Result* result)
{
    try {
        Multiprocessor(*setup, *result).run();
        return 0;
    } catch (const std::exception& error) {
        strncpy(result->message, error.what(), sizeof result->message - 1);
        return 1;
    }
}
