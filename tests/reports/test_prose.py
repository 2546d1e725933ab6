"""Measured numbers in the docs' own sentences, outside of generated tables: each is recomputed from its record file.

A text has # for each number.  It is looked up in the document, whose lines may break anywhere, and the number there is
the recomputed value to the digits that are printed.  A number with a unit that no text here covers is an error, unless
its sentence says why it has no record.
"""

import csv
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from report_records import published_table

from alexconv.precisions import PRECISIONS
from alexconv.predict import page
from alexconv.predict.accuracy import Pair
from alexconv.records import published
from alexconv.records.compressed import contents
from alexconv.records.statistics import summarize
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent.parent
NUMBER = r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?"
UNITS = r"(?:ms|µs|us|ns|%|×|TFLOP/s|TB/s|GB/s|GB|s|clocks|cycles|times)"
MEASURED = re.compile(rf"(?<![\w.])({NUMBER}) ?{UNITS}(?![\w/])|(?<![\w.])(\d[\d.]*e-\d+)")
ALEXNET, BATCH = WORKLOADS["alexnet"], 128

Value = float | Callable[[], float]


@cache
def lines(name: str, kind: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in contents(ROOT / "results" / name).splitlines()]
    return [line for line in records if line["type"] == kind]


def points(name: str, **axes: object) -> list[dict[str, Any]]:
    newest = {json.dumps(line["point"]): line for line in lines(name, "point")}.values()
    wanted = axes.pop("constants", {})
    return [
        line
        for line in newest
        if axes.items() <= line["point"].items() and wanted.items() <= line["point"]["constants"].items()  # type: ignore[attr-defined]
    ]


def ms(rung: str, layer: int, name: str = "h200-main-job.jsonl", **axes: object) -> float:
    """The median of a rung's kernel time, in the mapping that is its default."""
    wanted: dict[str, Any] = {"workload": "alexnet", "N": BATCH, "transfer": "pageable", **axes}
    candidates = points(name, rung=rung, layer=layer, **wanted)
    (point,) = (
        candidates
        if len(candidates) == 1
        else [candidate for candidate in candidates if candidate["point"]["constants"]["COALESCED"] == 1]
    )
    return summarize(point["samples"]["kernel"]).median


def all_layers(rung: str) -> float:
    return sum(ms(rung, layer) for layer in range(1, 6))


def counter(metric: str, layer: int, rung: str, entry: str = "") -> float:
    """What Nsight Compute counted of a kernel; ``entry``: the rung's own by default."""
    name = "h200-profile.jsonl" if layer == 2 else "h200-profile-alexnet.jsonl"
    wanted = entry or rung.replace("-", "_")
    (metrics,) = (
        line["metrics"]
        for line in lines(name, "profile")
        if (line["point"]["rung"], line["point"]["layer"], line["entry"]) == (rung, layer, wanted)
    )
    return float(metrics[metric])


def counters(metric: str, layers: tuple[int, ...], *rungs: str) -> list[float]:
    return [counter(metric, layer, rung) for layer in layers for rung in rungs]


def compulsory_gb(layer: int) -> float:
    """Input and filters of a batch, once."""
    conv = ALEXNET.layer(layer)
    return 4e-9 * (BATCH * conv.C * conv.H * conv.W + conv.M * conv.C * conv.R * conv.S)


def kendall(layer: str) -> float:
    """As the report's table of orders has it."""
    rows = published_table("alexnet-order-kernel-agreement")
    return next(float(row["Kendall's tau-b"]) for row in rows if row["layer"] == layer)


def span(values: list[float]) -> list[float]:
    return [min(values), max(values)]


def registers() -> list[float]:
    return [ms(name, 3) for name in ("direct-register", "direct-filter-one-thread", "direct-filter-shared")]


def coalesced(value: int) -> float:
    return ms("direct-register", 1, "h200-alexnet.jsonl", constants={"COALESCED": value})


def with_copies(value: int) -> float:
    wanted = {"rung": "direct-register", "layer": 1, "N": BATCH, "transfer": "pageable"}
    (point,) = points("h200-alexnet.jsonl", constants={"COALESCED": value}, **wanted)
    return summarize(point["samples"]["total"]).median


def coalesced_in_the_study() -> float:
    """Its speedups of direct-register on layer 1, coalesced over not."""
    coalesced, apart = (
        next(
            figure.value
            for figure in published.figures()
            if (figure.variant, figure.N, figure.where) == (f"rla2m/{name}", BATCH, "Table 8")
        )
        for name in ("coalesced", "noncoalesced")
    )
    return coalesced / apart


