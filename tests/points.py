"""Points by the names of what they are of."""

from collections.abc import Mapping

from alexconv.data import UNIFORM
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Rung
from alexconv.planning.peers import ALL_PEERS
from alexconv.planning.points import PAGEABLE, Batch, PeerPoint, PeerSequence, Point
from alexconv.records.labels import SEQUENCE_SUFFIX
from alexconv.shapes import WORKLOADS

PEERS = {peer.name: peer for peer in ALL_PEERS}


def batch_of(workload: str, layer: int, N: int, data: str = UNIFORM) -> Batch:
    return Batch(workload, layer, WORKLOADS[workload].layer(layer), N, data)


def point_of(batch: Batch, rung: Rung | str, constants: Mapping[str, int] | None = None, transfer=PAGEABLE) -> Point:
    """A rung's point, with its defaults for a usual batch unless constants are given."""
    entry = RUNGS[rung] if isinstance(rung, str) else rung
    chosen = entry.resolve(batch.conv, {}) if constants is None else dict(constants)
    return Point(batch, entry, transfer, chosen)


def peer_point(batch: Batch, name: str) -> PeerPoint:
    return PeerPoint(batch, PEERS[name])


def peers_together(layers: tuple[int, ...], N: int, name: str, workload: str = "alexnet") -> PeerSequence:
    points = tuple(peer_point(batch_of(workload, layer, N), name) for layer in layers)
    return PeerSequence(name + SEQUENCE_SUFFIX, PEERS[name].precision, points)
