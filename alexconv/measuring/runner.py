"""Runs points one after the other: plan, run, check, and only then time.  Each result is one record."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from alexconv.code import code_of
from alexconv.cpu_reference.baseline import Baseline, blas_time, serial_time
from alexconv.cpu_reference.cache import FLOAT32, CachedReference, LayerData, ensure
from alexconv.cpu_reference.reference import exact_sums, norms, reference
from alexconv.data import DATA_SETS, UNIFORM
from alexconv.errors import AlexconvError, CompileError, LaunchError, MissingTool, OutOfMemory, Untrusted
from alexconv.executors.host_memory import copied
from alexconv.executors.interface import Executor, OpenedRung, Values, open_rung
from alexconv.executors.sampling import Samples
from alexconv.kernels.geometry import FLOAT
from alexconv.parallel import each_block
from alexconv.planning.checks import (
    CHECKED_BYTES,
    NORMS,
    ExactBatch,
    ExactSum,
    Expected,
    MaxError,
    Outputs,
    exact_batch,
)
from alexconv.planning.planner import MEBIBYTE, DoesNotFit, Plan, plan_on
from alexconv.planning.points import AnyPoint, Kind, PeerPoint, Point
from alexconv.planning.transfers import transfer_named
from alexconv.precisions import PRECISIONS, Bound
from alexconv.records.environment import available_memory
from alexconv.records.store import Record, digest, identity
from alexconv.shapes import FORWARD, Conv

FAILURES: dict[type[AlexconvError], str] = {
    CompileError: "compile-error",
    LaunchError: "launch-error",
    OutOfMemory: "out-of-memory",
    Untrusted: "wrong",
}
SECONDS = 0.15  # default sampling time of a figure
EXACT_IMAGES = 8  # images of integers, where not all of a batch are needed
QUICK_MACS = 2**27  # multiply-adds that the host executor does in a fraction of a second
SUMMED = 4  # images whose errors are also given over the sums of |x| |w|
REPEATS_FOR_SPREAD = 4  # more runs of a rung whose order of summation varies
FEWER_PRODUCTS = 4  # factor by which an algorithm may save products: Winograd F(4x4, 3x3)
DIGITS = 6  # of a millisecond: a nanosecond is finer than any clock here
THROTTLES = 0x4 | 0x8 | 0x20 | 0x40 | 0x80  # NVML: power cap, hardware slowdown, thermal (2), power brake


@dataclass
class Layer:
    """Inputs and reference of one layer, computed once for the largest batch of a run.

    A shard's layer holds images ``first`` to N - 1 only.  Of a gradient, the arrays of its direction in the same roles;
    where outputs are sums over images, filters are in the place of the outputs' images.
    """

    of: LayerData
    N: int
    first: int = 0

    @property
    def conv(self) -> Conv:
        """The layer's shape."""
        return self.of.conv

    @cached_property
    def x(self) -> Values:
        """float32 ``[N][C][H][W]``."""
        return self.of.images(self.first, self.N)

    @cached_property
    def w(self) -> Values:
        """float32 ``[M][C][R][S]``."""
        return self.of.filters()

    @cached_property
    def bias(self) -> Values | None:
        """float32 ``[M]``, where the layer has one."""
        return self.of.biases()

    @cached_property
    def reference(self) -> Values:
        """float32 ``[N][M][E][F]``, accumulated in float64."""
        return self.compute_reference().read(self.first, self.of.outputs(self.N))

    def compute_reference(self) -> CachedReference:
        """Computes what the reference cache lacks."""
        return ensure(self.of, self.of.outputs(self.N), first=self.first)

    @cached_property
    def norms(self) -> tuple[Values, Values]:
        """Norms of the patches ``[N][E][F]`` and of the filters ``[M]``."""
        return norms(self.conv, self.x, self.w, self.bias)

    @cached_property
    def sums(self) -> Values:
        """Sums of |x| |w| of each output of the first SUMMED images, float32 ``[SUMMED][M][E][F]``."""
        return absolute_sums(self.conv, self.x, self.w, self.bias)

    def check(self, y: Outputs, precision: str, atomic_additions: int = 0) -> tuple[MaxError, float]:
        """Largest error of ``y`` ``[n][M][E][F]``, the layer's first n images, and the tolerance for its data."""
        bound = bound_on(self.of.data_set, precision, self.conv, self.N, atomic_additions)
        return self.error(y, bound), bound.factor

    @cached_property
    def baselines(self) -> dict[str, Baseline]:
        """CPU times of the layer: serial C++ on one core, if there is a compiler, and BLAS on all cores."""
        times = {"blas": blas_time(self.of.workload, self.of.layer, self.conv)}
        with suppress(MissingTool):
            times["serial"] = serial_time(self.of.workload, self.of.layer, self.conv)
        return times

    def cpu_times(self, N: int) -> Record:
        """Each baseline's ms for N images; ``..._scaled_from`` is the number of images timed, if it is not N."""
        times = {name: baseline.for_batch(N) for name, baseline in self.baselines.items()}
        return {
            **{f"{name}_ms": time.ms for name, time in times.items()},
            **{f"{name}_scaled_from": time.scaled_from for name, time in times.items() if time.scaled_from},
        }

    def make(self, *names: str) -> None:
        """Computes cached properties, given by name, before points need them."""
        for name in names:
            getattr(self, name)

    def error(self, y: Outputs, bound: Bound = NORMS) -> MaxError:
        """Largest error of ``y`` ``[n][M][E][F]``, the layer's first n images, measured against a bound."""
        error, N = MaxError(), len(y)
        patches, filters = self.norms
        if bound.reach:
            patches, _ = norms(self.conv, self.x[:N], self.w, self.bias, bound.reach)
        error.add(y, Expected(self.reference[:N], patches[:N], filters, self.sums[:N], self.conv.relu), bound)
        return error


