"""The README's first screen, made from the record files: figure, headline, and what stands behind its numbers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib

from alexconv.kernels.ladder import LADDER
from alexconv.planning.peers import GEMM
from alexconv.records.labels import device_name
from alexconv.records.statistics import faster
from alexconv.records.store import read
from alexconv.reports import families
from alexconv.reports.comparison import (
    CONTRACTS,
    FP32,
    LAYERS,
    MANY,
    PREPARED,
    SUSTAINED,
    Contract,
    Frontier,
    Source,
    gather,
    largest,
    on_cuda_cores,
    times_over,
    total,
)
from alexconv.reports.elements import Cell, Plot, markdown_table, shown
from alexconv.reports.frontier import NOT_MEASURED
from alexconv.reports.measurements import Measured, Measurements, card_of, measurements
from alexconv.reports.peer_kernels import fft_tile
from alexconv.reports.searches import BestOfAll, best_of_all
from alexconv.reports.style import RC, settle, svg_text

HEADLINE, FIGURES = "headline", "figures"  # names of the markers
FIGURE_WIDTH = 620  # pixels
FOLDER = Path("docs", "figures")  # beside the README
CLASSES = tuple(contract for contract in CONTRACTS if not contract.goals.stricter)
TILE = next(contract for contract in CONTRACTS if contract.goals.stricter)  # the weaker bound on fp32
FIRST, REST = LAYERS[:1], LAYERS[1:]
NO_LAYOUT = "not measured in cuDNN's faster layout"
PRODUCTS = {1: "one fp16 product", 3: "three fp16 products"}  # on tensor cores

Points = Sequence[Measured | None]


def headline(
    data: Measurements, frontier: Frontier, searched: Mapping[str, BestOfAll], strict: BestOfAll | None
) -> str:
    """The classes beside cuDNN, and notes; ``strict``: fp32 beside cuDNN without FFT and Winograd."""
    source = frontier.many
    naive = families.points_of(data, frontier, [LADDER[0]])
    start = total(naive)
    if source is None or start is None or source.sum_of(FP32, MANY) is None:
        return NOT_MEASURED
    rows = [row(source, contract, searched.get(contract.name)) for contract in CLASSES]
    columns = (
        *("class", "best of all plans", "five layers", "layer 1", "layers 2 to 5"),  # a phone shows the first
        *("ours, ms", "cuDNN, ms"),
    )
    what = (
        f"AlexNet's five convolution layers, {MANY} images, {device_name(source.device)}, against cuDNN"
        f"{f' (best of all plans: {cards})' if (cards := cards_of(searched, source)) else ''}. "
        f"Kernel time; the naive kernel takes {shown(start)} ms"
        f"{elsewhere({data.cards[point.record['device']] for point in naive if point}, source)}. "
        "Each class keeps an [error bound](docs/precision.md) on every finite input."
    )
    listed = (f"* {note}" for note in notes(frontier, source, searched, strict))
    return "\n".join([what, "", *markdown_table(columns, rows), "", *listed])


def row(source: Source, contract: Contract, searched: BestOfAll | None) -> tuple[Cell, ...]:
    """A class over the best of all of cuDNN's plans, and over its faster layout, which each layer may choose."""
    best = f"**{faster(searched.ratio())}**" if searched else None
    parts = [speed(source, contract, layers) for layers in (LAYERS, FIRST, REST)]
    return f"**{contract.name}**", best, *parts, source.sum_of(contract, MANY), total(at_best(source, contract))


def at_best(source: Source, contract: Contract, layers: Sequence[int] = LAYERS) -> list[Measured | None]:
    """cuDNN in the faster layout of each layer."""
    return [source.faster(contract, layer, MANY) for layer in layers]