def alexnet_study() -> dict[str, list[float]]:
    c, reduce = counter, "reduce_channels"
    atomics = points("h200-alexnet.jsonl", rung="channels-atomic", N=1)
    return {
        "the two orders is #, and # on layer 1 alone": [kendall("all layers"), kendall("layer 1")],
        "of direct-register's loads on layer 3, # % hit": [c("l1_hit_rate", 3, "direct-register")],
        "it reads # GB from DRAM, about # times what it must read, and DRAM is at # % of its rate": [
            c("dram_read_bytes", 3, "direct-register") / 1e9,
            c("dram_read_bytes", 3, "direct-register") / 1e9 / compulsory_gb(3),
            c("dram_throughput", 3, "direct-register"),
        ],
        "at # to # % of its throughput on layers 1 to 3": span(counters("l1_throughput", (1, 2, 3), "direct-register")),
        "channels writes # GB of partial planes": [c("dram_write_bytes", 3, "channels") / 1e9],
        "reduce_channels alone takes # ms at # % of DRAM's throughput, and the first kernel, # ms": [
            c("duration_ns", 3, "channels", reduce) / 1e6,
            c("dram_throughput", 3, "channels", reduce),
            c("duration_ns", 3, "channels") / 1e6,
        ],
        "slower than all of direct-register, # ms": [ms("direct-register", 3)],
        "issue slots # % busy instead of # %": [
            c("issue_slots", 3, "channels"),
            c("issue_slots", 3, "direct-register"),
        ],
        "the partial planes are # GB": [4e-9 * 3 * BATCH * ALEXNET.layer(1).M * ALEXNET.layer(1).E ** 2],
        "(# % hits in channels)": [c("l1_hit_rate", 3, "channels")],
        "DRAM traffic stays the same # GB, L1 throughput falls from # % to # %": [
            c("dram_write_bytes", 3, "channels-plane-shared") / 1e9,
            c("l1_throughput", 3, "channels"),
            c("l1_throughput", 3, "channels-plane-shared"),
        ],
        "rise from # % to # % in channels-plane-shared and to # % in channels-vector": counters(
            "issue_slots", (3,), "channels", "channels-plane-shared", "channels-vector"
        ),
        "multiply-add pipe is # and # % busy": counters("fma_pipe", (3,), "channels-plane-shared", "channels-vector"),
        "(# of the stall cycles per instruction, against # when": counters(
            "stall_barrier", (3,), "direct-filter-one-thread", "direct-filter-shared"
        ),
        "occupancy is # %, and the warps of other blocks keep the L1 pipeline # % busy": [
            c("achieved_occupancy", 3, "direct-filter-one-thread"),
            c("l1_throughput", 3, "direct-filter-one-thread"),
        ],
        "are within # % of each other on layer 3": [100 * (max(registers()) / min(registers()) - 1)],
        "saves the second kernel's # ms, and the # GB it reads and # GB it writes": [
            c("duration_ns", 2, "channels-vector", reduce) / 1e6,
            c("dram_read_bytes", 2, "channels-atomic") / 1e9,
            c("dram_write_bytes", 2, "channels-atomic") / 1e9,
        ],
        "they differ by up to # from run to run (the largest error is #)": [
            max(point["spread"] for point in atomics),
            max(point["error"]["absolute"] for point in atomics),
        ],
        "direct-half is #× faster than direct over all layers": [all_layers("direct") / all_layers("direct-half")],
        "moves # GB through DRAM in # ms": [
            (c("dram_read_bytes", 2, "direct-half") + c("dram_write_bytes", 2, "direct-half")) / 1e9,
            c("duration_ns", 2, "direct-half") / 1e6,
        ],
        "on layer 3 direct is #× slower than direct-register here": [ms("direct", 3) / ms("direct-register", 3)],
        "direct-register, direct-filter-one-thread and direct-filter-shared (#, #, # ms)": [
            ms(name, 1) for name in ("direct-register", "direct-filter-one-thread", "direct-filter-shared")
        ],
        "channels-plane-shared (# ms)": [ms("channels-plane-shared", 1)],
        "lie within # % of each other, all at # to # % of the L1": [
            100 * (ms("direct-register", 1) / ms("direct-filter-shared", 1) - 1),
            *span(counters("l1_throughput", (1,), *NEAR)),
        ],
        "channels-vector's reduction of # ms": [c("duration_ns", 1, "channels-vector", reduce) / 1e6],
        "direct-half waits for its stores (# ms)": [ms("direct-half", 1)],
        "mapping is #× faster for direct-register at N = 128 (# ms against # ms)": [
            coalesced(0) / coalesced(1),
            coalesced(1),
            coalesced(0),
        ],
        "with the copies #×, where the study's Table 8 has #×": [
            with_copies(0) / with_copies(1),
            coalesced_in_the_study(),
        ],
    }


NEAR = ("direct-register", "direct-filter-one-thread", "direct-filter-shared", "channels-plane-shared")


def cost(rung: str, layers: tuple[int, ...], N: int, family: str) -> list[float]:
    """The least and the largest of a rung's times with its bounds over those without, layer by layer."""
    before, after = (f"strictness/{family}-{name}.jsonl" for name in ("before", "after"))
    return span([round(ms(rung, layer, after, N=N) / ms(rung, layer, before, N=N), 2) for layer in layers])


