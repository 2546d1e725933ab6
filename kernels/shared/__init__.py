"""Input tiles in shared memory."""
