"""Implicit GEMM on CUDA cores."""
