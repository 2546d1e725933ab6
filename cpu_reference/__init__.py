"""What the kernels are measured against on the CPU: the float64 reference, its cache, and two baselines."""
