"""What the kernels do to the machine: Nsight Compute's counters on a GPU, a trace of memory accesses on the CPU.

python -m alexconv.profile --rungs all --layers 2 --N 128
python -m alexconv.profile --backend host --rungs tiled --layers 2 --lines
python -m alexconv.profile --compare GPU.jsonl HOST.jsonl

On a GPU each rung's kernels are launched once after a warm-up, over the point's first piece.  Where Nsight Compute is
missing or may not read the counters, what the compiler and the driver know is given instead.  On the CPU a few blocks
of each kernel are traced; a race that is found makes the exit status 1.

Every kernel becomes a record of type ``profile``: ``point`` (its axes), ``entry``, ``source`` (``ncu``, ``driver`` or
``host``), ``images`` (that were computed), ``metrics`` (numbers by name), and from the host ``races`` and ``lines``.
Names of metrics are the same from all sources: ``docs/profile.md`` explains them.  Throughputs, rates, efficiencies,
occupancies and shares are in percent.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Column, Table

from alexconv.cli import display
from alexconv.cli.options import (
    comma_separated,
    command_line,
    exits_cleanly,
    natural,
    parse_batches,
    parse_layers,
    program,
    workload_named,
)
from alexconv.errors import CompileError, LaunchError, OutOfMemory, UsageError
from alexconv.executors import backends, choose_executor
from alexconv.executors.cuda.buffers import CopiedBuffers
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.host.buffers import HostBuffers, HostProgram, HostRungs
from alexconv.executors.interface import open_rung
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring.ahead import compile_all
from alexconv.measuring.planner import Plan
from alexconv.measuring.points import (
    Point,
    choose_rungs,
    choose_transfers,
    expand,
    parse_constants,
    refuse_unused,
    rung_label,
)
from alexconv.measuring.runner import Runner, Settings, Skip
from alexconv.measuring.transfers import transfer_named
from alexconv.profiling import ncu
from alexconv.profiling.trace import Trace, spread_blocks, trace_launch
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile, identity, read
from alexconv.shapes import WORKLOADS

MODULE = "alexconv.profile"
DEFAULT_OUT = Path("study/profile.jsonl")
DEFAULT_BLOCKS = 3  # first, middle, last
FILE_WIDTH = 160  # columns, where no terminal says how many there are
ACCESSES = tuple((space, operation) for space in ("global", "shared") for operation in ("load", "store", "atomic"))
TRANSACTIONS = {"global": "sectors", "shared": "wavefronts"}
COMPARED = (
    *("global_load_sectors_per_request", "global_store_sectors_per_request"),
    *("shared_load_wavefronts_per_request", "shared_store_wavefronts_per_request"),
)
SHOWN = {
    "ncu": {
        "duration_ns": "ns",
        "share": "share %",
        "achieved_occupancy": "occupancy %",
        "warp_execution_efficiency": "warp %",
        "branch_efficiency": "branch %",
        "global_load_sectors_per_request": "sectors per load",
        "shared_load_wavefronts_per_request": "wavefronts per load",
        "dram_throughput": "DRAM %",
        "l2_throughput": "L2 %",
        "l1_throughput": "L1 %",
        "sm_throughput": "SM %",
        "registers": "registers",
    },
    "driver": {
        "registers": "registers",
        "static_shared_bytes": "static shared",
        "dynamic_shared_bytes": "dynamic shared",
        "local_bytes": "local",
        "theoretical_occupancy": "occupancy %",
    },
    "host": {
        "active_lanes": "lanes",
        **{name: name.replace("_", " ") for name in COMPARED},
        "global_load_efficiency": "load efficiency %",
        "races": "races",
    },
}


def say(line: str) -> None:
    """One line on standard error."""
    print(line, file=sys.stderr)


@dataclass(frozen=True)
class Profile:
    """What one kernel of a point did."""

    point: Point
    entry: str
    source: str
    images: int
    metrics: ncu.Metrics
    trace: Trace | None = None

    def record(self) -> Record:
        """The profile as a record file holds it."""
        found: Record = {
            "point": self.point.axes(),
            "entry": self.entry,
            "source": self.source,
            "images": self.images,
            "metrics": self.metrics,
        }
        if self.trace:
            found["races"] = [str(race) for race in self.trace.races]
            found["lines"] = [asdict(line) for line in self.trace.lines]
        return found


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--workload", default="alexnet", help=f"the network: {', '.join(WORKLOADS)} (default: alexnet)")
    add("--layers", default="all", help="layers, as in 1-5 or 1,3 (default: all)")
    add("--N", type=comma_separated, help="batch sizes, as in 1,32,128 (default: 128 on a GPU, 1 on the host)")
    add("--rungs", default="all", help="rungs by name, study abbreviation or family (default: all)")
    add("--set", action="append", default=[], metavar="NAME=V1,V2", help="values of a rung's constant; repeatable")
    add("--backend", default="auto", choices=backends(), help="auto: the GPU if there is one, else the host trace")
    add("--device", type=natural, default=0, help="number of the GPU (default: 0)")
    add(
        "--blocks", type=int, default=DEFAULT_BLOCKS, metavar="K", help="host: blocks traced, evenly from first to last"
    )
    add("--lines", action="store_true", help="host: show each source line's accesses")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"record file (default: {DEFAULT_OUT})")
    add("--compare", nargs=2, type=Path, metavar=("GPU", "HOST"), help="two record files side by side, in Markdown")
    add("--child", type=Path, help=argparse.SUPPRESS)  # what Nsight Compute runs; FILE gets the kernels' order
    return options


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and profiles; returns the exit status."""
    options = parser().parse_args(arguments)
    if options.compare:
        print("\n".join(comparison(*options.compare)))
        return 0
    if options.blocks < 1:
        raise UsageError(f"--blocks is 1 or more, not {options.blocks}")
    executor = choose_executor(options.backend, options.device, "trace")
    points = points_asked_for(options, executor.usual_batch)
    runner = Runner(executor, points, Settings(baseline=False))
    if options.child:
        options.child.write_text(json.dumps(launch_once(runner, points)))
        return 0
    console = display.console()
    if not console.is_terminal:
        console.width = FILE_WIDTH
    console.print(f"backend {executor.name}: {executor.describe()}", soft_wrap=True, markup=False)
    file = RecordFile(options.out)
    headers = environment.write_headers(file, executor.header(), command_line(MODULE, arguments))
    compile_all(runner, points)
    if not executor.measures:
        profiles = list(host_profiles(runner, points, options.blocks))
    else:
        profiles = cuda_profiles(runner, points, sys.argv[1:] if arguments is None else arguments)
    for profile in profiles:
        file.header("profile", {**profile.record(), **headers})
    show(console, profiles, lines=options.lines)
    console.print(f"{len(profiles)} kernels; records: {options.out}", soft_wrap=True)
    return 1 if any(profile.trace and profile.trace.races for profile in profiles) else 0


