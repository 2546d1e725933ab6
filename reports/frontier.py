"""The frontier page's generated parts: goals, classes, ladder, batches and floors, made from the record files."""

from collections.abc import Callable, Iterable, Sequence
from math import fsum, inf
from pathlib import Path

from alexconv.kernels.ladder import LADDER
from alexconv.kernels.rung import Rung
from alexconv.planning.peers import GEMM
from alexconv.planning.points import layer_range
from alexconv.records.statistics import Ratio, faster
from alexconv.reports import limits
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import (
    CONTRACTS,
    FP32,
    LAYERS,
    MANY,
    MS,
    ONE,
    PREPARED,
    SUSTAINED,
    TERA,
    Contract,
    Frontier,
    Source,
    Together,
    flops,
    gather,
    hot,
    largest,
    least,
    on_cuda_cores,
    over,
    preparation,
    quickest,
    rate,
    speed,
    speed_interval,
    times_over,
    total,
)
from alexconv.reports.elements import Cell, Faster, Table, markdown_table, shown
from alexconv.reports.goals import COLUMNS, CUDA_LAYERS, MICRO, at_most, goals, graph, verdict
from alexconv.reports.measurements import Measured, card_of, sum_or_none
from alexconv.reports.overview import device_line, once
from alexconv.shapes import WORKLOADS

GIGA, MEGA = 1e9, 1e6
NOT_MEASURED = "Not measured."
INTERVAL = "95 %"  # the interval of the ratio before it


def goals_part(frontier: Frontier) -> str:
    """The goals, and the files that they are read from."""
    sources = frontier.many, frontier.graphs, frontier.pipelines, frontier.scaling
    used = {source.file: source for source in sources if source}
    origins = [origin(source) for source in used.values()]
    return lines(COLUMNS, [goal.row() for goal in goals(frontier)], *(origins or [NOT_MEASURED]))


def summary_table(frontier: Frontier) -> Table | None:
    """The classes beside cuDNN in a few figures: all layers at N=128, and at N=1 in one graph."""
    source = frontier.many
    if source is None:
        return None
    rows: list[tuple[Cell, ...]] = []
    for contract in CONTRACTS:
        ours, theirs = source.sum_of(contract, MANY), source.named_sum(contract.peer, MANY)
        bests, peers = source.bests(contract, MANY), source.all_named(contract.peer, MANY)
        errors = (
            largest([source.best(contract, layer, MANY) for layer in LAYERS]),
            largest([source.named(contract.peer, layer, MANY) for layer in LAYERS]),
        )
        goal = graph(frontier.graphs, contract)
        ratios = speed(ours, theirs), speed_interval(times_over(bests, peers))
        prepared = preparation(bests), speed_of(times_over(bests, peers, PREPARED))
        joint = goal.ours, goal.peer, goal.ratio, goal.interval
        rows.append((contract.title, ours, theirs, *ratios, *prepared, *errors, *joint))
    columns = (
        *(
            "class",
            f"N={MANY}, ms",
            "cuDNN, ms",
            "than cuDNN",
            INTERVAL,
            "preparing filters, ms",
            "filters prepared, than cuDNN",
        ),
        *("largest error", "cuDNN's", f"N={ONE}, one graph", "cuDNN, faster layout", f"than cuDNN, N={ONE}"),
        f"{INTERVAL}, N={ONE}",
    )
    used = {origin.file: origin for origin in (source, frontier.graphs) if origin}
    title = "Five layers, compared with cuDNN: the fastest rung of each layer"
    return Table("cudnn-summary", title, "\n".join(map(origin, used.values())), columns, rows)


def classes_part(frontier: Frontier) -> str:
    """A section for each class."""
    return "\n\n".join(f"### {contract.name}\n\n{class_part(frontier, contract)}" for contract in CONTRACTS)


def class_part(frontier: Frontier, contract: Contract) -> str:
    """The class's fastest rung of each layer beside cuDNN, N=128."""
    return text_of(class_table(frontier, contract))


def text_of(table: Table | None) -> str:
    """A table as Markdown."""
    return NOT_MEASURED if table is None else lines(table.columns, table.rows, table.caption)


