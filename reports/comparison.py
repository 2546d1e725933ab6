"""What the frontier's tables compare: classes with their contracts, and what each record file holds of them.

Ours and a peer's are compared within one record file only, since two runs may have had different clocks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.rung import Rung
from alexconv.planning.layouts import LAYOUTS, STUDY
from alexconv.planning.peers import GEMM, peer_name
from alexconv.planning.points import layer_range
from alexconv.planning.transfers import transfer_named
from alexconv.precisions import PRECISIONS, Goals, Precision
from alexconv.predict.gpu import peaks_of
from alexconv.records.compressed import plain
from alexconv.records.labels import SEQUENCE_SUFFIX, device_name
from alexconv.records.statistics import Ratio, Summary, faster_between, ratio_of, summarize
from alexconv.records.store import Record, Records, identity, joined, read_file
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.elements import Faster, shown
from alexconv.reports.measurements import (
    Measured,
    card_of,
    fault_in,
    is_usual,
    kernels_alone,
    latest,
    layer_numbers,
    measured,
    measurements,
    sum_or_none,
)
from alexconv.shapes import WORKLOADS

LAYERS = tuple(layer_numbers(WORKLOAD))
MANY, ONE, MOST = 128, 1, 2048  # images
MS = 1000  # in a second
TERA = 1e12
SUSTAINED, PREPARED = "kernel_sustained", ("kernel", "prepare")  # figures


@dataclass(frozen=True)
class Contract:
    """What rungs of a class are compared under: its type, and the layout of input and output."""

    precision: Precision
    layout: str
    goals: Goals

    @property
    def name(self) -> str:
        """The class's name."""
        return self.precision.name

    @property
    def dtype(self) -> str:
        """The type of input and output."""
        return self.precision.dtype

    @property
    def title(self) -> str:
        """The contract in words."""
        whose = "study" if self.layout == STUDY else "native"
        return f"{whose} layout ({self.layout} {self.dtype}), {self.name} class"

    @property
    def peer(self) -> str:
        """cuDNN with the same layout and types."""
        return peer_name(self.layout, self.precision.peer)

    @property
    def peers(self) -> tuple[str, ...]:
        """cuDNN in either layout."""
        return cudnn_of(self.precision)

    def kept_by(self, rung: Rung) -> bool:
        """Whether a rung is of the class, or of a stricter one where these count."""
        classes = (self.name, *(self.precision.stricter if self.goals.stricter else ()))
        return rung.precision in classes and (rung.layout, rung.dtype) == (self.layout, self.dtype)


def cudnn_of(precision: Precision) -> tuple[str, ...]:
    """cuDNN in a class, in either layout."""
    return tuple(peer_name(layout, precision.peer) for layout in LAYOUTS)


def layout_of(precision: Precision) -> str:
    """The layout of most of a class's rungs."""
    layouts = Counter(rung.layout for rung in LADDER if rung.precision == precision.name)
    return max(layouts, key=layouts.__getitem__, default=STUDY)


CONTRACTS = tuple(
    Contract(precision, layout_of(precision), precision.goals) for precision in PRECISIONS.values() if precision.goals
)
FP32 = CONTRACTS[0]


@dataclass(frozen=True, eq=False)
class Together:
    """One record of all layers as one sequence: one graph, or one pipeline."""

    record: Record
    ladder: Ladder = LADDER

    @property
    def name(self) -> str:
        """The rung's, the mix's or the peer's name."""
        return str(self.record["point"]["rung"])

    @property
    def N(self) -> int:
        """Images of each layer."""
        return int(self.record["point"]["N"])

    @property
    def pipelined(self) -> bool:
        """Whether it is a pipeline."""
        return transfer_named(self.record["point"]["transfer"]).pipelined

    @property
    def rungs(self) -> list[str]:
        """The layers' rungs in order; none for a peer."""
        return [layer["rung"] for layer in self.record.get("layers") or []]

    def keeps(self, contract: Contract) -> bool:
        """Whether all layers are rungs of the class."""
        known = [rung for name in self.rungs if (rung := self.ladder.named.get(name))]
        return len(known) == len(LAYERS) and all(map(contract.kept_by, known))

    @property
    def error(self) -> float | None:
        """The largest error over norms, of the layer that comes nearest its tolerance."""
        error = self.record.get("error")
        return float(error["scaled"]) if error else None

    def samples(self, figure: str) -> list[float]:
        """Times in ms; none if not measured or wrong."""
        return self.record.get("samples", {}).get(figure) or [] if self.record["status"] == "ok" else []

    def median(self, figure: str) -> float | None:
        """Their median; None if there are none."""
        samples = self.samples(figure)
        return summarize(samples).median if samples else None


