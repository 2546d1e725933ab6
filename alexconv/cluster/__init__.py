"""Points, batches, references and searches on the workers of a Dask cluster: docs/cluster.md."""
