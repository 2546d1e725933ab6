"""Predicted times of whole networks, for ``alexconv predict --network``.

A network is planned for a described GPU as ``alexconv run --network`` plans it there, except that no tuning of a
reader's is known; each stage's kernels are predicted as those of any rung are.  In the network a stage's first kernel
follows another in the same graph, and has that overhead in place of a graph's first one.
"""

import argparse
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import fsum

from rich.console import Console
from rich.table import Column, Table

from alexconv.code import code_of
from alexconv.errors import CompileError, UsageError
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.rung import Rung
from alexconv.networks.command import points_of
from alexconv.networks.plan import AUTO, MEASURED, NetworkPlan, NetworkPoint, Step, plan_network
from alexconv.networks.schedules import fastest_apart, is_linear
from alexconv.planning.planner import DoesNotFit
from alexconv.predict import model
from alexconv.predict.disassembly import UnknownInstruction
from alexconv.predict.gpu import Gpu
from alexconv.predict.predictions import dependencies, launch_record
from alexconv.records.store import Record, digest

Kernels = Callable[[BoundRung, Gpu], Mapping[str, model.Kernel]]


class Described(HostExecutor):
    """A described GPU, as far as plans need one: with its limits and its memory, and no tuning of this machine's."""

    measures = True  # the GPU would

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(device=gpu.device)
        self._memory = gpu.memory_bytes

    def header(self) -> Record:
        """Facts that no measurement has."""
        return {"backend": "described", "name": self.device.name}

    def unsuited(self, rung: Rung) -> str | None:
        """Why the GPU cannot run the rung, or None."""
        return rung.unsuited(self.device.capability)

    def memory_budget(self) -> int:
        """All of its memory."""
        return self._memory


@dataclass(frozen=True)
class StagePrediction:
    """A stage's launches and the seconds before its first one in the network, or why it is refused."""

    step: Step
    launches: tuple[model.Prediction, ...] = ()
    gap: float = 0.0
    reason: str | None = None

    @property
    def kind(self) -> str:
        """What the stage is: a convolution, a linear layer, or another by its rung's kind."""
        stage = self.step.stage
        return ("linear" if is_linear(stage) else "convolution") if stage.kind == "product" else stage.kind

    @property
    def alone(self) -> float:
        """Milliseconds of the stage in a graph of its own."""
        return 1e3 * fsum(launch.seconds for launch in self.launches)

    @property
    def within(self) -> float:
        """Milliseconds of the stage in the network's graph."""
        return self.alone + 1e3 * (self.gap - self.launches[0].overhead) if self.launches else 0.0

    def record(self) -> Record:
        """The stage as a record holds it."""
        bound = self.step.bound
        facts: Record = {"stage": self.step.stage.name, "kind": self.kind, "rung": bound.rung.name}
        facts["constants"] = dict(bound.constants)
        if self.reason:
            return {**facts, "reason": self.reason}
        launches = [launch_record(launch) for launch in self.launches]
        return {**facts, "ms": self.alone, "ms_in_network": self.within, "launches": launches}


def predicted_points(options: argparse.Namespace, ladder: Ladder, executor: Described) -> list[NetworkPoint]:
    """The points of a command line; raises UsageError."""
    rungs = AUTO if options.rungs == "all" else options.rungs
    if MEASURED in rungs.split(","):
        raise UsageError(f"--rungs {MEASURED} needs the GPU: predictions take {AUTO} or a rung by name")
    chosen = argparse.Namespace(
        **{**vars(options), "rungs": rungs, "peers": None, "schedule": options.schedule or "dependent"}
    )
    points = points_of(chosen, ladder, executor)
    if not options.schedule:
        points = [
            replace(point, schedule=fastest_apart(point.network.stages, point.N, point.precision)) for point in points
        ]
    if unknown := [point.schedule.name for point in points if not point.schedule.graph or point.schedule.persistent]:
        raise UsageError(
            f"no prediction of the schedule {unknown[0]}: the model has the overheads of kernels in a graph, "
            "and no blocks that wait for others"
        )
    return points


