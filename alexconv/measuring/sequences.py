"""Sequences: several layers of a workload in one CUDA graph or one pipeline, each layer with its own images.

Under a transfer that copies whole batches, the layers' kernels are one CUDA graph whose arrays stay on the device: what
a network's convolutions cost without launch overhead.  Under ``streamed:k`` one pipeline runs from host arrays to host
arrays: pieces of all layers rotate over k streams, so that both copy engines stay busy; this too is one graph, because
launching every piece from the host is slower than the copies.

All layers have the same rung, or each has its own (*mixed*).  Outputs are checked like a single layer's, also on
integers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any

from alexconv.code import code_of
from alexconv.errors import UsageError
from alexconv.executors.interface import OpenedRung, Values, open_rung
from alexconv.executors.sampling import Samples, repeat
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.measuring.runner import (
    Layer,
    Runner,
    Skip,
    attempted,
    checked,
    exact_data,
    refuse_impossible,
    timed_under_load,
)
from alexconv.planning.checks import MaxError, worst
from alexconv.planning.planner import DoesNotFit, Plan, plan
from alexconv.planning.points import (
    DEFAULTS,
    ConstantSource,
    Point,
    RungSequence,
    batches_of,
    choose_rungs,
    expand,
    parse_constants,
    parse_layers,
    refuse_unused,
)
from alexconv.planning.transfers import Transfer, transfer_named
from alexconv.precisions import PRECISIONS
from alexconv.records.labels import MIXED, SEQUENCE_SUFFIX
from alexconv.records.store import Record, digest
from alexconv.shapes import Workload

Arrays = tuple[Values, Values, Values | None]  # inputs, filters and bias of a layer

PIECE_BYTES = 6 * 10**6  # of a piece's input or output in a pipeline, whichever is larger


def rung_sequences(points: Iterable[Point]) -> list[RungSequence]:
    """Each rung's layers as one sequence, for every workload, N and transfer, if it has several layers.

    Raises UsageError if a layer has several values of a constant.
    """
    groups: dict[tuple[str, int, str, str, str], list[Point]] = {}
    for point in points:
        if transfer_named(point.transfer).copies:  # else there is nothing to put together
            same = point.workload, point.N, point.rung, point.transfer, point.data
            groups.setdefault(same, []).append(point)
    return [sequence_of(group, group[0].rung) for group in groups.values() if len(group) > 1]


def sequence_of(chosen: Sequence[Point], name: str) -> RungSequence:
    """Points of different layers as one sequence; raises UsageError for two of one layer or unrelated precisions."""
    layers, precisions = [point.layer for point in chosen], {point.precision for point in chosen}
    if len(set(layers)) < len(layers):
        raise UsageError("a sequence has one rung per layer and one value per constant, not several")
    weakest = [precision for precision in precisions if precisions <= {precision, *PRECISIONS[precision].stricter}]
    if not weakest:
        raise UsageError(f"a sequence has one precision, not {' and '.join(sorted(precisions))}")
    return RungSequence(name + SEQUENCE_SUFFIX, weakest[0], tuple(chosen))


def mixed(
    text: str,
    workload: Workload,
    batches: Sequence[int],
    transfers: Sequence[Transfer],
    source: ConstantSource = DEFAULTS,
    ladder: Ladder = LADDER,
) -> list[RungSequence]:
    """The sequences of ``--mix 1=RUNG,2=RUNG:NAME=VALUE:...``: a rung per layer, with constants; raises UsageError."""
    return [
        sequence_of(
            [point for entry in text.split(",") for point in mixed_in(entry, workload, N, transfer, source, ladder)],
            MIXED,
        )
        for N in batches
        for transfer in transfers
    ]


def mixed_in(
    entry: str, workload: Workload, N: int, transfer: Transfer, source: ConstantSource, ladder: Ladder
) -> list[Point]:
    """The points of one entry of a mix; raises UsageError."""
    layer, _, words = entry.partition("=")
    rung, *constants = words.split(":")
    if not layer.isdecimal():
        raise UsageError(f"{entry!r}: write a layer of a mix as 2=direct or 2=direct:THREAD_OUTPUTS=2")
    layers = batches_of(workload, parse_layers(layer, workload), [N])
    rungs, values = choose_rungs(rung, ladder), parse_constants(constants, ladder)
    points = expand(layers, rungs, [transfer], replace(source, chosen=values))
    refuse_unused(values, points)
    return points


def piece_order(cuts: Sequence[Plan], outputs_outweigh: Sequence[bool]) -> list[tuple[int, int]]:
    """The order in which pieces of several layers go through a pipeline, as pairs of layer and piece.

    Layers that copy more out than in come first, so that the copy engine for outputs, the busier one, starts early and
    never idles.  (Johnson, "Optimal two- and three-stage production schedules with setup times included", 1954.)
    Within each group the layers' pieces are interleaved evenly, so that compute-heavy pieces are not adjacent.
    """
    places = [
        (not outputs_outweigh[layer], (piece + 0.5) / len(cut.pieces), layer, piece)
        for layer, cut in enumerate(cuts)
        for piece in range(len(cut.pieces))
    ]
    return [(layer, piece) for *_, layer, piece in sorted(places)]


def bytes_moved(point: Point) -> tuple[int, int]:
    """Bytes copied in and out per image."""
    image_bytes = point.entry.image_bytes(point.conv)
    return image_bytes["x"], image_bytes["y"]


class SequenceRunner:
    """Turns sequences into records on a GPU, with the data of the runner of single points."""

    def __init__(self, executor: Any, runner: Runner) -> None:
        self.executor, self._runner = executor, runner

    def key(self, point: RungSequence) -> str:
        """Digest of all that the point's result depends on: a record with another key is stale."""
        return digest(
            [PIECE_BYTES, code_of(type(self)), *(self._runner.key(layer_point) for layer_point in point.points())]
        )

    def record(self, point: RungSequence) -> Record:
        """Runs one point; a fault of the point itself becomes its status, never an exception."""
        return attempted(point, self.key(point), lambda: self._measured(point))

    def _measured(self, point: RungSequence) -> Record:
        transfer, settings = transfer_named(point.transfer), self._runner.settings
        cuts, points = self._cuts(point, transfer), point.points()
        layers = [self._runner.layer(layer_point) for layer_point in points]
        with self.executor.gpu.errors(point.rung):
            wrong = self._wrong_on_integers(points, cuts, transfer)
            arrays = [
                (layer.x[: layer_point.N], layer.w, layer.bias)
                for layer_point, layer in zip(points, layers, strict=True)
            ]
            with self._opened(points, cuts, arrays, transfer) as together:
                facts = self._facts(points, cuts, layers, together, wrong)
                if facts["status"] == "ok":
                    facts |= self._timed(point, together) if settings.timed else {"samples": {}}
                    facts |= {"timeline": timeline} if (timeline := together.timeline()) else {}
        return facts

    def _timed(self, point: RungSequence, together: "Together") -> Record:
        """Samples, and the device's clock and health under this load; raises Untrusted for impossible times."""
        seconds = self._runner.settings.seconds
        facts = timed_under_load(self.executor, together.measure, together.load, seconds)
        macs = sum(layer_point.conv.macs(layer_point.N) for layer_point in point.points())
        refuse_impossible(facts["samples"], macs, self.executor.most_flops)
        return facts

    def _wrong_on_integers(self, points: Sequence[Point], cuts: Sequence[Plan], transfer: Transfer) -> list[int]:
        """Each layer's number of inexact outputs on integers, with fresh and with stale scratch."""
        seed = self._runner.settings.seed
        batches = [exact_data(point.conv, point.N, point.precision, seed) for point in points]
        operands = [(batch.images(), batch.w, batch.bias) for batch in batches]
        with self._opened(points, cuts, operands, transfer) as together:
            runs = [
                [batch.wrong(y) for batch, y in zip(batches, together.outputs(stale=stale), strict=True)]
                for stale in (False, True)
            ]
        return list(map(max, *runs))

    @contextmanager
    def _opened(
        self, points: Sequence[Point], cuts: Sequence[Plan], arrays: Sequence[Arrays], transfer: Transfer
    ) -> Iterator["Together"]:
        """The layers' rungs on the inputs, filters and biases given, as one graph or one pipeline."""
        with ExitStack() as stack:
            opened = [
                stack.enter_context(open_rung(self.executor, cut, x, w, transfer, bias))
                for cut, (x, w, bias) in zip(cuts, arrays, strict=True)
            ]
            own = [rung.buffers for rung in opened]
            if transfer.pipelined:
                outweigh = [moved_out > moved_in for moved_in, moved_out in map(bytes_moved, points)]
                pipeline = self.executor.pipeline(own, piece_order(cuts, outweigh), transfer.streams)
                run = stack.enter_context(pipeline.recorded())
                measure, timeline = partial(measure_pipeline, pipeline, run), pipeline.timeline
                yield Together(opened, partial(streamed_outputs, pipeline, run), measure, timeline, run)
            else:
                for buffers in own:  # uploads inputs and filters, which stay on the device, and makes tensor maps,
                    buffers.outputs()  # which must not be made during a capture
                launch = stack.enter_context(self.executor.gpu.recorded(lambda stream: enqueue_all(own)))
                measure = partial(self.executor.time, [launch])
                yield Together(opened, partial(graph_outputs, own, launch), measure, list[Record], launch)

    def _cuts(self, point: RungSequence, transfer: Transfer) -> list[Plan]:
        """Each layer's plan; raises Skip if a layer cannot be computed here or all together do not fit the device."""
        budget = self._runner.memory_budget()
        cuts = []
        for layer_point in point.points():
            cut = self._runner.plan(layer_point)
            if transfer.pipelined:
                pieces = ceil(layer_point.N * max(bytes_moved(layer_point)) / PIECE_BYTES)
                try:
                    cut = plan(cut.bound, layer_point.N, budget, transfer.streams, pieces)
                except DoesNotFit as error:
                    raise Skip(f"layer {layer_point.layer}: {error}") from None
            elif len(cut.pieces) > 1:
                raise Skip(f"layer {layer_point.layer} needs {len(cut.pieces)} pieces, and a graph takes whole batches")
            cuts.append(cut)
        needed = sum(cut.device_bytes for cut in cuts)
        if needed > budget:
            raise Skip(f"the layers need {needed} bytes of device memory in total, the budget is {budget}")
        return cuts

    def _facts(
        self,
        points: Sequence[Point],
        cuts: Sequence[Plan],
        layers: Sequence[Layer],
        together: "Together",
        wrong: Sequence[int],
    ) -> Record:
        """The worst layer's check, and each layer's facts; ``wrong`` counts each layer's inexact outputs."""
        errors: list[tuple[MaxError, float]] = [
            layer.check(values, layer_point.precision, cut.bound.atomic_additions())
            for layer_point, cut, layer, values in zip(points, cuts, layers, together.outputs(), strict=True)
        ]
        images = points[0].N
        return {
            **checked(*worst(errors), {"images": images, "wrong": sum(wrong)}),
            "layers": [
                {
                    "layer": layer_point.layer,
                    "rung": layer_point.rung,
                    "constants": cut.constants,
                    "pieces": len(cut.pieces),
                    "images_per_piece": cut.images_per_piece,
                    "error": checked(*error)["error"],
                    "exact": {"images": images, "wrong": outputs},
                    "launches": rung.program.launches(cut.images_per_piece),
                }
                for layer_point, cut, error, outputs, rung in zip(
                    points, cuts, errors, wrong, together.opened, strict=True
                )
            ],
            "pieces": sum(len(cut.pieces) for cut in cuts),
            "images_per_piece": max(cut.images_per_piece for cut in cuts),
            "planned_constants": {},
            "device_bytes": sum(cut.device_bytes for cut in cuts),
            "launches": [],
        }


