"""Runs planned points: checks, times and records them."""
