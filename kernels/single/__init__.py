"""Direct convolution, one kernel: sums in registers, filters in shared memory."""