def precision() -> dict[str, list[float]]:
    squares, split, window = "strictness/squares.jsonl", "wgmma-split", "wgmma-window-scaled"
    rest = (2, 3, 4, 5)
    return {
        "`wgmma-split` took # to # of its time": cost("wgmma-split", (1, *rest), 128, "wgmma"),
        "`wgmma-split-resident` #, `wgmma-winograd` # to #": [
            cost("wgmma-split-resident", (1,), 128, "wgmma")[0],
            *cost("wgmma-winograd", rest, 128, "wgmma"),
        ],
        "the tf32 rungs # to #; at N = 1 `wgmma-split-resident` #": [
            *span([*cost("wgmma-scaled", rest, 128, "wgmma"), *cost("wgmma-window-scaled", (1,), 128, "wgmma")]),
            cost("wgmma-split-resident", (1,), 1, "wgmma")[0],
        ],
        "operands # to # on layers 2 to 5 and up to # on layer 1": [
            *span([*cost("mma-split", rest, 1, "mma"), *cost("mma-scaled", rest, 1, "mma")]),
            max(*cost("mma-split", (1,), 1, "mma"), *cost("mma-scaled", (1,), 1, "mma")),
        ],
        "the other card, has # to # for them, and up to # on layer 1": [
            *span([*cost("mma-split", rest, 1, "wgmma"), *cost("mma-scaled", rest, 1, "wgmma")]),
            max(*cost("mma-split", (1,), 1, "wgmma"), *cost("mma-scaled", (1,), 1, "wgmma")),
        ],
        "`wgmma-split` takes # ms on such data and # ms on uniform data, `wgmma-window-scaled` # ms on both": [
            ms(split, 1, squares, data="relu"),
            ms(split, 1, squares, data="uniform"),
            ms(window, 1, squares, data="relu"),
        ],
    }


def small_batch() -> dict[str, list[float]]:
    def errors(*rungs: str) -> list[float]:
        outcomes = [point for rung in rungs for point in points("h200-frontier.jsonl", rung=rung, N=1)]
        return span([point["error"]["scaled"] for point in outcomes if point["status"] == "ok"])

    def gained(layer: int) -> float:
        pair = [point.get("samples") for point in points("clusters/h200-split-k.jsonl", rung="mma-split", layer=layer)]
        alone, clustered = (1e3 * summarize(samples["kernel"]).median for samples in pair if samples)
        return alone - clustered

    def graph(precision: str, clusters: bool) -> float:  # the fastest with clusters, the last without
        recorded = lines("clusters/together/h200.jsonl", "point")
        of_kind = [
            1e3 * summarize(point["samples"]["kernel"]).median
            for point in recorded
            if point["point"]["precision"] == precision
            and clusters == any(layer["constants"].get("CLUSTER") == 2 for layer in point["layers"])
        ]
        return min(of_kind) if clusters else of_kind[-1]

    def predicted_us(name: str, rung: str) -> float:  # of five layers
        recorded = lines(f"range-tracking/{name}.jsonl", "prediction")
        return sum(1e3 * line["ms"] for line in recorded if line["point"]["rung"] == rung)

    def of_tracking(rung: str) -> float:
        return predicted_us("h200-predicted", rung) - predicted_us("h200-predicted-without", rung)

    def in_graph(name: str, precision: str) -> list[float]:
        recorded = [line for line in lines(f"range-tracking/{name}.jsonl", "point") if "layers" in line]
        return [
            1e3 * summarize(point["samples"]["kernel"]).median
            for point in recorded
            if point["point"]["precision"] == precision
        ]

    def faster(layer: int, N: int) -> float:  # than before
        before, after = (
            points(f"range-tracking/h200-{when}.jsonl", rung="mma-scaled", layer=layer, N=N)[-1]["samples"]["kernel"]
            for when in ("before", "after")
        )
        return summarize(before).median / summarize(after).median

    def graphs_of_cudnn() -> list[dict[str, Any]]:
        recorded = lines("range-tracking/h200-together.jsonl", "point")
        return [
            line
            for line in recorded
            if line["point"]["rung"] in {f"torch-{order}-tf32-together" for order in ("nchw", "nhwc")}
        ]

    def rounds(precision: str) -> list[float]:  # before and after in turn
        times = in_graph("h200-one-instruction", precision)
        return [*times[::2], *times[1::2]]

    classes = "fp32", "tf32", "fp16"
    return {
        "predicted # µs less for five layers in tf32, and # µs less in fp32": [
            of_tracking("mma-scaled"),
            of_tracking("mma-split"),
        ],
        "tracking's share: # µs in tf32 and # µs in fp32": [
            2 / 5 * of_tracking("mma-scaled"),
            2 / 5 * of_tracking("mma-split"),
        ],
        "tf32 # µs and # µs before, # µs and # µs after; fp32 # µs and # µs before, # µs and # µs after": [
            *rounds("tf32"),
            *rounds("fp32"),
        ],
        "for each tile: # µs and # µs in one process": in_graph("h200-constants", "tf32"),
        "is #× to #× faster on layers 3 to 5": span([faster(layer, N) for layer in (3, 4, 5) for N in (1, BATCH)]),
        "take # µs and cuDNN's # µs": [
            *in_graph("h200-together", "tf32")[-1:],
            min(1e3 * summarize(graph["samples"]["kernel"]).median for graph in graphs_of_cudnn()),
        ],
        "Clusters of two gain # µs and # µs": [gained(3), gained(4)],
        "took # µs, # µs and # µs in fp32, tf32 and fp16, where those without took # µs, # µs and # µs": [
            graph(precision, clusters) for clusters in (True, False) for precision in classes
        ],
        "`mma-split` # to #, where": errors("mma-split"),
        "(`direct-register`) has # to #;": errors("direct-register"),
        "`mma-tf32` and `mma-scaled` # to #;": errors("mma-tf32", "mma-scaled"),
        "`mma-half` # to #.": errors("mma-half"),
    }


