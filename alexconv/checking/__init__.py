"""What is wrong with a kernel, found without a GPU."""
