"""The kinds of checks of ``alexconv check``, each run in a separate process: ``python -m alexconv.checking.kinds``.

A kind returns what is wrong, a line each; none if all is well.
"""

import argparse
import json
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alexconv.checking.hazards import BUILD, MOMENTS, watch_rung
from alexconv.cpu_reference.reference import reference
from alexconv.data import DATA_SETS, UNIFORM
from alexconv.errors import AlexconvError
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.host.runtime import HostRuntime
from alexconv.executors.interface import open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import H200, Problem
from alexconv.kernels.rung import Rung
from alexconv.measuring.runner import Runner, Settings
from alexconv.own.folders import add_own
from alexconv.planning.checks import PRECISIONS, exact_bias, exact_inputs
from alexconv.planning.layouts import from_study
from alexconv.planning.planner import plan
from alexconv.planning.points import Point
from alexconv.planning.transfers import TRANSFERS
from alexconv.profiling.host import trace_point
from alexconv.shapes import WORKLOADS, Conv, Workload

# Small shapes: one channel, odd sizes, a stride, a filter that is not square, several tiles of filters and of pixels.
SHAPES = (
    Conv(C=1, H=12, W=12, M=4, R=5, S=5),
    Conv(C=3, H=13, W=11, M=5, R=3, S=2),
    Conv(C=4, H=15, W=15, M=7, R=3, S=3, U=2),
    Conv(C=16, H=12, W=12, M=24, R=3, S=3),
    Conv(C=16, H=9, W=12, M=24, R=3, S=3, top=1, bottom=2, left=2, right=1, bias=True, relu=True),
    Conv(C=3, H=13, W=12, M=5, R=5, S=4, U=2, top=2, bottom=1, left=1, right=2, bias=True),
)
N = 3
EXACT_IMAGES = 33  # of the exact check: more than an image tile has
WORKLOAD = "check"
ORDERS = (0, 1, 7, 8)  # of a block's threads: forward, in reverse, two at random
TRACED_BLOCKS = 6
MULTIPROCESSORS, WATCHED_IMAGES = 2, 9  # so that a persistent kernel's blocks have more tiles than pipeline stages
FILE_BYTES = 1 << 28  # that a check may write to one file
MOST_LINES = 5


def points(rung: Rung, shapes: Sequence[Conv], data: Sequence[str]) -> list[Point]:
    """A point for each shape and data set; the shapes are a separate workload."""
    WORKLOADS[WORKLOAD] = Workload(WORKLOAD, tuple(shapes), (N,), "shapes of alexconv check")
    found = []
    for number, conv in enumerate(shapes, 1):
        if taken(rung, conv):
            constants = rung.resolve(conv, {}, N)
            found += [
                Point(WORKLOAD, number, N, rung.name, "pageable", rung.precision, constants, H200, name)
                for name in data
            ]
    return found


def taken(rung: Rung, conv: Conv) -> bool:
    """Whether the rung takes the shape."""
    return rung.refuses(Problem(conv, 1, rung.resolve(conv, {}, N))) is None


def in_words(conv: Conv) -> str:
    """A shape in a few words."""
    return " ".join(f"{letter}={size}" for letter, size in conv.sizes().items())


def verified(
    rung: Rung, shapes: Sequence[Conv], data: Sequence[str], build: str = "fast", accepted: Sequence[str] = ()
) -> Iterator[str]:
    """What is wrong with outputs on data sets, verified as in a run; ``accepted`` statuses are not reported."""
    executor = HostExecutor(build)
    asked = points(rung, shapes, data)
    runner = Runner(executor, asked, Settings(baseline=False, timed=False))
    for point in asked:
        record = runner.record(point)
        if record["status"] not in ("ok", *accepted):
            yield f"{in_words(point.conv)}, {point.data} data: {record['status']}: {record['reason']}"


