"""Why a rung takes the time that it does: its share of the roof, and what Nsight Compute counted, in a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from alexconv.kernels.rung import Rung
from alexconv.predict.accuracy import by_computation
from alexconv.records.labels import changed_in, label_with
from alexconv.records.store import Record
from alexconv.reports.comparison import MS
from alexconv.reports.elements import Cell
from alexconv.reports.measurements import Measured, Measurements
from alexconv.reports.roofline import Roof, description, roof_of, roofs

BUSY = {  # counters in per cent of the hardware's peak, in words
    "tensor_pipe": "tensor cores",
    "fma_pipe": "FMA units",
    "l1_throughput": "L1 and shared memory",
    "l2_throughput": "L2 cache",
    "dram_throughput": "device memory",
}
UNITS = ("tensor_pipe", "fma_pipe")  # of them, those that multiply
COUNTERS = {  # by the profiler's names
    "duration_ns": "µs",
    "tensor_pipe": "tensor cores, %",
    "fma_pipe": "FMA units, %",
    "issue_slots": "issue slots, %",
    "l1_throughput": "L1 and shared memory, %",
    "l2_throughput": "L2, %",
    "dram_throughput": "device memory, %",
    "dram_read_bytes": "read, MB",
    "dram_write_bytes": "written, MB",
    "achieved_occupancy": "occupancy, %",
    "registers": "registers",
    "active_lanes": "active lanes of 32",
    "global_load_sectors_per_request": "sectors per load",
    "shared_load_wavefronts_per_request": "wavefronts per shared load",
}
SCALES = {"duration_ns": 1e-3, "clock_hz": 1e-6, "dram_read_bytes": 1e-6, "dram_write_bytes": 1e-6}
STALL = "stall_"
WAITS = {  # stall reasons by the profiler's names; fixed latencies and not being selected are left out
    "long_scoreboard": "loads from memory",
    "short_scoreboard": "shared memory",
    "barrier": "barriers",
    "math_pipe_throttle": "the arithmetic units",
    "gmma": "the tensor cores",
    "lg_throttle": "the global memory queue",
    "mio_throttle": "the shared memory queue",
    "tex_throttle": "the texture queue",
    "no_instruction": "instruction fetch",
    "imc_miss": "constant memory",
    "membar": "memory fences",
    "drain": "stores",
}
UNSPLIT = {"wgmma-half-split-k": "wgmma-half"}  # what rungs that split tiles are with SPLITS=1
LEAST_STALL = 1.0  # stall cycles per instruction: fewer are hardly a reason
PREDICTION = "prediction"


@dataclass(frozen=True, eq=False)
class Reasons:
    """What the records know of a device besides times: roofs, counters and predictions."""

    measurements: Measurements

    @cached_property
    def roofs(self) -> list[Roof]:
        """The roofs of its units."""
        return roofs(self.measurements.ceilings, self.measurements.device, self.measurements.ladder)

    @cached_property
    def profiles(self) -> list[Record]:
        """What Nsight Compute counted of each kernel."""
        return [profile for profile in self.measurements.of_type("profile") if profile["source"] == "ncu"]

    @cached_property
    def _counted(self) -> dict[tuple[str, int, str], list[Record]]:
        by_axes: dict[tuple[str, int, str], list[Record]] = {}
        for profile in self.profiles:
            point = profile["point"]
            by_axes.setdefault((point["workload"], point["layer"], point["rung"]), []).append(profile)
        return by_axes

    @cached_property
    def predictions(self) -> list[Record]:
        """What was predicted for the device."""
        gpu = description(self.measurements.device)
        predictions = self.measurements.of_type(PREDICTION) if gpu else []
        return [prediction for prediction in predictions if gpu and prediction["gpu"] == gpu.key]

    @cached_property
    def _predicted(self) -> dict[tuple[str, int, int, str], list[Record]]:
        by_axes: dict[tuple[str, int, int, str], list[Record]] = {}
        for prediction in by_computation(self.predictions).values():
            point = prediction["point"]
            if prediction["status"] == "ok":
                axes = point["workload"], point["layer"], point["N"], point["rung"]
                by_axes.setdefault(axes, []).append(prediction)
        return by_axes

    def counters(self, rung: str, workload: str | None = None) -> list[Record]:
        """The profiles of a rung's kernels, of all layers."""
        return [
            profile
            for (name, _, of), profiles in self._counted.items()
            for profile in profiles
            if of == rung and workload in (None, name)
        ]

    def kernel(self, workload: str, layer: int, rung: str) -> Record | None:
        """The profile of the longest of a rung's kernels on a layer, with default constants."""
        profiles = [profile for profile in self._counted.get((workload, layer, rung), []) if not changed_in(profile)]
        return max(profiles, key=lambda profile: profile["metrics"].get("duration_ns", 0.0), default=None)

    def predicted(self, point: Measured) -> Record | None:
        """The prediction of a point with its constants."""
        known = self._predicted.get((point.workload, point.layer, point.N, point.series.rung), [])
        constants = point.record["point"]["constants"]
        return next((prediction for prediction in known if prediction["point"]["constants"] == constants), None)

    def share_of_roof(self, point: Measured) -> float | None:
        """Per cent of the lower roof: of the rung's unit, or of the bytes at compulsory intensity."""
        ms, roof = point.median("kernel"), roof_of(point.rung, self.roofs)
        rate = (self.measurements.ceilings or {}).get("copy_bytes_per_s")
        if not ms or not roof or not rate:
            return None
        flops = 2 * point.conv.macs(point.N)
        return float(100 * flops / ms * MS / min(roof.rate, rate * flops / point.compulsory_bytes))

    def roof_text(self, point: Measured) -> str:
        """The share of its roof, in words; empty where it is not known."""
        roof, share = roof_of(point.rung, self.roofs), self.share_of_roof(point)
        return f"{share:.0f} % of the roofline ({roof.unit}, {roof.name})" if share and roof else ""

    def idea(self, point: Measured) -> str:
        """What the rung does with the point's constants; empty for a peer."""
        if point.rung is None:
            return ""
        whole = self.measurements.ladder.named.get(UNSPLIT.get(point.rung.name, ""))
        if whole and point.record["point"]["constants"].get("SPLITS") == 1:
            return f"{whole.idea} (SPLITS=1: as {whole.name})"
        return point.rung.idea

    def sentence(self, point: Measured) -> str:
        """What the rung does, how busy its longest kernel keeps the hardware, beside its parent's, and its roof."""
        rung = point.rung
        if rung is None:
            return ""
        parts = [self.idea(point)]
        own = self.kernel(point.workload, point.layer, rung.name)
        if own:
            before = self.kernel(point.workload, point.layer, rung.parent) if rung.parent else None
            parts.append(busy_text(rung, own, self.measurements.ladder.named.get(rung.parent or ""), before))
        return "; ".join(part for part in (*parts, self.roof_text(point)) if part)