def frontier() -> dict[str, list[float]]:
    def error(rung: str) -> float:
        (point,) = points("h200-frontier.jsonl", rung=rung, layer=1, N=BATCH)
        return float(point["error"]["scaled"])

    def events_apart(name: str) -> float:
        return 1e3 * float(lines(f"microbenchmarks/{name}.jsonl", "microbenchmarks")[-1]["launch"]["kernels"]["0"])

    def kernel(rung: str, entry: str) -> dict[int, float]:
        timelines = [
            timeline for timeline in lines("h200-profile-cudnn.jsonl", "timeline") if timeline["point"]["rung"] == rung
        ]
        return {
            timeline["point"]["layer"]: sum(launch["us"] for launch in timeline["kernels"] if launch["entry"] == entry)
            for timeline in timelines
        }

    scaled, half = kernel("wgmma-scaled", "multiply"), kernel("wgmma-half", "multiply")

    def slower(layer: int, after: str, before: str) -> float:
        later, earlier = (ms("wgmma-split", layer, f"compare/{name}.jsonl") for name in (after, before))
        return 100 * (later / earlier - 1)

    again = "h200-2-frontier-again.jsonl", "h200-3-frontier-again.jsonl"

    split = [ms("wgmma-split", 4, name) for name in (*again, "h200-frontier.jsonl")]

    def apart(precision: str) -> float:  # the larger sum of fastest rungs over the smaller, less 1
        sums = []
        for name in again:
            own = [
                (point["point"]["layer"], summarize(point["samples"]["kernel"]).median)
                for point in points(name, workload="alexnet", N=BATCH, precision=precision)
                if point["status"] == "ok" and not point["point"]["rung"].startswith("torch-")
            ]
            sums.append(sum(min(took for at, took in own if at == layer) for layer in range(1, 6)))
        return max(sums) / min(sums) - 1

    many, few = (1e3 * ms("wgmma-half", 3, "h100/overlapped-2.jsonl", N=N) for N in (128, 64))
    stage, stages = 2 * 64 * (256 + 128), ALEXNET.layer(3).K // 64  # bytes of factors, of 64 taps
    (half_point,) = points("h100/overlapped-2.jsonl", rung="wgmma-half", layer=3, N=128)
    (counted,) = (
        launch["metrics"]["clock_hz"] / 1e6
        for timeline in lines("h200-profile-cudnn.jsonl", "timeline")
        if (timeline["point"]["rung"], timeline["point"]["layer"]) == ("wgmma-half", 3)
        for launch in timeline["kernels"]
        if launch["entry"] == "multiply"
    )
    taken = [stage * stages / (many - few) / mhz for mhz in (half_point["audit"]["clock_mhz"], counted)]
    loads = lines("microbenchmarks/h100.jsonl", "microbenchmarks")[0]["tma"]
    alone, pairs, twelves = (16384 / loads[f"tma_rate_16384{of} on 132"] for of in ("", "_pairs", "_twelves"))

    (window,) = (
        {launch["entry"]: launch for launch in timeline["kernels"]}
        for timeline in lines("h200-profile-cudnn.jsonl", "timeline")
        if timeline["point"]["rung"] == "wgmma-window-half"
    )
    return {
        "`wgmma-split` on layer 4, by # % in both runs, and on layer 3 by # %": [
            slower(4, "h100-after", "h100-before"),
            slower(3, "h100-after", "h100-before"),
        ],
        "the pass takes # µs, and the product 52, in which the tensor pipe is busy for # %": [
            window["prepare_input"]["us"],
            window["multiply"]["metrics"]["tensor_pipe"],
        ],
        "a pass of 17 to # µs on layers 2 to 5, with counters read, then products that take 16 to # % longer": [
            max(kernel("wgmma-scaled", "prepare_input").values()),
            100 * (max(scaled[layer] / us for layer, us in half.items()) - 1),
        ],
        "on layer 1: # of the norms here, # in cuDNN's": [error("wgmma-window-scaled"), error("torch-nchw-tf32")],
        "layer 4 (# to # ms then, # now)": [*span(split[:2]), split[2]],
        "nearly, differ by about # %": [100 * max(apart(precision) for precision in ("fp32", "tf32", "fp16"))],
        "would take # bytes a cycle from the L2 cache; they took # at the clock that the records report, # at": [
            stage / 1024,
            *taken,
        ],
        "cache gives # if no lines are shared, # to # if they are": [alone, pairs, twelves],
        "between them are # µs apart on one card, and # µs on another": [
            events_apart("h200"),
            events_apart("h200-groups"),
        ],
    }


