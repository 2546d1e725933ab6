"""Counters of kernels: Nsight Compute's on a GPU, traces on the host executor."""
