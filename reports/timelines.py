"""Where the time of a layer goes: our kernels and cuDNN's on one time axis, their counters, and their way to the roof.

Times are in µs.  They are from records of type ``timeline`` (``alexconv.profile --peers``), each of one hot run.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import fsum
from statistics import median

import numpy as np

from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.rung import Rung
from alexconv.precisions import IEEE, PRECISIONS
from alexconv.predict.gpu import load
from alexconv.records.labels import device_name
from alexconv.records.store import Record
from alexconv.reports import charts, findings
from alexconv.reports.comparison import CONTRACTS, MANY, peer_title
from alexconv.reports.elements import Cell, Plot, Section, Table
from alexconv.reports.measurements import Measurements, card_of
from alexconv.reports.peer_kernels import UNKNOWN, kernel_of, products
from alexconv.reports.why import SCALES, longest_stall
from alexconv.shapes import WORKLOADS, Conv

CONVERT, TRANSFORM, MULTIPLY, INVERSE, REPAIR, OTHER = (
    *("convert, reorder", "transform", "multiply", "inverse transform", "add parts, recompute"),
    "not identified",
)
ROLE_NAMES = (CONVERT, TRANSFORM, MULTIPLY, INVERSE, REPAIR, OTHER)
ROLES = (  # by the words of a step, the first that matches
    (r"^inverse ", INVERSE),
    (r"^(FFT|transform )", TRANSFORM),
    (r"^multiply|GEMM|convolution|complex products|Winograd", MULTIPLY),
    (r"^(add|recompute) ", REPAIR),
    (UNKNOWN, OTHER),
    (r"", CONVERT),
)
MEMORY = {"memset": "clear memory", "memcpy": "copy memory"}
STEPS = {  # of the ladder's kernels
    "prepare_input": "convert inputs",
    "prepare_outliers": "list outliers",
    "multiply": "multiply",
    "make_outputs": "inverse transform",
    "compute_full_range": "recompute outliers",
}
ROOF, CLOCK, EMPTY, WAITING, SLOWER, CONVERTING, GAPS = (
    "roofline",
    "clock",
    "no block: fill, last wave",
    "units idle",
    "units below peak rate",
    "other kernels",
    "gaps",
)
PARTS = {
    ROOF: "products at the highest rate and clock of the unit that multiplies, or minimum traffic where that is longer",
    CLOCK: "a clock below the highest",
    EMPTY: "multiprocessors without a block, in the first fill and the last wave",
    WAITING: "multiplying units idle while a block runs",
    SLOWER: "multiplying units busy, below their highest rate or on padding",
    CONVERTING: "other kernels",
    GAPS: "gaps between kernels",
}
FACTS = {"multiprocessors", "max_sm_clock_mhz", "memory_clock_khz", "memory_bus_bits"}  # of a device, for its peaks
HOPPER = [9, 0]
TOUCHING = 0.5  # µs by which kernels may overlap and count as one after the other
FP32 = "fp32"
TILE_ROWS = 64  # of an instruction of a warpgroup
TILE_DEPTHS = {"fp16": 16, "tf32": 8}  # its products for an output
LANES = 128  # multiply-adds of fp32 that a multiprocessor starts in a cycle
COLUMNS = (
    *(
        "class",
        "whose",
        "kernel",
        "start, µs",
        "µs",
        "SM clock, MHz",
        "waves",
        "tensor cores, %",
        "FMA units, %",
        "L1 and shared memory, %",
    ),
    *("L2, %", "device memory, %", "read, MB", "written, MB", "occupancy, %", "main stall"),
)
COUNTED = (
    *("clock_hz", "waves", "tensor_pipe", "fma_pipe", "l1_throughput", "l2_throughput", "dram_throughput"),
    *("dram_read_bytes", "dram_write_bytes", "achieved_occupancy"),
)


@dataclass(frozen=True)
class Span:
    """A kernel of a run.  ``own`` is the part of its time that is left after kernels that began earlier.

    Kernels overlap where one is launched before the other's end, and waits for it or runs beside it.
    """

    step: str
    start: float
    us: float
    own: float
    lane: int  # 0 unless another kernel was running when it began
    metrics: Mapping[str, float]

    @property
    def role(self) -> str:
        """What the step is part of."""
        return next(role for words, role in ROLES if re.search(words, self.step))

    @property
    def bar(self) -> charts.Bar:
        """As it is drawn."""
        return self.start, self.us, self.role, self.step, self.lane


@dataclass(frozen=True, eq=False)
class Run:
    """A point's run, and the GPU that it was on."""

    record: Record
    device: Record
    ladder: Ladder = LADDER

    @property
    def name(self) -> str:
        """The rung's or the peer's name."""
        return str(self.record["point"]["rung"])

    @property
    def rung(self) -> Rung | None:
        """The ladder's entry; None for a peer."""
        return self.ladder.named.get(self.name)

    @property
    def label(self) -> str:
        """What computes it, in words."""
        return self.name if self.rung else " ".join(peer_title(self.name).split()[:2])

    @property
    def conv(self) -> Conv:
        """The layer's shape."""
        point = self.record["point"]
        return WORKLOADS[point["workload"]].layer(point["layer"])

    @property
    def untraced(self) -> float:
        """The median time without a profiler."""
        return 1e3 * float(median(self.record["samples"]["kernel"]))

    @cached_property
    def spans(self) -> list[Span]:
        """Its kernels in order."""
        spans: list[Span] = []
        end, lane = 0.0, 0
        for kernel in self.record["kernels"]:
            start, us = float(kernel["start_us"]), float(kernel["us"])
            lane = 1 - lane if start < end - TOUCHING else 0
            own = max(0.0, start + us - max(start, end))
            spans.append(Span(self.step(kernel["entry"]), start, us, own, lane, kernel.get("metrics", {})))
            end = max(end, start + us)
        return spans

    def step(self, entry: str) -> str:
        """What a kernel does."""
        if entry in MEMORY:
            return MEMORY[entry]
        if self.rung is None:
            return kernel_of(entry).step
        transforms = self.rung.products is None and entry == "prepare_input"
        return "transform inputs" if transforms else STEPS.get(entry, UNKNOWN)

    @property
    def whole(self) -> float:
        """Its length in µs."""
        return max((span.start + span.us for span in self.spans), default=0.0)

    def share(self, role: str) -> float:
        """Per cent of its length that kernels of a role take."""
        return 100 * fsum(span.own for span in self.spans if span.role == role) / self.whole

    @property
    def factors(self) -> str:
        """The type that is multiplied."""
        if self.rung:
            return self.rung.tensor_factors or FP32
        precision = PRECISIONS[self.record["point"]["precision"]]
        return FP32 if precision.torch == IEEE and precision.dtype == "float32" else self._peer_factors

    @property
    def _peer_factors(self) -> str:
        return "tf32" if PRECISIONS[self.record["point"]["precision"]].dtype == "float32" else "fp16"

    @property
    def multiply_adds(self) -> int | None:
        """Products on the unit that multiplies; None if they depend on more than is known here."""
        conv, N = self.conv, self.record["point"]["N"]
        if self.rung:
            return self.rung.products and self.rung.products * conv.macs(N)
        planes = products([kernel["entry"] for kernel in self.record["kernels"]], conv)
        return planes and planes * conv.C * conv.M * N

    def roof(self) -> float | None:
        """The roofline's time at the highest clock; None but on Hopper, since other rates are not known here."""
        count, rates, device = self.multiply_adds, multiply_adds_per_cycle(), self.device
        if count is None or self.factors not in rates or not device.keys() >= FACTS:
            return None
        if device.get("compute_capability") != HOPPER:
            return None
        conv, point = self.conv, self.record["point"]
        dtype = self.rung.dtype if self.rung else PRECISIONS[point["precision"]].dtype
        elements = point["N"] * (conv.C * conv.H * conv.W + conv.M * conv.E * conv.F) + conv.M * conv.K
        bytes_per_s = 2e3 * device["memory_clock_khz"] * device["memory_bus_bits"] / 8  # two transfers a cycle
        traffic = elements * np.dtype(dtype).itemsize / bytes_per_s
        arithmetic = count / (rates[self.factors] * device["multiprocessors"] * device["max_sm_clock_mhz"] * 1e6)
        return float(1e6 * max(traffic, arithmetic))

    @cached_property
    def parts(self) -> dict[str, float]:
        """PARTS of its length; none where a counter or the number of products is not known."""
        multiplying = [span for span in self.spans if span.role == MULTIPLY]
        roof, own = self.roof(), fsum(span.own for span in multiplying)
        unit = "fma_pipe" if self.factors == FP32 else "tensor_pipe"
        needed = {unit, "clock_hz", "sm_active_cycles", "sm_elapsed_cycles"}
        if roof is None or not multiplying or not all(span.metrics.keys() >= needed for span in multiplying):
            return {}
        at_peak = [span.own * self.pace(span) for span in multiplying]  # at the highest clock
        active = [span.metrics["sm_active_cycles"] / span.metrics["sm_elapsed_cycles"] for span in multiplying]
        busy = [span.metrics[unit] / 100 for span in multiplying]
        waits = [us * share * (1 - used) for us, share, used in zip(at_peak, active, busy, strict=True)]
        empty = fsum(us * (1 - share) for us, share in zip(at_peak, active, strict=True))
        left = fsum(at_peak) - empty - roof
        if left < 0:
            return {}
        waiting = min(fsum(waits), left)
        parts = {ROOF: roof, CLOCK: own - fsum(at_peak), EMPTY: empty, WAITING: waiting, SLOWER: left - waiting}
        parts[CONVERTING] = fsum(span.own for span in self.spans) - own
        parts[GAPS] = max(0.0, self.whole - parts[CONVERTING] - own)
        return {name: parts[name] for name in PARTS}

    def pace(self, span: Span) -> float:
        """A kernel's SM clock as a share of the highest."""
        return min(1.0, span.metrics["clock_hz"] / (1e6 * float(self.device["max_sm_clock_mhz"])))