@dataclass(frozen=True, eq=False)
class Source:
    """The latest record of each point of AlexNet in one record file."""

    file: str
    device: Record
    points: tuple[Measured, ...]
    joint: tuple[Together, ...]
    cards: Mapping[str, str]  # by the keys of their headers

    @cached_property
    def _at(self) -> dict[tuple[int, int], list[Measured]]:
        by_batch: dict[tuple[int, int], list[Measured]] = {}
        for point in self.points:
            if point.median("kernel") is not None and kernels_alone(point.series.transfer):
                by_batch.setdefault((point.layer, point.N), []).append(point)
        return by_batch

    def all_of(self, wanted: Callable[[Rung], bool], layer: int, N: int) -> list[Measured]:
        """The points of the wanted rungs, with any constants."""
        return [point for point in self._at.get((layer, N), []) if point.rung and wanted(point.rung)]

    def fastest(self, wanted: Callable[[Rung], bool], layer: int, N: int) -> Measured | None:
        """The fastest of them."""
        return quickest(self.all_of(wanted, layer, N))

    def best(self, contract: Contract, layer: int, N: int) -> Measured | None:
        """The class's fastest rung."""
        return self.fastest(contract.kept_by, layer, N)

    def named(self, name: str, layer: int, N: int) -> Measured | None:
        """A rung or a peer by its name."""
        return quickest(point for point in self._at.get((layer, N), []) if point.series.rung == name)

    def batches(self) -> list[int]:
        """Batch sizes, ascending."""
        return sorted({N for _, N in self._at})

    def bests(self, contract: Contract, N: int, layers: Sequence[int] = LAYERS) -> list[Measured | None]:
        """The class's fastest rung of each layer."""
        return [self.best(contract, layer, N) for layer in layers]

    def all_named(self, name: str, N: int, layers: Sequence[int] = LAYERS) -> list[Measured | None]:
        """A rung or a peer of each layer."""
        return [self.named(name, layer, N) for layer in layers]

    def sum_of(self, contract: Contract, N: int, layers: Sequence[int] = LAYERS) -> float | None:
        """Our time over the layers in ms."""
        return total(self.bests(contract, N, layers))

    def named_sum(self, name: str, N: int, layers: Sequence[int] = LAYERS) -> float | None:
        """The time of a rung or a peer over the layers in ms."""
        return total(self.all_named(name, N, layers))

    def faster(self, contract: Contract, layer: int, N: int) -> Measured | None:
        """cuDNN in its faster layout, of those that were measured."""
        return quickest(point for name in contract.peers if (point := self.named(name, layer, N)))

    def faster_layouts(self, contract: Contract, N: int, layers: Sequence[int] = LAYERS) -> float | None:
        """cuDNN's time over the layers in ms, each in its faster layout; None unless both were measured."""
        times = [[hot(self.named(name, layer, N)) for name in contract.peers] for layer in layers]
        return sum_or_none([least(both) for both in times])

    def graphs(self, contract: Contract, N: int) -> list[tuple[float, Together]]:
        """Our layers of a class as one graph, with their times."""
        sequences = [
            sequence
            for sequence in self.joint
            if sequence.N == N and not sequence.pipelined and sequence.keeps(contract)
        ]
        return [(ms, sequence) for sequence in sequences if (ms := sequence.median("kernel")) is not None]

    def peer_joint(self, name: str, N: int) -> Together | None:
        """A peer's layers as one graph."""
        return next(
            (sequence for sequence in self.joint if (sequence.name, sequence.N) == (name + SEQUENCE_SUFFIX, N)), None
        )

    def peer_graph(self, name: str, N: int) -> float | None:
        """Its time in ms."""
        sequence = self.peer_joint(name, N)
        return sequence.median("kernel") if sequence else None

    def graphs_ratio(self, contract: Contract, N: int) -> Ratio | None:
        """Our fastest graph of a class over cuDNN's in its faster layout."""
        times = {name: self.peer_graph(name, N) for name in contract.peers}
        ours = min(self.graphs(contract, N), key=lambda graph_time: graph_time[0], default=None)
        if ours is None or least(list(times.values())) is None:
            return None
        name = min((name for name, ms in times.items() if ms is not None), key=lambda name: times[name] or 0.0)
        return times_over([ours[1]], [self.peer_joint(name, N)])

    def pipelines(self, contract: Contract, N: int) -> list[tuple[float, Together]]:
        """Our layers of a class as one pipeline from host arrays to host arrays, with their times."""
        sequences = [
            sequence for sequence in self.joint if sequence.N == N and sequence.pipelined and sequence.keeps(contract)
        ]
        return [(ms, sequence) for sequence in sequences if (ms := sequence.median("total")) is not None]


