"""im2col and tiled matrix product, register tiling, fused im2col."""
