"""What the commands show: progress lines and tables."""
