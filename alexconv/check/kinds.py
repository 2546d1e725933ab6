"""The kinds of checks of ``alexconv check``, each run in a separate process: ``python -m alexconv.check.kinds``.

A kind returns what is wrong, a line each; none if all is well.
"""

import argparse
import json
import resource
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from alexconv.check import networks
from alexconv.check.hazards import BUILD, DEFINEDNESS, MOMENTS, Inputs, Schedule, Watched, watch_rung
from alexconv.compiling.sources import source_files
from alexconv.cpu_reference.cache import FLOAT32
from alexconv.cpu_reference.reference import norms, reference
from alexconv.data import DATA_SETS, UNIFORM
from alexconv.errors import AlexconvError
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.host.runtime import HostRuntime
from alexconv.executors.interface import Values, in_rung_layout, open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.problem import H200, Device, Problem
from alexconv.kernels.rung import Rung
from alexconv.kernels.stages.persistent import NAME as PERSISTENT
from alexconv.measuring.runner import Runner, Settings
from alexconv.own.folders import add_own, ladder_of
from alexconv.planning.checks import Expected, MaxError, exact_bias, exact_inputs
from alexconv.planning.planner import Plan, plan
from alexconv.planning.points import Batch, Point
from alexconv.planning.transfers import TRANSFERS
from alexconv.precisions import ANY, PRECISIONS
from alexconv.profile.host import trace_point
from alexconv.profile.trace import Place
from alexconv.shapes import FORWARD, Conv

# Small shapes: one channel, odd sizes, a filter that is not square; a stride, and so few pixels that the input rows
# of a tile end with the image's; several tiles of pixels and of filters, and a partial K step after one of 64;
# narrow groups, all in one product, whose taps alone fill no whole steps; depthwise layers, with one filter of each
# channel and with two; few filters; last, a plane that is not square, for kernels that take square filters without
# padding alone.
SHAPES = (
    Conv(C=1, H=12, W=12, M=4, R=5, S=5),
    Conv(C=3, H=13, W=11, M=5, R=3, S=2),
    Conv(C=4, H=13, W=13, M=7, R=3, S=3, U=2),
    Conv(C=16, H=12, W=12, M=24, R=3, S=3),
    Conv(C=16, H=9, W=12, M=24, R=3, S=3, top=1, bottom=2, left=2, right=1, bias=True, relu=True),
    Conv(C=3, H=13, W=12, M=8, R=5, S=4, U=2, top=2, bottom=1, left=1, right=2, bias=True),
    Conv(C=72, H=12, W=14, M=72, R=3, S=1),
    Conv(C=16, H=6, W=7, M=8, R=3, S=3, top=1, left=1, right=2, groups=4),
    Conv(C=8, H=13, W=12, M=8, R=3, S=3, top=1, bottom=1, left=1, right=1, groups=8, bias=True, relu=True),
    Conv(C=6, H=11, W=9, M=12, R=5, S=4, U=2, top=2, left=1, right=2, groups=6, bias=True),
    Conv(C=40, H=6, W=34, M=3, R=3, S=2, top=1, bottom=2, right=1, bias=True),
    Conv(C=2, H=14, W=9, M=5, R=3, S=3),
)
N = 3
EXACT_IMAGES = 33  # of the exact check: more than an image tile has
WORKLOAD = "check"
ORDERS = (0, 1, 7, 8)  # of a block's threads: forward, in reverse, two at random
TRACED_BLOCKS = 6
MULTIPROCESSORS, WATCHED_IMAGES = 2, 10  # so that blocks of stream-K, too, have parts of several tiles
DELIBERATE = "// undefined: "  # and a reason: on a line, or before one, that loads what nothing has written
POWERS = range(-40, 41)  # of two, beyond all at which a rung changes how it computes (kernels/common/range.cuh)
ROUNDED_UP = 2.0**-13  # fp16 has no number so close below a power of two
FAINT = 2.0**-40  # next to one
EDGE_MACS = 1 << 20  # of an image, beyond which only faint values are tried
FILE_BYTES = 1 << 28  # that a check may write to one file, or put into an array
MOST_LINES = 5


