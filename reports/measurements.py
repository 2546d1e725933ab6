"""What record files say about one device, as tables and figures ask for it.  Times are in ms per batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from alexconv.errors import UsageError
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Rung
from alexconv.measuring.points import changed_in
from alexconv.records.statistics import Summary, summarize
from alexconv.records.store import Record, Records, identity
from alexconv.reports.published import STUDY_TRANSFER, Series
from alexconv.shapes import WORKLOADS, Conv

HOST_BACKEND = "host"


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

    @property
    def conv(self) -> Conv:
        """The layer's shape."""
        return WORKLOADS[self.workload].layer(self.layer)

    @property
    def rung(self) -> Rung | None:
        """The ladder's entry; None for a peer."""
        return RUNGS.get(self.series.rung)

    @property
    def label(self) -> str:
        """Rung, transfer and changed constants."""
        changed = " ".join(f"{name}={value}" for name, value in self.changed)
        return f"{self.series.label} [{changed}]" if changed else self.series.label

    @property
    def name(self) -> str:
        """The digest of the point's axes."""
        return identity(self.record["point"])

    @property
    def itemsize(self) -> int:
        """Bytes of one element of the arrays."""
        dtype = self.rung.dtype if self.rung else self.precision
        return 2 if dtype in ("float16", "bfloat16", "half", "fp16", "bf16") else 4

    @property
    def compulsory_bytes(self) -> int:
        """Input, filters and output moved once."""
        x_y = self.N * (self.conv.C * self.conv.H * self.conv.W + self.conv.M * self.conv.E * self.conv.F)
        return (x_y + self.conv.M * self.conv.K) * self.itemsize

    @cached_property
    def _samples(self) -> dict[str, list[float]]:
        samples = dict(self.record.get("samples") or {}) if self.record["status"] == "ok" else {}
        if samples.get("h2d") and samples.get("d2h"):
            samples["copies"] = [h2d + d2h for h2d, d2h in zip(samples["h2d"], samples["d2h"], strict=False)]
        return samples

    def time(self, figure: str) -> Summary | None:
        """``kernel``, ``kernel_cold``, ``h2d``, ``d2h``, ``copies`` (both) or ``total``; None if not measured."""
        return summarize(self._samples[figure]) if self._samples.get(figure) else None

    def median(self, figure: str) -> float | None:
        """The median alone."""
        time = self.time(figure)
        return time.median if time else None

    @property
    def error(self) -> float | None:
        """Max error over the norms of patch and filter."""
        error = self.record.get("error")
        return float(error["scaled"]) if error else None

    def cpu_ms(self, base: str) -> float | None:
        """``serial`` or ``blas`` time of the CPU for the same batch."""
        found = (self.record.get("cpu") or {}).get(f"{base}_ms")
        return float(found) if found else None


def measured(record: Record) -> Measured:
    """A record as a point of the report; raises UsageError for a workload or layer unknown to this version."""
    point = record["point"]
    workload, layer, name = (point[axis] for axis in ("workload", "layer", "rung"))
    if workload not in WORKLOADS or not 1 <= layer <= len(WORKLOADS[workload].layers):
        raise UsageError(f"a record is of {workload} layer {layer}, which this version does not know")
    changed = tuple(changed_in(record).items())
    return Measured(record, workload, layer, point["N"], Series(name, point["transfer"]), point["precision"], changed)


@dataclass(frozen=True)
class Measurements:
    """The latest records of one device, in the order of workload, layer, N and ladder, and what surrounds them."""

    device: Record
    headers: tuple[Record, ...]
    points: tuple[Measured, ...]
    unreadable: int = 0

    @property
    def timed(self) -> bool:
        """Whether a GPU ran the points."""
        return self.device.get("backend") != HOST_BACKEND

    def of_type(self, kind: str) -> list[Record]:
        """Headers of a type: ``host``, ``run``, ``profile``, ``ceilings``."""
        return [header for header in self.headers if header["type"] == kind]

    @property
    def ceilings(self) -> Record | None:
        """The device's measured ceilings."""
        return next((found for found in reversed(self.of_type("ceilings"))), None)

    @cached_property
    def workloads(self) -> list[str]:
        """Workloads with points."""
        return [name for name in WORKLOADS if any(point.workload == name for point in self.points)]

    @cached_property
    def _defaults(self) -> dict[tuple[str, int, int, Series], Measured]:
        points = (point for point in self.points if not point.changed)
        return {(point.workload, point.layer, point.N, point.series): point for point in points}

    def of(self, workload: str) -> list[Measured]:
        """The points of a workload with default constants."""
        return [point for key, point in self._defaults.items() if key[0] == workload]

    def batches(self, workload: str) -> list[int]:
        """Batch sizes, rising."""
        return sorted({point.N for point in self.of(workload)})

    def main_batch(self, workload: str) -> int:
        """The study's largest batch, or else the largest there is."""
        batches, usual = self.batches(workload), WORKLOADS[workload].batches[-1]
        return usual if usual in batches or not batches else batches[-1]

    def layers(self, workload: str) -> list[int]:
        """Layers with points."""
        return sorted({point.layer for point in self.of(workload)})

    def series(self, workload: str, N: int | None = None) -> list[Series]:
        """Rungs and peers under the study's transfer in ladder order, with the study's other variants beside them."""
        found = {point.series for point in self.of(workload) if N in (None, point.N)}
        chosen = (series for series in found if series.transfer == self.transfer or series in STUDY_SERIES)
        return sorted(chosen, key=place)

    @cached_property
    def transfer(self) -> str:
        """The transfer that figures use unless they compare transfers: the study's, or else the most frequent."""
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

    def serial(self, workload: str, layer: int | None, N: int, base: str = "serial") -> float | None:
        """The CPU's time for a batch, from any point of it; ``layer`` None adds up the layers."""
        if layer is None:
            return sum_or_none([self.serial(workload, number, N, base) for number in layer_numbers(workload)])
        points = (point for point in self.points if (point.workload, point.layer, point.N) == (workload, layer, N))
        return next((time for point in points if (time := point.cpu_ms(base))), None)

    def speedup(
        self, workload: str, layer: int | None, N: int, series: Series, figure: str = "total", base: str = "serial"
    ) -> Summary | None:
        """CPU time over a time of ours, with the interval of ours."""
        serial, own = self.serial(workload, layer, N, base), self.time(workload, layer, N, series, figure)
        if serial is None or own is None:
            return None
        return Summary(serial / own.median, serial / own.high, serial / own.low, own.count)


