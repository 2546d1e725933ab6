"""What is to be measured: points, transfers, precision classes, and plans that fit the memory."""
