"""The records of one device as tables and figures use them.  Times are in ms per batch."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum
from typing import TypeVar

import numpy as np

from alexconv.data import UNIFORM
from alexconv.errors import UsageError
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.rung import Rung
from alexconv.messages import plural
from alexconv.planning.transfers import transfer_named
from alexconv.precisions import PRECISIONS
from alexconv.records.faults import fault_of, fault_of_header
from alexconv.records.labels import changed_in, device_name
from alexconv.records.statistics import Summary, summarize
from alexconv.records.store import DATA, DIRECTION, LATER_AXES, Record, Records, identity
from alexconv.reports.published import STUDY_TRANSFER, Series
from alexconv.shapes import WORKLOADS, Conv

DIRECTIONS = ("h2d", "d2h")
KERNELS, COPIES, SPEEDUPS = range(3)  # what times a caption is about
SHORT = 7  # digits of a commit that name it
PLACES = {name: place for place, name in enumerate(LADDER.named)}
Key = TypeVar("Key", bound=Hashable)
OF_TABLES = ("device", "shards", "calibration", "end", "prediction", "timeline")  # headers that tables are made of


@dataclass(frozen=True, eq=False)
class Run:
    """The measurements of one card, record file, commit and host: their figures are directly comparable."""

    name: str  # the record file's, with a number where the file holds several runs
    device: Record
    host: Record
    commit: str

    @property
    def card(self) -> str:
        """The first part of the card's UUID, or else the device's name."""
        return card_of(self.device)

    @property
    def text(self) -> str:
        """File, card and commit of the run, for captions."""
        commit = [f"commit {self.commit[:SHORT]}"] if self.commit else []
        return f"{self.name} ({', '.join([self.card, *commit])})"


def card_of(device: Record) -> str:
    """The first part of a card's UUID, or else the device's name."""
    return "-".join(str(device["uuid"]).split("-")[:2]) if device.get("uuid") else device_name(device)


NO_RUN = Run("", {}, {}, "")


@dataclass(frozen=True, eq=False)
class Measured:
    """One record of a point.  A point whose check failed has no times, whatever its record holds."""

    record: Record
    workload: str
    layer: int
    N: int
    series: Series
    precision: str
    changed: tuple[tuple[str, int], ...]  # the constants that differed from the rung's defaults
    rung: Rung | None  # the ladder's entry; None for a peer
    run: Run = NO_RUN

    @property
    def conv(self) -> Conv:
        """The layer's shape."""
        return WORKLOADS[self.workload].layer(self.layer)

    @property
    def label(self) -> str:
        """Rung, transfer and changed constants."""
        changed = " ".join(f"{name}={value}" for name, value in self.changed)
        return f"{self.series.label} [{changed}]" if changed else self.series.label

    def place(self) -> tuple[int, str, str]:
        """Where it stands among the series, see the function ``place``."""
        return place(self.series, self.rung)

    @cached_property
    def name(self) -> str:
        """The digest of the point's axes."""
        return identity(self.record["point"])

    @property
    def itemsize(self) -> int:
        """Bytes of one element of the arrays."""
        known = self.rung or PRECISIONS.get(self.precision, PRECISIONS["fp32"])
        return np.dtype(known.dtype).itemsize

    @property
    def compulsory_bytes(self) -> int:
        """Input, filters and output moved once."""
        x_y = self.N * (self.conv.C * self.conv.H * self.conv.W + self.conv.M * self.conv.E * self.conv.F)
        return (x_y + self.conv.M * self.conv.K) * self.itemsize

    @cached_property
    def _samples(self) -> dict[str, list[float]]:
        return dict(self.record.get("samples") or {}) if self.record["status"] == "ok" else {}

    def samples(self, figure: str) -> list[float]:
        """Samples of a figure in ms; empty if it was not measured or the check failed."""
        return self._samples.get(figure) or []

    def time(self, figure: str) -> Summary | None:
        """``kernel``, ``kernel_cold``, ``h2d``, ``d2h``, ``copies`` (the sum of both) or ``total``.

        None if not measured.
        """
        if figure == "copies":
            return added(map(self.time, DIRECTIONS))
        if figure not in self._times:
            self._times[figure] = summarize(self._samples[figure]) if self._samples.get(figure) else None
        return self._times[figure]

    @cached_property
    def _times(self) -> dict[str, Summary | None]:
        return {}

    def median(self, figure: str) -> float | None:
        """The median alone."""
        time = self.time(figure)
        return time.median if time else None

    @property
    def tflops(self) -> float | None:
        """Achieved arithmetic in TFLOP/s, two operations for a multiply-add."""
        ms = self.median("kernel")
        return 2 * self.conv.macs(self.N) / ms / 1e9 if ms else None

    @property
    def clock(self) -> float | None:
        """SM clock in MHz under the timed load, read by a kernel."""
        facts = {**(self.record.get("under_load") or {}), **(self.record.get("audit") or {})}
        return float(facts["clock_mhz"]) if "clock_mhz" in facts else None

    @property
    def error(self) -> float | None:
        """Max error over the norms of patch and filter."""
        scaled = (self.record.get("error") or {}).get("scaled")
        return None if scaled is None else float(scaled)

    def cpu_ms(self, base: str) -> float | None:
        """``serial`` or ``blas`` time of the CPU for the same batch."""
        ms = (self.record.get("cpu") or {}).get(f"{base}_ms")
        return float(ms) if ms else None


