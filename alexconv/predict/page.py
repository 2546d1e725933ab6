"""The tables of docs/predict.md, from measured records and predictions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, nan
from pathlib import Path
from statistics import fmean, median

from alexconv.kernels.ladder import ALL_DIRECTIONS, RUNGS
from alexconv.predict.accuracy import Pair, identity, median_ms, pairs, picks, predictions_in, spearman, table
from alexconv.predict.predictions import NETWORK_TYPE
from alexconv.predict.split import STUDY_FAMILIES
from alexconv.records.compressed import files_in
from alexconv.records.store import Record, Records, read
from alexconv.shapes import WORKLOADS

H100 = Path("h100", "main-job.jsonl")
SECOND = "h100/blind.jsonl"  # points that were not measured on an H100 before they were predicted
NETWORKS = "h100-networks.jsonl", "h100/networks-whole-*.jsonl"  # predictions made after these measurements
BLIND_NETWORKS = "h100-networks-blind.jsonl", "h100/networks-blind.jsonl"  # and before these
WHOLE = "whole network"
SUMMED = "whole network from its measured stages"  # and the predicted gaps


def known_pairs(results: Path) -> list[Pair]:
    """Measured points of a checkout's ``results`` with their predictions."""
    return pairs(measured_h200(results), predictions_in(read([results / "predicted" / "h200.jsonl"])))


def measured_h200(results: Path) -> Records:
    """The H200's records."""
    return read(files_in(results, "h200-*.jsonl"))


def parts(results: Path) -> dict[str, str]:
    """The page's tables by the names of their markers."""
    folder = results / "predicted"
    known = known_pairs(results)
    h100 = pairs(read([results / H100]), predictions_in(read([folder / "h100-blind.jsonl"])))
    again = h100_pairs(results)
    second = pairs(
        read(files_in(results, SECOND)), predictions_in(read([folder / "h100-blind-2.jsonl"])), ALL_DIRECTIONS
    )
    others = {"H100, blind": h100, "H100 since": again, "H100, blind again": second}
    tables = {
        "ladder": ladder(known),
        "goals": goals(known, {name: chosen for name, chosen in others.items() if chosen}),
        "records": table(known),
        "misses": misses(known),
        "h100": table(h100),
        "h100-misses": misses(h100),
        "h100-again": table(again),
        "h100-again-misses": misses(again),
        "h200-again": improved(
            known, pairs(measured_h200(results), predictions_in(read([folder / "h200-again.jsonl"])))
        ),
        "second": table(second) if second else ["Not measured."],
        "second-misses": misses(second) if second else [],
        "networks": networks(network_times(results, *NETWORKS)),
        "network-errors": network_errors(network_times(results, *NETWORKS)),
        "networks-blind": whole_networks(network_times(results, *BLIND_NETWORKS)),
        "networks-blind-errors": network_errors(network_times(results, *BLIND_NETWORKS)),
    }
    return {name: "\n".join(lines) for name, lines in tables.items()}


def h100_pairs(results: Path) -> list[Pair]:
    """An H100's measured points with the predictions that were made after them."""
    return pairs(read([results / H100]), predictions_in(read([results / "predicted" / "h100.jsonl"])))


@dataclass(frozen=True)
class NetworkTime:
    """A stage of a network, or a network with all its stages: predicted and measured milliseconds."""

    axes: Record
    stage: str
    kind: str
    rung: str
    predicted: float | None
    measured: float | None  # None where no record has the stage alone, with the same rung and constants

    @property
    def error(self) -> float | None:
        """Predicted less measured, in percent of measured."""
        return 100 * (self.predicted / self.measured - 1) if self.predicted and self.measured else None

    @property
    def missed(self) -> float | None:
        """Predicted less measured milliseconds."""
        return self.predicted - self.measured if self.predicted and self.measured else None


def network_times(results: Path, predicted: str, measured: str) -> list[NetworkTime]:
    """Networks that were predicted, each stage and then the whole; the median of its records."""
    records = of_type(read(files_in(results, measured)), "network")
    return compared(of_type(read([results / "predicted" / predicted]), NETWORK_TYPE), records)


def compared(predictions: Sequence[Record], measured: Sequence[Record]) -> list[NetworkTime]:
    """Networks' predictions beside the measured networks of the same axes whose stages are the same kernels."""
    times = []
    for prediction in predictions:
        axes, stages = prediction["axes"], prediction["stages"]
        same = [
            record
            for record in measured
            if record["axes"] == axes and record["status"] == "ok" and record.get("samples")
        ]
        same = [record for record in same if list(map(_computed, record["stages"])) == list(map(_computed, stages))]
        for number, stage in enumerate(stages):
            alone = [record["stages"][number] for record in same if record["stages"][number].get("samples")]
            facts = stage["stage"], stage["kind"], stage["rung"], stage.get("ms")
            times.append(NetworkTime(axes, *facts, _median_of(alone)))
        whole = _median_of(same)
        times.append(NetworkTime(axes, WHOLE, WHOLE, "", prediction.get("ms"), whole))
        alone_ms = [time.measured for time in times[-len(stages) - 1 : -1]]
        if "ms" in prediction and all(alone_ms):
            gaps = fsum(stage["ms_in_network"] - stage["ms"] for stage in stages)
            times.append(NetworkTime(axes, SUMMED, SUMMED, "", fsum(ms or 0 for ms in alone_ms) + gaps, whole))
    return times


