"""Direct convolution in one kernel."""