def points_asked_for(options: argparse.Namespace, usual_batch: int) -> list[Point]:
    """The points of a command line; raises UsageError."""
    workload, constants = workload_named(options.workload), parse_constants(options.set)
    points = expand(
        workload.name,
        parse_layers(options.layers, workload),
        parse_batches(options.N or str(usual_batch)),
        choose_rungs(options.rungs),
        choose_transfers("pageable"),
        constants,
    )
    refuse_unused(constants, points)
    return points


# ---- On a GPU --------------------------------------------------------------------------------------------------------


def cuda_profiles(runner: Runner, points: Sequence[Point], words: Sequence[str]) -> list[Profile]:
    """Nsight Compute's counters for every kernel, or what is known without them."""
    try:
        return counted(points, words)
    except ncu.NoCounters as reason:
        say(f"no counters: {reason}")
        say("registers, shared memory and theoretical occupancy are given instead")
        return list(known_without_counters(runner, points))


def counted(points: Sequence[Point], words: Sequence[str]) -> list[Profile]:
    """Runs this command again under Nsight Compute; raises NoCounters, LaunchError."""
    profiler = ncu.find_ncu()
    by_identity = {identity(point.axes()): point for point in points}
    with tempfile.TemporaryDirectory(prefix="alexconv-profile-") as folder:
        manifest = Path(folder) / "launched.json"
        child = ["-m", "alexconv.profile", *words, "--backend", "cuda", "--child", str(manifest)]
        kernels = ncu.profile(profiler, [sys.executable, *child])
        launched = json.loads(manifest.read_text())
    for problem in launched["problems"]:
        say(problem)
    if [entry["entry"] for entry in launched["kernels"]] != [kernel.entry for kernel in kernels]:
        raise LaunchError(f"Nsight Compute saw {len(kernels)} kernels, but {len(launched['kernels'])} were launched")
    times: dict[str, float] = defaultdict(float)
    for entry, kernel in zip(launched["kernels"], kernels, strict=True):
        times[entry["point"]] += kernel.metrics.get("duration_ns", 0.0)
    profiles = []
    for entry, kernel in zip(launched["kernels"], kernels, strict=True):
        metrics = kernel.metrics
        if duration := metrics.get("duration_ns"):
            metrics = metrics | {"share": 100 * duration / times[entry["point"]]}
        profiles.append(Profile(by_identity[entry["point"]], kernel.entry, "ncu", entry["images"], metrics))
    return profiles


