"""Checks of kernels without a GPU."""
