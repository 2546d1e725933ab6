"""The CPU reference on workers: the missing images of each cache as blocks, for any free worker."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from alexconv.cluster.connection import ClusterLost
from alexconv.cluster.pool import MOST_ENDS, Pool, Task, Worker
from alexconv.cluster.worker import Request
from alexconv.cpu_reference.cache import LayerData, blocks_missing, compute_block
from alexconv.measuring.runner import data_of
from alexconv.planning.points import PeerPoint, Point

Needed = tuple[LayerData, int]  # and the number of images, or of other entries of the outputs' first axis


class Computed(NamedTuple):
    """Images that were computed, and the seconds of all workers that their convolution took."""

    images: int
    convolution_s: float


class Progress(Protocol):
    """A display of how many images are done."""

    def expect(self, total: int) -> None:
        """Says how many there are."""
        ...

    def reach(self, done: int) -> None:
        """Says how many are done."""
        ...


def places_of(points: Iterable[Point | PeerPoint], seed: int) -> list[Needed]:
    """The references that points need: of each layer for its largest batch."""
    largest: dict[LayerData, int] = {}
    for point in points:
        of = data_of(point, seed)
        largest[of] = max(largest.get(of, 0), of.outputs(point.N))
    return list(largest.items())


def missing(request: Request, places: Sequence[Needed]) -> list[tuple[LayerData, int, int]]:
    """The blocks of images that this worker's cache lacks: inputs, first image, and one past the last."""
    return [(inputs, first, last) for inputs, N in places for first, last in blocks_missing(inputs, N)]


def add_block(request: Request, inputs: LayerData, first: int, last: int) -> float:
    """Computes a block and adds it to this worker's cache; returns the seconds of its convolution."""
    return compute_block(inputs, first, last)


def blocks_of(
    pool: Pool, worker: Worker, places: Sequence[Needed], done: Any = lambda seconds, block: None
) -> list[Task]:
    """Tasks for all blocks that the worker's cache lacks, for any worker with that cache.

    They raise ClusterLost once MOST_ENDS workers have ended during a block.
    """
    ends: Counter[tuple[LayerData, int, int]] = Counter()

    def lost(block: tuple[LayerData, int, int]) -> list[Task]:
        inputs, first, last = block
        ends[block] += 1
        if ends[block] >= MOST_ENDS:
            place = f"{inputs.workload} layer {inputs.layer}, images {first} to {last - 1}"
            raise ClusterLost(f"{MOST_ENDS} workers ended while they computed the reference of {place}")
        return [task(block)]

    def task(block: tuple[LayerData, int, int]) -> Task:
        return Task(
            "a reference",
            add_block,
            (pool.request, *block),
            lambda candidate: candidate.store == worker.store,
            lambda _, seconds: done(seconds, block) or (),
            lambda _: lost(block),
        )

    return [task(block) for block in pool.call(worker, missing, pool.request, places)]


def compute(pool: Pool, places: Sequence[Needed], progress: Progress) -> list[Computed]:
    """Adds the references of places to every cache of the pool's workers; returns each place's cost, in order."""
    costs = {place: Computed(0, 0.0) for place in places}
    of_inputs = {inputs: (inputs, N) for inputs, N in places}
    tasks: list[Task] = []

    def done(seconds: float, block: tuple[LayerData, int, int]) -> None:
        inputs, first, last = block
        before = costs[of_inputs[inputs]]
        costs[of_inputs[inputs]] = Computed(before.images + last - first, before.convolution_s + seconds)
        progress.reach(sum(cost.images for cost in costs.values()))

    for worker in pool.one_of_each(lambda worker: worker.store):
        tasks += blocks_of(pool, worker, places, done)
    progress.expect(sum(block[2] - block[1] for task in tasks for block in [task.arguments[1:]]))
    pool.run(tasks)
    return list(costs.values())
