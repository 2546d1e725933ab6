"""Implicit GEMM on CUDA cores: register blocking, cp.async double buffering, stream-K."""
