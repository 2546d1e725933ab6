"""Counters of kernels: Nsight Compute's, or those of a trace on the CPU.

python -m alexconv.profile --rungs all --layers 2 --N 128
python -m alexconv.profile --backend host --rungs tiled --layers 2 --lines
python -m alexconv.profile --rungs wgmma-split --peers torch-nchw-fp32 --layers 3 --N 128
python -m alexconv.profile --compare GPU.jsonl HOST.jsonl

On a GPU each rung's kernels are launched once after a warm-up, over the point's first piece.  Where Nsight Compute is
missing or not permitted to read the counters, what compiler and driver report is shown instead.  On the CPU a few
blocks of each kernel are traced; the exit status is 1 if a race is found.

Every kernel becomes a record of type ``profile``: ``point`` (its axes), ``entry``, ``source`` (``ncu``, ``driver`` or
``host``), ``images`` (computed), ``metrics`` (numbers by name), and from the host ``races`` and ``lines``.
Names of metrics are the same from all sources: ``docs/profile.md`` explains them.  Throughputs, rates, efficiencies,
occupancies and shares are in percent.

With ``--peers`` another library's kernels are counted too, and each point becomes one record of type ``timeline``:
when each of its kernels ran in a hot run, its grid and its counters, ``metrics``.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from rich.progress import track

from alexconv.cli import display
from alexconv.cli.point_options import add_constants, add_layers, add_rungs, points_of
from alexconv.errors import UsageError
from alexconv.executors import backends, choose_executor
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.interface import Executor
from alexconv.measuring.ahead import compile_all
from alexconv.measuring.peers import PEERS, library_of, names_in, peer_points, peers_named
from alexconv.measuring.runner import Runner, Settings
from alexconv.measuring.torch_peers import TorchRunner, import_torch
from alexconv.messages import plural
from alexconv.options import command_line, exits_cleanly, natural, program
from alexconv.own.folders import add_own, ladder_of
from alexconv.planning.points import ConstantSource, PeerPoint, Point, parse_constants
from alexconv.profile.gpu import Opener, counted_if_possible, cuda_profiles, launch_once
from alexconv.profile.host import host_profiles
from alexconv.profile.ncu import metrics_of
from alexconv.profile.tables import show, show_timelines
from alexconv.profile.timeline import Timeline, Tracer, timelines
from alexconv.records import environment
from alexconv.records.profiles import comparison
from alexconv.records.store import RecordFile, identity

MODULE = "alexconv.profile"
DEFAULT_OUT = Path("study/profile.jsonl")
TRIES = 3  # of counting a library's kernels again, until it chooses the engine that was timed
DEFAULT_BLOCKS = 3  # first, middle, last


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add_layers(options)
    add_rungs(options)
    add_constants(options)
    add("--backend", default="auto", choices=backends(), help="auto: the GPU if there is one, else the host trace")
    add("--device", type=natural, default=0, help="CUDA device ordinal (default: 0)")
    add(
        "--blocks",
        type=int,
        default=DEFAULT_BLOCKS,
        metavar="K",
        help=f"host: blocks traced, spread over the grid (default: {DEFAULT_BLOCKS})",
    )
    add("--lines", action="store_true", help="host: show each source line's accesses")
    add("--peers", type=peers_named, metavar="LIST", help="torch, cudnn or their peers: kernels of both, with times")
    add("--out", type=Path, default=DEFAULT_OUT, metavar="FILE", help=f"record file (default: {DEFAULT_OUT})")
    add(
        "--compare",
        nargs=2,
        type=Path,
        metavar=("GPU", "HOST"),
        help="print counters of two record files side by side, in Markdown",
    )
    add(
        "--child", type=Path, help=argparse.SUPPRESS
    )  # what Nsight Compute runs; FILE names points and gets the kernels' order
    add_own(options)
    return options


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Parses the command line and profiles; returns the exit status."""
    options = parser().parse_args(arguments)
    ladder = ladder_of(options)
    if options.compare:
        print("\n".join(comparison(*options.compare)))
        return 0
    if options.blocks < 1:
        raise UsageError(f"--blocks must be 1 or more, not {options.blocks}")
    executor = choose_executor(options.backend, options.device, "trace")
    source = ConstantSource(parse_constants(options.set, ladder), device=executor.device)
    points = points_of(options, ladder, executor.usual_batch, source)
    opener, peers = opener_of(options, executor, points)
    if options.child:
        wanted = json.loads(options.child.read_text())
        every: list[Point | PeerPoint] = [*points, *peers]
        chosen = [point for point in every if identity(point.axes()) in wanted]
        options.child.write_text(json.dumps(launch_once(opener, chosen)))
        return 0
    console = display.console()
    console.print(f"backend {executor.name}: {executor.describe()}", soft_wrap=True)
    file = RecordFile(options.out)
    headers = environment.write_headers(file, executor.header(), command_line(MODULE, arguments))
    compile_all(opener.runner, points)
    words = sys.argv[1:] if arguments is None else arguments
    if peers:
        lines = compared(opener, points, peers, words)
        for line in lines:
            file.header("timeline", {**line.record(), **headers})
        show_timelines(console, lines)
        console.print(f"{plural(len(lines), 'timeline')}; records: {options.out}", soft_wrap=True)
        return 0 if lines else 1
    if not executor.measures:
        errors = display.console(stderr=True)
        tracked = track(points, "tracing", console=errors, transient=True, disable=not errors.is_terminal)
        profiles = list(host_profiles(opener.runner, tracked, options.blocks))
    else:
        profiles = cuda_profiles(opener.runner, points, words)
    for profile in profiles:
        file.header("profile", {**profile.record(), **headers})
    show(console, profiles, lines=options.lines)
    console.print(f"{plural(len(profiles), 'kernel')}; records: {options.out}", soft_wrap=True)
    return 1 if not profiles or any(profile.trace and profile.trace.races for profile in profiles) else 0


def opener_of(
    options: argparse.Namespace, executor: Executor, points: Sequence[Point]
) -> tuple[Opener, list[PeerPoint]]:
    """What opens points, and the points of --peers; raises UsageError, MissingTool."""
    settings = Settings(baseline=False)
    if not options.peers:
        return Opener(Runner(executor, points, settings)), []
    library = PEERS[library_of(options.peers)]
    recorder_of = library.load(executor)
    chosen = [peer for peer in library.chosen(names_in(options.peers), ()) if not peer.is_product]
    peers = peer_points(points, chosen)
    runner = Runner(executor, [*points, *peers], settings)
    return Opener(runner, cast(TorchRunner, recorder_of(runner))), peers


def compared(
    opener: Opener, points: Sequence[Point], peers: Sequence[PeerPoint], words: Sequence[str]
) -> list[Timeline]:
    """The timelines of rungs and peers, with counters as far as Nsight Compute sees the same kernels."""
    executor = cast(CudaExecutor, opener.runner.executor)
    every: list[Point | PeerPoint] = [*points, *peers]
    names = metrics_of(executor.device.capability)
    profiles = counted_if_possible(every, words, names)
    tracer = Tracer(import_torch(executor), executor)
    lines = [line.counted(profiles) for line in timelines(opener, tracer, every)]
    for _ in range(TRIES):
        others = [line.point for line in lines if not line.has_counters]
        if profiles and others:
            profiles = counted_if_possible(others, words, names)
            lines = [line if line.has_counters else line.counted(profiles) for line in lines]
    return lines


if __name__ == "__main__":
    sys.exit(main())
