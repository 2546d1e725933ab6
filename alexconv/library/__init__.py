"""The library's face: conv2d and Conv2d."""
