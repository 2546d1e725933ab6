"""Hopper: TMA, wgmma, warp specialization, persistent kernels, Winograd."""
