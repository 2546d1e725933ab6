"""One batch in shards: runs of images, each computed by one device and checked against its slice of the reference.

Inputs are generated image by image, so a shard needs only the images' numbers.  It computes them in blocks of bounded
host memory, each a separate measurement; its time is the sum of theirs.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from hashlib import sha256
from math import ceil, fsum, prod
from statistics import median
from typing import Any, cast

import numpy as np

from alexconv.cpu_reference.cache import LayerData
from alexconv.executors.interface import Executor, OpenedRung, Values
from alexconv.executors.sampling import Samples, repeat
from alexconv.kernels.geometry import FLOAT
from alexconv.machine import peak_memory
from alexconv.measuring.runner import Layer, Runner, Settings, attempted, data_of
from alexconv.parallel import each_image
from alexconv.planning.points import Point
from alexconv.records.store import Record, digest

TYPE = "shards"  # of a record's header
IMAGE_DIGITS = 16  # of an image's digest
FAILED = ("launch-error", "wrong", "out-of-memory", "compile-error", "skipped")  # the worst first

Images = tuple[int, int]  # the first, and the one after the last
Meet = Callable[[str], None]  # a barrier: returns when all shards have reached the same place


def shards_of(N: int, count: int) -> list[Images]:
    """N images in shards that differ by one image at most."""
    return [(N * number // count, N * (number + 1) // count) for number in range(count)]


def blocks_of(point: Point, count: int, images: Images, block_bytes: int) -> list[Images]:
    """A shard's images in blocks: as many in each of the point's ``count`` shards, so that they stay in step."""
    image_bytes = (prod(point.conv.x_shape(1)) + prod(point.conv.y_shape(1))) * FLOAT
    largest = ceil(point.N / count)
    blocks = min(ceil(largest * image_bytes / block_bytes), images[1] - images[0])
    return [(images[0] + low, images[0] + high) for low, high in shards_of(images[1] - images[0], max(blocks, 1))]


def alone(place: str) -> None:
    """The ``Meet`` of a single shard: returns immediately."""


def run_shard(runner: Runner, point: Point, count: int, number: int, block_bytes: int, meet: Meet = alone) -> Record:
    """The record of a shard: its images, its blocks' facts, samples of their sum, and the digests of its outputs.

    ``block_bytes`` are a block's input and output on the host; its reference and norms take about as much.
    All blocks use the constants of the whole batch, so that outputs equal the batch's bit for bit.
    """
    images = shards_of(point.N, count)[number]
    blocks = [
        run_block(runner, point, block, partial(step, meet, place))
        for place, block in enumerate(blocks_of(point, count, images, block_bytes))
    ]
    worst = next((block for status in FAILED for block in blocks if block["status"] == status), blocks[0])
    facts = {
        name: value for name, value in worst.items() if name not in ("samples", "outputs", "point", "changed", "key")
    }
    samples = summed([block["samples"] for block in blocks]) if worst["status"] == "ok" else {}
    outputs = "".join(block.get("outputs", "") for block in blocks)
    memory = {"blocks": len(blocks), "block_bytes": block_bytes, "peak_bytes": peak_memory()}
    return {**facts, "images": list(images), **memory, "samples": samples, "outputs": outputs}


def step(meet: Meet, block: int, place: str) -> None:
    """Waits until all shards reach a place of a block."""
    meet(f"{block}-{place}")


def run_block(runner: Runner, point: Point, images: Images, meet: Meet) -> Record:
    """The record of some of a batch's images, measured as a separate point."""
    first, last = images
    part = replace(point, batch=replace(point.batch, N=last - first))
    digests: list[str] = []

    def ready(y: Values) -> None:
        digests.extend(each_image(lambda image: image_digest(y[image]), len(y)))
        meet("kernels")

    def again(opened: OpenedRung) -> Samples:
        """Times host arrays to host arrays, on all shards at the same time."""
        meet("copies")
        return repeat(lambda: as_figures(opened.buffers.run()), runner.settings.seconds)

    def measured() -> Record:
        layer = layer_of(data_of(point, runner.settings.seed), first, last)
        return runner.measured(part, runner.plan(part), layer, ready, again)

    return {**attempted(part, "", measured), "outputs": "".join(digests)}


@lru_cache(maxsize=1)
def layer_of(of: LayerData, first: int, last: int) -> Layer:
    """Inputs and reference of images ``first`` to ``last - 1``; the last are cached for the next rung."""
    return Layer(of, last, first)


def image_digest(y: Values) -> str:
    """Digest of an image's outputs ``[M][E][F]``, every bit of them."""
    return sha256(np.ascontiguousarray(y).tobytes()).hexdigest()[:IMAGE_DIGITS]


def as_figures(times: Any) -> dict[str, float]:
    """The times of one run by name: a transfer that overlaps has a total alone."""
    return times if isinstance(times, dict) else {"total": times}


def summed(blocks: Sequence[Samples]) -> Samples:
    """Sums over the blocks: of their first samples, of their second samples, and so on."""
    figures = set.intersection(*(set(samples) for samples in blocks))
    return {
        name: [fsum(values) for values in zip(*(samples[name] for samples in blocks), strict=False)]
        for name in blocks[0]
        if name in figures
    }


class OnDevice:
    """An executor with the header of another device of the same kind; the rest of a record's key is the same."""

    def __init__(self, executor: Executor, header: Record) -> None:
        self._executor, self._header = executor, header

    def header(self) -> Record:
        """The other device's."""
        return self._header

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def key_of(executor: Executor, settings: Settings, point: Point, count: int, block_bytes: int) -> str:
    """Digest of everything that a batch's result depends on, except the cards."""
    header = {name: value for name, value in executor.header().items() if name != "uuid"}
    anywhere = cast(Executor, OnDevice(executor, header))
    return digest([Runner(anywhere, [], settings).key(point), count, block_bytes])


def joined(point: Point, key: str, parts: Sequence[Record], *, together: bool) -> Record:
    """The record of a batch from those of its shards: the slowest shard decides each figure; rates are in images/s.

    ``outputs`` is the digest of all outputs, the same for any number of shards.
    """
    worst = next((part for status in FAILED for part in parts if part["status"] == status), parts[0])
    ok = worst["status"] == "ok"
    figures = set.intersection(*(set(part["samples"]) for part in parts)) if ok else set()
    slowest = {
        name: max(median(part["samples"][name]) for part in parts) for name in parts[0]["samples"] if name in figures
    }
    outputs = "".join(part["outputs"] for part in parts)
    return {
        "point": point.axes(),
        "point_key": key,
        "shards": len(parts),
        "together": together,
        "status": worst["status"],
        "reason": worst.get("reason"),
        "slowest_ms": slowest,
        "images_per_s": {name: point.N / ms * 1e3 for name, ms in slowest.items() if ms},
        "outputs": sha256(outputs.encode()).hexdigest()[:IMAGE_DIGITS] if ok else None,
        "parts": [{name: value for name, value in part.items() if name != "outputs"} for part in parts],
    }
