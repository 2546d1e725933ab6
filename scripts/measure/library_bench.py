"""Times alexconv.Conv2d against torch's cuDNN on a GPU: layers in graphs and call by call, host time, first calls.

    python scripts/measure/library_bench.py --out results/library/h200.jsonl

Appends records to the file, of these types (docs/library.md has the tables):

``library-layer``  a layer at a batch size in a precision: ms of a call, captured in a graph and at N=1 eager, by
                   contender: alexconv (input in the layout of the precision's rungs; of AlexNet also in the other),
                   cudnn (nchw and nhwc); its rung; its largest error over the norms
``library-host``   microseconds of host time of a warm call, by contender and way of calling
``library-first``  seconds of the first call of shapes new to the process, by what the cache has of them; without a
                   compiler where it says so
``library-training``  a layer's three convolutions of a training step (``--parts training``): ms of each in a graph, by
                   contender and direction: alexconv and cudnn-deterministic in the layout of the class's rungs, cudnn
                   in both; the rungs of the gradients; their largest errors over the norms

A captured call's time is that of a graph of CALLS calls over CALLS, hot.  cuDNN benchmarks its engines.  Inputs are
without their padding, which belongs to the call; fp32 is IEEE on both sides, tf32 and fp16 are cuDNN's own.  A layer
that two networks have is timed once and recorded for both.  Batch sizes and networks come in the order given, all
networks at a batch size.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from alexconv.compiling import nvcc
from alexconv.errors import AlexconvError, MissingTool
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.options import command_line, exits_cleanly
from alexconv.planning.points import parse_batches, parse_layers, workload_named
from alexconv.precisions import PRECISIONS
from alexconv.records import environment
from alexconv.records.store import Record, RecordFile
from alexconv.shapes import DGRAD, FORWARD, WGRAD, Conv
from alexconv.tune import auto

CALLS = 10  # in a graph
SAMPLES = 5
SECONDS = 0.005  # of a sample, or a graph's one launch
AHEAD, MOST_AHEAD = 200_000, 20_000_000  # cycles for which the GPU waits while the host enqueues a graph's launches
MOST_LAUNCHES = 50  # of a sample: with ten kernels each, fewer than the queue holds, else the host would be timed
HOST_CALLS = 200  # between two waits: fewer than the driver's queue holds
WARM_UPS = 3
SOME = 2  # images or filters whose gradients are compared with float64
LAYOUTS = ("nchw", "nhwc")
FP32_PRECISION = {name: precision.torch for name, precision in PRECISIONS.items() if precision.torch}
DTYPES = {name: PRECISIONS[name].dtype for name in FP32_PRECISION}
FIRST = ((3, 3, 64, 1), (3, 3, 96, 8), (1, 1, 160, 32), (5, 5, 48, 1), (3, 3, 256, 32))  # R, S, C, N


def replays(torch: Any, graph: Any, seconds: float, samples: int) -> list[float]:
    """Milliseconds of a graph's launch among others, in samples of so many seconds, without the host's time.

    Where the GPU does not wait long enough for the host to enqueue a sample's launches, it waits for twice as long.
    """
    ahead = AHEAD
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def sample(times: int) -> float:
        nonlocal ahead
        while True:
            torch.cuda._sleep(ahead)
            begin.record()
            for _ in range(times):
                graph.replay()
            end.record()
            late = begin.query()
            end.synchronize()
            if not late or ahead == MOST_AHEAD:
                elapsed: float = begin.elapsed_time(end)
                return elapsed / times
            ahead = min(2 * ahead, MOST_AHEAD)

    times = max(1, min(MOST_LAUNCHES, int(seconds * 1e3 / max(sample(3), 1e-4))))
    return [sample(times) for _ in range(samples)]


class Bench:
    """torch, and what is timed with it."""

    def __init__(self) -> None:
        import torch

        import alexconv

        self.torch, self.alexconv = torch, alexconv
        torch.backends.cudnn.benchmark = True

    def tensors(self, conv: Conv, N: int, precision: str, layout: str) -> tuple[Any, Any]:
        """Input without padding in a layout, and filters as that layout has them for cuDNN."""
        torch = self.torch
        memory = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}[layout]
        dtype = getattr(torch, DTYPES[precision])
        generator = torch.Generator("cuda").manual_seed(0)

        def uniform(shape: tuple[int, ...]) -> Any:
            values = torch.rand(shape, generator=generator, device="cuda") * 2 - 1
            return values.to(dtype).contiguous(memory_format=memory)

        rows, columns = conv.H - 2 * conv.pad, conv.W - 2 * conv.pad
        return uniform((N, conv.C, rows, columns)), uniform(conv.w_shape())

    def contenders(
        self, conv: Conv, N: int, precision: str, layouts: Sequence[str]
    ) -> Iterator[tuple[str, Callable[[], Any], Any, Any]]:
        """Name, call, input and filters; alexconv in some layouts only."""
        torch = self.torch
        padding = (conv.top or conv.pad, conv.left or conv.pad)
        for layout in LAYOUTS:
            x, w = self.tensors(conv, N, precision, layout)
            if layout in layouts:
                more = {"dilation": conv.dilation, "groups": conv.groups}
                layer = self.alexconv.Conv2d(w.contiguous(), conv.strides, padding, precision, **more)
                yield f"alexconv-{layout}", partial(layer, x), x, w
            terms = None, conv.strides, padding, conv.dilation, conv.groups
            yield f"cudnn-{layout}", partial(torch.nn.functional.conv2d, x, w, *terms), x, w

    def eager(self, call: Callable[[], Any]) -> float:
        """Median milliseconds of one of some back-to-back calls, the host's time included."""
        torch = self.torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def sample(times: int) -> float:
            begin.record()
            for _ in range(times):
                call()
            end.record()
            end.synchronize()
            elapsed: float = begin.elapsed_time(end)
            return elapsed / times

        times = max(1, min(1000, int(SECONDS * 1e3 / max(sample(3), 1e-4))))
        return median(sample(times) for _ in range(SAMPLES))

    def captured(self, call: Callable[[], Any]) -> tuple[float, Any]:
        """Milliseconds of a call in a graph, and its output."""
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS):
                y = call()
        graph.replay()
        ms = median(replays(torch, graph, SECONDS, SAMPLES)) / CALLS
        y = y.clone()
        graph.reset()
        return ms, y

    def layer(self, conv: Conv, N: int, precision: str, layouts: Sequence[str]) -> Record:
        """Times and errors of a layer, by contender."""
        torch = self.torch
        facts: Record = {"graph_ms": {}, "eager_ms": {}, "error": {}}
        torch.backends.cudnn.conv.fp32_precision = FP32_PRECISION[precision]
        norms = None
        for name, call, x, w in self.contenders(conv, N, precision, layouts):
            try:
                for _ in range(WARM_UPS):
                    call()
                facts["graph_ms"][name], y = self.captured(call)
                if N == 1:
                    facts["eager_ms"][name] = self.eager(call)
            except (RuntimeError, AlexconvError) as error:
                facts["error"][name] = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
                continue
            images = min(N, 2)
            with torch.no_grad():
                if norms is None:
                    norms = exact(torch, x[:images].double(), w.double(), conv)
                expected, scale = norms
                facts["error"][name] = float(((y[:images].double() - expected).abs() / scale).max())
        return facts

    def rungs(self, conv: Conv, N: int, precision: str, layouts: Sequence[str]) -> Record:
        """The rung of some layouts, as the library chose it."""
        from alexconv.library.arrays import packed_descriptor
        from alexconv.library.calls import call_of, dtype_of
        from alexconv.library.devices import gpu
        from alexconv.library.routes import route_of
        from alexconv.library.terms import terms_of

        choices = {}
        for layout in layouts:
            padding = (conv.top or conv.pad, conv.left or conv.pad)
            terms = terms_of(conv.strides, padding, precision, "nchw", conv.dilation, conv.groups)
            plane = (N, conv.C, conv.H - 2 * conv.pad, conv.W - 2 * conv.pad)
            w = packed_descriptor(conv.w_shape(), "nchw", dtype_of(precision), 0)
            key = route_of(gpu(0), call_of(terms, w, packed_descriptor(plane, layout, dtype_of(precision), 0))).key
            choices[layout] = key and {"rung": key.name, "padded": key.conv.padding != (0, 0, 0, 0),
                                     "x_in_place": key.x_in_place, "y_in_place": key.y_in_place}  # fmt: skip
        return choices

    def host(self) -> Record:
        """Microseconds of host time of warm calls of a small layer, by contender and way of calling."""
        torch = self.torch
        times: Record = {}
        for precision, N, conv in (
            ("fp32", 1, Conv(256, 15, 15, 384, 3, 3)),
            ("fp16", 1, Conv(256, 15, 15, 384, 3, 3)),
            ("fp32", 32, Conv(64, 30, 30, 64, 3, 3)),
        ):
            x, w = self.tensors(conv, N, precision, "nhwc" if precision == "fp16" else "nchw")
            layer, plain = self.alexconv.Conv2d(w.contiguous(), precision=precision), w.contiguous()
            out = layer(x)
            self.alexconv.warm([(tuple(x.shape), tuple(w.shape), 1, 0, precision, precision == "fp16")])
            torch.backends.cudnn.conv.fp32_precision = FP32_PRECISION[precision]
            functional = partial(self.alexconv.conv2d, x, plain, 1, 0, precision, out)
            ways = {
                "Conv2d": (partial(layer, x), None),
                "Conv2d, out": (partial(layer, x, out), None),
                "Conv2d, out, side stream": (partial(layer, x, out), torch.cuda.Stream()),
                "conv2d, out": (functional, None),
                "torch conv2d": (partial(torch.nn.functional.conv2d, x, w), None),
            }
            for name, (call, stream) in ways.items():
                with torch.no_grad(), torch.cuda.stream(stream):
                    times[f"{precision} N={N} {name}"] = self.host_us(call)
        return times

    def host_us(self, call: Callable[[], Any]) -> float:
        """Microseconds in which a call returns; the device has time to catch up between samples."""
        samples = []
        for _ in range(10):
            self.torch.cuda.synchronize()
            begun = perf_counter()
            for _ in range(HOST_CALLS):
                call()
            samples.append((perf_counter() - begun) / HOST_CALLS * 1e6)
        return median(samples[2:])

    def directions(
        self, conv: Conv, x: Any, w: Any, dy: Any, precision: str
    ) -> dict[str, dict[str, Callable[[], Any]]]:
        """The calls that compute each direction, of alexconv's and of torch's convolution."""
        from alexconv.library import torch_operator

        torch = self.torch
        around = (conv.top or conv.pad, conv.left or conv.pad)
        padding = [around[0], around[0], around[1], around[1]]
        terms = list(conv.strides), padding, list(conv.dilation), conv.groups, precision

        def by_torch(wanted: list[bool]) -> Any:
            return torch.ops.aten.convolution_backward(
                dy, x, w, None, conv.strides, around, conv.dilation, False, [0, 0], conv.groups, wanted
            )

        return {
            "alexconv": {
                FORWARD: partial(self.alexconv.conv2d, x, w, conv.strides, padding, precision),
                DGRAD: partial(torch_operator.dgrad, dy, w, list(x.shape[2:]), *terms),
                WGRAD: partial(torch_operator.wgrad, x, dy, list(w.shape[2:]), *terms),
            },
            "cudnn": {
                FORWARD: partial(torch.nn.functional.conv2d, x, w, None, conv.strides, around),
                DGRAD: lambda: by_torch([True, False, False])[0],
                WGRAD: lambda: by_torch([False, True, False])[1],
            },
        }

    def training(self, conv: Conv, N: int, precision: str, contenders: Sequence[str]) -> Record:
        """Times, and errors of gradients, of a layer's three convolutions, by contender and direction."""
        torch, cudnn = self.torch, self.torch.backends.cudnn
        facts: Record = {"graph_ms": {}, "error": {}, "rungs": {}}
        cudnn.conv.fp32_precision = FP32_PRECISION[precision]
        expected: dict[str, tuple[Any, Any]] = {}
        own = auto.layouts_of(precision)[0]
        for layout, contender in product(LAYOUTS, contenders):
            if layout != own and contender != "cudnn":
                continue
            x, w = self.tensors(conv, N, precision, layout)
            y = torch.nn.functional.conv2d(x[:1], w, None, conv.strides, (conv.top or conv.pad, conv.left or conv.pad))
            generator = torch.Generator("cuda").manual_seed(1)
            dy = torch.rand((N, *y.shape[1:]), generator=generator, device="cuda").mul_(2).sub_(1).to(x.dtype)
            dy = dy.contiguous(memory_format=torch.channels_last if layout == "nhwc" else torch.contiguous_format)
            cudnn.deterministic = contender.endswith("deterministic")
            name = f"{contender}-{layout}"
            facts["graph_ms"][name], facts["error"][name] = {}, {}
            calls = self.directions(conv, x, w, dy, precision)[contender.partition("-")[0]]
            for direction, call in calls.items():
                try:
                    for _ in range(WARM_UPS):
                        call()
                    facts["graph_ms"][name][direction], gradient = self.captured(call)
                except (RuntimeError, AlexconvError) as error:
                    facts["error"][name][direction] = (
                        f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
                    )
                    continue
                if direction != FORWARD:
                    if direction not in expected:
                        expected[direction] = exact_gradient(torch, conv, direction, x, w, dy)
                    exact_values, scale = expected[direction]
                    scaled = (gradient[: len(exact_values)].double() - exact_values).abs() / scale
                    facts["error"][name][direction] = float(scaled.max())
            if contender == "alexconv":
                terms = {"stride": conv.strides, "padding": conv.top or conv.pad, "precision": precision}
                facts["rungs"][layout] = {
                    direction: self.alexconv.explain(x, w, direction=direction, **terms).rung for direction in calls
                }
        cudnn.deterministic = False
        return facts


