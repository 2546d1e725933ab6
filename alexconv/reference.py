"""Builds or checks the cache of reference outputs."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from time import perf_counter
from uuid import uuid4

from alexconv.cli.display import Progress
from alexconv.cluster.connection import connected
from alexconv.cluster.pool import Pool
from alexconv.cluster.reference import compute
from alexconv.cluster.worker import Request
from alexconv.cpu_reference.cache import CachedReference, LayerData, ensure
from alexconv.errors import UsageError
from alexconv.machine import dgemm_flops
from alexconv.options import exits_cleanly, natural, program
from alexconv.planning.points import ALL_LAYERS, parse_batches, parse_layers, workload_named
from alexconv.shapes import WORKLOADS, Workload

HOST = "host"  # the executor of workers that need no GPU
_IMAGES_PER_READ = 32


@dataclass(frozen=True)
class _Outcome:
    """What was done for a layer: the images computed (the others were in the cache) and the time it took."""

    layer: str
    computed: int
    seconds: float
    convolution_s: float
    flop: int
    file_bytes: int | None = None  # on this machine


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program("alexconv.reference"), description=__doc__)
    parser.add_argument(
        "--layers", default=ALL_LAYERS, metavar="LIST", help="layers, such as 1-5 or 1,3 (default: all)"
    )
    parser.add_argument(
        "--N", default="128", metavar="LIST", help="images; the largest of several batch sizes (default: 128)"
    )
    parser.add_argument(
        "--workload", default="alexnet", metavar="NAME", help=f"{', '.join(WORKLOADS)} (default: alexnet)"
    )
    parser.add_argument("--seed", type=natural, default=0, help="seed of inputs and filters (default: 0)")
    parser.add_argument(
        "--cluster", metavar="WHERE", help="compute blocks of images on Dask workers, as in alexconv run"
    )
    parser.add_argument("--check", action="store_true", help="read every output back and verify its checksum")
    return parser


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the cache of the layers asked for and prints what it took; returns the exit status."""
    options = _parser().parse_args(arguments)
    workload = workload_named(options.workload)
    layers = parse_layers(options.layers, workload)
    N = max(parse_batches(options.N))
    if options.cluster:
        _print_table(_over_workers(options, workload, layers, N), N)
        return 0
    outcomes: list[_Outcome] = []
    with Progress(N * len(layers)) as progress:
        for layer in layers:
            of = LayerData(workload.name, layer, workload.layer(layer), options.seed)
            outcomes.append(_build(of, N, progress, N * len(outcomes), check=options.check))
    _print_table(outcomes, N)
    return 0


def _over_workers(options: argparse.Namespace, workload: Workload, layers: Sequence[int], N: int) -> list[_Outcome]:
    """Builds the layers in the caches of a cluster's workers; an outcome for each, with the seconds of all workers."""
    if options.check:
        raise UsageError("--check: not with --cluster")
    places = [(LayerData(workload.name, layer, workload.layer(layer), options.seed), N) for layer in layers]
    with (
        Progress(0) as progress,
        connected(options.cluster, HOST) as client,
        Pool(client, Request(f"alexconv-{uuid4().hex}", "", backend=HOST), progress.say) as pool,
    ):
        outcomes = compute(pool, places, progress)
    return [
        _Outcome(
            str(layer), done.images, done.convolution_s, done.convolution_s, 2 * workload.layer(layer).macs(done.images)
        )
        for layer, done in zip(layers, outcomes, strict=True)
    ]


def _build(of: LayerData, N: int, progress: Progress, before: int, *, check: bool) -> _Outcome:
    """Builds a layer; ``before`` counts the images of earlier layers."""
    progress.start(f"{of.workload} layer {of.layer}")
    start = perf_counter()
    cached = ensure(of, N, progress=lambda done, total: progress.reach(before + N - total + done), say=progress.say)
    if check:
        _read_back(cached)
    progress.reach(before + N)
    work = cached.work
    flop = 2 * of.conv.macs(work.images)
    seconds = perf_counter() - start
    return _Outcome(str(of.layer), work.images, seconds, work.convolution_s, flop, cached.bytes_on_disk())


def _read_back(cached: CachedReference) -> None:
    for first in range(0, cached.N, _IMAGES_PER_READ):
        cached.read(first, min(first + _IMAGES_PER_READ, cached.N))


def _print_table(outcomes: list[_Outcome], N: int) -> None:
    """A line per layer and one for all; the rates are those of the convolution, without inputs and writing."""
    total = _Outcome(
        "all",
        sum(outcome.computed for outcome in outcomes),
        fsum(outcome.seconds for outcome in outcomes),
        fsum(outcome.convolution_s for outcome in outcomes),
        sum(outcome.flop for outcome in outcomes),
        None
        if any(outcome.file_bytes is None for outcome in outcomes)
        else sum(outcome.file_bytes or 0 for outcome in outcomes),
    )
    dgemm = dgemm_flops() if total.flop else 0
    print(f"{'layer':>5} {'images':>7} {'computed':>8} {'seconds':>8} {'GFLOP/s':>8} {'of dgemm':>8} {'file MB':>8}")
    for outcome in (*outcomes, total):
        rate, share = "-", "-"
        if outcome.flop:
            flops = outcome.flop / outcome.convolution_s
            rate, share = f"{flops / 1e9:.1f}", f"{flops / dgemm:.0%}"
        done = f"{outcome.layer:>5} {N:7} {outcome.computed:8} {outcome.seconds:8.2f}"
        size = "-" if outcome.file_bytes is None else f"{outcome.file_bytes / 1e6:.1f}"
        print(f"{done} {rate:>8} {share:>8} {size:>8}")
    if dgemm:
        print(f"dgemm on all cores: {dgemm / 1e9:.1f} GFLOP/s")


if __name__ == "__main__":
    sys.exit(main())