@dataclass
class Settings:
    """Settings of a run that apply to all its points."""

    seconds: float = SECONDS
    seed: int = 0
    memory_budget: int | None = None
    baseline: bool = True
    timed: bool = True

    def key(self) -> list[object]:
        """The settings that a point's result depends on."""
        return [self.seed, self.memory_budget, self.timed]


class Skip(Exception):
    """The point cannot be run here; the text says why."""


def absolute_sums(conv: Conv, x: Values, w: Values, bias: Values | None) -> Values:
    """Sums of |x| |w| of each output of the first SUMMED images; of wgrad, of the first SUMMED filters."""
    if conv.roles.sums_images:
        M = SUMMED if conv.groups == 1 and conv.M > SUMMED else conv.M
        return reference(replace(conv, M=M), np.abs(x), np.abs(w[:, :M]))[:SUMMED]
    return reference(conv, np.abs(x[:SUMMED]), np.abs(w), None if bias is None else np.abs(bias))


@lru_cache(maxsize=len(PRECISIONS))
def exact_data(conv: Conv, N: int, precision: str, seed: int) -> ExactBatch | ExactSum:
    """N images of integers for a class, with the outputs that they must have."""
    return exact_batch(conv, N, PRECISIONS[precision], seed, exact_sums)


def first_images(cut: Plan, images: int) -> Plan:
    """A plan for the first images of a batch: the point's kernels, in pieces no larger than its own."""
    at_once = min(cut.images_per_piece, images)
    return cut if images == cut.N else Plan(cut.bound, images, at_once, cut.bound.device_bytes(at_once))


def bound_on(data: str, precision: str, conv: Conv, N: int, atomic_additions: int = 0) -> Bound:
    """The error bound of a class for N images of a data set; for uniform data, the tolerance alone."""
    K = conv.products(N)
    if data == UNIFORM:
        return Bound(PRECISIONS[precision].tolerance(K))
    return PRECISIONS[precision].bound(K, DATA_SETS[data].kind_of(conv.direction), atomic_additions, conv.chain(N))


def data_of(point: Point | PeerPoint, seed: int) -> LayerData:
    """The data of a point's layer.

    Uniform inputs are float32 for every rung, rounded to its type when they are uploaded.  Other data, which may exceed
    the range of fp16, has the rung's type from the start.
    """
    dtype = point.entry.dtype if point.kind is Kind.RUNG and point.data != UNIFORM else FLOAT32
    batch = point.N if point.conv.roles.sums_images else 0
    return LayerData(point.workload, point.layer, point.conv, seed, point.data, dtype, batch)