def points(rung: Rung, shapes: Sequence[Conv], data: Sequence[str]) -> list[Point]:
    """A point for each shape and data set; the shapes are the layers of a workload of their own."""
    return [
        Point.with_defaults(Batch(WORKLOAD, number, conv, N, name), rung)
        for number, conv in enumerate(shapes, 1)
        if taken(rung, conv)
        for name in data
    ]


def refusal(rung: Rung, conv: Conv) -> str | None:
    """Why the rung does not take the shape, or None."""
    return rung.refuses(Problem(conv, 1, rung.resolve(conv, {}, N)))


def taken(rung: Rung, conv: Conv) -> bool:
    """Whether the rung takes the shape."""
    return refusal(rung, conv) is None


def in_words(conv: Conv) -> str:
    """A shape in a few words."""
    return " ".join(f"{letter}={size}" for letter, size in conv.sizes().items())


def verified(
    rung: Rung, shapes: Sequence[Conv], data: Sequence[str], build: str = "fast", accepted: Sequence[str] = ()
) -> Iterator[str]:
    """What is wrong with outputs on data sets, verified as in a run; ``accepted`` statuses are not reported."""
    executor = HostExecutor(build)
    layer_points = points(rung, shapes, data)
    runner = Runner(executor, layer_points, Settings(baseline=False, timed=False))
    for point in layer_points:
        record = runner.record(point)
        if record["status"] == "compile-error":  # once, if it is the same of all shapes
            yield record["reason"]
        elif record["status"] not in ("ok", *accepted):
            yield f"{in_words(point.conv)}, {point.data} data: {record['status']}: {record['reason']}"