def class_table(frontier: Frontier, contract: Contract) -> Table | None:
    """The class's fastest rung of each layer beside cuDNN, N=128."""
    source = frontier.many
    if source is None:
        return None
    ours = [source.best(contract, layer, MANY) for layer in LAYERS]
    peers = {name: [source.named(name, layer, MANY) for layer in LAYERS] for name in contract.peers}
    standard = peers[contract.peer]
    rows: list[tuple[Cell, ...]] = []
    for i, (layer, point) in enumerate(zip(LAYERS, ours, strict=True)):
        rows.append(
            (
                layer,
                point.series.rung if point else None,
                constants(point),
                hot(point),
                cold(point),
                rate([layer], MANY, hot(point)),
                *(hot(peers[name][i]) for name in contract.peers),
                speed(hot(point), hot(standard[i])),
                speed_interval(times_over([point], [standard[i]])),
                preparation([point]),
                error(point),
                error(standard[i]),
            )
        )
    whole, behind_flush = source.sum_of(contract, MANY), sum_or_none([cold(point) for point in ours])
    peer_sums = [source.named_sum(name, MANY) for name in contract.peers]
    ratio = speed(whole, source.named_sum(contract.peer, MANY))
    errors = [largest(points) for points in (ours, standard)]
    facts = ratio, speed_interval(times_over(ours, standard)), preparation(ours)
    rows.append(("all", None, None, whole, behind_flush, rate(LAYERS, MANY, whole), *peer_sums, *facts, *errors))
    columns = (
        *("layer", "rung", "constants", "ms", "ms, cold", "TFLOP/s"),
        *(f"{name}, ms" for name in contract.peers),
        *(f"than {contract.peer}", INTERVAL, "preparing filters, ms", "largest error", f"{contract.peer}'s"),
    )
    title = f"Layer by layer, compared with cuDNN, N={MANY}: {contract.title}"
    return Table(f"cudnn-{contract.name}", title, origin(source), columns, rows)


def ladder_part(frontier: Frontier) -> str:
    """Every rung that was timed beside cuDNN, with its gain over its parent, N=128."""
    source = frontier.many
    if source is None:
        return NOT_MEASURED
    rows: list[tuple[Cell, ...]] = []
    for rung in LADDER:
        points = [source.named(rung.name, layer, MANY) for layer in LAYERS]
        if any(points):
            whole = source.named_sum(rung.name, MANY)
            facts = (f"`{rung.name}`", rung.idea, rung.parent and f"`{rung.parent}`", rung.precision)
            rows.append((*facts, *map(hot, points), whole, gain(source, rung), largest(points)))
    columns = (
        *("rung", "idea", "parent", "class"),
        *(f"layer {layer}, ms" for layer in LAYERS),
        *("sum, ms", "than its parent", "largest error"),
    )
    return lines(columns, rows, origin(source))


def gain(source: Source, rung: Rung) -> str | None:
    """How many times faster than its parent a rung is on the layers that both computed, named if not all."""
    both = [
        (layer, theirs, ours)
        for layer in LAYERS
        if rung.parent
        and (theirs := hot(source.named(rung.parent, layer, MANY))) is not None
        and (ours := hot(source.named(rung.name, layer, MANY))) is not None
    ]
    if not both:
        return None
    layers = [layer for layer, *_ in both]
    plural = "s" if len(layers) > 1 else ""
    where = "" if len(layers) == len(LAYERS) else f" (layer{plural} {layer_range(layers)})"
    return f"{faster(fsum(theirs for _, theirs, _ in both) / fsum(ours for *_, ours in both))}{where}"


def one_image_part(frontier: Frontier) -> str:
    """Layer by layer, their sum, and all in one graph, N=1."""
    if frontier.one is None and frontier.graphs is None:
        return NOT_MEASURED
    rows = [
        row for contract in CONTRACTS for row in (*single_rows(frontier.one, contract), graph_row(frontier, contract))
    ]
    columns = (
        *("class", "layer", "rung", "constants", "ms", "torch-nchw, ms", "torch-nhwc, ms"),
        *("than the faster layout", INTERVAL, "preparing filters, ms", "largest error"),
    )
    used = {source.file: source for source in (frontier.one, frontier.graphs) if source}
    return lines(columns, rows, *map(origin, used.values()))


