"""Rungs from outside the package: folders, other packages' entry points, kernels with a course's signature."""