class Runner:
    """Turns points into records on one executor."""

    def __init__(self, executor: Executor, points: Iterable[Point | PeerPoint], settings: Settings) -> None:
        self.executor, self.settings = executor, settings
        self._host_memory = available_memory()
        self._largest: dict[LayerData, int] = {}
        for point in points:
            if not self.beyond_host_memory(point):
                of = data_of(point, settings.seed)
                self._largest[of] = max(self._largest.get(of, 0), point.N)
        self._layer: Layer | None = None

    def layer(self, point: Point | PeerPoint) -> Layer:
        """Data of the point's layer; only the last layer's is kept."""
        if self._layer is None or self._layer.of != data_of(point, self.settings.seed):
            self.executor.free_cached_arrays()
            self._layer = self._layer_of(point)
        return self._layer

    def _layer_of(self, point: Point | PeerPoint) -> Layer:
        of = data_of(point, self.settings.seed)
        return Layer(of, self._largest[of])

    def beyond_host_memory(self, point: Point | PeerPoint) -> str | None:
        """Why host memory cannot hold the point's inputs, on floats and integers, reference and output, or None."""
        needed = 2 * (prod(point.conv.x_shape(point.N)) + prod(point.conv.y_shape(point.N))) * FLOAT
        if needed <= self._host_memory:
            return None
        return f"needs {needed / MEBIBYTE:.1f} MiB of host memory, {self._host_memory / MEBIBYTE:.1f} are available"

    @property
    def times(self) -> bool:
        """Whether points are timed, not only checked."""
        return self.executor.measures and self.settings.timed

    @property
    def times_cpu(self) -> bool:
        """Whether points are timed and compared with the CPU, which computes the forward direction."""
        return self.times and self.settings.baseline

    def time_cpu(self, workload: str, number: int, conv: Conv) -> None:
        """Times the CPU on a layer, unless the cache has its times."""
        Layer(LayerData(workload, number, conv, self.settings.seed), 1).make("baselines")

    def compute_reference(self, point: Point | PeerPoint) -> None:
        """Computes the reference of the point's layer for the run's largest batch, into the cache."""
        self._layer_of(point).compute_reference()

    def ready(self, points: Iterable[Point | PeerPoint]) -> None:
        """Computes on the CPU what these points need: inputs, references, baselines."""
        for point in points:
            with suppress(Skip):
                if point.kind is Kind.RUNG:
                    self.plan(point)
                if not self.beyond_host_memory(point):
                    baselines = ["baselines"] if self._compares(point) else []
                    self.layer(point).make("x", "w", "reference", "norms", *baselines)

    def memory_budget(self) -> int:
        """Bytes that a point may take on the device: --memory-budget, else the executor's."""
        chosen = self.settings.memory_budget
        return self.executor.memory_budget() if chosen is None else chosen

    def plan(self, point: Point) -> Plan:
        """The point's plan; raises Skip if it cannot run here."""
        bound, transfer = point.bound(self.executor.device), transfer_named(point.transfer)
        if not transfer.served_by(self.executor):
            raise Skip(f"the {self.executor.name} executor has no transfer {transfer.name}")
        if reason := self.beyond_host_memory(point):
            raise Skip(reason)
        budget, copies = self.settings.memory_budget, min(transfer.streams, point.N)
        try:
            return plan_on(self.executor, bound, point.N, budget, copies, transfer.pieces_at_least)
        except DoesNotFit as error:
            raise Skip(str(error)) from None

    def skips(self, point: AnyPoint) -> bool:
        """Whether a layer of the point has no plan here; peers have no plans."""
        try:
            for layer_point in point.points():
                if layer_point.kind is Kind.RUNG:
                    self.plan(layer_point)
        except Skip:
            return True
        return False

    def earlier(self, point: AnyPoint, key: str, previous: Mapping[tuple[str, str], Record]) -> Record | None:
        """The point's record with the same key, failed or not, from earlier ones ``by_key``; None if it is to be run.

        One that was skipped counts while it has no plan: memory that others took may be free now.  One without the
        CPU's times counts where they are not asked for.
        """
        record = previous.get((identity(point.axes()), key))
        if record is None or (record["status"] == "skipped" and not self.skips(point)):
            return None
        lacks_cpu = record["status"] == "ok" and self._compares(point) and not record.get("cpu")
        return None if lacks_cpu else record

    def _compares(self, point: AnyPoint) -> bool:
        """Whether the point's record has the CPU's times."""
        return isinstance(point, Point) and self.times_cpu and point.direction == FORWARD

    def settings_key(self) -> list[object]:
        """The settings that a point's result depends on, with the seconds under load before it is timed again."""
        return [*self.settings.key(), self.executor.sustained]

    def key(self, point: Point) -> str:
        """Digest of all that the point's result depends on: a record with another key is stale."""
        rung, bound = point.entry, point.bound(self.executor.device)
        compiled, launched = self.executor.key(bound), bound.launch_facts(point.N)
        promised = PRECISIONS[rung.precision].facts(point.conv.products(point.N))
        conditions = point.data, rung.precision, point.conv, point.N, bound.atomic_additions(point.N)
        of_data = [] if point.data == UNIFORM else [point.data, astuple(bound_on(*conditions))]
        facts = self.executor.header(), self.settings_key(), self._code(point)
        return digest([compiled, launched, promised, *facts, point.transfer, *of_data])

    def _code(self, point: Point) -> str:
        """Digest of the code that runs and verifies the point: the reference, the data, the checks, the buffers."""
        transfer = transfer_named(point.transfer)
        openers = [transfer.opener(self.executor)] if transfer.served_by(self.executor) else []
        return code_of(type(self), self.executor.open, *openers)

    def record(self, point: Point) -> Record:
        """Runs one point; a fault of the point itself becomes its status, never an exception.

        Raises MachineFault, for which the point is not to blame.
        """
        return attempted(point, self.key(point), lambda: self.measured(point, self.plan(point), self.layer(point)))

    def _exact_images(self, point: Point) -> int:
        """How many of the point's images the exact check takes: all of them.

        On the host executor, which may take hours, fewer of a large batch, and none for one large image, where the max
        error shows every missing tap in every image.
        """
        quick = self.executor.measures or point.conv.macs(point.N) <= QUICK_MACS
        if quick or not PRECISIONS[point.precision].tells_taps(point.conv.products(point.N)):
            return point.N
        return min(point.N, EXACT_IMAGES) if point.N > 1 else 0

    def _exact(self, point: Point, cut: Plan) -> Record:
        """The exact check, on integers in the point's own shape: images checked, and outputs that are not exact.

        It runs twice: with fresh scratch arrays and then, with the images in reverse order, over stale ones.
        """
        rung, images = point.entry, self._exact_images(point)
        if not images:
            return {}
        batch = exact_data(point.conv, images, rung.precision, self.settings.seed)
        first, transfer = first_images(cut, images), transfer_named(point.transfer)
        with open_rung(self.executor, first, batch.images(), batch.w, transfer, batch.bias) as opened:
            wrong = batch.wrong(opened.outputs())
            if rung.scratch and not wrong and (self.executor.measures or images > 1):
                sign = 1 if point.conv.bias or point.conv.relu else -1
                opened.turn(sign)
                wrong = batch.wrong(opened.outputs(stale=True), turned=sign)
        return {"exact": {"images": images, "wrong": wrong}}

    def measured(
        self,
        point: Point,
        cut: Plan,
        layer: Layer,
        ready: Callable[[Values], None] = lambda y: None,
        also: Callable[[OpenedRung], Samples] = lambda opened: {},
    ) -> Record:
        """A point's record on the first images of a layer.

        ``ready`` gets correct outputs before anything is timed; samples from ``also`` replace those of the same name.
        """
        rung, transfer = point.entry, transfer_named(point.transfer)
        exact, promised = self._exact(point, cut), (rung.precision, cut.bound.atomic_additions(point.N))
        with open_rung(self.executor, cut, layer.x[: point.N], layer.w, transfer, layer.bias) as opened:
            outputs = opened.outputs()
            facts: Record = {
                **checked(*layer.check(outputs, *promised), **exact),
                "pieces": len(cut.pieces),
                "images_per_piece": cut.images_per_piece,
                "planned_constants": cut.constants,
                "device_bytes": cut.device_bytes,
                "launches": opened.program.launches(cut.images_per_piece),
            }
            if facts["status"] != "ok":
                return facts
            ready(outputs)
            if not self.times:
                return facts | {"samples": {}}
            if rung.order_varies:
                facts["spread"] = spread(copied(outputs), opened.outputs)
            if self._compares(point):
                facts["cpu"] = layer.cpu_times(point.N)
            facts |= timed(self.executor, opened.buffers.measure, self.settings.seconds)
            facts["samples"] |= rounded(also(opened))
            refuse_impossible(facts["samples"], point.conv.macs(point.N), self.executor.most_flops)
            audited, suspects = opened.buffers.audited()
            for suspect in suspects:
                verdict = checked(*layer.check(opened.in_study_layout(suspect.y), *promised))
                if verdict["status"] != "ok":
                    return facts | verdict | {"samples": {}, "reason": f"{suspect.when}: {verdict['reason']}"}
            timeline = opened.buffers.timeline()
            return facts | ({"audit": audited} if audited else {}) | ({"timeline": timeline} if timeline else {})


