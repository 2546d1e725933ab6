"""What the study families share: headers, and the geometry and constants of their ladder entries."""
