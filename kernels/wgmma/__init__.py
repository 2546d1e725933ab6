"""Implicit GEMM by Hopper's warpgroup instructions (wgmma)."""