def at_best_layout(source: Source, loaded: Source, contract: Contract) -> list[Measured | None]:
    """Another file's points of cuDNN in the layout that is the faster one of each layer in the main file."""
    names = (point.series.rung if point else "" for point in at_best(source, contract))
    return [loaded.named(name, layer, MANY) for name, layer in zip(names, LAYERS, strict=True)]


def speed(source: Source, contract: Contract, layers: Sequence[int]) -> str | None:
    """A class over cuDNN on some layers, in words."""
    return against(source.bests(contract, MANY, layers), at_best(source, contract, layers))


def against(ours: Points, theirs: Points, figures: Sequence[str] = ("kernel",)) -> str | None:
    """Our points over a peer's, in words; None where one is missing."""
    ratio = times_over(ours, theirs, figures)
    return faster(1 / ratio.value) if ratio else None


def notes(
    frontier: Frontier, source: Source, searched: Mapping[str, BestOfAll], strict: BestOfAll | None
) -> Iterator[str]:
    """What the classes compute and promise, where cuDNN is faster, other ways to compare, and the machine."""
    for contract in CLASSES:
        own, peers = (shown(largest(points)) for points in (source.bests(contract, MANY), at_best(source, contract)))
        yield f"**{contract.name}**: {computes(contract)}; largest error {own}, cuDNN's {peers}."
    yield from filter(None, (losses(source, contract) for contract in CLASSES))
    if searched:
        yield from best_plans(searched, source)
    if loaded := frontier.sustained:
        where = elsewhere({card_of(loaded.device)}, source)
        ways = {"Back to back, without rests": (SUSTAINED,), "Filters prepared in each call": PREPARED}
        for words, figures in ways.items():
            ratios = {
                contract.name: against(loaded.bests(contract, MANY), at_best_layout(source, loaded, contract), figures)
                for contract in CLASSES
            }
            yield f"**{words}**{where}: {', '.join(f'{name} {text or NO_LAYOUT}' for name, text in ratios.items())}."
    if strict:
        same = f"{faster(strict.ratio())}{elsewhere({card_of(strict.device)}, source)}"
        yield f"**Engines that keep the same bound** (cuDNN without FFT and Winograd), fp32: {same}."
    yield cuda_cores(source)
    yield machine(frontier, source)


def elsewhere(cards: Collection[str], source: Source) -> str:
    """The words for a figure of other cards than the table's; empty for one of the same card."""
    return "" if set(cards) == {card_of(source.device)} else ", on another card"


def cards_of(searched: Mapping[str, BestOfAll], source: Source) -> str:
    """The cards on which cuDNN's plans were searched, beside the table's; empty if on the same one."""
    devices = [searched[contract.name].device for contract in CLASSES if contract.name in searched]
    if not elsewhere({card_of(device) for device in devices}, source):
        return ""
    names = (
        f"{elsewhere({card_of(device)}, source).removeprefix(', ') or 'on the same card'}, {device_name(device)}"
        for device in devices
    )
    return " or ".join(dict.fromkeys(names))


def best_plans(searched: Mapping[str, BestOfAll], source: Source) -> Iterator[str]:
    """What the column of the best plans compares with, and the layers on which these are faster."""
    classes = [(contract.name, searched[contract.name]) for contract in CLASSES if contract.name in searched]
    slower = [
        f"{name} layer {layer} is {faster(best.ratio([layer]))}"
        for name, best in classes
        for layer in LAYERS
        if best.ratio([layer]) < 1
    ]
    where = f", {cards}" if (cards := cards_of(searched, source)) else ""
    but = f"; {', '.join(slower)}" if slower else ""
    yield (
        "**Best of all plans**: over cuDNN's engines and their knobs, [searched](docs/peers.md) for each layer"
        f"{where}{but}. The other columns: over what cuDNN's benchmark picks, in its faster layout."
    )


