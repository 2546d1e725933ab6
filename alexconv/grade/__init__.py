"""Course assignments: handouts, and a grader that runs untrusted submissions in a sandbox."""