def multiply_adds_per_cycle() -> dict[str, float]:
    """Multiply-adds that a multiprocessor of Hopper starts in a cycle, by the type of factors: measured rates."""
    rates = load("h200").values["cycles_per_warp_instruction"]
    columns = float(rates["hgmma_columns_per_cycle"])
    return {FP32: LANES / rates["fma"], **{name: TILE_ROWS * columns * depth for name, depth in TILE_DEPTHS.items()}}


def runs(measurements: Measurements, workload: str, layer: int) -> list[Run]:
    """The last timelines of a layer with many images; of one device: the report's, if it has some."""
    devices = {header["key"]: header for header in measurements.of_type("device")}
    last: dict[tuple[str, str], Run] = {}
    for record in measurements.of_type("timeline"):
        point, device = record["point"], devices.get(record.get("device", ""))
        if device and (point["workload"], point["layer"], point["N"], record["images"]) == (
            workload,
            layer,
            MANY,
            MANY,
        ):
            last[device_name(device), point["rung"]] = Run(record, device, measurements.ladder)
    wanted = device_name(measurements.device)
    names = {name for name, _ in last}
    chosen = wanted if wanted in names else min(names, default="")
    return [run for (name, _), run in last.items() if name == chosen]


def compared(every: Sequence[Run]) -> dict[str, list[Run]]:
    """By a class of cuDNN's, our fastest rung of each class compared with it, then cuDNN in its faster layout."""
    groups: dict[str, list[Run]] = {}
    for contract in CONTRACTS:
        ours = quickest(run for run in every if run.rung and contract.kept_by(run.rung))
        theirs = quickest(run for run in every if run.name in contract.peers)
        if ours and theirs:
            group = groups.setdefault(contract.precision.peer, [theirs])
            if ours not in group:
                group.insert(-1, ours)
    return groups


