"""A small network that classifies digits through any rung's convolutions."""
