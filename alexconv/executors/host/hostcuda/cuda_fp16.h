// Everything is in host_cuda.h, which comes before the kernel; this file lets `#include <cuda_fp16.h>` pass.
#pragma once
