"""The CPU side: the float64 reference, its cache, and two timed baselines."""
