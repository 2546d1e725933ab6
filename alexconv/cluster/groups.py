"""Groups of points that run on one card: a layer at a batch size, with its peers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, prod

from alexconv.errors import UsageError
from alexconv.measuring.jobs import Job
from alexconv.messages import Say
from alexconv.planning.points import AnyPoint, LayerSequence, PeerPoint, Point, layer_range
from alexconv.records.labels import particulars
from alexconv.records.store import identity

POINT_S, BYTES_PER_S = 1.5, 1e9  # rough cost of a point: seconds of sampling, and bytes checked per second


@dataclass(frozen=True)
class Group:
    """Points that are compared with each other, in order."""

    points: tuple[AnyPoint, ...]

    @property
    def label(self) -> str:
        """What its points share: workload, layer, batch size, data and direction."""
        workload, layers, N, more = place(self.points[0])
        return f"{workload} layer {layers} N={N}{more}"

    @property
    def weight(self) -> float:
        """Estimated seconds; only the order of groups matters."""
        return fsum(seconds(layer_point) for point in self.points for layer_point in point.points())


def place(point: AnyPoint) -> tuple[str, str, int, str]:
    """Workload, layers, batch size, and data and direction as labels give them."""
    layers = layer_range(point.layers) if isinstance(point, LayerSequence) else str(point.layer)
    return point.batch.workload, layers, point.N, particulars(point.axes())


def seconds(point: Point | PeerPoint) -> float:
    """Estimated seconds of a point."""
    values = prod(point.conv.x_shape(point.N)) + prod(point.conv.y_shape(point.N))
    return POINT_S + 4 * values / BYTES_PER_S


def groups_of(points: Iterable[AnyPoint]) -> list[Group]:
    """The points by place, the longest group first, so that workers end at about the same time."""
    points_by_place: dict[object, list[AnyPoint]] = {}
    for point in points:
        points_by_place.setdefault(place(point), []).append(point)
    return sorted((Group(tuple(members)) for members in points_by_place.values()), key=lambda group: -group.weight)


def parse_shard(text: str) -> tuple[int, int]:
    """``2/8``: the second of eight; raises UsageError."""
    number, slash, of = text.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise UsageError(f"--shard {text}: write the number of the shard and of all shards, as in 2/8")
    return int(number), int(of)


def shard_of(points: Sequence[AnyPoint], number: int, of: int) -> list[AnyPoint]:
    """The points of one shard, in their order: each group goes to the least loaded shard."""
    groups = groups_of(points)
    loads = [0.0] * min(of, len(groups))
    chosen: set[object] = set()
    for group in groups:
        least = loads.index(min(loads))
        loads[least] += group.weight
        if least == number - 1:
            chosen.add(place(group.points[0]))
    return [point for point in points if place(point) in chosen]


def jobs_of_shard(text: str, jobs: Sequence[Job], say: Say) -> list[Job]:
    """The jobs of the shard that ``--shard`` names; raises UsageError."""
    number, of = parse_shard(text)
    chosen = {identity(point.axes()) for point in shard_of([job.point for job in jobs], number, of)}
    say(f"shard {number} of {of}: {len(chosen)} of {len(jobs)} points")
    return [job for job in jobs if job.name in chosen]