def of_type(records: Records, name: str) -> list[Record]:
    """The headers of a type."""
    return [header for header in records.headers.values() if header["type"] == name]


def _computed(stage: Record) -> tuple[object, ...]:
    """Stages with the same value are the same kernels."""
    return stage["stage"], stage["rung"], stage["constants"]


def _median_of(timed: Sequence[Record]) -> float | None:
    return median(median_ms(record) for record in timed) if timed else None


def networks(times: Sequence[NetworkTime]) -> Iterator[str]:
    """Lines of a table of stages that were timed alone, and of whole networks."""
    yield "| class | N | schedule | stage | rung | predicted, µs | measured, µs | error % |"
    yield "|---|---:|---|---|---|---:|---:|---:|"
    for time in times:
        if time.measured or time.stage == WHOLE:
            axes = (time.axes[name] for name in ("precision", "N", "schedule"))
            us = (f"{1e3 * ms:.1f}" if ms else "-" for ms in (time.predicted, time.measured))
            error = "-" if time.error is None else f"{time.error:+.0f}"
            yield f"| {' | '.join(map(str, (*axes, time.stage, time.rung, *us, error)))} |"


def whole_networks(times: Sequence[NetworkTime]) -> Iterator[str]:
    """Lines of a table of whole networks, each with the stage that is most microseconds off."""
    yield "| network | class | N | predicted, µs | measured, µs | error % | furthest stage | rung | off by, µs | % |"
    yield "|---|---|---:|---:|---:|---:|---|---|---:|---:|"
    for whole in (time for time in times if time.stage == WHOLE):
        stages = [time for time in times if time.axes == whole.axes and time.rung and time.missed is not None]
        furthest = max(stages, key=lambda time: abs(time.missed or 0), default=None)
        of_stage = (furthest.stage, furthest.rung, *_signed(furthest)) if furthest else ("-",) * 4
        names = (whole.axes[name] for name in ("network", "precision", "N"))
        us = (f"{1e3 * ms:.1f}" if ms else "-" for ms in (whole.predicted, whole.measured))
        yield f"| {' | '.join(map(str, (*names, *us, _signed(whole)[1], *of_stage)))} |"


def _signed(time: NetworkTime) -> tuple[str, str]:
    """Microseconds and percent of an error."""
    if time.missed is None or time.error is None:
        return "-", "-"
    return f"{1e3 * time.missed:+.1f}", f"{time.error:+.0f}"


def network_errors(times: Sequence[NetworkTime]) -> Iterator[str]:
    """Lines of a table of errors by what a stage is, and of whole networks."""
    yield "| what | n | mean error % | predicted less measured, mean % | largest error % |"
    yield "|---|---:|---:|---:|---:|"
    for kind in dict.fromkeys([*(time.kind for time in times if time.rung), WHOLE, SUMMED]):
        signed = [time.error for time in times if time.kind == kind and time.error is not None]
        if signed:
            sizes = [abs(error) for error in signed]
            yield f"| {kind} | {len(signed)} | {fmean(sizes):.1f} | {fmean(signed):+.1f} | {max(sizes):.0f} |"


def with_band(gpu: str, known: Sequence[Pair]) -> str:
    """A GPU's description with the band of nine in ten measured times: ``below`` and ``above``."""
    shares = band([pair for pair in known if not pair.held_out])
    for name, share in zip(("below", "above"), shares, strict=True):
        gpu = re.sub(rf"(?m)^{name} = {{ value = [0-9.]+", f"{name} = {{ value = {share:.2f}", gpu)
    return gpu


def ladder(known: Sequence[Pair], workload: str = "alexnet", N: int = 128) -> Iterator[str]:
    """Lines of a table of the ladder on a network: predicted milliseconds of each layer, measured ones in brackets.

    Of a rung's several sets of constants, the one measured as fastest.
    """
    layers = range(1, len(WORKLOADS[workload].layers) + 1)
    best: dict[tuple[str, int], Pair] = {}
    for pair in known:
        key = pair.point["rung"], pair.point["layer"]
        if (pair.point["workload"], pair.point["N"]) == (workload, N):
            best[key] = min(best.get(key, pair), pair, key=lambda candidate: candidate.measured)
    yield "| rung | " + " | ".join(f"layer {layer}" for layer in layers) + " |"
    yield "|---|" + "---:|" * len(layers)
    for rung in RUNGS:
        cells = [_cell(best.get((rung, layer))) for layer in layers]
        if any(cell != "-" for cell in cells):
            yield f"| {rung} | {' | '.join(cells)} |"