def measured(record: Record, run: Run = NO_RUN, ladder: Ladder = LADDER) -> Measured:
    """A record as a point of the report; raises UsageError for an unusable one."""
    point = record["point"]
    workload, layer, N, name = (point[axis] for axis in ("workload", "layer", "N", "rung"))
    if fault := fault_in(record, ladder):
        raise UsageError(f"the record of {workload} layer {layer}, N={str(N)[:20]}, {name} cannot be used: {fault}")
    changed, series = tuple(changed_in(record).items()), Series(name, point["transfer"])
    return Measured(record, workload, layer, N, series, point["precision"], changed, ladder.named.get(name), run)


@dataclass(frozen=True)
class Measurements:
    """One record of each point of one device, and the headers around them.

    Where several runs hold a point, ``points`` has that of one run: see ``chosen``.  ``every`` has them all.
    """

    device: Record
    headers: tuple[Record, ...]
    points: tuple[Measured, ...]  # in the order of workload, N, layer and ladder
    unreadable: int = 0
    every: tuple[Measured, ...] = ()
    unusable: tuple[str, ...] = ()  # what is wrong with each record that was left out
    cards: Mapping[str, str] = field(default_factory=dict)  # of the device, by the keys of its headers
    ladder: Ladder = LADDER

    def rung(self, series: Series) -> Rung | None:
        """The ladder's entry of a series; None for a peer."""
        return self.ladder.named.get(series.rung)

    def of_one_run(self, wanted: Callable[[Measured], bool]) -> "Measurements":
        """Only the wanted points, from as few runs as possible (``chosen``)."""
        points = [point for point in self.every if wanted(point)]
        return replace(self, points=tuple(sorted(chosen(points), key=order)))

    @cached_property
    def runs(self) -> list[Run]:
        """The runs of all points, the one with most points first."""
        return runs_of(self.points)

    def footnote(
        self,
        series: Iterable[Series] | None = None,
        workload: str | None = None,
        N: int | None = None,
        *,
        of: int = SPEEDUPS,
    ) -> str:
        """The runs of the points: of all of them, or of some series, a workload, a batch size.

        Of a workload only its points with default constants count, as in tables of rungs.  ``of`` says what times the
        caption is about: see the function ``footnote``.
        """
        wanted = None if series is None else set(series)
        points = [
            point
            for point in (self.points if workload is None else self.of(workload))
            if (wanted is None or point.series in wanted) and N in (None, point.N)
        ]
        used = [] if of < SPEEDUPS else self.workloads if workload is None else [workload]
        return footnote(points, [run for run in map(self.baseline, used) if run], of=of)

    @property
    def timed(self) -> bool:
        """Whether any point has times; the host executor's have none."""
        return any(point.record.get("samples") for point in self.every)

    def of_type(self, kind: str) -> list[Record]:
        """Headers of a type: ``host``, ``run``, ``profile``, ``ceilings``."""
        return [header for header in self.headers if header["type"] == kind]

    @property
    def ceilings(self) -> Record | None:
        """The device's measured ceilings."""
        return next((header for header in reversed(self.of_type("ceilings"))), None)

    @property
    def ceilings_card(self) -> str | None:
        """The card on which they were measured."""
        return self.cards.get(self.ceilings["device"]) if self.ceilings else None

    @cached_property
    def workloads(self) -> list[str]:
        """Workloads with points."""
        return [name for name in WORKLOADS if any(point.workload == name for point in self.points)]

    @cached_property
    def _baselines(self) -> dict[str, Run]:
        baselines: dict[str, Run] = {}
        for workload in self.workloads:
            timed = [point for point in self.points if point.workload == workload and point.cpu_ms("serial")]
            timed = timed or [point for point in self.every if point.workload == workload and point.cpu_ms("serial")]
            if timed:
                baselines[workload] = runs_of(timed)[0]
        return baselines

    def baseline(self, workload: str) -> Run | None:
        """The run whose CPU times all speedups are over: of the runs with such times the one with most points."""
        return self._baselines.get(workload)

    @cached_property
    def _cpu(self) -> dict[tuple[str, int, str], tuple[int, float]]:
        times: dict[tuple[str, int, str], tuple[int, float]] = {}
        for point in self.every:
            for base in ("serial", "blas"):
                ms = point.cpu_ms(base)
                if ms and point.run is self._baselines.get(point.workload):
                    times.setdefault((point.workload, point.layer, base), (point.N, ms))
        return times

    @cached_property
    def _defaults(self) -> dict[tuple[str, int, int, Series], Measured]:
        """Where defaults differ between runs, the point of the run that holds most of the series, else the last."""
        points = [point for point in self.points if not point.changed]
        held = Counter((point.workload, point.series, point.run) for point in points)
        best: dict[tuple[str, int, int, Series], Measured] = {}
        for point in points:
            older = best.setdefault((point.workload, point.layer, point.N, point.series), point)
            if held[point.workload, point.series, point.run] >= held[older.workload, older.series, older.run]:
                best[point.workload, point.layer, point.N, point.series] = point
        return best

    @cached_property
    def _places(self) -> dict[tuple[str, int, int], list[Measured]]:
        return grouped(self.points, lambda point: (point.workload, point.layer, point.N))

    def of_points(self, workload: str, layer: int, N: int) -> list[Measured]:
        """The points of a layer and batch, whatever their constants."""
        return self._places.get((workload, layer, N), [])

    def of(self, workload: str) -> list[Measured]:
        """The points of a workload with default constants."""
        return self._of_workload.get(workload, [])

    @cached_property
    def _of_workload(self) -> dict[str, list[Measured]]:
        return grouped(self._defaults.values(), lambda point: point.workload)

    @cached_property
    def _of_batch(self) -> dict[tuple[str, int], list[Measured]]:
        return grouped(self._defaults.values(), lambda point: (point.workload, point.N))

    @cached_property
    def _layers(self) -> dict[str, list[int]]:
        return {name: sorted({point.layer for point in points}) for name, points in self._of_workload.items()}

    def batches(self, workload: str) -> list[int]:
        """Batch sizes, ascending."""
        return sorted(N for name, N in self._of_batch if name == workload)

    def main_batch(self, workload: str) -> int:
        """The study's largest batch size, else the largest measured."""
        batches, usual = self.batches(workload), WORKLOADS[workload].batches[-1]
        return usual if usual in batches or not batches else batches[-1]

    def layers(self, workload: str) -> list[int]:
        """Layers with points."""
        return self._layers.get(workload, [])

    def series(self, workload: str, N: int | None = None) -> list[Series]:
        """Rungs and peers under the study's transfer in ladder order, with the study's other variants beside them."""
        points = self.of(workload) if N is None else self._of_batch.get((workload, N), [])
        known = {point.series for point in points}
        chosen = (series for series in known if series.transfer == self.transfer or series in STUDY_SERIES)
        return sorted(chosen, key=lambda series: place(series, self.rung(series)))

    @cached_property
    def transfer(self) -> str:
        """The transfer of figures that do not compare transfers: the study's, else the most frequent."""
        names = [point.series.transfer for point in self.points]
        return STUDY_TRANSFER if STUDY_TRANSFER in names or not names else max(sorted(set(names)), key=names.count)

    def find(self, workload: str, layer: int, N: int, series: Series) -> Measured | None:
        """A point with default constants."""
        return self._defaults.get((workload, layer, N, series))

    def time(self, workload: str, layer: int | None, N: int, series: Series, figure: str) -> Summary | None:
        """A time of a layer; ``layer`` None adds up the layers, and their intervals' ends, if all are there."""
        if layer is not None:
            point = self.find(workload, layer, N, series)
            return point.time(figure) if point else None
        return added(self.time(workload, number, N, series, figure) for number in layer_numbers(workload))

    @cached_property
    def _of_runs(self) -> list["Measurements"]:
        of_run = grouped(self.every, lambda point: point.run)
        return [replace(self, points=tuple(of_run[run])) for run in runs_of(self.every)]

    def pair(
        self, workload: str, layer: int | None, N: int, first: Series, second: Series
    ) -> tuple[Summary | None, Summary | None, bool]:
        """Kernel times of two series, both of the largest run that holds both, and whether there is one."""
        for run in self._of_runs:
            times = [run.time(workload, layer, N, series, "kernel") for series in (first, second)]
            if all(times):
                return times[0], times[1], True
        times = [self.time(workload, layer, N, series, "kernel") for series in (first, second)]
        return times[0], times[1], False

    def serial(self, workload: str, layer: int | None, N: int, base: str = "serial") -> float | None:
        """The CPU's time for a batch, of the baseline's host; ``layer`` None adds up the layers.

        It is proportional to N: the records scale it from a few images (``serial_scaled_from``), whatever their N.
        """
        if layer is None:
            return sum_or_none([self.serial(workload, number, N, base) for number in layer_numbers(workload)])
        images, ms = self._cpu.get((workload, layer, base), (1, None))
        return None if ms is None else ms / images * N

    def speedup(
        self, workload: str, layer: int | None, N: int, series: Series, figure: str = "total", base: str = "serial"
    ) -> Summary | None:
        """CPU time over a time of ours, with the interval of ours."""
        return speedup_over(self.serial(workload, layer, N, base), self.time(workload, layer, N, series, figure))


