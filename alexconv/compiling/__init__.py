"""Compilers, and the cache of their output."""