def planned(point: NetworkPoint, executor: Described, ladder: Ladder) -> NetworkPlan:
    """The point's plan, without weights; raises DoesNotFit, also where the batch is several pieces."""
    nothing = (None,) * len(point.network.stages)
    plan = plan_network(executor, point, nothing, ladder=ladder)
    if len(plan.pieces) > 1:
        raise DoesNotFit(f"{point.N} images are {len(plan.pieces)} pieces on {executor.device.name}: predict fewer")
    return plan


def predict_stages(plan: NetworkPlan, gpu: Gpu, kernels: Kernels) -> Iterator[StagePrediction]:
    """Each stage's launches; one that the model cannot follow is refused, with the reason.  Raises MissingTool."""
    for number, step in enumerate(plan.steps):
        try:
            launches = tuple(model.predict(step.bound, kernels(step.bound, gpu), plan.point.N, gpu))
        except (UnknownInstruction, CompileError) as error:
            yield StagePrediction(step, reason=str(error))
            continue
        depends = plan.point.schedule.dependent and step.bound.launches(plan.point.N)[0].pdl
        follows = ("dependent" if depends else "next") if number else "first"
        yield StagePrediction(step, launches, gpu[f"launch.{follows}_seconds"])


def network_record(point: NetworkPoint, gpu: Gpu, stages: Iterable[StagePrediction]) -> Record:
    """The prediction of a network as a record file holds it; refused where a stage is."""
    predictions = list(stages)
    record: Record = {"axes": point.axes(), "gpu": gpu.key, "status": "ok"}
    record["stages"] = [stage.record() for stage in predictions]
    if refused := [stage.step.stage.name for stage in predictions if stage.reason]:
        return {**record, "status": "refused", "reason": f"no prediction of {', '.join(refused)}"}
    return {**record, "ms": fsum(stage.within for stage in predictions)}


def key_of(plan: NetworkPlan, gpu: Gpu) -> str:
    """Digest of all that a network's prediction depends on: its plan, and each stage's kernels and model."""
    point = plan.point
    stages = [
        [step.stage.name, dict(step.bound.constants), *dependencies(step.bound, point.N, gpu)] for step in plan.steps
    ]
    return digest([point.axes(), stages, code_of(predict_networks)])


def predict_networks(
    points: Iterable[NetworkPoint],
    gpu: Gpu,
    executor: Described,
    ladder: Ladder,
    kernels: Kernels,
    known: Collection[str] = (),
) -> Iterator[Record]:
    """A record for each network whose ``code`` is not known."""
    for point in points:
        plan: NetworkPlan | None = None
        record: Record = {"axes": point.axes(), "gpu": gpu.key, "status": "refused", "stages": []}
        try:
            plan = planned(point, executor, ladder)
        except DoesNotFit as reason:
            record["reason"] = str(reason)
        code = key_of(plan, gpu) if plan else digest(record)
        if code in known:
            continue
        if plan:
            record = network_record(point, gpu, predict_stages(plan, gpu, kernels))
        yield {**record, "code": code}


def show_network(console: Console, record: Record, gpu: Gpu) -> None:
    """A line for each stage of a network's prediction, and their sum."""
    label = " ".join(f"{name}={value}" for name, value in record["axes"].items())
    table = Table(
        Column("stage", no_wrap=True),
        Column("rung", no_wrap=True),
        *(Column(name, justify="right") for name in ("alone, µs", "in the network, µs")),
        "limit",
        title=f"{label} on {gpu.name}, predicted",
    )
    for stage in record["stages"]:
        if "reason" in stage:
            table.add_row(stage["stage"], stage["rung"], "-", "-", f"refused: {stage['reason']}")
            continue
        longest = max(stage["launches"], key=lambda launch: launch["ms"])
        times = (f"{1e3 * stage[name]:.1f}" for name in ("ms", "ms_in_network"))
        table.add_row(stage["stage"], stage["rung"], *times, longest["limit"])
    table.add_section()
    table.add_row("sum", "", "", f"{1e3 * record['ms']:.1f}" if "ms" in record else "-", record.get("reason", ""))
    console.print(table)