def busy_text(rung: Rung, own: Record, parent: Rung | None = None, before: Record | None = None) -> str:
    """How busy a kernel keeps units and memories, and the unit's share in its parent's longest kernel, ``before``."""
    metrics: Mapping[str, float] = own["metrics"]
    unit = UNITS[0] if rung.tensor_factors else UNITS[1]
    names = [unit, *sorted((name for name in BUSY if name not in UNITS), key=lambda name: -metrics.get(name, 0.0))]
    shares = [f"{BUSY[name]} {metrics[name]:.0f} %" for name in names[:3] if name in metrics]
    if not shares:
        return ""
    theirs = (before or {}).get("metrics", {}).get(unit)
    same = parent is not None and bool(parent.tensor_factors) == bool(rung.tensor_factors)
    beside = f" ({rung.parent}: {theirs:.0f} %)" if theirs is not None and same else ""
    stall = longest_stall(metrics)
    waits = f"; main stall: {stall}" if stall else ""
    return f"{own['entry']}: {', '.join([shares[0] + beside, *shares[1:]])}{waits}"


def longest_stall(metrics: Mapping[str, float]) -> str:
    """What warps wait for most; empty where they hardly wait."""
    name = max(WAITS, key=lambda reason: metrics.get(STALL + reason, 0.0))
    return WAITS[name] if metrics.get(STALL + name, 0.0) >= LEAST_STALL else ""


def counter_row(profile: Record) -> tuple[Cell, ...]:
    """A kernel's name with its rung's changed constants, and its counters in the units of the columns."""
    point, metrics = profile["point"], profile["metrics"]
    values = {name: float(metrics[name]) * SCALES.get(name, 1.0) if name in metrics else None for name in COUNTERS}
    registers = values["registers"]
    cells = values | {"registers": registers and round(registers)}
    return point["workload"], point["layer"], point["N"], kernel_of(profile), *cells.values()


def kernel_of(profile: Record) -> str:
    """A profiled kernel's name, with the constants that differ from its rung's defaults."""
    return label_with(profile["entry"], changed_in(profile))
