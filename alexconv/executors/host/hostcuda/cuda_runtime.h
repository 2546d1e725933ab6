// Everything is in host_cuda.h, which comes before the kernel; this file lets `#include <cuda_runtime.h>` pass.
#pragma once
