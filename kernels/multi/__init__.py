"""Direct convolution split over input channels, then a reduction."""
