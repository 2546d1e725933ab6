"""From points to checked and timed results."""