def exact_gradient(torch: Any, conv: Conv, direction: str, x: Any, w: Any, dy: Any) -> tuple[Any, Any]:
    """A gradient in float64, of dgrad for SOME images, of wgrad for SOME filters, and the norms of its operands.

    Of a layer without groups; by im2col and matrix products, image by image.
    """
    terms = {
        "kernel_size": (conv.R, conv.S),
        "padding": (conv.top or conv.pad, conv.left or conv.pad),
        "stride": conv.strides,
        "dilation": conv.dilation,
    }

    def of_input(w: Any, dy: Any) -> Any:  # [SOME][C][H][W]
        return torch.nn.functional.fold(w.flatten(1).T @ dy.flatten(2), x.shape[2:], **terms)

    def of_filters(x: Any, dy: Any) -> Any:  # [SOME][C][R][S]
        images = zip(x.split(1), dy.flatten(2), strict=True)
        return sum(of @ torch.nn.functional.unfold(image, **terms)[0].T for image, of in images).view(-1, *w.shape[1:])

    of, first, second = (of_input, w, dy[:SOME]) if direction == DGRAD else (of_filters, x, dy[:, :SOME])
    first, second = first.double(), second.double()
    squares = of(first.square(), torch.ones_like(second)) * of(torch.ones_like(first), second.square())
    return of(first, second), squares.sqrt() + 1e-300


