"""Points, transfers, precision classes, and plans that fit in memory."""
