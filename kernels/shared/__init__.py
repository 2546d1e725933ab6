"""Input tiles and halos in shared memory."""
