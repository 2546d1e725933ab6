"""Depthwise convolution, a filter per channel: strips of outputs in registers, as fast as memory allows."""