def single_rows(source: Source | None, contract: Contract) -> list[tuple[Cell, ...]]:
    """A class's layers one by one, and their sum, N=1."""
    if source is None:
        return []
    rows: list[tuple[Cell, ...]] = []
    for layer in LAYERS:
        point = source.best(contract, layer, ONE)
        peers = [hot(source.named(name, layer, ONE)) for name in contract.peers]
        facts = (contract.name, layer, point.series.rung if point else None, constants(point), hot(point))
        quick = quickest(peer for name in contract.peers if (peer := source.named(name, layer, ONE)))
        ratios = speed(hot(point), least(peers)), speed_interval(times_over([point], [quick]))
        rows.append((*facts, *peers, *ratios, preparation([point]), error(point)))
    ours = source.bests(contract, ONE)
    peers = [source.named_sum(name, ONE) for name in contract.peers]
    faster_layout = min(contract.peers, key=lambda name: source.named_sum(name, ONE) or inf)
    within = speed_interval(times_over(ours, source.all_named(faster_layout, ONE)))
    ratios = speed(total(ours), least(peers)), within
    return [*rows, (contract.name, "sum", None, None, total(ours), *peers, *ratios, preparation(ours), None)]


def graph_row(frontier: Frontier, contract: Contract) -> tuple[Cell, ...]:
    """A class's layers in one graph, N=1."""
    ours: list[tuple[float, Together]] = frontier.graphs.graphs(contract, ONE) if frontier.graphs else []
    peers = [frontier.graphs.peer_graph(name, ONE) if frontier.graphs else None for name in contract.peers]
    ms, best = min(ours, key=lambda graph_time: graph_time[0], default=(None, None))
    names = ", ".join(best.rungs if len(set(best.rungs)) > 1 else best.rungs[:1]) if best else None
    whole = best.error if best else None
    within = speed_interval(frontier.graphs.graphs_ratio(contract, ONE) if frontier.graphs else None)
    ratios = speed(ms, least(peers)), within
    return contract.name, "one graph", names, None, ms, *peers, *ratios, None, whole


def scaling_part(frontier: Frontier) -> str:
    """Microseconds of an image against the batch, beside cuDNN's in its faster layout."""
    source = frontier.scaling
    if source is None:
        return NOT_MEASURED
    rows: list[tuple[Cell, ...]] = []
    for N in (N for N in source.batches() if N >= MANY):
        cells: list[Cell] = []
        for contract in CONTRACTS:
            peers = [source.faster(contract, layer, N) for layer in LAYERS]
            ours, theirs = source.sum_of(contract, N), total(peers)
            ratios = speed(ours, theirs), speed_interval(times_over(source.bests(contract, N), peers))
            cells += [*(None if ms is None else ms / N * MICRO for ms in (ours, theirs)), *ratios]
        rows.append((N, *cells))
    names = [contract.name for contract in CONTRACTS]
    columns = [text for name in names for text in (f"{name}, µs", f"cuDNN for {name}, µs", "than cuDNN", INTERVAL)]
    return lines(("N", *columns), rows, origin(source))


def sustained_part(frontier: Frontier) -> str:
    """The classes beside cuDNN: rested, sustained, and with the preparation of filters, N=128."""
    source = frontier.sustained
    if source is None:
        return NOT_MEASURED
    rows: list[tuple[Cell, ...]] = []
    for contract in CONTRACTS:
        for title, layers in [*((str(layer), (layer,)) for layer in LAYERS), ("all", LAYERS)]:
            ours, theirs = source.bests(contract, MANY, layers), source.all_named(contract.peer, MANY, layers)
            times = [
                sum_or_none([point.median(SUSTAINED) if point else None for point in side]) for side in (ours, theirs)
            ]
            ratios = [times_over(ours, theirs, figures) for figures in (("kernel",), (SUSTAINED,), PREPARED)]
            cells = [cell for ratio in ratios for cell in (speed_of(ratio), speed_interval(ratio))]
            one = ours[0] if len(layers) == 1 else None
            wanted = contract.goals.layers if len(layers) > 1 else None
            verdicts = [verdict(at_most(ratio.value if ratio else None, wanted)) for ratio in ratios] if wanted else []
            rows.append(
                (contract.name, title, *times, *cells, one.clock if one else None, " / ".join(verdicts) or None)
            )
    columns = (
        *("class", "layer", "sustained, ms", "cuDNN's, ms", "rested, than cuDNN", f"{INTERVAL}, rested"),
        *("sustained, than cuDNN", f"{INTERVAL}, sustained"),
        *("filters prepared, than cuDNN", f"{INTERVAL}, filters prepared"),
        *("our clock under load, MHz", "goal: rested / sustained / with preparation"),
    )
    return lines(columns, rows, origin(source))