def speedup_over(base: float | None, own: Summary | None) -> Summary | None:
    """A base time over one of ours, with the interval of ours; None if either is missing."""
    return Summary(base / own.median, base / own.high, base / own.low, own.count) if base and own else None


def grouped(points: Iterable[Measured], key: Callable[[Measured], Key]) -> dict[Key, list[Measured]]:
    """The points with each key, in their order."""
    groups: dict[Key, list[Measured]] = {}
    for point in points:
        groups.setdefault(key(point), []).append(point)
    return groups


def runs_of(points: Iterable[Measured]) -> list[Run]:
    """The points' runs, the one with most points first."""
    return [run for run, _ in Counter(point.run for point in points).most_common()]


def chosen(points: Sequence[Measured]) -> list[Measured]:
    """One measurement of each point.

    A series (a rung under a transfer) is taken from the run that holds most of it, so that its row is of one run;
    among equals from the run that has CPU times, then from that with most of all points, then from the last.
    """
    position = {run: number for number, run in enumerate(dict.fromkeys(point.run for point in points))}
    with_cpu = {point.run for point in points if point.cpu_ms("serial")}
    held = Counter(point.run for point in points)
    of_series = Counter((point.workload, point.series, point.run) for point in points)

    def preference(point: Measured) -> tuple[int, bool, int, int]:
        run = point.run
        return of_series[point.workload, point.series, run], run in with_cpu, held[run], position[run]

    best: dict[str, Measured] = {}
    for point in points:
        name = point.name
        if name not in best or preference(point) > preference(best[name]):
            best[name] = point
    return list(best.values())


