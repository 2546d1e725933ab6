"""Tables of docs/gradients.md: a training step's convolutions through the library beside torch's, convnet-benchmarks'
tables with them (``scripts/measure/library_bench.py --parts training``), and networks that train
(``examples/train_network.py``), loss by loss in a figure.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import fsum
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from alexconv.messages import plural
from alexconv.precisions import PRECISIONS
from alexconv.records.labels import device_name
from alexconv.records.published import benchmarks
from alexconv.records.statistics import faster
from alexconv.records.store import Record, read
from alexconv.reports.elements import MISSING, Cell, Plot, markdown_table
from alexconv.reports.style import COLOURS, WIDTH
from alexconv.shapes import CONVNETS, DGRAD, DIRECTIONS, FORWARD, WGRAD, WORKLOADS, Conv

KIND, RUN = "library-training", "library-run"
OURS, CUDNN, DETERMINISTIC = "alexconv", "cudnn", "cudnn-deterministic"
NAMES = {OURS: "alexconv", CUDNN: "cuDNN", DETERMINISTIC: "cuDNN, deterministic"}
STUDY, FIVE, NETWORKS = "alexnet", "convnet-layers", "convnet-benchmarks"
GOALS = {("fp32", 128): 3.8, ("fp16", 128): 1.3}  # ms of AlexNet's step
LIBRARIES = ("CuDNN[R4]-fp32 (Torch)", "CuDNN[R4]-fp16 (Torch)", "Nervana-neon-fp32", "fbfft (Torch)", "fbfft")
OF_LAYERS = ("fbfft", "CuDNN R2", "cuda-convnet2")
TITAN = "Titan X, 2015"
NOT_MEASURED = "Not measured."
DIGITS, RESNET = "digits", "resnet18"
LAST = 50  # steps whose losses are averaged
FIGURE = "digits-losses"


class Time(NamedTuple):
    """A contender's fastest layout in a direction: ms, and whether its error is within the class's tolerance."""

    ms: float
    right: bool


def times(record: Record, contender: str) -> dict[str, Time]:
    """A contender's times by direction; the fastest layout whose gradient is right, else the fastest."""
    conv, best = Conv(**record["conv"]), {}
    for direction in DIRECTIONS:
        tolerance = PRECISIONS[record["precision"]].tolerance(conv.toward(direction).products(record["N"]))
        timed = []
        for layout in ("nchw", "nhwc"):
            ms = record["graph_ms"].get(f"{contender}-{layout}", {}).get(direction)
            error = record["error"].get(f"{contender}-{layout}", {}).get(direction, 0.0)
            if ms is not None:
                timed.append(Time(ms, isinstance(error, float) and error <= tolerance))
        if timed:
            best[direction] = min(timed, key=lambda time: (not time.right, time.ms))
    return best


Layers = Mapping[tuple[str, int, int, str], Record]  # by workload, layer, N and precision


def by_layer(records: Sequence[Record]) -> Layers:
    """The last record of each layer, batch size and precision."""
    return {(of["workload"], of["layer"], of["N"], of["precision"]): of for of in records}


def batches(layers: Layers, workload: str) -> list[tuple[int, str]]:
    """The batch sizes and precisions in which all layers of a workload have a record."""
    numbers = range(1, len(WORKLOADS[workload].layers) + 1)
    of = dict.fromkeys((N, precision) for name, _, N, precision in layers if name == workload)
    return [(N, kind) for N, kind in of if all((workload, layer, N, kind) in layers for layer in numbers)]


def ms_text(ms: float | None) -> str:
    """Milliseconds with four digits."""
    return MISSING if ms is None else f"{ms:.4g}"


def total(known: Sequence[Mapping[str, Time]], direction: str) -> float | None:
    """The sum over layers of a direction's times; None where one is missing."""
    return fsum(of[direction].ms for of in known) if all(direction in of for of in known) else None


class Step(NamedTuple):
    """AlexNet's step by a contender: ms by direction, summed over layers, and the gradients that are wrong.

    The input of layer 1 has no gradient.
    """

    forward: float | None
    dgrad: float | None
    wgrad: float | None
    wrong: tuple[str, ...]

    @property
    def ms(self) -> float | None:
        """All of it; None where a part is missing."""
        if self.forward is None or self.dgrad is None or self.wgrad is None:
            return None
        return self.forward + self.dgrad + self.wgrad


