"""Implicit GEMM on tensor cores (mma.sync), split-K, for small batches."""