def footnote(
    points: Sequence[Measured], baselines: Sequence[Run] = (), by_series: bool = True, *, of: int = SPEEDUPS
) -> str:
    """The points' run; of several runs, which series come from which, and whose CPU times count.

    A caption of KERNELS names no host, one of COPIES does, since they depend on it, and one of SPEEDUPS says whose CPU
    they are over.
    """
    runs = runs_of(points)
    if not runs:
        return ""
    text = f"Run: {runs[0].text}."
    if len(runs) > 1:
        names = list(dict.fromkeys(point.series for point in sorted(points, key=Measured.place)))
        of_run = {run: {point.series for point in points if point.run is run} for run in runs}
        parts = [f"{run.text}: {stretches(names, of_run[run])}" if by_series else run.text for run in runs]
        text = f"Runs: {'; '.join(parts)}."
    elsewhere = [run.text for run in baselines if runs != [run]]
    hosts = dict.fromkeys(str(run.host["cpu"]) for run in [*runs, *baselines] if of > KERNELS and run.host.get("cpu"))
    text += f" Serial CPU: {' and '.join(elsewhere)}." if elsewhere else ""
    return text + (f" Host CPU: {' or '.join(hosts)}." if hosts else "")


def stretches(names: Sequence[Series], wanted: Collection[Series]) -> str:
    """Series as text; consecutive names become ``first to last``."""
    parts: list[list[Series]] = [[]]
    for name in names:
        if name in wanted:
            parts[-1].append(name)
        elif parts[-1]:
            parts.append([])
    texts = [
        f"{part[0].label} to {part[-1].label}" if len(part) > 2 else ", ".join(member.label for member in part)
        for part in parts
        if part
    ]
    return ", ".join(texts)


