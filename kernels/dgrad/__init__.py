"""Gradients of the input: gathered, scattered with atomics, or a forward kernel with turned filters."""
