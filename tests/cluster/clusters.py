"""A cluster on this host for tests: four workers that run kernels on the CPU."""

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from alexconv.records.store import Record, identity, read

HOST = ["--backend", "host", "--no-baseline"]
# Two layers at three batch sizes: six tasks of four short points each.
STUDY = [*HOST, "--workload", "lenet-86-k7", "--N", "1,2,3", "--rungs", "direct,direct-register,tiled,channels"]
POINTS = 24


def points_of(path: Path) -> list[Record]:
    return read([path]).points


def names(points: list[Record]) -> Counter[str]:
    return Counter(identity(record["point"]) for record in points)


def headers(path: Path, kind: str) -> list[Record]:
    return [header for header in read([path]).headers.values() if header["type"] == kind]


def processes(client) -> dict[str, int]:
    """Process ids of the workers that answer, by address; a killed one may still be listed."""
    return client.run(os.getpid, on_error="ignore")


def kill_one(client, choose: Callable[[list[str]], str]) -> None:
    """Kills a worker's process, as the out-of-memory killer does."""
    workers = processes(client)
    os.kill(workers[choose(sorted(workers))], signal.SIGKILL)


@contextmanager
def cluster_of(count: int) -> Iterator:
    from distributed import Client

    from alexconv.cluster.connection import local_cluster

    with local_cluster("host", count) as cluster, Client(cluster, set_as_default=False) as client:
        yield client