STUDY_SERIES = (Series("direct", "managed"),)


def fault_in(record: Record, ladder: Ladder = LADDER) -> str | None:
    """Why a point cannot be reported, or None."""
    if fault := fault_of(record, ladder):
        return fault
    try:
        transfer_named(record["point"]["transfer"])
    except ValueError as error:
        return str(error)
    return None


def kernels_alone(transfer: str) -> bool:
    """Whether nothing overlaps the kernels under a transfer, so that kernel times do not depend on it."""
    how = transfer_named(transfer)
    return how.copies and not how.pipelined


def layer_numbers(workload: str) -> range:
    """The numbers of a workload's layers."""
    return range(1, len(WORKLOADS[workload].layers) + 1)


def place(series: Series, rung: Rung | None) -> tuple[int, str, str]:
    """Where a series stands: the ladder's order, other rungs, then peers by name; the study's transfer first."""
    position = PLACES.get(series.rung, len(PLACES)) if rung else len(PLACES) + 1
    return position, series.rung, "" if series.transfer == STUDY_TRANSFER else series.transfer


def added(summaries: Iterable[Summary | None]) -> Summary | None:
    """Sum of medians between the sums of the intervals' ends (wider than the sum's own interval), or None."""
    terms: list[Summary] = []
    for summary in summaries:
        if summary is None:
            return None
        terms.append(summary)
    columns = [fsum(getattr(summary, name) for summary in terms) for name in ("median", "low", "high")]
    return Summary(columns[0], columns[1], columns[2], min(summary.count for summary in terms)) if terms else None


