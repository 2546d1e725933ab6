"""Direct convolution over output tiles."""