def attempted(point: AnyPoint, key: str, measure: Callable[[], Record]) -> Record:
    """The record of a point: the result of ``measure``, or how the point failed."""
    begin = begun(point, key)
    try:
        return begin | measure()
    except Skip as reason:
        return begin | {"status": "skipped", "reason": str(reason)}
    except (CompileError, LaunchError, OutOfMemory, Untrusted) as error:
        return begin | {"status": FAILURES[type(error)], "reason": str(error)}


def timed_out(point: AnyPoint, key: str, limit: float) -> Record:
    """The record of a point that starts now, in case it exceeds ``limit`` seconds."""
    return begun(point, key) | {"status": "timeout", "reason": f"not finished after {limit:g} s"}


def begun(point: AnyPoint, key: str) -> Record:
    """The first fields of the record of a point that starts now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"time": now, "point": point.axes(), "changed": point.changed(), "key": key}


def checked(error: MaxError, tolerance: float, exact: Record | None = None) -> Record:
    """Status, reason and figures of the max-error check and, if there was one, of the exact check."""
    figures = {"absolute": error.absolute, "scaled": error.scaled, "tolerance": tolerance}
    figures |= {} if error.componentwise is None else {"componentwise": error.componentwise}
    facts: Record = {"error": {name: as_json(value) for name, value in figures.items()}}
    facts |= {"exact": exact} if exact else {}
    reasons = []
    if error.misplaced:
        reasons.append(
            f"{error.misplaced} outputs are NaN or infinite where the reference is not, or the other way round"
        )
    if not error.passes(tolerance):
        reasons.append(f"error {error.scaled:.2e} of the norms, tolerance {tolerance:.2e}")
    if exact and exact["wrong"]:
        fault = f"off by more than {exact['within']:.2e} of the norms" if "within" in exact else "not exact"
        reasons.append(f"{exact['wrong']} outputs are {fault} on integers")
    return {"status": "wrong" if reasons else "ok", "reason": "; ".join(reasons) or None, **facts}


def timed(executor: Executor, measure: Callable[[float], Samples], seconds: float) -> Record:
    """Samples, ``seconds`` for each figure, and the clocks before and after; raises Untrusted if settings change."""
    before = executor.health()
    samples = measure(seconds)
    health = [before, executor.health()]
    if changed := executor.changed_settings():
        raise Untrusted(f"settings of the device have changed since the run began: {changed}")
    throttled = any(facts.get("throttle_reasons", 0) & THROTTLES for facts in health)
    return {"samples": rounded(samples), "health": health, "throttled": throttled}


def timed_under_load(
    executor: Any, measure: Callable[[float], Samples], load: Callable[[], object], seconds: float
) -> Record:
    """As ``timed``, with the device's clock and health right after runs of ``load``, the timed work."""
    under_load: Record = {}

    def both(seconds: float) -> Samples:
        samples = measure(seconds)
        under_load.update(executor.under_load([load], samples))
        return samples

    return timed(executor, both, seconds) | {"under_load": under_load}


def rounded(samples: Samples) -> Samples:
    """Samples rounded as records hold them."""
    return {name: [round(value, DIGITS) for value in values] for name, values in samples.items()}


def refuse_impossible(samples: Samples, macs: int, most_flops: float) -> None:
    """Raises Untrusted for a kernel time that the device's peak rate forbids, even with FEWER_PRODUCTS."""
    floor = 1e3 * 2 * macs / FEWER_PRODUCTS / most_flops
    fastest = min((ms for name in ("kernel", "kernel_cold") for ms in samples.get(name, ())), default=floor)
    if fastest < floor:
        raise Untrusted(f"a time of {fastest:.6f} ms is impossible: the device needs at least {floor:.6f} ms")


def spread(first: Values, again: Callable[[], Values]) -> float:
    """Largest difference from the first outputs over REPEATS_FOR_SPREAD more runs."""

    def largest_difference(y: Values) -> float:
        return max(each_block(lambda block: float(np.abs(y[block] - first[block]).max()), first, CHECKED_BYTES))

    return max(largest_difference(again()) for _ in range(REPEATS_FOR_SPREAD))


def as_json(value: float) -> float | str:
    """The value, or its name for NaN and infinity, which JSON lacks."""
    return value if np.isfinite(value) else str(value)
