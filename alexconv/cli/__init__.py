"""Command-line parts that the commands share: options, display, time limits."""
