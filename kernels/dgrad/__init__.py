"""Gradients of the input: gathered from the outputs, scattered with atomics."""