def cards_part(frontier: Frontier) -> str:
    """Each class over cuDNN on every card that has compared all layers, N=128."""
    rows: list[tuple[Cell, ...]] = []
    for contract in CONTRACTS:
        cards = set()
        for source in reversed(frontier.sources):
            ours, theirs = source.bests(contract, MANY), source.all_named(contract.peer, MANY)
            ratio = times_over(ours, theirs)
            card = ", ".join(sorted({source.cards[point.record["device"]] for point in [*ours, *theirs] if point}))
            if ratio is None or card in cards or not any(point and point.precision == contract.name for point in ours):
                continue
            cards.add(card)
            times = sum_or_none([hot(point) for point in ours]), sum_or_none([hot(point) for point in theirs])
            rows.append((contract.name, card, *times, speed_of(ratio), speed_interval(ratio), f"`{source.file}`"))
    if not rows:
        return NOT_MEASURED
    return lines(("class", "card", "ours, ms", "cuDNN, ms", "than cuDNN", INTERVAL, "file"), rows)


def cuda_cores_part(frontier: Frontier) -> str:
    """TFLOP/s of the rungs that use the CUDA cores alone, beside cuBLAS, N=128."""
    source = frontier.many
    if source is None:
        return NOT_MEASURED
    standard = source.named_sum(GEMM, MANY, CUDA_LAYERS)
    rows: list[tuple[Cell, ...]] = []
    ours = [rung.name for rung in LADDER if on_cuda_cores(rung) and source.named(rung.name, LAYERS[0], MANY)]
    for name in [*ours, GEMM]:
        whole = source.named_sum(name, MANY, CUDA_LAYERS)
        rates = [rate([layer], MANY, hot(source.named(name, layer, MANY))) for layer in LAYERS]
        products, own = (source.all_named(rung_name, MANY, CUDA_LAYERS) for rung_name in (GEMM, name))
        share = speed(whole, standard), speed_interval(times_over(own, products))
        rows.append((f"`{name}`", *rates, rate(CUDA_LAYERS, MANY, whole), *share))
    rates_of = (f"layer {layer}, TFLOP/s" for layer in LAYERS)
    columns = ("rung", *rates_of, "layers 2 to 5, TFLOP/s", "than cuBLAS", INTERVAL)
    return lines(columns, rows, origin(source))


def limits_part(frontier: Frontier) -> str:
    """The further goals beside the card's limits."""
    if not (rows := list(limits.rows(frontier))):
        return NOT_MEASURED
    per_second, whose = frontier.tensor_rate
    used = [source for source in (frontier.many, frontier.sustained, frontier.graphs) if source]
    basis = (
        f"Limits: products at {rate_text(per_second)} ({whose} rate of dense fp16 products), {bytes_text(frontier)}."
    )
    return lines(limits.COLUMNS, rows, basis, *origins(used))


def cuda_floors_part(frontier: Frontier) -> str:
    """The CUDA cores' floors beside their fastest rung, N=128."""
    rows: list[tuple[Cell, ...]] = []
    for title, layers in [*((str(layer), (layer,)) for layer in LAYERS), ("2 to 5", CUDA_LAYERS)]:
        arithmetic, moved = floors(frontier, FP32, layers, frontier.cuda_rate)
        points = [frontier.many.fastest(on_cuda_cores, layer, MANY) if frontier.many else None for layer in layers]
        measured = sum_or_none([hot(point) for point in points])
        facts = (title, flops(layers, MANY) / GIGA, arithmetic, nbytes(FP32, layers) / MEGA, moved)
        rows.append((*facts, measured, over(arithmetic, measured)))
    columns = (
        *("layer", "GFLOP", "arithmetic, ms", "MB", "bytes, ms"),
        *("fastest rung, ms", "arithmetic's share of it"),
    )
    return lines(columns, rows, f"Arithmetic at {rate_text(frontier.cuda_rate)} (measured), {bytes_text(frontier)}.")


def tensor_floors_part(frontier: Frontier) -> str:
    """The tensor cores' floors beside each class's fastest rung, N=128."""
    per_second, whose = frontier.tensor_rate
    rows: list[tuple[Cell, ...]] = []
    for contract in CONTRACTS:
        products = contract.precision.tensor_products
        for title, layers in [*((str(layer), (layer,)) for layer in LAYERS), ("all", LAYERS)]:
            arithmetic, moved = floors(frontier, contract, layers, per_second and per_second / products)
            higher = [
                highest(floors(frontier, contract, (layer,), per_second and per_second / products)) for layer in layers
            ]
            measured = frontier.many.sum_of(contract, MANY, layers) if frontier.many else None
            facts = (contract.name, title, flops(layers, MANY) / GIGA, products, arithmetic)
            rows.append((*facts, nbytes(contract, layers) / MEGA, moved, measured, over(measured, sum_or_none(higher))))
    columns = (
        *("class", "layer", "GFLOP", "products", "arithmetic, ms", "MB", "bytes, ms"),
        *("fastest rung, ms", "over the higher floor"),
    )
    basis = f"Arithmetic at {rate_text(per_second)} ({whose} rate of dense fp16 products) over the number of products"
    return lines(columns, rows, f"{basis}, {bytes_text(frontier)}.")


