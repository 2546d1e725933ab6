"""The ladder as a library: ``alexconv.conv2d`` and ``alexconv.Conv2d``."""