@dataclass(frozen=True)
class Together:
    """Opened layers, and the functions that run them, time them and give the last run's timeline.

    ``load`` is one run as it is timed.
    """

    opened: Sequence[OpenedRung]
    run: Callable[[], list[Values]]
    measure: Callable[[float], Samples]
    timeline: Callable[[], list[Record]]
    load: Callable[[], object]

    def outputs(self, *, stale: bool = False) -> list[Values]:
        """Each layer's ``[N][M][E][F]``; with ``stale``, scratch arrays are as the last run left them."""
        for rung in self.opened:
            rung.buffers.leave_scratch(stale=stale)
        return [rung.in_study_layout(values) for rung, values in zip(self.opened, self.run(), strict=True)]


def enqueue_all(opened: Sequence[Any]) -> None:
    """Enqueues the kernels of all layers on the executor's stream, in order."""
    for number, buffers in enumerate(opened):
        buffers.enqueue(pdl=number > 0)


def graph_outputs(opened: Sequence[Any], launch: Callable[[], None]) -> list[Values]:
    """The outputs of one launch of all layers; their arrays are filled with NaN first."""
    for buffers in opened:
        buffers.fill(buffers.pointers, buffers.stream)
    launch()
    return [buffers.download() for buffers in opened]


def streamed_outputs(pipeline: Any, run: Callable[[], float]) -> list[Values]:
    """The outputs of one run of a pipeline; their arrays are filled with NaN first."""
    pipeline.forget()
    run()
    return [batch.y for batch in pipeline.batches]


def measure_pipeline(pipeline: Any, run: Callable[[], float], seconds: float) -> Samples:
    """Times the graph from host arrays to host arrays, repeatedly; then runs piece by piece once, for the timeline."""
    samples = repeat(lambda: {"total": run()}, seconds)
    pipeline.run()
    return samples