STUDY_SERIES = (Series("direct", "managed"),)


def layer_numbers(workload: str) -> range:
    """The numbers of a workload's layers."""
    return range(1, len(WORKLOADS[workload].layers) + 1)


def place(series: Series) -> tuple[int, str, str]:
    """Where a series stands: the ladder's order, then peers by name; the study's transfer first."""
    names = list(RUNGS)
    position = names.index(series.rung) if series.rung in RUNGS else len(names)
    return position, series.rung, "" if series.transfer == STUDY_TRANSFER else series.transfer


def added(summaries: Iterable[Summary | None]) -> Summary | None:
    """Sum of medians between the sums of the intervals' ends (wider than the sum's own interval), or None."""
    found: list[Summary] = []
    for summary in summaries:
        if summary is None:
            return None
        found.append(summary)
    columns = [sum(getattr(summary, name) for summary in found) for name in ("median", "low", "high")]
    return Summary(columns[0], columns[1], columns[2], min(summary.count for summary in found)) if found else None


def sum_or_none(values: Sequence[float | None]) -> float | None:
    """The sum, or None if a part is missing."""
    return None if None in values else sum(value for value in values if value is not None)


def measurements(records: Records, device: str | None = None) -> Measurements:
    """The records of one device: the named one, or else the only GPU, or else the host executor.

    Raises UsageError when there is nothing to report, or when two GPUs are there and none is named.
    """
    devices = {key: header for key, header in records.headers.items() if header["type"] == "device"}
    # layers that were run as one sequence have their range for a number, and no place in tables of layers
    of_layers = [record for record in records.points if isinstance(record["point"]["layer"], int)]
    used = {record["device"] for record in of_layers if record.get("device") in devices}
    names = {name_of(devices[key]): devices[key] for key in sorted(used)}
    gpus = [name for name, header in names.items() if header.get("backend") != HOST_BACKEND]
    if not names:
        raise UsageError("the record files hold no points: run python -m alexconv.run first")
    if device is None and len(gpus) > 1:
        raise UsageError(f"the record files hold points of {' and '.join(gpus)}: choose one with --device")
    chosen = device or (gpus or list(names))[0]
    if chosen not in names:
        raise UsageError(f"no point was run on {chosen!r}: the record files know {', '.join(names)}")
    keys = {key for key, header in devices.items() if name_of(header) == chosen}
    kept = latest(record for record in of_layers if record.get("device") in keys)
    points = sorted(map(measured, kept), key=order)
    named = {record.get(kind) for record in kept for kind in ("host", "run")}
    headers = [
        header
        for key, header in records.headers.items()
        if key in named or (header["type"] == "ceilings" and header.get("device") in keys)
    ]
    headers += last_profiles(
        header
        for header in records.headers.values()
        if header["type"] == "profile" and ("device" not in header or header["device"] in keys)
    )
    last = [record["device"] for record in of_layers if record.get("device") in keys][-1]
    return Measurements(devices[last], tuple(headers), tuple(points), records.unreadable)


def latest(records: Iterable[Record]) -> list[Record]:
    """The last record of each point.

    One without a time of the CPU takes over the one before it, with the host that it is of: a tuner times no CPU, and
    that time does not depend on the kernel.
    """
    found: dict[str, Record] = {}
    for record in records:
        name = identity(record["point"])
        older = found.get(name)
        if older and older.get("cpu") and not record.get("cpu"):
            record = record | {key: older[key] for key in ("cpu", "host") if key in older}
        found[name] = record
    return list(found.values())


def last_profiles(profiles: Iterable[Record]) -> list[Record]:
    """The profiles that each point's last run has from each source, one for every launch of a kernel.

    The same command given again is the same run by its header, so that of more profiles of a kernel than its rung
    launches it the last count.
    """
    found: dict[tuple[str, str], list[Record]] = {}
    for profile in profiles:
        of_run = found.setdefault((identity(profile["point"]), profile["source"]), [])
        if of_run and of_run[-1].get("run") != profile.get("run"):
            of_run.clear()
        of_run.append(profile)
    kept: list[Record] = []
    for of_run in found.values():
        for entry in dict.fromkeys(profile["entry"] for profile in of_run):
            of_kernel = [profile for profile in of_run if profile["entry"] == entry]
            kept += of_kernel[-times_launched(of_kernel[0]) :]  # all, where the count is 0
    return kept


def times_launched(profile: Record) -> int:
    """How many times the profile's rung launches its kernel; 0 where this version's has none of that name."""
    rung = RUNGS.get(profile["point"]["rung"])
    return [launch.entry for launch in rung.launches].count(profile["entry"]) if rung else 0


def name_of(device: Record) -> str:
    """A device's name."""
    return str(device.get("name") or device.get("backend"))


def order(point: Measured) -> tuple[object, ...]:
    """Sorting key: workload, N, layer, then the place of the series and its constants."""
    return list(WORKLOADS).index(point.workload), point.N, point.layer, place(point.series), point.changed
