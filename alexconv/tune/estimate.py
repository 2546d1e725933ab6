"""Estimates how long a rung takes on a GPU, from the ``time`` of its entry: ``auto`` uses it for layers without times.

A rung takes the sum over its launches and what it costs to start them (``alexconv.kernels.times``).
"""

from collections.abc import Iterator
from itertools import product
from math import inf

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.problem import Device, Problem
from alexconv.kernels.rung import Rung
from alexconv.shapes import Conv

DRAM, CACHE = 3.4e6, 5.5e6  # bytes per microsecond: of DRAM; where a launch's arrays stay in the L2 cache
COPY = 1.3  # how much longer a copy through tiles in shared memory takes than its bytes
FIRST_LAUNCH, NEXT_LAUNCH = 2.0, 1.2  # microseconds that a launch costs in a graph
STAGES, SPLITS = "STAGES", "SPLITS"  # constants: as many stages of a tile as fit; split-K slices


def moved(p: Problem, nbytes: float) -> float:
    """Microseconds for bytes that all multiprocessors move."""
    return nbytes / (CACHE if nbytes < p.device.l2_bytes else DRAM)


def estimate(bound: BoundRung, N: int) -> float:
    """Microseconds for N images, without the preparation of filters; infinite for a rung without a ``time``."""
    time, p = bound.rung.time, bound.problem(N)
    if time is None:
        return inf
    launches = len(bound.rung.launches) * len(bound.micro_batches(N))
    work = max(time.busy(p), moved(p, time.moves(p))) + time.fixed + moved(p, time.passes(p))
    return time.slower * work + FIRST_LAUNCH + NEXT_LAUNCH * (launches - 1)


def copying(conv: Conv, elements: int, itemsize: int, device: Device) -> float:
    """Microseconds of a launch that copies a layer's elements, into another layout or with their padding."""
    return moved(Problem(conv, device=device), COPY * 2 * itemsize * elements) + FIRST_LAUNCH


def candidates(rung: Rung, conv: Conv, N: int, device: Device) -> Iterator[BoundRung]:
    """The rung with its usual constants, then with the other sizes of its tiles, where its ``time`` names these."""
    usual = BoundRung(rung, conv, rung.resolve(conv, {}, N, device), device)
    yield usual
    if rung.time is None or not rung.time.tiles:
        return
    choices = {constant.name: constant.choices for constant in rung.constants}
    for sizes in product(*(choices[name] for name in rung.time.tiles)):
        chosen = {**dict(zip(rung.time.tiles, sizes, strict=True)), STAGES: min(choices[STAGES])}
        fewest = BoundRung(rung, conv, rung.resolve(conv, chosen, N, device), device)
        if fewest.refusal():
            continue
        stages = (fewest.having({STAGES: number}) for number in sorted(choices[STAGES], reverse=True))
        tile = next(bound for bound in stages if not bound.refusal())
        yield tile
        fewer = (number for number in choices.get(SPLITS, ()) if number < tile.constants[SPLITS])
        yield from (tile.having({SPLITS: number}) for number in fewer)


def ranked(rung: Rung, conv: Conv, N: int, device: Device) -> list[tuple[float, BoundRung]]:
    """The candidates, each once, by their estimates; none where the rung refuses the layer."""
    taken = [bound for bound in candidates(rung, conv, N, device) if not bound.refusal()]
    once = {tuple(sorted(bound.constants.items())): bound for bound in taken}
    return sorted(((estimate(bound, N), bound) for bound in once.values()), key=lambda estimated: estimated[0])


def dynamic_constants(rung: Rung, conv: Conv, N: int, device: Device) -> Iterator[dict[str, int]]:
    """The constants with which a layer takes each build for every shape of a rung."""
    names = {constant.name for constant in rung.constants}
    for build in rung.dynamic.builds if rung.dynamic else ():
        chosen = {name: value for name, value in build.items() if name in names}
        for rest in rung.dynamic.rest(Problem(conv, N, chosen, device)) if rung.dynamic else ():
            yield rung.resolve(conv, {**chosen, **rest}, N, device)


def dynamic_builds(rung: Rung, conv: Conv, N: int, device: Device) -> list[tuple[float, BoundRung]]:
    """The rung's builds for every shape that take a layer, by their estimates."""
    if rung.dynamic is None:
        return []
    bounds = (BoundRung(rung, conv, constants, device, True) for constants in dynamic_constants(rung, conv, N, device))
    slower, besides = rung.dynamic.slower, rung.dynamic.besides
    estimated = ((slower * estimate(bound, N) + besides, bound) for bound in bounds if not bound.refusal())
    return sorted(estimated, key=lambda known: known[0])


def best(rung: Rung, conv: Conv, N: int, device: Device) -> tuple[float, BoundRung] | None:
    """The candidate with the least estimate; None where the rung refuses the layer."""
    return next(iter(ranked(rung, conv, N, device)), None)
