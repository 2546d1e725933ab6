"""The time of a kernel on a GPU that is not there: machine code, run on a model of a multiprocessor."""