def correct(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """Outputs against the float64 reference."""
    return verified(rung, shapes, [UNIFORM])


def hard_data(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """The same on data that is hard for a kernel."""
    yield from verified(rung, shapes, [name for name in DATA_SETS if name != UNIFORM])
    if rung.direction != FORWARD:
        return
    for conv in filter(lambda conv: taken(rung, conv), shapes):
        if rung.dtype == FLOAT32 and (wrong := wrong_at_edges(rung, conv)):
            yield wrong
        if wrong := wrong_at_infinities(rung, conv):
            yield wrong


def planned(rung: Rung, conv: Conv, images: int) -> Plan:
    """A rung's plan for images, with its constants for a batch of N."""
    return plan(BoundRung(rung, conv, rung.resolve(conv, {}, N)), images, FILE_BYTES)


def outputs(cut: Plan, x: Values, w: Values, bias: Values | None, order: int = 0) -> Values:
    """A planned rung's outputs, with a block's threads in an order."""
    with open_rung(HostExecutor(order=order), cut, x, w, TRANSFERS["pageable"], bias) as opened:
        return opened.outputs()


def edge_inputs(conv: Conv) -> tuple[Values, Values]:
    """Images of zeros but for two values far apart in a channel's row, a one and an edge; filters with an edge each.

    An edge is a power of two, the number before it, or one that fp16 rounds up to it.  Each is in the first, a middle
    and the last place of an image, and in the last of a filter; after these images, every pixel in turn is a faint one.
    """
    powers = np.exp2(np.array(POWERS, np.float32))
    edges = np.concatenate([powers, np.nextafter(powers, np.float32(0)), powers * np.float32(1 - ROUNDED_UP)])
    pixels = conv.H * conv.W
    places = (0, pixels // 2 + conv.W // 2, pixels - 1) if conv.macs(1) <= EDGE_MACS else ()
    alone = [(place, edge) for place in places for edge in edges] + [(place, FAINT) for place in range(pixels)]
    x = np.zeros(conv.x_shape(len(alone)), np.float32)
    for number, (place, value) in enumerate(alone):
        h, column = divmod(place, conv.W)
        channel = {0: 0, pixels - 1: conv.C - 1}.get(place, number % conv.C)
        x[number, channel, h, 0 if 2 * column >= conv.W else -1] = 1
        x[number, channel, h, column] = value
    w = np.random.default_rng(1).uniform(-1, 1, conv.w_shape()).astype(np.float32)
    largest = edges[np.arange(conv.M) * len(edges) // conv.M]
    w *= largest[:, None, None, None]
    w[:, -1, -1, -1] = largest
    return x, w


def wrong_at_edges(rung: Rung, conv: Conv) -> str | None:
    """What is wrong with outputs where values are about a power of two, or faint next to another."""
    x, w = edge_inputs(conv)
    bias = exact_bias(conv, seed=1)
    cut = planned(rung, conv, len(x))
    y = outputs(cut, x, w, bias)
    bound = PRECISIONS[rung.precision].bound(conv.K, ANY, cut.bound.atomic_additions())
    sums = reference(conv, np.abs(x), np.abs(w), None if bias is None else np.abs(bias))
    error, of_outputs = MaxError(), norms(conv, x, w, bias, bound.reach)
    error.add(y, Expected(reference(conv, x, w, bias), *of_outputs, sums, conv.relu), bound)
    if error.passes(bound.factor):
        return None
    figures = f"max error {error.scaled:.3g}, the bound is {bound.factor:.3g}"
    return f"{in_words(conv)}, values about powers of two: {figures}"


def infinite_inputs(conv: Conv) -> tuple[Values, Values]:
    """Positive images and filters, of which the second image and every other filter have infinities alone.

    No sum of them is NaN; a product with a zero beyond the last tap, channel or filter is.
    """
    draw = np.random.default_rng(1)
    x, w = (draw.uniform(0.5, 1, shape).astype(np.float32) for shape in (conv.x_shape(2), conv.w_shape()))
    x[1], w[::2] = np.inf, np.inf
    return x, w


def wrong_at_infinities(rung: Rung, conv: Conv) -> str | None:
    """What is wrong with outputs of infinities: whether they are infinite where float64 arithmetic has them."""
    x, w = infinite_inputs(conv)
    bias = exact_bias(conv, seed=1)
    y, error = outputs(planned(rung, conv, len(x)), x, w, bias), MaxError()
    with np.errstate(invalid="ignore"):
        error.add(y, Expected(reference(conv, x, w, bias), *norms(conv, x, w, bias)))
    return f"{in_words(conv)}, infinities: {error.misplaced} outputs are misplaced" if error.misplaced else None


def addresses(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """The same under AddressSanitizer; wrong outputs are another check's."""
    return verified(rung, shapes, [UNIFORM], "asan", ("wrong",))


def exact(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """Integers, whose outputs must be exact, in several orders of a block's threads."""
    for conv in filter(lambda conv: taken(rung, conv), shapes):
        x, w = exact_inputs(conv, EXACT_IMAGES, PRECISIONS[rung.precision], seed=1)
        bias = exact_bias(conv, seed=1)
        expected = reference(conv, x, w, bias)
        cut = plan(BoundRung(rung, conv, rung.resolve(conv, {}, EXACT_IMAGES)), EXACT_IMAGES, FILE_BYTES)
        for order in ORDERS:
            y = outputs(cut, x, w, bias, order).astype(np.float32)
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
        cut = plan(BoundRung(rung, point.conv, point.constants), N, FILE_BYTES)
        for entry, trace in trace_point(executor, point, cut, TRACED_BLOCKS):
            for race in trace.races:
                yield f"{entry}: {race}"


def watched(rung: Rung, shapes: Sequence[Conv], build: str, moments: Sequence[str]) -> Iterator[Watched]:
    """Runs on each shape in a build that watches loads and stores, with effects at these moments."""
    runtime = HostRuntime(build=build)
    device = device_of(rung)
    for conv in filter(lambda conv: taken(rung, conv), shapes):
        x, w = exact_inputs(conv, WATCHED_IMAGES, PRECISIONS[rung.precision], seed=1)
        bias = exact_bias(conv, seed=1)
        added = None if bias is None else bias.astype(rung.dtype)
        bound = BoundRung(rung, conv, rung.resolve(conv, {}, WATCHED_IMAGES, device), device)
        inputs = Inputs(in_rung_layout(x, conv.roles.x, rung), in_rung_layout(w, conv.roles.w, rung), added)
        for moment in moments:
            yield watch_rung(runtime, bound, inputs, Schedule(moment, seed=1))


def async_hazards(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """Copies and products that are not waited for; see docs/hazards.md."""
    for run in watched(rung, shapes, BUILD, MOMENTS):
        yield from map(str, run.hazards)
        if run.failure:
            yield run.failure


def undefined(rung: Rung, shapes: Sequence[Conv]) -> Iterator[str]:
    """Loads of shared memory and of local variables that nothing has written; see docs/hazards.md."""
    deliberate = deliberate_loads(rung)
    for build in (BUILD, DEFINEDNESS):
        for run in watched(rung, shapes, build, ("latest",)):
            for load in run.undefined:
                if load.second_place not in deliberate or np.isnan(run.y).any():
                    yield str(load)
            if run.failure:  # nothing is known of what follows
                yield run.failure
    runtime, device = HostRuntime(build=DEFINEDNESS), device_of(rung)
    for conv in filter(lambda conv: taken(rung, conv), shapes):
        bound = BoundRung(rung, conv, rung.resolve(conv, {}, WATCHED_IMAGES, device), device)
        for file, line, words in runtime.uninitialised(rung.path, bound.macros, bound.entries()):
            if Place(file, line) not in deliberate:
                yield f"{file}:{line}: {words}"


def deliberate_loads(rung: Rung) -> set[Place]:
    """The lines whose loads of what nothing has written change no output, as a comment there or before says."""
    return {
        Place(file.name, number + line.lstrip().startswith(DELIBERATE))
        for file in source_files(rung.path)
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if DELIBERATE in line
    }


def device_of(rung: Rung) -> Device:
    """A device so small that a persistent kernel's blocks have more tiles than pipeline stages."""
    return H200 if rung.gpu_only else replace(H200, multiprocessors=MULTIPROCESSORS)


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
    "undefined": Kind("loads of what nothing has written", undefined, DEFINEDNESS),
}


def found_by(kind: str, name: str, ladder: Ladder) -> Iterator[str]:
    """What a kind of check finds in a rung, or in the kernel of a whole network."""
    if name == PERSISTENT:
        return networks.KINDS[kind]()
    rung = ladder.named[name]
    shapes = [conv.toward(rung.direction) for conv in SHAPES]
    reasons = [refusal(rung, conv) for conv in shapes]
    if all(reasons):
        return iter([f"nothing is checked, as it takes none of the shapes: {reasons[0]}"])
    return KINDS[kind].find(rung, shapes)


def all_of(find: Callable[[], Iterable[str]]) -> list[str]:
    """The problems that a check finds, each once, and why it ended where it did, as at a launch that fails."""
    problems: list[str] = []
    try:
        problems.extend(find())
    except AlexconvError as error:
        problems.append(str(error))
    return list(dict.fromkeys(problems))


def run_one(arguments: Sequence[str] | None = None) -> int:
    """Runs one kind on one rung and writes what is wrong, as JSON, to a file."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("kind", choices=KINDS)
    options.add_argument("rung")
    options.add_argument("answer", type=Path)
    add_own(options)
    chosen = options.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))
    problems = all_of(lambda: found_by(chosen.kind, chosen.rung, ladder_of(chosen)))
    chosen.answer.write_text(json.dumps(problems))
    return 0


if __name__ == "__main__":
    sys.exit(run_one())
