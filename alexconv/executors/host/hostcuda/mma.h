// Everything is in host_cuda.h, which comes before the kernel; this file lets `#include <mma.h>` pass.
#pragma once