def computes(contract: Contract) -> str:
    """What the fastest rungs of a class do."""
    precision = contract.precision
    products = f"{PRODUCTS[precision.tensor_products]} on tensor cores for each multiplication"
    if precision.keeps_floats:
        return f"{precision.dtype} in and out; {products}, with the bound of fp32 sums"
    factors = f"; factors have {precision.operands}" if precision.dtype == "float32" else ""
    return f"{precision.dtype} in and out; {products}, {precision.sums} sums{factors}"


def losses(source: Source, contract: Contract) -> str:
    """The layers on which cuDNN is faster, and by what; empty if there are none."""
    losses = []
    for layer in LAYERS:
        text, (peer,) = speed(source, contract, (layer,)), at_best(source, contract, (layer,))
        if text and peer and text.endswith("slower"):
            by_fft = fft_tile(peer.record["peer"]["kernels"])
            reason = " than an FFT with a [weaker bound](docs/frontier.md#classes)" if by_fft else ""
            if by_fft and (between := source.best(TILE, layer, MANY)):
                than_fft = against([between], [peer])
                reason += f"; `{between.series.rung}`, with a bound between the two, is {than_fft}"
            losses.append(f"layer {layer} in {contract.name}, ours {text}{reason}")
    return f"**Where cuDNN is faster**: {'; '.join(losses)}." if losses else ""


def cuda_cores(source: Source) -> str:
    """The rungs without tensor cores beside cuDNN and cuBLAS."""
    ours, rest = ([source.fastest(on_cuda_cores, n, MANY) for n in layers] for layers in (LAYERS, REST))
    cublas = against(rest, source.all_named(GEMM, MANY, REST))
    whole = against(ours, at_best(source, FP32))
    return f"**CUDA cores alone**, fp32: {whole} than cuDNN, {cublas} than cuBLAS's product on layers 2 to 5."


def machine(frontier: Frontier, source: Source) -> str:
    """Versions, card and clocks."""
    peer = next(point.record["peer"] for point in at_best(source, FP32) if point)
    device = source.device
    every = (
        [point for contract in CLASSES for point in frontier.sustained.bests(contract, MANY)]
        if frontier.sustained
        else []
    )
    clocks = [point.clock for point in every if point and point.clock]
    loaded = f" ({min(clocks):,.0f} to {max(clocks):,.0f} back to back)" if clocks else ""
    return (
        f"cuDNN {peer['cudnn']} through torch {peer['torch'].partition('+')[0]}, fastest engine and layout (NCHW or "
        f"NHWC) per layer; one {device_name(device)}, {device['max_sm_clock_mhz']:,} MHz{loaded}, driver "
        f"{device['driver']}, CUDA {device['toolkit']}; `results/{source.file}`. "
        "[Intervals, layers, other classes](docs/frontier.md)."
    )


def plots(data: Measurements, frontier: Frontier) -> list[Plot]:
    """The families with cuDNN's line."""
    return list(filter(None, [families.plot(data, frontier)]))


def parts(files: Sequence[Path], peers: Sequence[Path] = ()) -> dict[str, str]:
    """Headline and figure from record files, by the names of their markers; ``peers``: searches of cuDNN's plans."""
    data, frontier = measurements(read(files)), gather(files)
    links = "\n\n".join(
        f'<img src="{(FOLDER / plot.key).as_posix()}.svg" width="{FIGURE_WIDTH}" alt="{plot.title}">'
        for plot in plots(data, frontier)
    )
    strict = best_of_all(peers, strict=True).get(FP32.name)
    return {HEADLINE: headline(data, frontier, best_of_all(peers), strict), FIGURES: links}


def drawings(files: Sequence[Path], others: Sequence[Plot] = ()) -> dict[Path, str]:
    """The figures from record files and those of other pages, as SVG by path."""
    drawn = {}
    for plot in (*plots(measurements(read(files)), gather(files)), *others):
        with matplotlib.rc_context(RC):
            figure = plot.draw()
            settle(figure)
            drawn[FOLDER / f"{plot.key}.svg"] = svg_text(figure, plot.key)
    return drawn
