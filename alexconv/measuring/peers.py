"""The table of libraries whose convolutions, the peers, are timed in the same process and run as the rungs."""

import argparse
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass

from alexconv.errors import UsageError
from alexconv.executors.interface import Executor
from alexconv.measuring.jobs import Job, Recorder
from alexconv.measuring.runner import Runner
from alexconv.planning.peers import CUBLASLT_PEERS, CUDNN_PEERS, TORCH_PEERS, TRITON_PEERS, Peer
from alexconv.planning.points import Batch, Kind, PeerPoint, PeerSequence, Point
from alexconv.records.labels import SEQUENCE_SUFFIX
from alexconv.shapes import FORWARD

RecorderOf = Callable[[Runner], Recorder]  # for the data of the rungs' runner


@dataclass(frozen=True)
class Library:
    """A library with convolutions.

    ``load`` imports it for an executor; it raises UsageError on an executor without times, and MissingTool.
    """

    peers: tuple[Peer, ...]
    load: Callable[[Executor], RecorderOf]

    def chosen(self, names: Sequence[str], precisions: Container[str]) -> list[Peer]:
        """The peers of these names and precisions, of any where there are none; raises UsageError if none is left."""
        there = [peer.name for peer in self.peers]
        if unknown := [name for name in names if name not in there]:
            raise UsageError(f"no peer {unknown[0]}: there are {', '.join(there)}")
        chosen = [
            peer
            for peer in self.peers
            if (not names or peer.name in names) and (not precisions or peer.precision in precisions)
        ]
        if not chosen:
            known = ", ".join(dict.fromkeys(peer.precision for peer in self.peers))
            raise UsageError(f"no peer is left: peers have the precisions {known}")
        return chosen


def _torch(executor: Executor) -> RecorderOf:
    from alexconv.measuring.torch_peers import TorchRunner, import_torch

    torch = import_torch(executor)
    return lambda runner: TorchRunner(torch, executor, runner)


def _cudnn(executor: Executor) -> RecorderOf:
    from alexconv.measuring.cudnn_peers import CudnnRunner
    from alexconv.measuring.torch_peers import import_with_torch

    modules = import_with_torch(executor, "cudnn")
    return lambda runner: CudnnRunner(modules, executor, runner)


def _cublaslt(executor: Executor) -> RecorderOf:
    from alexconv.measuring.im2col_peers import Im2colRunner
    from alexconv.measuring.torch_peers import import_torch

    torch = import_torch(executor)
    return lambda runner: Im2colRunner(torch, executor, runner)


def _triton(executor: Executor) -> RecorderOf:
    from alexconv.measuring.torch_peers import import_with_torch
    from alexconv.measuring.triton_peers import TritonRunner

    modules = import_with_torch(executor, "triton")
    return lambda runner: TritonRunner(modules, executor, runner)


PEERS: dict[str, Library] = {
    "torch": Library(TORCH_PEERS, _torch),
    "cudnn": Library(CUDNN_PEERS, _cudnn),
    "cublaslt": Library(CUBLASLT_PEERS, _cublaslt),
    "triton": Library(TRITON_PEERS, _triton),
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


def peer_points(points: Iterable[Point], peers: Sequence[Peer]) -> list[PeerPoint]:
    """The peers on every batch of the points, in its direction; raises UsageError if none computes one of them."""
    batches = dict.fromkeys(point.batch for point in points)
    if beyond := [batch.direction for batch in batches if not any(peer.computes(batch.direction) for peer in peers)]:
        raise UsageError(f"no peer of those chosen computes {beyond[0]}: torch's and cudnn's convolutions do")
    return [PeerPoint(batch, peer) for batch in batches for peer in peers if peer.computes(batch.direction)]


def peer_sequences(points: Iterable[Point], peers: Sequence[Peer]) -> list[PeerSequence]:
    """The points' layers in one graph, by each peer that is a convolution of any engine.

    Raises UsageError unless a workload and N has several layers.
    """
    layers: dict[tuple[str, int, str], list[Batch]] = {}
    for batch in dict.fromkeys(point.batch for point in points if point.direction == FORWARD):
        layers.setdefault((batch.workload, batch.N, batch.data), []).append(batch)
    several = [batches for batches in layers.values() if len(batches) > 1]
    if not several:
        raise UsageError("--together takes two layers or more")
    return [
        PeerSequence(peer.name + SEQUENCE_SUFFIX, peer.precision, tuple(PeerPoint(batch, peer) for batch in batches))
        for batches in several
        for peer in peers
        if not (peer.is_product or peer.strict or peer.deterministic)
    ]


def with_peers(
    runner: Recorder, points: Sequence[Point], peer_runner: Recorder, peers: Sequence[Peer], *, sequences: bool
) -> list[Job]:
    """The points and their peers, each peer after the rungs of its batch.

    With ``sequences`` the peers' layers as one graph follow.
    """
    order = {batch: place for place, batch in enumerate(dict.fromkeys(point.batch for point in points))}
    both: list[Point | PeerPoint] = [*points, *peer_points(points, peers)]
    recorders = {Kind.RUNG: runner, Kind.PEER: peer_runner}
    jobs = [Job(point, recorders[point.kind]) for point in sorted(both, key=lambda point: order[point.batch])]
    return jobs + [Job(sequence, peer_runner) for sequence in (peer_sequences(points, peers) if sequences else ())]
