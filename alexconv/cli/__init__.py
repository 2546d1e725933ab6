"""What commands share on the command line: options, progress lines and tables."""
