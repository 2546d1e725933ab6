"""Depthwise convolution, a filter per channel: strips of outputs in registers, bound by memory or instructions."""