def gradients() -> dict[str, list[float]]:
    waiting = {
        line["point"]["constants"]["CLUSTER"]: line["metrics"]["stall_membar"]
        for line in lines("gradients/others/h100-counters.jsonl", "profile")
        if (line["point"]["rung"], line["point"]["layer"], line["entry"]) == ("wgrad-wgmma-half", 3, "multiply")
    }
    assert waiting[1] < 0.05

    def half(layer: int, name: str, **axes: object) -> float:
        return ms("wgrad-wgmma-half", layer, name, direction="wgrad", **axes)

    def of_cluster(precision: str, layer: int, N: int = BATCH) -> float:
        """Time in clusters over time without, in percent more."""
        by_size = {
            point["point"]["constants"]["CLUSTER"]: summarize(point["samples"]["kernel"]).median
            for point in points("gradients/others/h200-clusters.jsonl", precision=precision, layer=layer, N=N)
            if point["point"]["rung"] in ("wgrad-wgmma-half", "wgrad-wgmma-scaled") and point["status"] == "ok"
        }
        return 100 * (by_size[2] / by_size[1] - 1)

    def of_wgrad(layer: int) -> float:
        """cuDNN's error on a layer with many images, over norms."""
        (point,) = points("gradients/h200.jsonl", rung="torch-nchw-fp32", layer=layer, N=BATCH, direction="wgrad")
        return float(point["error"]["scaled"])

    def of_step(layer: int) -> float:
        """The same in the step."""
        axes = {"layer": layer, "N": BATCH, "precision": "fp32"}
        (line,) = (
            line for line in lines("training/h200-alexnet.jsonl", "library-training") if axes.items() <= line.items()
        )
        return float(line["error"]["cudnn-nchw"]["wgrad"])

    classes = "fp16", "tf32"
    before, after = "compare/h100-wgrad-before.jsonl", "compare/h100-wgrad-after.jsonl"

    return {
        "a warp waited for memory barriers for # cycles for each instruction": [waiting[2]],
        "they gain # % on layer 2 in fp16 and # % in tf32": [-of_cluster(precision, 2) for precision in classes],
        "they change at most # %": [
            max(abs(of_cluster(precision, layer)) for precision in classes for layer in (3, 4, 5))
        ],
        "With one image they lose up to # %": [
            max(of_cluster(precision, layer, 1) for precision in classes for layer in (3, 4, 5))
        ],
        "the tolerance of #: on layers 3 to 5 errors are #, # and # with 128 images, in those tables #, # and #.": [
            PRECISIONS["fp32"].tolerance(ALEXNET.layer(3).toward("wgrad").products(BATCH)),
            *(of_step(layer) for layer in (3, 4, 5)),
            *(of_wgrad(layer) for layer in (3, 4, 5)),
        ],
        "layers 3 and 4 take # ms and # ms instead of # ms and # ms": [
            half(3, after),
            half(4, after),
            half(3, before),
            half(4, before),
        ],
    }


def whole_networks() -> dict[str, list[float]]:
    def newest_of(name: str, network: str = "alexnet-torchvision", **axes: object) -> dict[str, Any]:
        wanted = {"network": network, "precision": "fp16", "N": 1, "rungs": "auto", **axes}
        *_, record = (line for line in lines(f"{name}.jsonl", "network") if wanted.items() <= line["axes"].items())
        return record

    def us(name: str, figure: str = "kernel", **axes: Any) -> float:
        return 1e3 * summarize(newest_of(name, **axes)["samples"][figure]).median

    def apart(schedule: str, N: int, name: str = "h100/networks-whole-4") -> float:
        return us(name, network="alexnet-2012", schedule=schedule, N=N)

    newest = "h200-networks-whole"

    begins = next(line["timeline"] for line in lines(f"{newest}.jsonl", "network") if "timeline" in line)

    def ahead(slots: int) -> float:  # of a kernel that brought so many slots of each warp into the L2 cache
        recorded = lines("persistent/h200-l2-prefetch.jsonl", "network")
        (samples,) = (
            line["samples"]["kernel"] for line in recorded if line["stages"][0]["constants"]["AHEAD"] == slots
        )
        return 1e3 * summarize(samples).median

    def stalls(reason: str) -> float:  # percent of the samples of the convolutions
        table = csv.DictReader((ROOT / "results/persistent/h200-stalls.csv").read_text().splitlines())
        convolutions = [row for row in table if row["stage"].startswith("conv")]
        stalled, samples = (sum(int(row[name]) for row in convolutions) for name in (f"stall_{reason}", "samples"))
        return 100 * stalled / samples

    def pool_us(name: str, number: int) -> float:  # with 128 images
        stages = {stage["stage"]: stage for stage in newest_of(name, schedule="dependent", N=128)["stages"]}
        return 1e3 * summarize(stages[f"pool{number}"]["samples"]["kernel"]).median

    pools = {number: pool_us(newest, number) for number in (1, 2, 5)}

    def rounds(schedule: str, precision: str) -> list[float]:  # before and after max.NaN, two each
        wanted = {"precision": precision, "schedule": schedule, "N": 128}
        return [
            1e3 * summarize(line["samples"]["kernel"]).median
            for when in ("before", "after")
            for line in lines(f"pooling/h200-{when}.jsonl", "network")
            if wanted.items() <= line["axes"].items()
        ]

    def of_terms(epilogue: str, precision: str) -> list[float]:
        wanted = {"precision": precision, "N": 128}
        recorded = lines(f"whole/h200-terms-{epilogue}.jsonl", "network")
        samples = (line["samples"]["kernel"] for line in recorded if wanted.items() <= line["axes"].items())
        return [1e3 * summarize(kernel).median for kernel in samples]

    slot = 132 * 16 * 2048 / 1e6  # MB: each multiprocessor's 16 warps have one
    return {
        "took # µs instead of # µs with one image, and # µs instead of # µs with 128": [
            *(apart(schedule, 1) for schedule in ("fused", "epilogue")),
            *(apart(schedule, 128) for schedule in ("fused", "epilogue")),
        ],
        "so `epilogue` took # µs and # µs": [apart("epilogue", N, "h100/networks-whole-5") for N in (1, 128)],
        "# % wait for instructions, # % at barriers, for the stage before or for other warps, and # % for memory": [
            stalls(reason) for reason in ("no_inst", "barrier", "long_sb")
        ],
        "measured # µs, where `dependent` takes # µs on the same card": [
            us(newest, schedule=schedule) for schedule in ("persistent", "dependent")
        ],
        "took # µs, with 17 MB ahead # µs, with 26 MB # µs, with 52 MB # µs": [ahead(slots) for slots in (0, 4, 6, 12)],
        "with # MB ahead": [4 * slot],
        "the three poolings take # µs of the # µs in fp16": [
            sum(pools.values()),
            us(newest, schedule="dependent", N=128),
        ],
        "took # µs and # µs on one card, where without them # µs and # µs": [
            pool_us(f"pooling/h200-{trial}", number) for trial in ("strips", "before") for number in (1, 2)
        ],
        "in fp16 took # µs and # µs, and takes # µs and # µs": rounds("dependent", "fp16"),
        "in tf32 took # µs and # µs, and takes # µs and # µs": rounds("pooled", "tf32"),
        "in fp32 # µs and # µs, and takes # µs and # µs": rounds("pooled", "fp32"),
        "full to # % instead of # %": [100 * 5 * 57 / (5 * 64), 100 * 55 / 57],  # of conv1's outputs, 55 in a row
        "in tf32 # µs and # µs, twice # µs and # µs": of_terms("once", "tf32") + of_terms("twice", "tf32"),
        "in fp32 # µs and # µs, twice # µs and # µs": of_terms("once", "fp32") + of_terms("twice", "fp32"),
        "takes # µs for 1024 images in fp16, where `dependent` takes # µs": [
            us("whole/h200-compiled", N=1024, rungs=rungs) for rungs in ("torch-compile", "auto")
        ],
        "the linear layers take # µs": [begins[8] - begins[5]],
        "the five convolutions with their poolings take # µs": [begins[5] - begins[0]],
        "these launches took # µs here, and # µs and # µs on hosts": [
            us(name, "latency", schedule="stream")
            for name in (newest, "h100/networks-whole-1", "h100/networks-whole-2")
        ],
    }


