"""Searches over constants, and what they found."""
