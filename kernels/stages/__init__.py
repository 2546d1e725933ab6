"""The stages of a network between its convolutions: normalization, pooling, linear layers, softmax."""
