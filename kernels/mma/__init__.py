"""Implicit GEMM by warp-wide tensor-core instructions (mma)."""
