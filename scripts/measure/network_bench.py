"""Times whole networks of torchvision, patched by alexconv, against torch, in captured graphs.

    python scripts/measure/network_bench.py --N 32 --precision fp16,tf32,fp32 --out results/networks/h100-whole.jsonl

A contender is a side and the order of its tensors, as in ``alexconv-nhwc``: ``alexconv`` is ``alexconv.patch(model,
fuse=True)``, ``torch`` the model itself with benchmarked engines, ``inductor`` what ``torch.compile`` makes of it, and
``compile`` that with ``mode="max-autotune-no-cudagraphs"``; their launches are captured like those of the others
(``max-autotune`` captures them itself).  Linear layers of vectors are torch's on each side.

Weights are torchvision's random ones; batch norms' statistics are those of a batch of random images, since activations
would otherwise leave fp16's range in deep networks.  The input is random too, 224 x 224.  Appends a record of type
``library-network`` for each network, batch size, class and contender: milliseconds of a graph's replays, and the
largest error of the first two images' outputs against float64 over the largest output.  ``--resume`` skips those that
the file has; a network's kernels compile while those before it are timed.
"""

import argparse
import copy
import gc
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from library_bench import DTYPES, FP32_PRECISION, LAYOUTS, replays

from alexconv.errors import AlexconvError
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.options import command_line, exits_cleanly
from alexconv.planning.points import parse_batches
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile

TYPE = "library-network"
NETWORKS = {  # torchvision's names, with arguments
    "alexnet": {},
    "vgg16": {},
    "googlenet": {"aux_logits": False, "init_weights": False},
    "squeezenet1_1": {},
    "resnet18": {},
    "resnet50": {},
    "resnext50_32x4d": {},
    "densenet121": {},
    "mobilenet_v2": {},
    "efficientnet_b0": {},
    "convnext_tiny": {},
}
OURS, TORCH, INDUCTOR, COMPILED = SIDES = "alexconv", "torch", "inductor", "compile"
CONTENDERS = "torch-nhwc,alexconv-nhwc,torch-nchw,alexconv-nchw"
COMPILE_MODES = {INDUCTOR: "default", COMPILED: "max-autotune-no-cudagraphs"}
SIZE, CHECKED, CALIBRATION = 224, 2, 16  # pixels of a side; images whose outputs are checked; for batch norms
AHEAD = 3  # points whose kernels compile while one is timed
SAMPLES, SECONDS = 7, 0.02  # of a figure; of a sample


@dataclass(frozen=True)
class Point:
    """A network with a batch size and a class."""

    network: str
    N: int
    precision: str


class Bench:
    """torch with torchvision, and what is timed with them."""

    def __init__(self) -> None:
        import torch
        import torchvision

        import alexconv

        self.torch, self.models, self.alexconv = torch, torchvision.models, alexconv
        torch.backends.cudnn.benchmark = True

    @cache  # noqa: B019
    def network(self, name: str) -> Any:
        """A network in evaluation mode, with float32 parameters."""
        torch = self.torch
        torch.manual_seed(0)
        with torch.device("cuda"):  # which draws random weights faster
            model = self.models.get_model(name, weights=None, **NETWORKS[name])
        norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
        if norms:
            for norm in norms:
                norm.momentum = None  # statistics of all batches so far, here of one
            with torch.no_grad():
                model.train()(self.images(CALIBRATION))
        return model.eval()

    def images(self, N: int) -> Any:
        """Random images; the first ones are the same for every N."""
        torch = self.torch
        generator = torch.Generator("cuda").manual_seed(1)
        shape = 3, SIZE, SIZE
        images = [torch.rand((CHECKED, *shape), generator=generator, device="cuda")]
        return torch.cat([*images, torch.rand((N, *shape), generator=generator, device="cuda")])[:N] * 2 - 1

    @cache  # noqa: B019
    def exact(self, name: str) -> Any:
        """Outputs for the first images in float64, on the CPU."""
        model = copy.deepcopy(self.network(name)).double()
        self.torch.backends.cudnn.benchmark = False
        with self.torch.no_grad():
            y = model(self.images(CHECKED).double()).cpu()
        self.torch.backends.cudnn.benchmark = True
        return y

    def built(self, point: Point, contender: str) -> tuple[Any, Any, Record]:
        """A contender's model, its input, and facts about it."""
        torch, (side, layout) = self.torch, contender.split("-")
        tf32 = FP32_PRECISION[point.precision] == "tf32"
        torch.backends.cudnn.allow_tf32 = tf32  # by the former switches: max-autotune reads them and refuses a mixture
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        memory = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}[layout]
        dtype = getattr(torch, DTYPES[point.precision])
        model = copy.deepcopy(self.network(point.network)).to(dtype=dtype, memory_format=memory)
        x, facts = self.images(point.N).to(dtype=dtype, memory_format=memory), {}
        if side == OURS:
            patched = self.alexconv.patch(model, point.precision, fuse=True, say=str)
            facts = {"replaced": len(patched.replaced), "fused": len(patched.fused)}
        elif side in COMPILE_MODES:
            model = torch.compile(model, mode=COMPILE_MODES[side])
        return model, x, facts

    def begin(self, point: Point, contender: str) -> None:
        """Makes a first call, which enqueues the compilations of alexconv's kernels."""
        model, x, _ = self.built(point, contender)
        with self.torch.no_grad():
            model(x)

    def timed(self, point: Point, contender: str) -> Record:
        """Milliseconds and error of a contender."""
        torch = self.torch
        begun = perf_counter()
        model, x, facts = self.built(point, contender)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad():
            model(x)
            wait_for_compilers()
            for _ in range(2):
                model(x)
            torch.cuda.synchronize()
            facts["ready_s"] = round(perf_counter() - begun, 2)
            with torch.cuda.graph(graph):
                y = model(x)
        samples = [round(ms, 5) for ms in replays(torch, graph, SECONDS, SAMPLES)]
        expected = self.exact(point.network)[: point.N]
        error = float((y[:CHECKED].double().cpu() - expected).abs().max() / expected.abs().max())
        graph.reset()
        return {"ms": median(samples), "samples": samples, "error": error, **facts}