def exact(torch: Any, x: Any, w: Any, conv: Conv) -> tuple[Any, Any]:
    """Output in float64, and the norms of patch and filter that errors are measured in."""
    terms = conv.strides, (conv.top or conv.pad, conv.left or conv.pad), conv.dilation, conv.groups
    conv2d = torch.nn.functional.conv2d
    torch.backends.cudnn.benchmark = False  # one call each
    expected = conv2d(x, w, None, *terms)
    squares = (x * x).unflatten(1, (conv.groups, -1)).sum(2)
    patches = conv2d(squares, torch.ones_like(w[: conv.groups, :1]), None, *terms).sqrt()
    torch.backends.cudnn.benchmark = True
    of_filters = patches.repeat_interleave(conv.M // conv.groups, 1)
    return expected, of_filters * w.flatten(1).norm(dim=1)[None, :, None, None] + 1e-300


def first_calls(*, wait: bool) -> Record:
    """Seconds of the first call of each of FIRST's shapes in this process; the very first initializes the GPU.

    ``wait``: until what they began to compile is in the cache.
    """
    import torch

    import alexconv

    def call(R: int, S: int, C: int, N: int, precision: str) -> float:
        dtype = getattr(torch, DTYPES[precision])
        x, w = (
            torch.ones((N, C, 20, 20), dtype=dtype, device="cuda"),
            torch.ones((64, C, R, S), dtype=dtype, device="cuda"),
        )
        torch.cuda.synchronize()
        begun = perf_counter()
        alexconv.conv2d(x, w, padding=R // 2, precision=precision)
        torch.cuda.synchronize()
        return perf_counter() - begun

    process = call(1, 1, 8, 1, "fp32")
    shapes = {precision: [call(*shape, precision) for shape in FIRST] for precision in DTYPES}
    if not wait:
        return {"process": process, "shapes": shapes}
    alexconv.warm(  # until everything compiled in the background is in the cache
        alexconv.Shape((N, C, 20, 20), (64, C, R, S), 1, R // 2, precision)
        for precision in DTYPES
        for R, S, C, N in FIRST
    )
    return {"process": process, "shapes": shapes}


def first(command: str) -> Record:
    """First calls with an empty cache, with what they compiled in it, and with builds for every shape alone.

    And the seconds that these builds take.
    """
    seconds: Record = {}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        for name in (folder, other):
            os.chmod(name, 0o700)  # noqa: PTH101
        python = partial(subprocess.run, capture_output=True, text=True, check=True)
        begun = perf_counter()
        python([sys.executable, "-m", "alexconv", "warm"], env={**os.environ, "ALEXCONV_CACHE_DIR": other})
        warmed = perf_counter() - begun
        for state, cache, option in (
            ("builds for every shape, no compiler", other, "--no-compiler"),
            ("builds for every shape", other, "--no-wait"),
            ("nothing cached", folder, "--only-first"),
            ("cubins cached", folder, "--only-first"),
        ):
            done = python(
                [sys.executable, command, "--only-first", option], env={**os.environ, "ALEXCONV_CACHE_DIR": cache}
            )
            seconds[state] = json.loads(done.stdout)
    return {"seconds": seconds, "warm": warmed}


def without_compiler() -> None:
    """Makes nvcc one that cannot be found, in this process."""

    def missing() -> str:
        raise MissingTool("nvcc is not looked for")

    nvcc.find_nvcc = missing


def main_training(bench: Bench, options: argparse.Namespace) -> Iterator[Record]:
    """The records of a training step's convolutions, until the time is up."""
    begun = perf_counter()
    points = [
        (name, number, workload_named(name).layer(number), N, precision)
        for N in parse_batches(options.N)
        for name in options.workload.split(",")
        for precision in options.precision.split(",")
        for number in layer_numbers(options.layers, name)
    ]
    warm(bench, points, training=True)
    gc.freeze()
    for name, number, conv, N, precision in points:
        if perf_counter() - begun > options.seconds:
            print(f"stopped after {options.seconds:g} s", flush=True)
            return
        measurement = bench.training(conv, N, precision, options.contenders.split(","))
        for contender, times in measurement["graph_ms"].items():
            print(name, number, N, precision, contender, {what: round(ms, 4) for what, ms in times.items()},
                  measurement["error"][contender], flush=True)  # fmt: skip
        yield {"workload": name, "layer": number, "N": N, "precision": precision, "conv": asdict(conv), **measurement}


def layer_numbers(text: str, workload: str) -> Sequence[int]:
    """The numbers of ``--layers``, all unless given."""
    return parse_layers(text or f"1-{len(workload_named(workload).layers)}", workload_named(workload))


def main_layers(bench: Bench, options: argparse.Namespace) -> Iterator[Record]:
    """The records of the layers asked for, until the time is up."""
    begun = perf_counter()
    batches, precisions = parse_batches(options.N), options.precision.split(",")
    points = [
        (name, number, workload_named(name).layer(number), N, precision)
        for N in batches
        for name in options.workload.split(",")
        for precision in precisions
        for number in range(1, len(workload_named(name).layers) + 1)
    ]
    warm(bench, points)
    gc.freeze()  # a capture begins with a collection
    known: dict[tuple[Conv, int, str], Record] = {}
    for name, number, conv, N, precision in points:
        if perf_counter() - begun > options.seconds:
            print(f"stopped after {options.seconds:g} s", flush=True)
            return
        layouts = layouts_of(name, precision)
        measurement = known.get((conv, N, precision))
        if measurement is None:
            measurement = bench.layer(conv, N, precision, layouts)
            measurement["rungs"] = bench.rungs(conv, N, precision, layouts)
            known[conv, N, precision] = measurement
        facts = {"workload": name, "layer": number, "N": N, "precision": precision, "conv": asdict(conv)}
        failed = [text for text in measurement["error"].values() if isinstance(text, str)]
        times = {contender: round(ms, 4) for contender, ms in measurement["graph_ms"].items()}
        print(name, number, N, precision, times, *failed, flush=True)
        yield {**facts, **measurement}


def layouts_of(workload: str, precision: str) -> Sequence[str]:
    """The layouts of alexconv's input: the rungs' own, and of AlexNet the other one too."""
    return LAYOUTS if workload == "alexnet" else auto.layouts_of(precision)


def warm(
    bench: Bench,
    points: Sequence[tuple[str, int, Conv, int, str]],
    *,
    training: bool = False,
) -> None:
    """Compiles everything to be timed, in parallel."""
    shapes = [
        bench.alexconv.Shape(
            (N, conv.C, conv.H - 2 * conv.pad, conv.W - 2 * conv.pad),
            conv.w_shape(),
            conv.strides,
            (conv.top or conv.pad, conv.left or conv.pad),
            precision,
            layout == "nhwc",
        )
        for name, _, conv, N, precision in points
        for layout in (auto.layouts_of(precision)[:1] if training else layouts_of(name, precision))
    ]
    seconds = bench.alexconv.warm(shapes, training=training).seconds
    print(f"{len(shapes)} shapes warm in {seconds:.1f} s", flush=True)


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and records; returns the exit status."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("--out", type=Path, default=Path("study/library.jsonl"), metavar="FILE")
    add("--parts", default="host,first,layers", help="what is measured, also training (default: host,first,layers)")
    add("--workload", default="alexnet", help="workloads, as in alexnet,resnet50 (default: alexnet)")
    add("--N", default="1,128", help="batch sizes (default: 1,128)")
    add("--precision", default="fp32,tf32,fp16", help="error classes (default: fp32,tf32,fp16)")
    add("--layers", default="", help="of a training step, as in 1-5 (default: all)")
    add("--contenders", default="alexconv,cudnn,cudnn-deterministic", help="of a training step (default: all three)")
    add("--seconds", type=float, default=600, help="start no layer after this many seconds (default: 600)")
    for hidden in ("--only-first", "--no-wait", "--no-compiler"):
        add(hidden, action="store_true", help=argparse.SUPPRESS)
    chosen = options.parse_args(arguments)
    if chosen.only_first:
        if chosen.no_compiler:
            without_compiler()
        print(json.dumps(first_calls(wait=not (chosen.no_wait or chosen.no_compiler))), flush=True)
        os._exit(0)  # with compilations in the background
        return 0
    executor = CudaExecutor()
    file, parts = RecordFile(chosen.out), chosen.parts.split(",")
    command = command_line("scripts/measure/library_bench.py", arguments)
    headers = environment.write_headers(file, executor.header(), command)
    executor.leave()
    bench = Bench()
    if "host" in parts:
        times = bench.host()
        for name, us in times.items():
            print(f"{name:40} {us:.2f} us", flush=True)
        file.header("library-host", {**headers, "us": times})
    if "first" in parts:
        calls = first(__file__)
        print(calls, flush=True)
        file.header("library-first", {**headers, **calls})
    for part, measured, kind in (
        ("layers", main_layers, "library-layer"),
        ("training", main_training, "library-training"),
    ):
        for record in measured(bench, chosen) if part in parts else ():
            file.header(kind, {**headers, **record})
    return 0


if __name__ == "__main__":
    sys.exit(main())