def floors(
    frontier: Frontier, contract: Contract, layers: Sequence[int], per_second: float | None
) -> tuple[float | None, float | None]:
    """Least ms of arithmetic, and of moving input, filters and output once."""
    arithmetic = flops(layers, MANY) / per_second * MS if per_second else None
    return arithmetic, nbytes(contract, layers) / frontier.copy_rate * MS if frontier.copy_rate else None


def highest(times: Sequence[float | None]) -> float | None:
    """The longest time, or None where one is missing."""
    known = [time for time in times if time is not None]
    return max(known) if len(known) == len(times) else None


def nbytes(contract: Contract, layers: Sequence[int]) -> int:
    """Bytes of input (with its border), filters and output at N=128."""
    itemsize = 2 if contract.dtype == "float16" else 4
    convs = [WORKLOADS[WORKLOAD].layer(layer) for layer in layers]
    return itemsize * sum(
        MANY * (conv.C * conv.H * conv.W + conv.M * conv.E * conv.F) + conv.M * conv.K for conv in convs
    )


def rate_text(per_second: float | None) -> str:
    """An arithmetic rate in words."""
    return f"{shown(per_second / TERA)} TFLOP/s" if per_second else "an unknown rate"


def bytes_text(frontier: Frontier) -> str:
    """The rate of bytes in words."""
    measured = (
        f"{shown(frontier.copy_rate / TERA)} TB/s (a copy's, measured)" if frontier.copy_rate else "an unknown rate"
    )
    return f"bytes of input, filters and output at {measured}, N={MANY}"


def speed_of(ratio: Ratio | None) -> Faster | None:
    """How many times faster we are, of our time over another's."""
    return Faster(1 / ratio.value) if ratio else None


def constants(point: Measured | None) -> str | None:
    """A point's constants, all of them."""
    plan_constants = point.record["point"]["constants"] if point else {}
    return " ".join(f"{name}={value}" for name, value in plan_constants.items()) or None


def cold(point: Measured | None) -> float | None:
    """Median time of the kernels in ms on an empty L2 cache."""
    return point.median("kernel_cold") if point else None


def error(point: Measured | None) -> float | None:
    """A point's largest error over norms."""
    return point.error if point else None


def origin(source: Source) -> str:
    """The figures' record file, machine and libraries."""
    device = source.device
    card = f" ({card_of(device)})" if device.get("uuid") else ""
    facts = [
        device_line(device) + card,
        f"driver {device.get('driver', '?')}",
        f"CUDA {device.get('toolkit', '?')}",
    ]
    for peer in (point.record["peer"] for point in source.points if point.record.get("peer")):
        facts.append(f"torch {peer.get('torch', '?')} with cuDNN {peer.get('cudnn', '?')}")
    slowed = sum(bool(point.record.get("throttled")) for point in source.points)
    note = f" Clocks dropped during {slowed} of its {len(source.points)} points." if slowed else ""
    return f"From `{source.file}`: {', '.join(once(facts))}.{note}"


def origins(sources: Iterable[Source]) -> list[str]:
    """The same of several files, each once."""
    return [origin(source) for source in {source.file: source for source in sources}.values()]


def lines(columns: Sequence[str], rows: Sequence[tuple[Cell, ...]], *notes: str) -> str:
    """A table with notes below it."""
    return "\n".join([*markdown_table(columns, rows), "", *notes])


PARTS: dict[str, Callable[[Frontier], str]] = {
    "goals": goals_part,
    "classes": classes_part,
    "ladder": ladder_part,
    "one-image": one_image_part,
    "scaling": scaling_part,
    "sustained": sustained_part,
    "limits": limits_part,
    "cards": cards_part,
    "cuda-cores": cuda_cores_part,
    "cuda-cores-floors": cuda_floors_part,
    "tensor-cores-floors": tensor_floors_part,
}


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's parts from record files."""
    frontier = gather(files)
    return {name: part(frontier) for name, part in PARTS.items()}
