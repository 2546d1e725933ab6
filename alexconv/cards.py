"""Compiles, checks and predicts rungs for GPUs that are not here.

python -m alexconv.cards --gpu t4,rtx4090 --layers 3 --rungs mma

For a rung on a layer: whether the GPU can run it, or why not; what nvcc makes of it for that GPU (registers, bytes of
local memory to which it spills, shared memory); whether its outputs are right on the CPU, with the GPU's limits,
constants and ``__CUDA_ARCH__``; and the predicted time (docs/predict.md).  Every result becomes a record of type
``card`` in the file of ``--out``; a point that the file has is not done again, unless its code has changed.  Points
whose code is the same on two GPUs are checked once.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

from rich.console import Console

from alexconv.cli import display
from alexconv.cli.point_options import add_constants, add_direction, add_layers, add_rungs, points_of
from alexconv.compiling import nvcc
from alexconv.errors import CompileError, UsageError
from alexconv.executors import choose_executor
from alexconv.executors.interface import Executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.rung import Rung
from alexconv.measuring.runner import Runner, Settings
from alexconv.messages import plural
from alexconv.options import comma_separated, command_line, exits_cleanly, program
from alexconv.own.folders import add_own, ladder_of
from alexconv.planning.points import ConstantSource, Point, parse_constants
from alexconv.predict import cubins, gpu
from alexconv.predict.gpu import Gpu
from alexconv.predict.predictions import KernelCache, PointPrediction, key_of, predict_points
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile, digest
from alexconv.shapes import DIRECTIONS

MODULE = "alexconv.cards"
TYPE = "card"
DEFAULT_OUT = Path("study/cards.jsonl")
GENERATIONS = "t4,a100,rtx3090,rtx4090,h100,b200,rtx5090"  # one of each compute capability
USUAL_LAYER, OTHER_LAYER, USUAL_BATCH, CHECKED_BATCH = 3, 1, 128, 1
RIGHT = "right"
PARTS = ("compile", "check", "predict")


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add(
        "--gpu",
        type=comma_separated,
        default=GENERATIONS,
        metavar="LIST",
        help=f"GPUs: {', '.join(gpu.names())} (default: {GENERATIONS})",
    )
    add_layers(options, USUAL_BATCH)
    add_rungs(options)
    add_direction(options, ",".join(DIRECTIONS))
    add_constants(options)
    add(
        "--parts",
        type=comma_separated,
        default=",".join(PARTS),
        metavar="LIST",
        help=f"what to do besides asking the ladder: {', '.join(PARTS)} (default: all)",
    )
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"record file (default: {DEFAULT_OUT})")
    add_own(options)
    options.set_defaults(layers=None)
    return options


@dataclass
class Checks:
    """Checks outputs on the CPU; code that is the same on two GPUs is checked once."""

    executors: dict[str, Executor] = field(default_factory=dict)
    outcomes: dict[str, str] = field(default_factory=dict)

    def runner(self, point: Point, card: Gpu) -> Runner:
        """What checks a point with a GPU's limits."""
        if card.key not in self.executors:
            self.executors[card.key] = choose_executor("host", host_gpu=card.device)
        return Runner(self.executors[card.key], [point], Settings(baseline=False, timed=False))

    def outcome(self, point: Point, card: Gpu) -> str:
        """``right``, or what is wrong or missing."""
        runner, bound = self.runner(point, card), point.bound(card.device)
        if reason := runner.executor.unsuited(bound.rung):
            return reason
        older = card.capability < (8, 0)  # the host's twins know two kinds of GPU
        name = digest([bound.rung.name, dict(bound.macros), older])
        if name not in self.outcomes:
            record = runner.record(point)
            self.outcomes[name] = RIGHT if record["status"] == "ok" else str(record["reason"] or record["status"])
        return self.outcomes[name]