def _cell(pair: Pair | None) -> str:
    if pair is None:
        return "-"
    predicted = "refused" if pair.predicted is None else f"{pair.predicted:.3g}"
    return f"{predicted} ({pair.measured:.3g})"


def errors(chosen: Sequence[Pair]) -> list[float]:
    """Errors of the points that are not refused, in percent."""
    return [100 * abs(pair.ratio - 1) for pair in chosen if pair.predicted is not None]


def band(chosen: Sequence[Pair]) -> tuple[float, float]:
    """The 5th and the 95th percentile of predicted over measured."""
    ratios = sorted(pair.ratio for pair in chosen if pair.predicted is not None)
    return ratios[round(0.05 * (len(ratios) - 1))], ratios[round(0.95 * (len(ratios) - 1))]


def goals(known: Sequence[Pair], others: Mapping[str, Sequence[Pair]]) -> Iterator[str]:
    """Lines of the table of goals: an H200's points, and other sets of points by name."""
    columns = ("goal", "at most", "H200, not held out", "H200, held out", *others)
    yield f"| {' | '.join(columns)} |"
    yield "|---" + "|---:" * (len(columns) - 1) + "|"
    groups = _held(known, False), _held(known, True), *others.values()

    def means(goal: str, limit: str, families: Sequence[str] = (), N: int | None = None) -> str:
        cells = []
        for chosen in groups:
            family_pairs = [pair for pair in chosen if not families or pair.family in families]
            percentages = errors([pair for pair in family_pairs if N is None or pair.point["N"] == N])
            cells.append(f"{fmean(percentages):.1f} (n {len(percentages)})" if percentages else "-")
        return f"| {goal} | {limit} | {' | '.join(cells)} |"

    yield means("study and LeNet rungs, mean error %", "6", STUDY_FAMILIES)
    study = [[pair for pair in chosen if pair.family in STUDY_FAMILIES] for chosen in groups]
    largest = " | ".join(f"{max(errors(chosen), default=nan):.0f}" for chosen in study)
    yield f"| the same, largest | 20 | {largest} |"
    ranks = " | ".join(f"{_rank(chosen):.3f}" for chosen in study)
    yield f"| the same, Spearman (at least) | 0.99 | {ranks} |"
    yield means("igemm, mean error %", "6", ["igemm"])
    yield means("mma, mean error %", "10", ["mma"])
    yield means("wgmma, mean error %", "12", ["wgmma"])
    yield means("all, mean error %", "-")
    yield means("N = 1, mean error %", "8", (), 1)
    counts = " | ".join("{} of {}".format(*picks(chosen)) for chosen in groups)
    yield f"| constants within 2 % of the best picked (at least) | 95 % | {counts} |"
    times = [f"{fmean(errors(chosen)) / fmean(errors(known)):.2f}" if chosen else "-" for chosen in others.values()]
    yield f"| error over that of the H200's points | 1.5 |  |  | {' | '.join(times)} |"


def improved(before: Sequence[Pair], after: Sequence[Pair]) -> Iterator[str]:
    """Lines of a table of the same points' errors before and after the model changed, by family."""
    old = {identity(pair.point): pair for pair in before if pair.predicted is not None}
    both = [(old[identity(pair.point)], pair) for pair in after if identity(pair.point) in old and pair.predicted]
    yield "| family | points | mean error before, % | after, % | largest before, % | after, % |"
    yield "|---|---:|---:|---:|---:|---:|"
    for family in (*dict.fromkeys(pair.family for _, pair in both), None):
        columns = zip(*(couple for couple in both if family in (None, couple[1].family)), strict=True)
        first, second = (errors(column) for column in columns)
        figures = f"{fmean(first):.1f} | {fmean(second):.1f} | {max(first):.0f} | {max(second):.0f}"
        yield f"| {family or 'all'} | {len(first)} | {figures} |"


def misses(known: Sequence[Pair]) -> Iterator[str]:
    """Lines of a table of the rungs with the largest mean errors."""
    yield "| rung | n | mean error % | predicted over measured, mean | largest error % |"
    yield "|---|---:|---:|---:|---:|"
    rungs: dict[str, list[Pair]] = {}
    for pair in known:
        if pair.predicted is not None:
            rungs.setdefault(pair.point["rung"], []).append(pair)
    worst = sorted(rungs.items(), key=lambda item: -fmean(errors(item[1])))[:10]
    for name, chosen in worst:
        percentages = errors(chosen)
        ratio = fmean(pair.ratio for pair in chosen)
        yield f"| {name} | {len(percentages)} | {fmean(percentages):.1f} | {ratio:.2f} | {max(percentages):.0f} |"


def _held(chosen: Sequence[Pair], held_out: bool) -> list[Pair]:
    return [pair for pair in chosen if pair.held_out == held_out]


def _rank(chosen: Sequence[Pair]) -> float:
    predicted = [pair for pair in chosen if pair.predicted is not None]
    return spearman([pair.ratio * pair.measured for pair in predicted], [pair.measured for pair in predicted])