def launch_once(runner: Runner, points: Sequence[Point]) -> Record:
    """Launches each point's kernels once between the profiler's marks; says which, and what could not be launched."""
    executor = runner.executor
    assert isinstance(executor, CudaExecutor)
    kernels: list[Record] = []
    problems: list[str] = []
    for point in points:
        with told(point, problems.append):
            plan = runner.plan(point)
            rung, layer, transfer = RUNGS[point.rung], runner.layer(point), transfer_named(point.transfer)
            with open_rung(executor, plan, layer.x[: point.N], layer.w, transfer) as opened:
                copied, images = opened.buffers, plan.bound.micro_batch(plan.chunk)
                assert isinstance(copied, CopiedBuffers)
                copied.outputs()
                with executor.errors(rung.name):
                    executor.driver.start_profiler()
                    copied.program.enqueue(images, copied.pointers, copied.stream)
                    copied.stream.synchronize()
                    executor.driver.stop_profiler()
            name = identity(point.axes())
            entries = [launch.entry for launch in rung.launches]
            kernels += [{"point": name, "entry": entry, "images": images} for entry in entries]
    return {"kernels": kernels, "problems": problems}


def known_without_counters(runner: Runner, points: Iterable[Point]) -> Iterator[Profile]:
    """What the compiler allotted to every kernel, and the occupancy that follows."""
    for point in points:
        with told(point):
            plan = runner.plan(point)
            images = plan.bound.micro_batch(plan.chunk)
            program = runner.executor.load(plan.bound)
            for launch in program.launches(plan.chunk):
                metrics = {
                    "registers": launch["registers"],
                    "static_shared_bytes": launch["static_shared"],
                    "dynamic_shared_bytes": launch["dynamic_shared"],
                    "local_bytes": launch["local"],
                }
                if launch["occupancy"] is not None:
                    metrics["theoretical_occupancy"] = 100 * launch["occupancy"]
                yield Profile(point, launch["entry"], "driver", images, metrics)


# ---- On the host -----------------------------------------------------------------------------------------------------


def host_profiles(runner: Runner, points: Sequence[Point], blocks: int) -> Iterator[Profile]:
    """Traces so many blocks of every kernel, with a bar on a terminal."""
    errors = display.console(stderr=True)
    for point in track(points, "tracing", console=errors, transient=True, disable=not errors.is_terminal):
        with told(point):
            plan = runner.plan(point)
            images = plan.bound.micro_batch(plan.chunk)
            for entry, found in trace_point(runner.executor, point, plan, blocks):
                yield Profile(point, entry, "host", images, trace_metrics(found), found)


def trace_point(executor: object, point: Point, plan: Plan, blocks: int) -> Iterator[tuple[str, Trace]]:
    """The traces of a point's kernels, by entry.  The inputs are zeros: what a kernel touches depends on none."""
    assert isinstance(executor, HostRungs)
    rung, conv = RUNGS[point.rung], point.conv
    program: HostProgram = executor.load(plan.bound)
    x, w = (np.zeros(shape, rung.dtype) for shape in (rung.x_shape(conv, plan.chunk), conv.w_shape()))
    opened = HostBuffers(executor.executor, program, plan, x, w)
    opened.bring_in(0, plan.chunk)
    buffers = opened.buffers
    named = program.arguments(0, plan.bound.micro_batch(plan.chunk), buffers)
    for launch in plan.bound.launches(plan.chunk):
        arguments = [named[name] for name in launch.args]
        chosen = spread_blocks(launch.grid, blocks)
        yield launch.entry, trace_launch(program.module, launch, arguments, buffers.values(), chosen)


def trace_metrics(found: Trace) -> ncu.Metrics:
    """A trace's figures over all lines, under the names that Nsight Compute's have."""
    metrics: ncu.Metrics = {"blocks": found.blocks, "active_lanes": found.active_lanes, "races": len(found.races)}
    for space, operation in ACCESSES:
        total = found.total(space, operation)
        if total is None:
            continue
        kind, unit = f"{space}_{operation}", TRANSACTIONS[space]
        metrics[f"{kind}_requests"] = total.requests
        metrics[f"{kind}_{unit}"] = total.transactions
        metrics[f"{kind}_{unit}_per_request"] = total.per_request
        if space == "global":
            metrics[f"{kind}_efficiency"] = total.efficiency
    return ncu.complete(metrics)


