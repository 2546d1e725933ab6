"""Records how much time ``conv2d``'s choice of rungs loses, against trying the likeliest rungs of every layout.

    python scripts/measure/choices.py --layers 300 --out results/library/h200-trials.jsonl

Layers of kinds that networks have are drawn at random, from a seed, with N, precision and the order of the input's
axes.  What ``alexconv.explain`` names first is timed, and the ``--most`` rungs of either layout with the least
estimates, copies included.  Calls are captured in graphs as library_bench.py does.  A record of type
``library-trials`` has the rungs' estimates, times and errors over the norms of patch and filter.  At the end it prints
what the choices lose: the geometric mean of their times over the shortest, and the worst.

With ``--cudnn`` the choices alone are timed, in both orders of the axes, beside cuDNN in both, as library_bench.py
times layers: records of type ``library-outside``, of layers outside those by which estimates and tables were made.
"""

import argparse
import gc
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from math import exp, log, prod
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

from library_bench import DTYPES, LAYOUTS, WARM_UPS, Bench, exact

from alexconv.errors import AlexconvError
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.kernels.ladder import LADDER
from alexconv.library import operation
from alexconv.library.arrays import packed_descriptor
from alexconv.library.calls import Call, call_of, dtype_of
from alexconv.library.devices import gpu
from alexconv.library.routes import Candidate, Route, candidate, candidates, key_of
from alexconv.library.terms import terms_of
from alexconv.library.workspaces import Gpu, WorkspaceKey
from alexconv.options import command_line, exits_cleanly
from alexconv.precisions import PRECISIONS
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile
from alexconv.shapes import Conv
from alexconv.tune import auto
from alexconv.tune.estimate import best

WARMED = 48  # layers whose kernels are compiled at once, beside cuDNN
AT_ONCE = 8  # layers whose kernels compile while those of the last ones are timed
MOST_MACS, MOST_VALUES = 4 * 10**11, 2 * 10**8  # of a batch; of its input or output
BATCHES = (1, 8, 32)
WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SIZES = (7, 10, 14, 20, 28, 40, 56, 64, 80, 112)
Draw = random.Random


