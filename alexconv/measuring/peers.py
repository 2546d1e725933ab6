"""Peers, as a table: other people's implementations timed in the same process and run, to compare rungs with."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from alexconv.executors.interface import Executor
from alexconv.measuring import cudnn_peers, torch_peers
from alexconv.planning.points import LayerSequence, Point


@dataclass(frozen=True)
class Peer:
    """A library with convolutions.

    ``load`` gives the library, ready to be used beside an executor; it raises UsageError where that has no times to
    compare, MissingTool without the library.  ``recorder`` makes of it, the executor and the Runner of the rungs what
    turns the peer's points into records.  ``points`` are the peer's for the workloads, layers and batches of others,
    ``sequences`` their layers in one graph, both of the ``precisions`` that are named, of all if none is.
    """

    precisions: tuple[str, ...]
    load: Callable[[Executor], Any]
    recorder: Callable[[Any, Any, Any], Any]
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