def wait_for_compilers() -> None:
    """Waits until everything that the library compiles in the background is compiled; its next calls raise failures."""
    from alexconv.library import devices

    for device in devices.started.values():
        wait(device.compilations())


def points_of(networks: Sequence[str], batches: Sequence[int], precisions: Sequence[str]) -> list[Point]:
    """The points, all networks of a class at a batch size after each other."""
    return [Point(network, N, precision) for N in batches for precision in precisions for network in networks]


def known(path: Path) -> set[tuple[str, int, str, str]]:
    """The contenders of points that a record file has."""
    if not path.exists():
        return set()
    records = (json.loads(line) for line in path.read_text().splitlines() if line.endswith("}"))
    return {
        (record["network"], record["N"], record["precision"], record["contender"])
        for record in records
        if record.get("type") == TYPE
    }


def measured(bench: Bench, points: Sequence[Point], wanted: dict[Point, list[str]], seconds: float) -> Iterator[Record]:
    """The records of the points, until the time is up."""
    begun, started = perf_counter(), 0
    for number, point in enumerate(points):
        while started < min(len(points), number + AHEAD):
            for contender in wanted[points[started]]:
                if contender.startswith(OURS):
                    try:
                        bench.begin(points[started], contender)
                    except (RuntimeError, AlexconvError) as error:
                        print(points[started], contender, error, flush=True)
            started += 1
        for contender in wanted[point]:
            if perf_counter() - begun > seconds:
                print(f"stopped after {seconds:g} s", flush=True)
                return
            facts: Record = {"network": point.network, "N": point.N, "precision": point.precision}
            try:
                result = bench.timed(point, contender)
                print(point, contender, f"{result['ms']:.4f} ms, error {result['error']:.1e}", flush=True)
            except Exception as error:  # a compiler's are of many kinds
                result = {"failure": f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"}
                print(point, contender, result["failure"], flush=True)
            yield {**facts, "contender": contender, **result}
            gc.collect()
            bench.torch.cuda.empty_cache()


def words(text: str) -> list[str]:
    """An argparse type: comma-separated words."""
    return text.split(",")


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and records; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--networks", type=words, default=list(NETWORKS), metavar="LIST", help="default: all")
    add("--N", default="1,32,128", help="batch sizes (default: 1,32,128)")
    add("--precision", type=words, default=list(DTYPES), help=f"classes (default: {','.join(DTYPES)})")
    add("--contenders", type=words, default=CONTENDERS.split(","), help=f"default: {CONTENDERS}")
    add("--out", type=Path, default=Path("study/networks.jsonl"), metavar="FILE")
    add("--resume", action="store_true", help="skip what the file has")
    add("--seconds", type=float, default=600, help="begin no contender after this many seconds (default: 600)")
    chosen = options.parse_args(arguments)
    every = [f"{side}-{layout}" for side in SIDES for layout in LAYOUTS]
    for name, values, allowed in (
        ("--networks", chosen.networks, NETWORKS),
        ("--precision", chosen.precision, DTYPES),
        ("--contenders", chosen.contenders, every),
    ):
        if unknown := [value for value in values if value not in allowed]:
            options.error(f"{name} takes {', '.join(allowed)}, not {', '.join(unknown)}")
    done = known(chosen.out) if chosen.resume else set()
    points = points_of(chosen.networks, parse_batches(chosen.N), chosen.precision)
    wanted = {
        point: [name for name in chosen.contenders if (point.network, point.N, point.precision, name) not in done]
        for point in points
    }
    executor, file = CudaExecutor(), RecordFile(chosen.out)
    command = command_line("scripts/measure/network_bench.py", arguments)
    headers = environment.write_headers(file, executor.header(), command)
    executor.leave()
    gc.freeze()  # a capture begins with a collection
    for record in measured(Bench(), [point for point in points if wanted[point]], wanted, chosen.seconds):
        file.header(TYPE, {**headers, **record})
    return 0


if __name__ == "__main__":
    sys.exit(main())