def sum_or_none(values: Sequence[float | None]) -> float | None:
    """The sum, or None if a part is missing."""
    return None if None in values else fsum(value for value in values if value is not None)


def measurements(records: Records, device: str | None = None, ladder: Ladder = LADDER) -> Measurements:
    """The records of one device: the named one, or else the only GPU, or else the host executor.

    Raises UsageError if there is nothing to report, or if there are several GPUs and none is named.
    """
    devices = {key: header for key, header in records.headers.items() if header["type"] == "device"}
    # a sequence has a range of layers for a number, and no place in tables of layers
    files = records.files or [""] * len(records.points)
    of_layers = [
        (record, file)
        for record, file in zip(records.points, files, strict=True)
        if isinstance(record["point"]["layer"], int) and record.get("device") in devices
    ]
    sequences = [record for record in records.latest() if isinstance(record["point"]["layer"], str)]
    if not of_layers:
        raise no_points(len(records.unreadable), len(sequences))
    name = device_named(device, [record for record, _ in of_layers], devices)
    keys = {key for key, header in devices.items() if device_name(header) == name}
    of_device = [(record, file) for record, file in of_layers if record.get("device") in keys]
    of_usual = [(record, file) for record, file in of_device if is_usual(record)]
    every, unusable = usable(of_usual, records.headers, ladder)
    if others := len(of_device) - len(of_usual):
        unusable.append(f"{plural(others, 'point')} on data other than {UNIFORM}, or of gradients")
    if left := sum(record.get("device") in keys for record in sequences):
        unusable.append(f"{plural(left, 'sequence')} of layers")
    if not every:
        raise UsageError(f"the record files hold no usable points: {'; '.join(unusable[:3])}")
    points = chosen([point for point in every if at_study_batch(point)])
    names = {point.name for point in points}
    points += chosen([point for point in every if point.name not in names])
    named = {point.record.get(kind) for point in points for kind in ("host", "run")}
    named |= {header.get("run") for header in records.headers.values() if header["type"] == "timeline"}
    faults = {key: fault_of_header(header) for key, header in records.headers.items()}
    unusable += [f"a header of type {records.headers[key]['type']}: {fault}" for key, fault in faults.items() if fault]
    usable_headers = {key: header for key, header in records.headers.items() if not faults[key]}
    headers = [
        header
        for key, header in usable_headers.items()
        if key in named or (header["type"] == "ceilings" and header.get("device") in keys)
    ]
    headers += [header for header in usable_headers.values() if header["type"] in OF_TABLES]
    profiles = (
        header
        for header in usable_headers.values()
        if header["type"] == "profile" and ("device" not in header or header["device"] in keys)
    )
    headers += last_profiles(profiles, ladder)
    last = devices[of_usual[-1][0]["device"]]
    shown, every = sorted(points, key=order), sorted(every, key=order)
    cards = {key: card_of(devices[key]) for key in keys}
    return Measurements(
        last, tuple(headers), tuple(shown), len(records.unreadable), tuple(every), tuple(unusable), cards, ladder
    )


def no_points(unreadable: int, sequences: int) -> UsageError:
    """The error of files without points of single layers: so many lines are unreadable, so many points sequences."""
    if sequences:
        return UsageError("the record files hold only sequences of layers, which no table shows; alexconv compare does")
    damaged = f", but {plural(unreadable, 'unreadable line')}" if unreadable else ""
    return UsageError(f"the record files hold no points{damaged}: run python -m alexconv.run first")


