"""The options of ``alexconv run`` for clusters, shards and job arrays; ``alexconv.cluster.command`` acts on them."""

import argparse

from alexconv.options import Refusal, comma_separated, size

REFUSE, APART = MIXED = ("refuse", "apart")  # what to do with workers of another kind
BLOCK_BYTES = 8 << 30  # of images that a worker holds at a time
REFUSALS = (
    Refusal(
        lambda options: bool(options.shards),
        ("shard", "peers", "together", "mix", "predict", "exclusive", "mixed", "json", "dry_run", "gpu"),
        "not with --shards",
    ),
    Refusal(
        lambda options: bool(options.cluster),
        ("shard", "device", "host_build", "ladder", "kernel", "predict", "gpu"),
        "not with --cluster",
    ),
    Refusal(
        lambda options: not (options.cluster or options.shards),
        ("exclusive", "mixed", "host_memory"),
        "only with --cluster",
    ),
)


def add_cluster(group: argparse._ArgumentGroup) -> None:
    """Adds the options."""
    add = group.add_argument
    add("--cluster", metavar="WHERE", help="run on Dask workers: local, local:4, a scheduler's address, or its file")
    add("--exclusive", action="store_true", help="with --cluster: one point at a time on each host")
    add(
        "--mixed",
        default=REFUSE,
        choices=MIXED,
        help="with --cluster, workers of another GPU model, driver, toolkit or code version: refuse them, or keep "
        "their records in separate files (default: refuse)",
    )
    add("--shards", type=comma_separated, metavar="K,...", help="split each batch over K GPUs")
    add(
        "--host-memory",
        type=size,
        default=BLOCK_BYTES,
        metavar="SIZE",
        help="with --shards: inputs and outputs that a worker holds at a time (default: 8GiB)",
    )
    add("--shard", metavar="I/N", help="run the I-th of N parts of the points: one task of a job array")