def needs(bound: BoundRung, card: Gpu) -> list[Record]:
    """What each launch of the rung needs on the GPU, with its occupancy; raises CompileError and MissingTool."""
    arch = nvcc.arch_name(card.capability)
    resources = cubins.needs(nvcc.compile_cubin(bound.rung.path, bound.macros, arch), arch)
    launches = []
    for launch in (*bound.preparation(), *bound.launches(1)):
        need, warps = resources[launch.entry], -(-prod(launch.block) // gpu.WARP)
        resident = card.resident_blocks(prod(launch.block), need.registers, need.static_shared + launch.dynamic_shared)
        launches.append(
            {
                "entry": launch.entry,
                "registers": need.registers,
                "local_bytes": need.local,
                "static_shared_bytes": need.static_shared,
                "dynamic_shared_bytes": launch.dynamic_shared,
                "resident_blocks": resident,
                "occupancy": resident * warps / card["occupancy.warps"],
            }
        )
    return launches


def unsuited(rung: Rung, bound: BoundRung, card: Gpu) -> str | None:
    """Why the GPU cannot run the rung on the layer, or None."""
    return rung.unsuited(card.capability) or bound.refusal()


def entry_of(point: Point, card: Gpu, parts: Sequence[str], checks: Checks, kernels: KernelCache) -> Record:
    """A rung on a layer and a GPU, as a record file holds it."""
    bound = point.bound(card.device)
    record: Record = {"gpu": card.key, "capability": list(card.capability), "point": point.axes()}
    if reason := unsuited(bound.rung, bound, card):
        return record | {"status": "unsuited", "reason": reason}
    record |= {"status": "suited", "reason": None}
    if "compile" in parts:
        try:
            record["launches"] = needs(bound, card)
        except CompileError as error:
            return record | {"status": "compile-error", "reason": str(error)}
        if not all(launch["resident_blocks"] for launch in record["launches"]):
            return record | {"status": "too-large", "reason": "a multiprocessor cannot hold one block"}
    if "check" in parts:
        record["checked"] = checks.outcome(checked(point), card)
    if "predict" in parts:
        record |= predicted(next(predict_points([point], card, kernels)))
    return record


def checked(point: Point) -> Point:
    """The point with the images that are checked."""
    return replace(point, batch=replace(point.batch, N=CHECKED_BATCH))


def predicted(prediction: PointPrediction) -> Record:
    """A prediction's part of a record."""
    if prediction.reason:
        return {"unpredicted": prediction.reason}
    return {"ms": prediction.milliseconds, "band_ms": list(prediction.band())}


def card_points(options: argparse.Namespace, ladder: Ladder) -> Iterator[tuple[Gpu, Point]]:
    """The GPUs' points in the order of the ladder, so that each rung is compiled for all of them in turn.

    Without --layers: of layer 3, and of layer 1 for rungs that no GPU can run on layer 3.
    """
    options.layers = options.layers or f"{USUAL_LAYER},{OTHER_LAYER}"
    usual = options.layers == f"{USUAL_LAYER},{OTHER_LAYER}"
    chosen = parse_constants(options.set, ladder)
    lists = []
    for name in options.gpu.split(","):
        card = gpu.load(name)
        points = points_of(options, ladder, USUAL_BATCH, ConstantSource(chosen, device=card.device))
        lists.append([(card, point) for point in points])
    by_place: dict[tuple[str, int, int], list[tuple[Gpu, Point]]] = {}
    for card, point in (pair for pairs in lists for pair in pairs):
        by_place.setdefault((point.entry.name, point.layer, point.N), []).append((card, point))
    suits = {place: any(map(suited, pairs)) for place, pairs in by_place.items()}
    return (
        pair
        for (name, layer, N), pairs in by_place.items()
        if not (usual and layer == OTHER_LAYER) or (suits[name, layer, N] and not suits[name, USUAL_LAYER, N])
        for pair in pairs
    )


def suited(pair: tuple[Gpu, Point]) -> bool:
    """Whether the GPU can run the point's rung, by the ladder alone."""
    card, point = pair
    bound = point.bound(card.device)
    return unsuited(bound.rung, bound, card) is None


def parts_named(text: str) -> list[str]:
    """The parts of a list, each once, in the order of PARTS; raises UsageError for an unknown one."""
    words = text.split(",")
    if unknown := [word for word in words if word not in PARTS]:
        raise UsageError(f"unknown part '{unknown[0]}': choose from {', '.join(PARTS)}")
    return [part for part in PARTS if part in words]


def name_of(record: Record) -> str:
    """Two records with the same value are about the same GPU and point."""
    return digest([record["gpu"], record["point"]])


def known_records(headers: Iterable[Record]) -> dict[str, Record]:
    """The last record of each GPU and point."""
    return {name_of(header): header for header in headers if header["type"] == TYPE}


def line(record: Record) -> str:
    """One record in words."""
    point = record["point"]
    words = [f"{record['gpu']} {point['workload']} layer {point['layer']} {point['rung']}: {record['status']}"]
    if record["reason"]:
        words.append(record["reason"])
    for launch in record.get("launches", []):
        spilled = f", {launch['local_bytes']} bytes of local memory" if launch["local_bytes"] else ""
        shared = launch["static_shared_bytes"] + launch["dynamic_shared_bytes"]
        words.append(f"{launch['entry']} {launch['registers']} registers{spilled}, {shared} bytes shared")
    if "checked" in record:
        words.append(f"outputs: {record['checked']}")
    if "ms" in record:
        words.append(f"N={point['N']}: {record['ms']:.3g} ms predicted")
    if "unpredicted" in record:
        words.append(f"not predicted: {record['unpredicted']}")
    return "; ".join(words)


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and fills the matrix; returns the exit status, 1 where something is wrong."""
    options = parser().parse_args(arguments)
    console = display.console()
    file = RecordFile(options.out)
    headers = environment.write_headers(
        file, {"gpus": options.gpu.split(",")}, command_line(MODULE, arguments), method="described"
    )
    return fill(console, options, file, headers)


def fill(console: Console, options: argparse.Namespace, file: RecordFile, headers: Record) -> int:
    """Fills what the file lacks, prints a line for each point; returns the exit status."""
    parts = parts_named(options.parts)
    known, checks, kernels = known_records(file.previous.headers.values()), Checks(), KernelCache()
    done, failed = 0, 0
    for card, point in card_points(options, ladder_of(options)):
        checker = [checks.runner(checked(point), card).key(checked(point))] if "check" in parts else []
        code = digest([parts, key_of(point, card), *checker])
        record = known.get(name_of({"gpu": card.key, "point": point.axes()}), {})
        if record.get("code") != code:
            record = entry_of(point, card, parts, checks, kernels) | {"code": code}
            file.header(TYPE, {**record, **headers})
            console.print(line(record), soft_wrap=True)
            done += 1
        failed += record["status"] not in ("suited", "unsuited") or record.get("checked", RIGHT) != RIGHT
    console.print(f"{plural(done, 'point')}, {failed} wrong; records: {file.path}", soft_wrap=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