def correct(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """Outputs against the float64 reference."""
    return verified(rung, shapes, [UNIFORM])


def hard_data(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """The same on data that is hard for a kernel."""
    return verified(rung, shapes, [name for name in DATA_SETS if name != UNIFORM])


def addresses(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """The same under AddressSanitizer; wrong outputs are another check's."""
    return verified(rung, shapes, [UNIFORM], "asan", ("wrong",))


def exact(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """Integers, whose outputs must be exact, in several orders of a block's threads."""
    for conv in filter(lambda conv: taken(rung, conv), shapes):
        x, w = exact_inputs(conv, EXACT_IMAGES, PRECISIONS[rung.precision], seed=1)
        bias = exact_bias(conv, seed=1)
        expected = reference(conv, x, w, bias)
        cut = plan(BoundRung(rung, conv, rung.resolve(conv, {}, EXACT_IMAGES)), EXACT_IMAGES, 1 << 34)
        for order in ORDERS:
            with open_rung(HostExecutor(order=order), cut, x, w, TRANSFERS["pageable"], bias) as opened:
                y = opened.outputs().astype(np.float32)
            wrong = np.argwhere(~(y == expected))
            if len(wrong):
                n, m, e, f = wrong[0]
                yield (
                    f"{in_words(conv)}: {len(wrong)} of {y.size} outputs are wrong in thread order {order}; the first,"
                    f" y[{n}][{m}][{e}][{f}], is {y[n, m, e, f]:g} and not {expected[n, m, e, f]:g}"
                )
                break


def races(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """Accesses of threads to the same memory that no barrier puts in order."""
    executor = HostExecutor("trace")
    for point in points(rung, shapes, [UNIFORM]):
        cut = plan(BoundRung(rung, point.conv, point.constants), N, 1 << 34)
        for entry, found in trace_point(executor, point, cut, TRACED_BLOCKS):
            for race in found.races:
                yield f"{entry}: {race}"


def async_hazards(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """Copies and products that are not waited for; see docs/hazards.md."""
    runtime = HostRuntime(build=BUILD)
    device = H200 if rung.gpu_only else type(H200)(**{**vars(H200), "multiprocessors": MULTIPROCESSORS})
    for conv in filter(lambda conv: taken(rung, conv), shapes):
        x, w = exact_inputs(conv, WATCHED_IMAGES, PRECISIONS[rung.precision], seed=1)
        bias = exact_bias(conv, seed=1)
        added = None if bias is None else bias.astype(rung.dtype)
        bound = BoundRung(rung, conv, rung.resolve(conv, {}, WATCHED_IMAGES, device), device)
        inputs = from_study(x, rung.layout).astype(rung.dtype), w.astype(rung.dtype)
        for moment in MOMENTS:
            found = watch_rung(runtime, bound, *inputs, moment, seed=1, bias=added)
            yield from map(str, found.hazards)
            if found.failure:
                yield found.failure
            if np.isnan(found.y).any():
                yield from map(str, found.unwritten)


@dataclass(frozen=True)
class Kind:
    """A kind of check: what it looks at, how, and the host executor's build that it needs."""

    meaning: str
    find: Callable[[Rung, Sequence[Conv]], Iterator[str]]
    build: str = "fast"


KINDS = {
    "correct": Kind("outputs against the float64 reference", correct),
    "exact": Kind("integers, in several thread orders", exact),
    "data": Kind("data that is hard for a kernel", hard_data),
    "addresses": Kind("loads and stores outside of arrays", addresses, "asan"),
    "races": Kind("accesses that no barrier orders", races, "trace"),
    "async": Kind("copies and products not waited for", async_hazards, BUILD),
}


def run_one(arguments: Sequence[str] | None = None) -> int:
    """Runs one kind on one rung and writes what is wrong, as JSON, to a file."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("kind", choices=KINDS)
    options.add_argument("rung")
    options.add_argument("answer", type=Path)
    add_own(options)
    chosen = options.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    try:
        problems = list(dict.fromkeys(KINDS[chosen.kind].find(RUNGS[chosen.rung], SHAPES)))
    except AlexconvError as error:
        problems = [str(error)]
    chosen.answer.write_text(json.dumps(problems))
    return 0


if __name__ == "__main__":
    sys.exit(run_one())