def of_channels(layer: int) -> float:
    """Microseconds of depthwise-channels with one image."""
    of_layer = {"workload": "depthwise", "rung": "depthwise-channels", "layer": layer, "N": 1}
    (point,) = points("memory-bound/h200.jsonl", **of_layer)
    return 1e3 * summarize(point["samples"]["kernel"]).median


def board() -> dict[str, list[float]]:
    def of_layer(name: str, rung: str, layer: int) -> list[float]:
        (point,) = points(f"board/{name}.jsonl", rung=rung, layer=layer)
        samples: list[float] = point["samples"]["kernel"]
        return samples

    cudnn, ours = (of_layer("h100-board", rung, 4) for rung in ("torch-nchw-tf32", "wgmma-scaled"))
    fft, tf32 = (summarize(of_layer("h200-large", rung, 5)).median for rung in ("torch-nchw-fp32", "wgmma-scaled"))
    return {
        "six samples lie between # and # ms; #× is of little weight": [
            *span(cudnn),
            summarize(cudnn).median / summarize(ours).median,
        ],
        "and # % less than ours in tf32": [100 * (1 - fft / tf32)],
    }


def memory_bound() -> dict[str, list[float]]:
    wide = [of_channels(layer) for layer in range(20, 24)]
    return {
        "the other: # µs to # µs on layers 20 to 23": [min(wide), max(wide)],
        "and # µs on layer 19": [of_channels(19)],
    }


def accuracy() -> dict[str, list[float]]:
    return {"has a margin of #": [lines("h200-accuracy.jsonl", "accuracy")[0]["reference_margin"]]}


def predict() -> dict[str, list[float]]:
    results = ROOT / "results"
    stages = page.network_times(results, *page.BLIND_NETWORKS)

    def off(network: str, stage: str, precision: str, N: int = BATCH) -> float:
        """How far a stage's prediction is off, in percent of the measured time."""
        wanted = {"network": network, "precision": precision, "N": N}
        (time,) = (time for time in stages if time.stage == stage and wanted.items() <= time.axes.items())
        assert time.error is not None
        return time.error

    def of_scatter(known: list[Pair], N: int) -> list[float]:
        """Predicted over measured times of layers 3 to 5."""
        ratios = {
            pair.point["layer"]: pair.ratio
            for pair in known
            if (pair.point["rung"], pair.point["workload"], pair.point["N"]) == ("tiled-scatter-atomic", "alexnet", N)
        }
        return [ratios[layer] for layer in (3, 4, 5)]

    def unrolled() -> float:
        """Predicted microseconds of the im2col kernel on layer 2."""
        (prediction,) = (
            line
            for line in lines("predicted/h200.jsonl", "prediction")
            if (line["point"]["rung"], line["point"]["layer"], line["point"]["N"])
            == ("unroll-register-matmul", 2, BATCH)
            and line["point"]["workload"] == "alexnet"
        )
        return next(1e3 * float(launch["ms"]) for launch in prediction["launches"] if launch["entry"] == "unroll")

    old, halves = ("lenet-72-k7", "lenet-70-k5"), ("lenet-72-k7", "lenet-70-k5", "lenet-86-k7")
    slow, fast = ([off(name, stage, "fp32") for name in old] for stage in ("conv1", "pool1"))
    assert max(slow) - min(slow) < 1 > max(fast) - min(fast)
    assert all(abs(off("alexnet-torchvision", stage, "fp32", 8)) < 5 for stage in ("linear7", "linear8"))
    return {
        "is # % too slow, and the pooling after it # % too fast": [max(slow), -min(fast)],
        "On lenet-86-k7 the layer is # % too slow and the pooling # %": [
            off("lenet-86-k7", "conv1", "fp32"),
            off("lenet-86-k7", "pool1", "fp32"),
        ],
        "is #, # and # % too slow, and the pooling after it in fp16 #, # and # %": [
            *(off(name, "conv1", "fp16") for name in halves),
            *(off(name, "pool1", "fp16") for name in halves),
        ],
        "`wgmma-half-blocked` on lenet-86-k7 # %": [-off("lenet-86-k7", "conv2", "fp16")],
        "predicted are #, # and # of the measured times with one image": of_scatter(page.h100_pairs(results), 1),
        "and #, # and # with 128 images, on the H200": of_scatter(page.known_pairs(results), BATCH),
        "# µs against # µs on layer 2": [
            unrolled(),
            counter("duration_ns", 2, "unroll-register-matmul", "unroll") / 1e3,
        ],
    }