# ---- What is shown ---------------------------------------------------------------------------------------------------


@contextmanager
def told(point: Point, say: Callable[[str], None] = say) -> Iterator[None]:
    """Says why a point has no profile, and goes on."""
    try:
        yield
    except (Skip, CompileError, LaunchError, OutOfMemory) as reason:
        say(f"{point.label()}: {reason}")


def show(console: Console, profiles: Sequence[Profile], *, lines: bool) -> None:
    """Tables per source, workload, layer and N; races; with ``lines`` the source lines of every traced kernel."""
    groups: dict[tuple[str, str, int, int], list[Profile]] = defaultdict(list)
    for profile in profiles:
        point = profile.point
        groups[profile.source, point.workload, point.layer, point.N].append(profile)
    for (source, workload, layer, N), group in groups.items():
        console.print(profile_table(f"{workload}, layer {layer}, N={N} ({source})", source, group))
    for profile in profiles:
        if profile.trace and lines:
            console.print(line_table(f"{profile.point.label()}: {profile.entry}", profile.trace))
        for race in profile.trace.races if profile.trace else ():
            console.print(f"race in {profile.entry} of {profile.point.label()}: {race}", soft_wrap=True, markup=False)


def profile_table(title: str, source: str, profiles: Iterable[Profile]) -> Table:
    """A row per kernel, a column per figure that the source has."""
    shown = SHOWN[source]
    table = Table(Column("rung", no_wrap=True), Column("kernel", no_wrap=True), *shown.values(), title=title)
    for profile in profiles:
        point = profile.point
        label = rung_label(point.rung, point.constants, point.conv).replace("[", r"\[")
        table.add_row(label, profile.entry, *(figure(profile.metrics.get(name)) for name in shown))
    return table


def line_table(title: str, found: Trace) -> Table:
    """A row per source line and kind of access."""
    columns = ("access", "bytes", "requests", "lanes per request", "sectors or wavefronts per request", "efficiency %")
    table = Table(Column("line", no_wrap=True), *columns, title=title.replace("[", r"\["))
    for line in found.lines:
        efficiency = figure(line.efficiency) if line.space == "global" else "-"
        access = f"{line.space} {line.operation}"
        numbers = (figure(line.requests), figure(line.lanes_per_request), figure(line.per_request), efficiency)
        table.add_row(str(line.place), access, str(line.bytes), *numbers)
    return table


def figure(value: float | None) -> str:
    """A whole number as it is, others with two decimals; a dash for none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def comparison(gpu: Path, host: Path) -> Iterator[str]:
    """Lines of a Markdown table: every kernel that both record files have, traced on the host and counted on a GPU."""
    found = {source: latest_profiles(path, source) for path, source in ((gpu, "ncu"), (host, "host"))}
    names = [f"{name.replace('_', ' ')}, {what}" for name in COMPARED for what in ("host", "ncu", "ratio")]
    yield "| workload | layer | rung | kernel | " + " | ".join(names) + " |"
    yield "|---" * (4 + len(names)) + "|"
    for key, traced in found["host"].items():
        if key not in found["ncu"]:
            continue
        cells: list[str] = []
        for name in COMPARED:
            ours, theirs = traced["metrics"].get(name), found["ncu"][key]["metrics"].get(name)
            cells += [figure(ours), figure(theirs), figure(ours / theirs) if ours and theirs else "-"]
        point = traced["point"]
        label = [point["workload"], str(point["layer"]), point["rung"], traced["entry"]]
        yield "| " + " | ".join([*label, *cells]) + " |"


def latest_profiles(path: Path, source: str) -> dict[tuple[object, ...], Record]:
    """The last profile of each kernel of a record file, by what a batch size does not change; raises UsageError."""
    profiles = [header for header in read([path]).headers.values() if header["type"] == "profile"]
    found: dict[tuple[object, ...], Record] = {}
    for profile in profiles:
        if profile["source"] == source:
            point = profile["point"]
            constants = tuple(sorted(point["constants"].items()))
            found[point["workload"], point["layer"], point["rung"], constants, profile["entry"]] = profile
    if not found:
        raise UsageError(f"{path} has no profiles from {source}")
    return found


if __name__ == "__main__":
    sys.exit(main())
