"""im2col and a matrix product."""