def steps(layers: Layers) -> Iterator[tuple[int, str, dict[str, Step]]]:
    """AlexNet's steps by contender, for each batch size and precision."""
    numbers = range(1, len(WORKLOADS[STUDY].layers) + 1)
    for N, precision in batches(layers, STUDY):
        by = {}
        for contender in NAMES:
            of = [times(layers[STUDY, number, N, precision], contender) for number in numbers]
            if of[0]:
                wrong = tuple(
                    f"{direction} {number}"
                    for direction, first in ((DGRAD, 1), (WGRAD, 0))
                    for number, known in zip(numbers[first:], of[first:], strict=True)
                    if direction in known and not known[direction].right
                )
                by[contender] = Step(total(of, FORWARD), total(of[1:], DGRAD), total(of, WGRAD), wrong)
        yield N, precision, by


def step_rows(layers: Layers) -> Iterator[tuple[Cell, ...]]:
    """A row for each step."""
    for N, precision, by in steps(layers):
        for contender, step in by.items():
            goal = GOALS.get((precision, N)) if contender == OURS else None
            yield (
                NAMES[contender],
                precision,
                str(N),
                *map(ms_text, (step.forward, step.dgrad, step.wgrad, step.ms)),
                MISSING if goal is None else f"{goal:g}",
                ", ".join(step.wrong) or "none",
            )


def speedups(layers: Layers) -> Iterator[str]:
    """A sentence for each precision: AlexNet's step over cuDNN's."""
    for N, precision, by in steps(layers):
        ours = by[OURS].ms if OURS in by else None
        peers = {NAMES[peer]: step.ms for peer, step in by.items() if peer != OURS}
        if ours:
            against = [f"{faster(ms / ours)} than {peer}" for peer, ms in peers.items() if ms]
            yield f"* {precision}, N = {N}: {', '.join(against)}"


def layer_rows(layers: Layers) -> Iterator[tuple[Cell, ...]]:
    """Each of AlexNet's layers: the library's time over that of cuDNN's faster layout, and the rungs of gradients."""
    for N, precision in batches(layers, STUDY):
        for number in range(1, len(WORKLOADS[STUDY].layers) + 1):
            record = layers[STUDY, number, N, precision]
            ours, peer = times(record, OURS), times(record, CUDNN)
            rungs = {rung for of in record["rungs"].values() for way, rung in of.items() if way != FORWARD and rung}
            cells = []
            for direction in DIRECTIONS:
                one, other = ours.get(direction), peer.get(direction)
                mark = "" if other is None or other.right else " (wrong)"
                cells += [ms_text(one and one.ms), ms_text(other and other.ms) + mark]
            yield precision, str(N), str(number), *cells, ", ".join(f"`{rung}`" for rung in sorted(rungs))


def network_rows(layers: Layers) -> Iterator[tuple[Cell, ...]]:
    """convnet-benchmarks' networks: published whole networks on a Titan X, then the convolutions alone."""
    shapes = WORKLOADS[NETWORKS].layers
    for network, convolutions in CONVNETS.items():
        published = [row for row in benchmarks() if row.benchmark == network and row.library in LIBRARIES]
        numbers = [shapes.index(conv) + 1 for conv in convolutions]
        rows = []
        for precision in PRECISIONS:
            for contender in NAMES:
                of = [layers.get((NETWORKS, number, published[0].N, precision)) for number in numbers]
                known = [times(record, contender) for record in of if record]
                if len(known) == len(of) and known[0]:
                    sums = [total(known, direction) for direction in DIRECTIONS]
                    wrong = sum(not time.right for layer in known for time in layer.values())
                    mark = f" ({plural(wrong, 'gradient')} wrong)" if wrong else ""
                    rows.append((f"{NAMES[contender]}, {precision}{mark}", sums))
        if not rows:
            continue
        for row in published:
            whole = f"{row.forward_ms + row.backward_ms:.0f}"
            figures = f"{row.forward_ms:.0f}", MISSING, MISSING, f"{row.backward_ms:.0f}", whole
            yield network, f"{row.library}, {TITAN}", *figures
        for name, (forward, dgrad, wgrad) in rows:
            backward = None if dgrad is None or wgrad is None else dgrad + wgrad
            step = None if forward is None or backward is None else forward + backward
            yield network, name, *map(ms_text, (forward, dgrad, wgrad, backward, step))


def five_rows(layers: Layers) -> Iterator[tuple[Cell, ...]]:
    """convnet-benchmarks' five layers: forward and backward, published and on one card now."""
    numbers = range(1, len(WORKLOADS[FIVE].layers) + 1)
    measured = dict.fromkeys((N, precision) for name, _, N, precision in layers if name == FIVE)
    if not measured:
        return
    for library in OF_LAYERS:
        of = [row for row in benchmarks() if row.benchmark == "layers" and row.library == library]
        pairs = [(row.forward_ms, row.backward_ms) for row in of]
        yield f"{library}, {TITAN}", *(f"{forward:.0f} / {backward:.0f}" for forward, backward in pairs)
    for N, precision in measured:
        for contender in NAMES:
            of_layers = ((FIVE, number, N, precision) for number in numbers)
            known = [times(layers[key], contender) if key in layers else {} for key in of_layers]
            cells = []
            for way in known:
                if len(way) < len(DIRECTIONS):
                    cells.append(MISSING)
                    continue
                mark = "" if all(time.right for time in way.values()) else " (wrong)"
                cells.append(f"{way[FORWARD].ms:.3g} / {way[DGRAD].ms + way[WGRAD].ms:.3g}{mark}")
            if any(cell != MISSING for cell in cells):
                yield f"{NAMES[contender]}, {precision}", *cells