TEXTS: dict[str, Callable[[], dict[str, list[float]]]] = {
    "docs/accuracy.md": accuracy,
    "docs/board.md": board,
    "docs/frontier.md": frontier,
    "docs/gradients.md": gradients,
    "docs/alexnet-study.md": alexnet_study,
    "docs/precision.md": precision,
    "docs/predict.md": predict,
    "docs/frontier-small-batch.md": small_batch,
    "docs/memory-bound.md": memory_bound,
    "docs/whole-networks.md": whole_networks,
}
STUDY, RULE, GOAL, ARITHMETIC, LIMITS, TESTED = (
    "the study's own",
    "a rule",
    "a goal",
    "counted, not measured",
    "a goal over a limit, both in the table of limits",
    "a test asserts it",
)
NOT_MEASURED = {  # numbers with units that are no measurements, and what they are
    "docs/alexnet-study.md": {"where the study saw # %": STUDY},
    "docs/board.md": {
        "<= # + # |r|": RULE,
        "until its error is # %": RULE,
        "reference to #, but": RULE,
        "below the # ms that an H100's CUDA cores need": ARITHMETIC,
        "Goals were # ms in fp32, which is retired by the arithmetic below, and # ms": GOAL,
        "data sheet has # TFLOP/s, # ms, and # ms would be # % of it": ARITHMETIC,
        "16/7 = # times fewer": ARITHMETIC,
        "would save most, # times": ARITHMETIC,
    },
    "docs/cluster.md": {
        "The goal is # %.": GOAL,
        "worker's thread # times a second": RULE,
        "own host # times over": RULE,
    },
    "docs/course.md": {"# s of CPU time (`cpu_seconds`), # s in which": RULE},
    "docs/frontier-small-batch.md": {"every tile of pixels, 3 to # times, those of layer 1 # times": ARITHMETIC},
    "docs/frontier.md": {
        "once the # % interval of each figure's median lies within # % of it": RULE,
        "took samples for # s or up to 50": RULE,
        "in later records for # ms at most": RULE,
        "A ratio's # % interval is a bootstrap": RULE,
        "once they have run for # s": RULE,
        "loops take # cycles for 1024 products": ARITHMETIC,
        "The predictions took # TFLOP/s": "what a prediction assumed",
        "layers 2 to 5 are 92, 96, 96 and # % full: # % over all four": ARITHMETIC,
        "The goal takes # % of the limit, and": LIMITS,
        "# TFLOP/s on one layer are # % of the limit": LIMITS,
        "# % of the peak is # µs.": GOAL,
        "5,120 bytes of shared memory in # cycles": ARITHMETIC,
        "the goals are beyond # % of their limits": LIMITS,
        "# ms in strict fp32": GOAL,
        "are # % of the data sheet's rate, and retired; # ms": GOAL,
    },
    "docs/precision.md": {"on scales from # to 3e38": RULE},
    "docs/predict.md": {"(within # % on the others)": TESTED},
    "docs/trust.md": {
        "on a GPU, are within # % of the plan": TESTED,
        "(1 - p)^k: # % for a share of 0.3 and ten samples, # % for the three": ARITHMETIC,
    },
}
FORESEEN = re.compile("[Pp]redicted")


