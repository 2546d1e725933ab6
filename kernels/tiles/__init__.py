"""Output tiles, a block each; filters in constant memory."""
