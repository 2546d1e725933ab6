"""Predictions of points: their band, their records, and counters under the names of ``alexconv.profile``."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from math import fsum
from pathlib import Path
from typing import Any

from alexconv.code import code_of
from alexconv.compiling import nvcc
from alexconv.errors import CompileError, MissingTool
from alexconv.kernels.bound import BoundRung
from alexconv.planning.points import Point
from alexconv.predict import model
from alexconv.predict.disassembly import UnknownInstruction
from alexconv.predict.gpu import SECTOR, WARP, Gpu
from alexconv.predict.native import STALLS, simulator_texts
from alexconv.records.store import Record, RecordWriter, digest

TYPE = "prediction"
NETWORK_TYPE = "network-prediction"  # of a whole network (alexconv.networks.predicted)


@dataclass(frozen=True)
class PointPrediction:
    """A point's launches, or why it is refused."""

    point: Point
    gpu: Gpu
    launches: tuple[model.Prediction, ...] = ()
    reason: str | None = None

    @property
    def bound(self) -> BoundRung:
        """The point's rung, bound to its shape and constants."""
        return self.point.bound(self.gpu.device)

    @property
    def milliseconds(self) -> float:
        """Predicted time of all launches in ms."""
        return fsum(launch.seconds for launch in self.launches) * 1e3

    def band(self) -> tuple[float, float]:
        """The range in ms that contains nine of ten measured times, as it does in the records."""
        return self.milliseconds / self.gpu["accuracy.above"], self.milliseconds / self.gpu["accuracy.below"]

    def record(self) -> Record:
        """The prediction as a record file holds it."""
        record: Record = {"point": self.point.axes(), "gpu": self.gpu.key, "code": key_of(self.point, self.gpu)}
        if self.reason:
            return record | {"status": "refused", "reason": self.reason}
        low, high = self.band()
        launches = [launch_record(launch) for launch in self.launches]
        return record | {"status": "ok", "ms": self.milliseconds, "band_ms": [low, high], "launches": launches}


def key_of(point: Point, on: Gpu) -> str:
    """Digest of all that a prediction depends on: point, kernel, compiler, launches, GPU, model."""
    return digest([point.axes(), *dependencies(point.bound(on.device), point.N, on)])


def dependencies(bound: BoundRung, images: int, on: Gpu) -> list[Any]:
    """What the prediction of a bound rung over ``images`` images depends on, as JSON."""
    try:
        kernel = nvcc.cubin_key(bound.rung.path, bound.macros, nvcc.arch_name(on.capability))
    except MissingTool:  # nothing can be predicted
        kernel = ""
    model_code = [code_of(predict_points, KernelCache), *simulator_texts()]
    return [kernel, bound.launch_facts(images), on.key, on.values, *model_code]


def launch_record(launch: model.Prediction) -> Record:
    """One launch as a record holds it."""
    return {
        "entry": launch.entry,
        "ms": launch.seconds * 1e3,
        "overhead_ms": launch.overhead * 1e3,
        "limit": launch.limiting,
        "utilisation": {name: round(share, 4) for name, share in launch.utilisation.items()},
        "waves": round(launch.waves, 4),
        "blocks_simulated": launch.simulated,
        "metrics": {name: float(f"{value:.5g}") for name, value in metrics(launch).items()},
    }


def metrics(launch: model.Prediction) -> dict[str, float]:
    """Counters by the names of docs/profile.md, as far as the model has them; counts are of the whole launch."""
    counters, waited = launch.outcome.counters, launch.outcome.waited.sum(axis=0)
    scale = launch.blocks_per_multiprocessor * launch.multiprocessors / launch.simulated
    issued = counters["issued"]
    figures = {
        "duration_ns": (launch.seconds - launch.overhead) * 1e9,
        "registers": launch.needs.registers,
        "static_shared_bytes": launch.needs.static_shared,
        "dynamic_shared_bytes": launch.dynamic_shared,
        "theoretical_occupancy": 100 * launch.occupancy,
        "active_lanes": counters["lanes"] / issued,
        "warp_execution_efficiency": 100 * counters["lanes"] / issued / WARP,
        "shared_load_requests": counters["shared_loads"] * scale,
        "shared_store_requests": counters["shared_stores"] * scale,
        "shared_load_wavefronts": counters["shared_load_wavefronts"] * scale,
        "shared_store_wavefronts": counters["shared_store_wavefronts"] * scale,
        "dram_read_bytes": launch.dram_bytes[0],
        "dram_write_bytes": launch.dram_bytes[1],
        "dram_throughput": 100 * launch.utilisation["dram"],
        "l2_throughput": 100 * launch.utilisation["l2"],
        "l1_throughput": 100 * launch.utilisation["lsu"],
        "fma_pipe": 100 * launch.utilisation["fma"],
        "tensor_pipe": 100 * launch.utilisation["tensor"],
        "issue_slots": 100 * launch.utilisation["issue"],
        "sm_throughput": 100
        * max(launch.utilisation[name] for name in launch.utilisation if name not in ("l2", "dram")),
        **{f"stall_{name}": cycles / issued for name, cycles in zip(STALLS, waited.tolist(), strict=True)},
    }
    ratios = {
        "global_load_sectors_per_request": ("load_sectors", "loads", 1),
        "global_store_sectors_per_request": ("store_sectors", "stores", 1),
        "global_load_efficiency": ("load_bytes", "load_sectors", 100 / SECTOR),
        "global_store_efficiency": ("store_bytes", "store_sectors", 100 / SECTOR),
        "l1_hit_rate": ("l1_hits", "load_sectors", 100),
        "shared_load_wavefronts_per_request": ("shared_load_wavefronts", "shared_loads", 1),
        "shared_store_wavefronts_per_request": ("shared_store_wavefronts", "shared_stores", 1),
    }
    for name, (above, below, factor) in ratios.items():
        if counters[below]:
            figures[name] = factor * counters[above] / counters[below]
    return figures


