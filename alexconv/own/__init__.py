"""Rungs from outside the package: folders, other packages' entry points, kernels with a course's signature."""

SIGNATURE = "ece408"
SIGNATURES = {SIGNATURE: "conv_forward(y, x, w, B, M, C, H, W, K, S)"}  # of courses' host functions, for --kernel
