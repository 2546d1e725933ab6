"""From planned points to checked and timed results."""