def paragraphs(document: str) -> list[str]:
    """A document's own text, a line for each paragraph, without tables, generated parts and code."""
    text = (ROOT / document).read_text()
    text = re.sub(r"<!-- ([\w-]+): begin -->.*?<!-- \1: end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    parts = re.split(r"\n{2,}|\n(?= *[-*] )", re.sub(r"^\|.*$", "", text, flags=re.MULTILINE))
    return [re.sub(r"\s+", " ", part) for part in parts]


def pattern(words: str) -> re.Pattern[str]:
    return re.compile(re.escape(words).replace(r"\ ", " ").replace(r"\#", f"({NUMBER})"))


def agrees(printed: str, value: float) -> bool:
    """Whether a number is the value to the digits that are printed."""
    digits, _, exponent = printed.replace(",", "").partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    return abs(float(printed.replace(",", "")) - value) <= 0.501 * unit


def uncovered(document: str) -> list[str]:
    """Paragraphs with numbers that have units and are in no text of this file."""
    unsourced = []
    known = [*TEXTS.get(document, dict)(), *NOT_MEASURED.get(document, ())]
    for part in paragraphs(document):
        rest = part
        for words in known:
            rest = pattern(words).sub("", rest)
        if MEASURED.search(rest) and not FORESEEN.search(rest):
            numbers = [number[0] for number in MEASURED.finditer(rest)]
            unsourced.append(f"{document}: {numbers} in {part}")
    return unsourced


@pytest.mark.parametrize("document", TEXTS)
def test_measured_numbers_in_sentences_follow_from_the_records(document: str) -> None:
    wrong = []
    text = "\n".join(paragraphs(document))
    for words, values in TEXTS[document]().items():
        sentence = pattern(words).search(text)
        assert sentence, f"{document} does not say: {words}"
        assert len(sentence.groups()) == len(values), words
        pairs = list(zip(sentence.groups(), values, strict=True))
        if not all(agrees(printed, value) for printed, value in pairs):
            wrong.append(f"{sentence[0]}: {', '.join(f'{value:.6g}' for _, value in pairs)}")
    assert not wrong, "\n".join(wrong)


def test_the_floors_of_one_image_are_at_the_measured_rates() -> None:
    rates = {
        row["factors"]: row["flops"] for row in lines("h200-ceilings.jsonl", "ceilings")[-1]["tensor"] if of_mma(row)
    }
    text = (ROOT / "docs/frontier-small-batch.md").read_text().partition("three fp16 products, µs")[2]
    rows = [line.strip("| ").split(" | ") for line in text.partition("\n\n")[0].splitlines()[2:]]
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5", "all"]
    for _, macs, *times, _ in rows:
        operations = 2e12 * float(macs)
        wanted = operations / rates["tf32"], operations / rates["fp16"], 3 * operations / rates["fp16"]
        assert [float(time) for time in times] == pytest.approx(wanted, abs=0.1)


def of_mma(rate: dict[str, Any]) -> bool:
    return (rate["instruction"], rate["operands"]) == ("mma.sync", "random")


def test_no_other_number_with_a_unit_is_in_the_docs_own_sentences() -> None:
    documents = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
    assert not [text for document in documents for text in uncovered(document)]
    assert all(
        pattern(words).search("\n".join(paragraphs(name))) for name, known in NOT_MEASURED.items() for words in known
    )


def test_a_number_without_a_record_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "README.md").write_text("A rung.\n\nIt takes\n0.5 ms.\n\n<!-- a: begin -->\n7 ms\n<!-- a: end -->\n")
    monkeypatch.setattr("test_prose.ROOT", tmp_path)
    assert uncovered("README.md") == ["README.md: ['0.5 ms'] in It takes 0.5 ms."]


def over(predicted: dict[int, float], rung: str) -> list[float]:
    """Measured over predicted times of a rung, layer by layer."""
    return [ms(rung, layer, FRONTIER) / time for layer, time in predicted.items()]


def images_at_2048() -> float:
    """An image's time at N=2048 over one's at N=128, wgmma-window-scaled on layer 1."""
    many, few = (ms("wgmma-window-scaled", 1, SCALING, N=N, transfer="pinned") / N for N in (2048, BATCH))
    return many / few


def beyond_half() -> float:
    """What wgmma-scaled takes longer than wgmma-half, with layer 1 blocked, over what was predicted."""
    scaled = [ms("wgmma-scaled", layer, FRONTIER) for layer in range(1, 6)]
    half = [ms("wgmma-half-blocked", 1, FRONTIER), *(ms("wgmma-half", layer, FRONTIER) for layer in range(2, 6))]
    return (sum(scaled) - sum(half)) / 0.12


FRONTIER, SCALING = "h200-frontier.jsonl", "h200-frontier-scaling.jsonl"
ROUGHLY: dict[str, tuple[float, float, Callable[[], list[float]]]] = {  # in docs/frontier.md, and what that allows
    "Within a fifth of the prediction on each layer.": (
        *(4 / 5, 6 / 5),
        lambda: over({2: 0.16, 3: 0.05, 4: 0.075, 5: 0.06}, "wgmma-half"),
    ),
    "Nearly twice the predicted time.": (
        *(1.7, 2),
        lambda: over({1: 0.075}, "wgmma-half-blocked"),
    ),
    "extra time over wgmma-half is six tenths more than predicted": (1.5, 1.7, lambda: [beyond_half()]),
    "*Measured.* Within a tenth of the prediction. On layers 2 to 5": (
        *(0.9, 1.1),
        lambda: [sum(ms("wgmma-split", layer, FRONTIER) for layer in range(1, 6)) / 1.35],
    ),
    "In fp16 a twentieth longer than predicted": (1.02, 1.08, lambda: over({1: 0.08}, "wgmma-window-half")),
    "Within a fifth of the prediction.": (
        *(0.8, 1.2),
        lambda: over({1: 0.16}, "wgmma-split-resident"),
    ),
    "within a tenth of the prediction.": (
        *(0.9, 1.1),
        lambda: over({2: 0.33, 3: 0.136, 4: 0.19, 5: 0.141}, "wgmma-winograd"),
    ),
    "Predicted was N=128's time per image; measured was within a tenth of it": (0.9, 1.1, lambda: [images_at_2048()]),
}


@pytest.mark.parametrize("words", ROUGHLY)
def test_outcomes_of_predictions_match_the_records(words: str) -> None:
    least, most, ratios = ROUGHLY[words]
    assert words in "\n".join(paragraphs("docs/frontier.md"))
    assert all(least <= ratio <= most for ratio in ratios()), ratios()