def runs(records: Sequence[Record], model: str) -> list[Record]:
    """The last training of a model in each precision and batch size."""
    last = {(record["precision"], record["N"]): record for record in records if record["model"] == model}
    return list(last.values())


def run_rows(records: Sequence[Record], model: str) -> Iterator[tuple[Cell, ...]]:
    """Each contender's step in its faster layout, and what the training gave."""
    for record in runs(records, model):
        by = record["by"]
        ms = {who: min(result["step_ms"].values()) for who, result in by.items()}
        for who, result in by.items():
            than = faster(ms["torch"] / ms[who]) if who != "torch" else MISSING
            step = who, record["precision"], str(record["N"]), ms_text(ms[who]), than
            if "losses" not in result:
                yield step
                continue
            last = result["losses"][-LAST:]
            same = "yes" if result["same_bits"] else "no"
            yield *step, f"{fsum(last) / len(last):.4f}", f"{result['accuracy']:.1%}", same


def losses_figure(records: Sequence[Record]) -> Figure:
    """The loss of every step of the trainings on digits: torch's as a broad line, this project's within it."""
    trainings = runs(records, DIGITS)
    figure = Figure(figsize=(WIDTH, 2.2 * len(trainings)), layout="constrained")
    for axes, record in zip(figure.subplots(len(trainings), 1, squeeze=False)[:, 0], trainings, strict=True):
        for who, colour, width in (("torch", COLOURS[1], 3.0), (OURS, COLOURS[7], 0.8)):
            axes.plot(record["by"][who]["losses"], color=colour, linewidth=width, label=who)
        axes.set_ylim(0, 1.05 * max(max(run["losses"]) for run in record["by"].values()))
        axes.set_ylabel("loss")
        axes.set_title(record["precision"], loc="left")
        axes.legend(frameon=False, loc="upper right")
    axes.set_xlabel("step")
    return figure


def plots(files: Sequence[Path]) -> list[Plot]:
    """The figure of losses; none without records."""
    records = of_kind(files, RUN)
    draw = partial(losses_figure, records)
    return [Plot(FIGURE, "Losses of networks that train", "", draw)] if runs(records, DIGITS) else []


def of_kind(files: Sequence[Path], kind: str) -> list[Record]:
    """The records of a kind in files."""
    return [record for record in read(files).headers.values() if record["type"] == kind] if files else []


STEP = ("by", "class", "N", "forward", "dgrad 2-5", "wgrad", "step, ms", "goal", "beyond the tolerance")
LAYER = ("class", "N", "layer", *(f"{way}{who}" for way in DIRECTIONS for who in ("", ", cuDNN")), "rungs of gradients")
NETWORK = ("network", "library", "forward", "by data", "by filters", "backward", "all, ms")
RUN_STEP = ("by", "class", "N", "step, ms", "than torch")
TRAINED = (*RUN_STEP, "mean loss at the end", "accuracy", "same bits again")
FIVE_LAYERS = ("library", *(f"L{number}" for number in range(1, 6)))


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The generated parts."""
    measured, trainings = of_kind(files, KIND), of_kind(files, RUN)
    layers = by_layer(measured)

    def table(columns: Sequence[str], rows: Iterator[tuple[Cell, ...]]) -> str:
        lines = list(rows)
        return "\n".join(markdown_table(columns, lines)) if lines else NOT_MEASURED

    devices = read(files).headers if files else {}
    cards = dict.fromkeys(device_name(devices[record["device"]]) for record in (*measured, *trainings))
    named = f"{', '.join(cards)}; {', '.join(f'`{file.as_posix()}`' for file in files)}."
    return {
        "training-step": table(STEP, step_rows(layers)),
        "training-faster": "\n".join(speedups(layers)) or NOT_MEASURED,
        "training-layers": table(LAYER, layer_rows(layers)),
        "convnets": table(NETWORK, network_rows(layers)),
        "convnet-layers": table(FIVE_LAYERS, five_rows(layers)),
        "training-digits": table(TRAINED, run_rows(trainings, DIGITS)),
        "training-resnet": table(RUN_STEP, run_rows(trainings, RESNET)),
        "training-where": named if cards else NOT_MEASURED,
    }
