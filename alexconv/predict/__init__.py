"""Predicts kernel times without a GPU: machine code, simulated on a model of a multiprocessor."""