@dataclass(frozen=True, eq=False)
class Frontier:
    """The record files of one device, and its ceilings."""

    sources: tuple[Source, ...]
    ceilings: Record | None

    @cached_property
    def many(self) -> Source | None:
        """The file with the largest comparison of single layers at N=128."""
        return self._pick(lambda source: compared(source, MANY))

    @cached_property
    def one(self) -> Source | None:
        """The same with one image."""
        return self._pick(lambda source: compared(source, ONE))

    @cached_property
    def graphs(self) -> Source | None:
        """The file with the most classes whose layers were compared as one graph, with one image."""
        return self._pick(lambda source: sum(graphs_compared(source, contract) for contract in CONTRACTS))

    @cached_property
    def scaling(self) -> Source | None:
        """The file with the most comparisons of larger batches."""
        return self._pick(lambda source: len(larger_batches(source)))

    @cached_property
    def largest(self) -> int | None:
        """The largest batch of ``scaling`` that cuDNN was timed at, too."""
        return max((N for _, N in larger_batches(self.scaling)), default=None) if self.scaling else None

    @cached_property
    def pipelines(self) -> Source | None:
        """The file with the most classes that have a pipeline."""
        return self._pick(lambda source: sum(bool(source.pipelines(contract, MANY)) for contract in CONTRACTS))

    @cached_property
    def sustained(self) -> Source | None:
        """The file with the most comparisons of kernels without rests."""
        return self._pick(lambda source: compared(source, MANY, SUSTAINED))

    def _pick(self, score: Callable[[Source], int]) -> Source | None:
        """The last of the files with the highest score, if any has one."""
        source = max(reversed(self.sources), key=score, default=None)
        return source if source and score(source) else None

    def _ceiling(self, name: str) -> float | None:
        flops = (self.ceilings or {}).get("flops", {}).get(name)
        return float(flops) if flops else None

    @property
    def copy_rate(self) -> float | None:
        """Bytes per second of a copy within the device, read and written."""
        return float(self.ceilings["copy_bytes_per_s"]) if self.ceilings else None

    @property
    def cuda_rate(self) -> float | None:
        """Operations per second of the CUDA cores in fp32."""
        return self._ceiling("fp32")

    @property
    def tensor_rate(self) -> tuple[float | None, str]:
        """Operations per second of the tensor cores in fp16, and the figure's source."""
        if rate := self._ceiling("fp16"):
            return rate, "measured"
        stated = peaks_of(str(self.sources[0].device.get("name"))) if self.sources else {}
        return stated.get("fp16"), "the data sheet's"


def peer_title(name: str) -> str:
    """What a peer is, in words: ``torch-nchw-fp32`` is cuDNN through torch, ``cudnn-nchw-fp32`` its fastest plan.

    Any other name, such as a rung's, stays.
    """
    if name == GEMM:
        return "cuBLAS GEMM fp32"
    library, _, contract = name.partition("-")
    layout, _, precision = contract.partition("-")
    words = {"torch": "cuDNN", "cudnn": "cuDNN's fastest plan"}.get(library)
    return f"{words} {layout.upper()} {precision}" if words else name


def hot(point: Measured | None) -> float | None:
    """Median time of the kernels in ms."""
    return point.median("kernel") if point else None


def least(times: Sequence[float | None]) -> float | None:
    """The shortest time, or None where one is missing."""
    known = [time for time in times if time is not None]
    return min(known) if len(known) == len(times) else None


def quickest(points: Iterable[Measured]) -> Measured | None:
    """The point with the shortest hot time."""
    return min(points, key=lambda point: hot(point) or 0.0, default=None)


def total(points: Iterable[Measured | None]) -> float | None:
    """Sum of the hot times, or None where one is missing."""
    return sum_or_none([hot(point) for point in points])


def largest(points: Sequence[Measured | None]) -> float | None:
    """The largest error of the points that have one."""
    return max((point.error for point in points if point and point.error is not None), default=None)


def over(ours: float | None, theirs: float | None) -> float | None:
    """A ratio of times."""
    return None if ours is None or theirs is None else ours / theirs


def speed(ours: float | None, theirs: float | None) -> Faster | None:
    """How many times faster we are."""
    return Faster(theirs / ours) if ours and theirs else None


def speed_interval(ratio: Ratio | None) -> str | None:
    """The 95 % interval of our speed, of the ratio that ``times_over`` gives."""
    return faster_between(ratio.inverse()) if ratio else None


Timed = Measured | Together


