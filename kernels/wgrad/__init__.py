"""Gradients of the filters: sums over images and pixels, cut and reduced in a fixed order."""
