"""The table of peers: other libraries' convolutions, timed in the same process and run as the rungs."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from alexconv.executors.interface import Executor
from alexconv.measuring import cudnn_peers, torch_peers
from alexconv.planning.points import LayerSequence, Point


@dataclass(frozen=True)
class Peer:
    """A library with convolutions."""

    precisions: tuple[str, ...]
    load: Callable[[Executor], Any]  # imports the library; raises UsageError on an executor without times, MissingTool
    recorder: Callable[[Any, Any, Any], Any]  # of library, executor and the rungs' Runner; a jobs.Recorder
    # The peer's points for the workloads, layers and batches of rungs' points, in the given precisions or in all; and
    # the layers of each workload and batch in one graph.
    points: Callable[[Iterable[Point], Sequence[str]], list[Point]]
    sequences: Callable[[Iterable[Point], Sequence[str]], list[LayerSequence]]


PEERS: dict[str, Peer] = {
    "torch": Peer(
        tuple(torch_peers.DTYPES),
        torch_peers.import_torch,
        torch_peers.TorchRunner,
        torch_peers.peer_points,
        torch_peers.peer_sequences,
    ),
    "cudnn": Peer(
        tuple(torch_peers.DTYPES),
        cudnn_peers.import_cudnn,
        cudnn_peers.CudnnRunner,
        cudnn_peers.peer_points,
        cudnn_peers.peer_sequences,
    ),
}


def peers_named(text: str) -> str:
    """An argparse type: a library, or comma-separated names of its peers, unchanged."""
    libraries = {word.partition("-")[0] for word in text.split(",")}
    if len(libraries) > 1 or not libraries <= PEERS.keys():
        raise argparse.ArgumentTypeError(f"{', '.join(PEERS)}, or names of one library's peers, not {text!r}")
    return text


def library_of(text: str) -> str:
    """The library that the text of ``peers_named`` names."""
    return text.partition(",")[0].partition("-")[0]


def names_in(text: str) -> tuple[str, ...]:
    """The peers that the text names; none if it names a library, which stands for all its peers."""
    words = text.split(",")
    return () if library_of(text) in words else tuple(words)