def quickest(candidates: Iterable[Run]) -> Run | None:
    """The fastest run without a profiler."""
    return min(candidates, key=lambda run: run.untraced, default=None)


def sections(measurements: Measurements, workload: str, layer: int) -> list[Section]:
    """Where the time goes: the time axis, the counters, the parts of the distance to the roofline."""
    groups = compared(runs(measurements, workload, layer))
    if not groups:
        return []
    device = next(iter(groups.values()))[0].device
    key, origin = f"layer-{workload}-{layer}", origin_of(measurements, groups)
    items: list[Table | Plot] = [axis_plot(groups, f"{key}-kernels", origin)]
    if any(run.parts for group in groups.values() for run in group):
        items += [parts_plot(groups, f"{key}-parts", origin), parts_table(groups, f"{key}-parts-table", origin)]
    items.append(counter_table(groups, f"{key}-kernel-counters", origin))
    text = f"On one {device_name(device)}, N={MANY}. {account(groups)}".strip()
    return [Section("time", "Where the time goes", text, items)]


def origin_of(measurements: Measurements, groups: Mapping[str, Sequence[Run]]) -> str:
    """The record file of the timelines, as the command that wrote it names it."""
    commands = {header["key"]: str(header.get("command", "")) for header in measurements.of_type("run")}
    used = dict.fromkeys(commands.get(run.record.get("run", ""), "") for group in groups.values() for run in group)
    files = [match[1] for command in used if (match := re.search(r"--out (\S+)", command))]
    cards = dict.fromkeys(card_of(run.device) for group in groups.values() for run in group)
    return f"From `{'`, `'.join(dict.fromkeys(files))}` ({', '.join(cards)})." if files else ""


def axis_plot(groups: Mapping[str, Sequence[Run]], key: str, origin: str) -> Plot:
    """Kernels of ours and cuDNN's on one axis for each class."""
    panels = [
        (
            precision,
            [
                (run.label, [(span.start, span.us, span.role, span.step, span.lane) for span in run.spans])
                for run in group
            ],
        )
        for precision, group in groups.items()
    ]
    caption = (
        "A hot run of each, the one of median length, as CUPTI records it. Lower half: kernels launched before the end "
        "of the one above, which wait for it or run beside it. Filters of ours are prepared before, cuDNN's in the "
        f"run. {origin}"
    )
    title = findings.titled("Kernels on one time axis", multiplying(groups))
    return Plot(key, title, caption, partial(charts.kernels, panels, ROLE_NAMES), wide=True)