def device_named(name: str | None, records: Sequence[Record], devices: Mapping[str, Record]) -> str:
    """The device of that name, or else the only GPU, or else the host executor; raises UsageError."""
    names = {record["device"]: device_name(devices[record["device"]]) for record in records}
    timed = {names[record["device"]] for record in records if record.get("samples")}
    known = [names[key] for key in sorted(names)]
    if name is None and len(timed) > 1:
        raise UsageError(f"the record files hold times of {' and '.join(sorted(timed))}: choose one with --device")
    chosen = name or min(timed, default=known[0])
    if chosen not in known:
        raise UsageError(f"no point was run on {chosen!r}: the record files have {', '.join(dict.fromkeys(known))}")
    return chosen


def is_usual(record: Record) -> bool:
    """Whether a point has the data and the direction of tables and figures: uniform, forward."""
    return all(record["point"].get(axis, LATER_AXES[axis]) == LATER_AXES[axis] for axis in (DATA, DIRECTION))


def at_study_batch(point: Measured) -> bool:
    """Whether a point has default constants and a batch size of the study's tables."""
    return not point.changed and point.N in WORKLOADS[point.workload].batches


def usable(
    records: Sequence[tuple[Record, str]], headers: Mapping[str, Record], ladder: Ladder
) -> tuple[list[Measured], list[str]]:
    """The last record of each point in each run, and what is wrong with unusable ones."""
    by_run: dict[tuple[str, ...], list[Record]] = {}
    for record, file in records:
        commit = headers.get(str(record.get("run")), {}).get("commit") or ""
        by_run.setdefault((file, record["device"], str(record.get("host")), commit), []).append(record)
    files = Counter(file for file, *_ in by_run)
    number: Counter[str] = Counter()
    points: list[Measured] = []
    faults: list[str] = []
    for (file, device, host, commit), run_records in by_run.items():
        number[file] += 1
        name = file if files[file] == 1 else f"{file}/{number[file]}"
        run = Run(name, headers[device], headers.get(host, {}), commit)
        for record in latest(run_records):
            try:
                points.append(measured(record, run, ladder))
            except UsageError as error:
                faults.append(f"{file}: {error}" if file else str(error))
    return points, faults


def latest(records: Iterable[Record]) -> list[Record]:
    """The last record of each point.

    A record without a CPU time takes over the previous one, with its host: a tuner times no CPU, and that time does not
    depend on the kernel.
    """
    last: dict[str, Record] = {}
    for record in records:
        name = identity(record["point"])
        older = last.get(name)
        if older and older.get("cpu") and not record.get("cpu"):
            record = record | {key: older[key] for key in ("cpu", "host") if key in older}
        last[name] = record
    return list(last.values())


def last_profiles(profiles: Iterable[Record], ladder: Ladder) -> list[Record]:
    """The profiles of each point's last run, by source, one for every launch of a kernel.

    A repeated command is the same run by its header, so if a kernel has more profiles than its rung has launches of
    it, the last ones count.
    """
    by_point: dict[tuple[str, str], list[Record]] = {}
    for profile in profiles:
        of_run = by_point.setdefault((identity(profile["point"]), profile["source"]), [])
        if of_run and of_run[-1].get("run") != profile.get("run"):
            of_run.clear()
        of_run.append(profile)
    last: list[Record] = []
    for of_run in by_point.values():
        for entry in dict.fromkeys(profile["entry"] for profile in of_run):
            of_kernel = [profile for profile in of_run if profile["entry"] == entry]
            last += of_kernel[-times_launched(of_kernel[0], ladder) :]  # all, where the count is 0
    return last


def times_launched(profile: Record, ladder: Ladder) -> int:
    """How many times the profile's rung launches its kernel; 0 if this version has no such kernel."""
    rung = ladder.named.get(profile["point"]["rung"])
    return [launch.entry for launch in rung.launches].count(profile["entry"]) if rung else 0


def order(point: Measured) -> tuple[object, ...]:
    """Sorting key: workload, N, layer, then the place of the series and its constants."""
    return list(WORKLOADS).index(point.workload), point.N, point.layer, point.place(), point.changed