def times_over(
    ours: Sequence[Timed | None], theirs: Sequence[Timed | None], figures: Sequence[str] = ("kernel",)
) -> Ratio | None:
    """The sum of our figures over the sum of their first figure; None if any point lacks the first figure.

    Further figures count where our points have them: preparation, if there is any.
    """
    base = figures[0]
    if not ours or not theirs or not all(point and point.samples(base) for point in (*ours, *theirs)):
        return None
    above = [samples for point in ours if point for figure in figures if (samples := point.samples(figure))]
    return ratio_of(above, [point.samples(base) for point in theirs if point])


def interval(estimate: Ratio | Summary | None) -> str | None:
    """The 95 % interval of a ratio or of a median, as tables show it."""
    return f"{shown(estimate.low)} to {shown(estimate.high)}" if estimate else None


def preparation(points: Iterable[Measured | None]) -> float | None:
    """Time to prepare the filters in ms, over all points; 0 if none prepares any."""
    return sum_or_none([(point.median("prepare") or 0.0) if point else None for point in points])


def flops(layers: Iterable[int], N: int) -> int:
    """Operations of the layers, two for a multiply-add."""
    return sum(2 * WORKLOADS[WORKLOAD].layer(layer).macs(N) for layer in layers)


def rate(layers: Sequence[int], N: int, ms: float | None) -> float | None:
    """TFLOP/s."""
    return flops(layers, N) / ms * MS / TERA if ms else None


def on_cuda_cores(rung: Rung) -> bool:
    """Whether a rung is fp32 by fused multiply-adds alone, in the study's layout."""
    return not rung.tensor_factors and FP32.kept_by(rung)


def compared(source: Source, N: int, figure: str = "kernel") -> int:
    """Layers of all classes for which the file has a figure of both ours and cuDNN."""
    return sum(
        times_over([source.best(contract, layer, N)], [source.named(contract.peer, layer, N)], (figure,)) is not None
        for contract in CONTRACTS
        for layer in LAYERS
    )


def graphs_compared(source: Source, contract: Contract) -> bool:
    """Whether the file has both ours and cuDNN as one graph."""
    return bool(source.graphs(contract, ONE)) and all(source.peer_graph(name, ONE) for name in contract.peers)


def larger_batches(source: Source) -> list[tuple[Contract, int]]:
    """Classes and batches beyond the usual one for which the file has both ours and cuDNN."""
    return [
        (contract, N)
        for contract in CONTRACTS
        for N in source.batches()
        if N > MANY and source.sum_of(contract, N) and source.named_sum(contract.peer, N)
    ]


def gather(files: Sequence[Path], device: str | None = None) -> Frontier:
    """The files' records of the device that ``measurements`` chooses; raises UsageError as it does."""
    by_file = {path: read_file(path) for path in files}
    return gathered(by_file, device_name(measurements(joined(by_file.values()), device).device))


def gathered(by_file: Mapping[Path, Records], name: str, ladder: Ladder = LADDER) -> Frontier:
    """The records, by file, of the device of that name."""
    headers = {key: header for path in sorted(by_file) for key, header in by_file[path].headers.items()}
    same = {key for key, header in headers.items() if header["type"] == "device" and device_name(header) == name}
    ceilings = [header for header in headers.values() if header["type"] == "ceilings" and header.get("device") in same]
    sources = [
        source_of(
            plain(path).name, [point for point in by_file[path].points if point.get("device") in same], headers, ladder
        )
        for path in sorted(by_file)
    ]
    return Frontier(tuple(source for source in sources if source), ceilings[-1] if ceilings else None)


def usable(record: Record, ladder: Ladder) -> Measured | None:
    """A record as a point of the report; None for an unusable one."""
    try:
        return measured(record, ladder=ladder)
    except UsageError:
        return None


def source_of(file: str, records: Sequence[Record], headers: dict[str, Record], ladder: Ladder) -> Source | None:
    """A file's records of AlexNet, or None if it has none."""
    of_layers, together = [], {}
    for record in records:
        point = record["point"]
        if not is_usual(record):
            continue
        if point["workload"] == WORKLOAD and isinstance(point["layer"], int):
            of_layers.append(record)
        elif point["workload"] == WORKLOAD and point["layer"] == layer_range(LAYERS) and not fault_in(record, ladder):
            together[identity(point)] = Together(record, ladder)
    if not of_layers and not together:
        return None
    points = tuple(point for record in latest(of_layers) if (point := usable(record, ladder)))
    cards = {record["device"]: card_of(headers[record["device"]]) for record in records}
    return Source(file, headers[records[-1]["device"]], points, tuple(together.values()), cards)