def multiplying(groups: Mapping[str, Sequence[Run]]) -> str:
    """How much of the time kernels that multiply take, in the first class."""
    precision, group = next(iter(groups.items()))
    shares = [f"{run.share(MULTIPLY):.0f} % of {run.label}'s time" for run in (group[0], group[-1])]
    return f"in {precision} multiplying takes {shares[0]} and {shares[1]}"


def parts_plot(groups: Mapping[str, Sequence[Run]], key: str, origin: str) -> Plot:
    """The parts of each run's length as a stacked bar."""
    panels = [
        (precision, [(run.label, list(run.parts.items())) for run in group if run.parts])
        for precision, group in groups.items()
    ]
    caption = f"From left to right: {'; '.join(PARTS.values())}. {origin}"
    title = findings.titled("From the roofline to the time", roofs(groups))
    return Plot(
        key, title, caption, partial(charts.parts, [panel for panel in panels if panel[1]], tuple(PARTS)), wide=True
    )


def roofs(groups: Mapping[str, Sequence[Run]]) -> str:
    """The roofline's share in the first class."""
    known = [(run.label, 100 * run.parts[ROOF] / run.whole) for run in next(iter(groups.values())) if run.parts]
    return ", ".join(f"{label} at {share:.0f} % of it" for label, share in known)


def parts_table(groups: Mapping[str, Sequence[Run]], key: str, origin: str) -> Table:
    """The parts in µs, with how each is computed."""
    rows: list[tuple[Cell, ...]] = [
        (precision, run.label, run.untraced, run.whole, *run.parts.values())
        for precision, group in groups.items()
        for run in group
        if run.parts
    ]
    rates = ", ".join(f"{name} {rate:,.0f}" for name, rate in multiply_adds_per_cycle().items())
    caption = (
        f"µs. Traced: the recorded run, which CUPTI makes a little longer. {ROOF}: products over the rate of the unit "
        f"that multiplies ({rates} multiply-adds a cycle and multiprocessor) at the highest SM clock, or minimum "
        f"traffic over the memory's peak rate. {CLOCK}: the multiplying kernel's time less its time at the highest "
        f"clock, by the clock that Nsight Compute counts in it. {EMPTY}: cycles without a warp on a multiprocessor, "
        f"counted by Nsight Compute. {WAITING}: cycles with a warp in which the unit is idle, likewise. {SLOWER}: the "
        f"rest of that kernel. Left out: Winograd, whose products depend on the shape, and runs in which {EMPTY} and "
        f"{ROOF} are longer than the kernel, since counters and trace are of different runs. {origin}"
    )
    return Table(key, "Parts of the time", caption, ("class", "whose", "time", "traced", *PARTS), rows)


def counter_table(groups: Mapping[str, Sequence[Run]], key: str, origin: str) -> Table:
    """Counters of every kernel, ours beside cuDNN's."""
    rows = [
        (precision, run.label, span.step, span.start, span.us, *counters(span), longest_stall(span.metrics) or None)
        for precision, group in groups.items()
        for run in group
        for span in run.spans
    ]
    caption = (
        "Times: of the run above. Counters: Nsight Compute's, each kernel by itself with empty caches, in per cent of "
        f"the hardware's peak; none where cuDNN chose another engine under it. Waves: blocks over those that fit at "
        f"once. {origin}"
    )
    filters = ("class",)
    return Table(key, "Counters of both", caption, COLUMNS, rows, filters=filters)


def counters(span: Span) -> Iterator[float | None]:
    """A kernel's counters in the units of the columns."""
    for name in COUNTED:
        value = span.metrics.get(name)
        yield None if value is None else float(value) * SCALES.get(name, 1.0)


def account(groups: Mapping[str, Sequence[Run]]) -> str:
    """Where the time of each class's rung and of cuDNN goes, in words."""
    return " ".join(
        f"{precision}: {'; '.join(sentence(run) for run in group if run.parts)}."
        for precision, group in groups.items()
        if any(run.parts for run in group)
    )


def sentence(run: Run) -> str:
    """The largest parts of a run's time besides the roofline's."""
    largest = sorted((name for name in run.parts if name != ROOF), key=lambda name: -run.parts[name])[:3]
    shares = [f"{name} {100 * run.parts[name] / run.whole:.0f} %" for name in (ROOF, *largest)]
    return f"`{run.label}` {run.whole:.0f} µs ({', '.join(shares)})"
