"""A course's assignment: the handout, and the grader that runs untrusted submissions in a sandbox."""