def layer(C: int, size: int, M: int, R: int, U: int = 1, dilation: int = 1, groups: int = 1) -> Conv:
    """A layer of square planes, as wide after it as before if its stride is one."""
    around = dict.fromkeys(("top", "bottom", "left", "right"), dilation * (R // 2))
    return Conv(C, size, size, M, R, R, U, **around, dilation_rows=dilation, dilation_columns=dilation, groups=groups)


def patches(draw: Draw) -> Conv:
    """A layer that embeds patches."""
    side = draw.choice((4, 8, 14, 16))
    return Conv(3, 14 * side, 14 * side, draw.choice((96, 192, 384, 768)), side, side, side)


def grouped(draw: Draw) -> Conv:
    """A layer with a few channels in each group."""
    groups, of_group = draw.choice((2, 4, 8, 32)), draw.choice((4, 8, 16, 32))
    return layer(groups * of_group, draw.choice(SIZES), groups * of_group, 3, draw.choice((1, 2)), groups=groups)


def depthwise(draw: Draw) -> Conv:
    """A layer with a filter for each channel."""
    C = 4 * draw.choice(WIDTHS)
    return layer(C, draw.choice(SIZES), C, draw.choice((3, 5, 7)), draw.choice((1, 2)), groups=C)


KINDS: dict[str, Callable[[Draw], Conv]] = {
    "3x3": lambda draw: layer(draw.choice(WIDTHS), draw.choice(SIZES), draw.choice(WIDTHS), 3, draw.choice((1, 1, 2))),
    "1x1": lambda draw: layer(4 * draw.choice(WIDTHS), draw.choice(SIZES), draw.choice(WIDTHS), 1),
    "expanding": lambda draw: layer(draw.choice(WIDTHS), draw.choice(SIZES), 4 * draw.choice(WIDTHS), 1),
    "5x5 and 7x7": lambda draw: layer(draw.choice(WIDTHS[:8]), draw.choice(SIZES), draw.choice(WIDTHS),
                                      draw.choice((5, 7))),
    "dilated": lambda draw: layer(draw.choice(WIDTHS), draw.choice(SIZES[4:]), draw.choice(WIDTHS), 3, 1,
                                  draw.choice((2, 4, 6))),
    "first": lambda draw: layer(draw.choice((1, 2, 3, 4)), 4 * draw.choice(SIZES[4:8]), draw.choice(WIDTHS[:6]),
                                draw.choice((3, 5, 7)), draw.choice((1, 2))),
    "last": lambda draw: layer(draw.choice(WIDTHS[4:]), draw.choice(SIZES), draw.choice((1, 3, 4, 8)),
                               draw.choice((1, 3))),
    "patches": patches,
    "grouped": grouped,
    "depthwise": depthwise,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A layer with what a call of it has besides."""

    kind: str
    conv: Conv
    N: int
    precision: str
    memory: str


def cases(count: int, seed: int) -> list[Case]:
    """Random cases, of each kind in turn."""
    draw, drawn, kinds = random.Random(seed), [], list(KINDS)
    while len(drawn) < count:
        kind = kinds[len(drawn) % len(kinds)]
        case = Case(kind, KINDS[kind](draw), draw.choice(BATCHES), draw.choice(list(DTYPES)), draw.choice(LAYOUTS))
        values = max(prod(case.conv.x_shape(case.N)), prod(case.conv.y_shape(case.N)))
        if case.conv.macs(case.N) <= MOST_MACS and values <= MOST_VALUES:
            drawn.append(case)
    return drawn


def call(case: Case) -> Call:
    """The call of a case on the first GPU."""
    conv, dtype = case.conv, dtype_of(case.precision)
    terms = terms_of(conv.strides, conv.padding, case.precision, "nchw", conv.dilation, conv.groups)
    x = packed_descriptor(conv.x_shape(case.N), case.memory, dtype, 0)
    return call_of(terms, packed_descriptor(conv.w_shape(), "nchw", dtype, 0), x)


def likeliest(device: Gpu, case: Case, most: int) -> list[Candidate]:
    """What is compared: the first of the library's candidates, then others by their estimates."""
    on, layer_call = device.executor.device, call(case)
    served = (case.precision, *PRECISIONS[case.precision].stricter)
    first = candidates(device, layer_call)[:1]
    rungs = (rung for rung in LADDER if rung.precision in served and not device.executor.unsuited(rung))
    known = (least for rung in rungs if (least := best(rung, case.conv, case.N, on)))
    choices = (auto.Choice(bound.rung, dict(bound.constants), measured=False, us=us) for us, bound in known)
    others = sorted(
        (candidate(device, layer_call, choice, case.conv) for choice in choices), key=lambda option: option.us
    )
    unique: dict[WorkspaceKey, Candidate] = {}
    for option in (*first, *others[:most]):
        unique.setdefault(key_of(option, case.N), option)
    return list(unique.values())


def build(device: Gpu, case: Case, compared: Sequence[Candidate]) -> list[Future[None]]:
    """The compilations of a case's candidates, begun."""
    with device.lock, device.current():
        begun = [device.build(option.bound(device)) for option in compared]
    return [future for future in begun if future is not None]


def force(route: Route) -> None:
    """Makes the library compute every new call along a route."""
    operation.route_of = lambda device, call: route


def timed(bench: Bench, device: Gpu, case: Case, compared: Sequence[Candidate]) -> list[Record]:
    """A record of each candidate: its rung and estimates, and milliseconds with the largest error, or its failure."""
    conv = case.conv
    x, w = bench.tensors(conv, case.N, case.precision, case.memory)
    expected, norms = exact(bench.torch, x[:1].double(), w.double(), conv)
    trials = []
    for option in compared:
        rung = option.choice.rung
        facts: Record = {"rung": rung.name, "layout": rung.layout, "constants": dict(option.choice.constants)}
        facts |= {"us": option.choice.us, "measured": option.choice.measured, "copies_us": option.copies}
        force(Route(key_of(option, case.N), option.rest))
        layer = bench.alexconv.Conv2d(
            w.contiguous(), conv.strides, conv.padding, case.precision, dilation=conv.dilation, groups=conv.groups
        )
        try:
            for _ in range(WARM_UPS):
                layer(x)
            facts["ms"], y = bench.captured(partial(layer, x))
            facts["error"] = float(((y[:1].double() - expected).abs() / norms).max())
        except (RuntimeError, AlexconvError) as error:
            facts["failure"] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        trials.append(facts)
    return trials


def report(case: Case, trials: Sequence[Record]) -> float | None:
    """Prints a case; returns the first candidate's time over the shortest."""
    times = [trial["ms"] for trial in trials if "ms" in trial]
    lost = trials[0]["ms"] / min(times) if times and "ms" in trials[0] else None
    names = " ".join(
        f"{trial['rung']}({trial['layout']})={1e3 * trial['ms']:.1f}/{trial['us'] + trial['copies_us']:.1f}"
        if "ms" in trial
        else f"{trial['rung']}: {trial['failure']}"
        for trial in trials
    )
    shape = f"{case.conv.C}x{case.conv.H} {case.conv.M} of {case.conv.R} U={case.conv.U} groups={case.conv.groups}"
    wrong = max((trial["error"] for trial in trials if "ms" in trial), default=0.0)
    print(
        case.kind,
        shape,
        case.N,
        case.precision,
        case.memory,
        lost and round(lost, 3),
        names,
        f"{wrong:.1e}",
        flush=True,
    )
    return lost


def beside_cudnn(bench: Bench, drawn: Sequence[Case], seconds: float) -> Iterator[Record]:
    """The records of layers beside cuDNN, until the time is up."""
    begun = perf_counter()
    for first in range(0, len(drawn), WARMED):
        part = drawn[first : first + WARMED]
        shapes = (
            bench.alexconv.Shape(conv.x_shape(case.N), conv.w_shape(), conv.strides, conv.padding, case.precision,
                                 layout == "nhwc", dilation=conv.dilation, groups=conv.groups)
            for case in part for conv in [case.conv] for layout in LAYOUTS
        )  # fmt: skip
        bench.alexconv.warm(shapes)
        for case in part:
            if perf_counter() - begun > seconds:
                return
            facts: Record = {"kind": case.kind, "N": case.N, "precision": case.precision, "conv": asdict(case.conv)}
            measurement = bench.layer(case.conv, case.N, case.precision, LAYOUTS)
            rungs = bench.rungs(case.conv, case.N, case.precision, LAYOUTS)
            times = {name: round(ms, 4) for name, ms in measurement["graph_ms"].items()}
            print(case.kind, case.precision, case.N, times, flush=True)
            yield {**facts, **measurement, "rungs": rungs}


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and records; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--out", type=Path, default=Path("study/trials.jsonl"), metavar="FILE")
    add("--layers", type=int, default=300, help="how many layers (default: 300)")
    add("--seed", type=int, default=0, help="of the layers (default: 0)")
    add("--most", type=int, default=6, help="candidates of a layer besides the choice (default: 6)")
    add("--seconds", type=float, default=3600, help="begin no layers after this long (default: 3600)")
    add("--cudnn", action="store_true", help="time the choices alone, beside cuDNN")
    chosen = options.parse_args(arguments)
    executor = CudaExecutor()
    file = RecordFile(chosen.out)
    headers = environment.write_headers(file, executor.header(), command_line("scripts/measure/choices.py", arguments))
    executor.leave()
    begun, bench, device, losses = perf_counter(), Bench(), gpu(0), []
    operation.IN_BACKGROUND = False
    if chosen.cudnn:
        for record in beside_cudnn(bench, cases(chosen.layers, chosen.seed), chosen.seconds):
            file.header("library-outside", {**headers, **record})
        return 0
    gc.freeze()  # a capture begins with a collection

    def prepared(part: Sequence[Case]) -> list[tuple[Case, list[Candidate], list[Future[None]]]]:
        compared = [(case, likeliest(device, case, chosen.most)) for case in part]
        return [(case, group, build(device, case, group)) for case, group in compared]

    drawn = cases(chosen.layers, chosen.seed)
    parts = [drawn[first : first + AT_ONCE] for first in range(0, len(drawn), AT_ONCE)]
    waiting: list[Any] = prepared(parts[0])
    for following in [*parts[1:], []]:
        current, waiting = waiting, prepared(following)
        for case, compared, building in current:
            if perf_counter() - begun > chosen.seconds:
                break
            for future in building:
                future.exception()  # its call raises it again
            trials = timed(bench, device, case, compared) if compared else []
            facts = {"kind": case.kind, "N": case.N, "precision": case.precision, "memory": case.memory}
            file.header("library-trials", {**headers, **facts, "conv": asdict(case.conv), "trials": trials})
            if trials and (lost := report(case, trials)):
                losses.append(lost)
    if losses:
        print(f"{len(losses)} layers: {exp(mean(map(log, losses))):.3f} of the shortest times, worst {max(losses):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