@dataclass(frozen=True)
class Cost:
    """A source line's or an instruction's share of a launch's warp cycles and of its instructions, and its stalls."""

    place: str
    cycles: float
    issued: float
    stalls: dict[str, float]


def costs(kernel: model.Kernel, launch: model.Prediction) -> list[Cost]:
    """The instructions of a launch, in the order of the machine code; shares are of 1."""
    issued, waited = launch.outcome.issued, launch.outcome.waited
    all_cycles, instructions = float(issued.sum() + waited.sum()) or 1.0, float(issued.sum()) or 1.0
    return [
        Cost(
            f"{Path(instruction.file).name}:{instruction.line}" if instruction.file else "without a line",
            float(issued[k] + waited[k].sum()) / all_cycles,
            float(issued[k]) / instructions,
            {name: float(cycles) / all_cycles for name, cycles in zip(STALLS, waited[k], strict=True)},
        )
        for k, instruction in enumerate(kernel.code)
    ]


def lines(kernel: model.Kernel, launch: model.Prediction) -> list[Cost]:
    """The source lines of a launch, the most costly first; shares are of 1."""
    by_place: dict[str, list[Cost]] = {}
    for cost in costs(kernel, launch):
        by_place.setdefault(cost.place, []).append(cost)
    sums = [
        Cost(
            place,
            fsum(cost.cycles for cost in of_line),
            fsum(cost.issued for cost in of_line),
            {name: fsum(cost.stalls[name] for cost in of_line) for name in STALLS},
        )
        for place, of_line in by_place.items()
    ]
    return sorted(sums, key=lambda cost: -cost.cycles)


def predict_points(
    points: Iterable[Point], gpu: Gpu, kernels: Callable[[BoundRung, Gpu], dict[str, model.Kernel]]
) -> Iterator[PointPrediction]:
    """Each point's launches; one that the model cannot follow is refused, with the reason.

    ``kernels`` gives a bound rung's kernels.  Raises MissingTool.
    """
    for point in points:
        bound = point.bound(gpu.device)
        if reason := point.entry.unsuited(gpu.capability) or bound.refusal():
            yield PointPrediction(point, gpu, reason=reason)
            continue
        try:
            launches = tuple(model.predict(bound, kernels(bound, gpu), point.N, gpu))
        except (UnknownInstruction, CompileError) as error:
            yield PointPrediction(point, gpu, reason=str(error))
            continue
        yield PointPrediction(point, gpu, launches)


def recorded(predictions: Iterable[PointPrediction], file: RecordWriter, headers: Record) -> Iterator[PointPrediction]:
    """The predictions, each recorded before the next one is made, unless it is the file's last one of its point."""
    earlier = latest((record for record in file.previous.headers.values() if record["type"] == TYPE), "point")
    known = {record.get("code") for record in earlier}
    for prediction in predictions:
        record = prediction.record()
        if record["code"] not in known:
            file.header(TYPE, {**record, **now(), **headers})
        yield prediction


def now() -> Record:
    """When a record is written: without it an earlier record with the same content would stand for it, and not last."""
    return {"ended": datetime.now(UTC).isoformat()}


def latest(records: Iterable[Record], what: str) -> list[Record]:
    """The last record of each point or network, ``what``, on each GPU."""
    return list({digest([record.get("gpu"), record[what]]): record for record in records}.values())


class KernelCache:
    """Kernels of the bound rungs of a run, compiled and read once for points that differ only in N."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, tuple[tuple[str, int], ...]], dict[str, model.Kernel]] = {}

    def __call__(self, bound: BoundRung, gpu: Gpu) -> dict[str, model.Kernel]:
        """The kernels by entry point; raises MissingTool, CompileError, UnknownInstruction."""
        key = gpu.key, bound.rung.name, tuple(sorted(bound.macros.items()))
        if key not in self._known:
            self._known[key] = model.compile_kernels(bound, gpu)
        return self._known[key]
