"""Compilers, and the cache of what they made."""
