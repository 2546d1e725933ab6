"""The tables of docs/gradients.md: rungs of dgrad and wgrad beside cuDNN's gradients, and which of those are wrong."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.precisions import PRECISIONS
from alexconv.records.comparisons import bits_compared, compare, devices_of
from alexconv.records.labels import changed_in
from alexconv.records.statistics import faster, median_of, summed
from alexconv.records.store import DIRECTION, Record, Records, read
from alexconv.reports.elements import MISSING, Cell, markdown_table
from alexconv.reports.measurements import card_of
from alexconv.reports.networks import microseconds, shape
from alexconv.reports.training import of_kind
from alexconv.shapes import DGRAD, DIRECTIONS, FORWARD, WGRAD, WORKLOADS

LAYERS = (1, 2, 3, 4, 5)
COMPARED = ((FORWARD, 1), (FORWARD, 3), (WGRAD, 1), (WGRAD, 3), (DGRAD, 3))  # directions and layers of "what pays"
# Ideas, and the rungs before and after them in each direction.
IDEAS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "the sum cut over blocks, partial sums reduced by a second kernel": {
        FORWARD: ("direct-register", "channels"),
        WGRAD: ("wgrad-direct", "wgrad-partial"),
    },
    "atomics instead of the second kernel": {
        FORWARD: ("channels", "channels-atomic"),
        WGRAD: ("wgrad-partial", "wgrad-atomic"),
        DGRAD: ("dgrad-direct", "dgrad-scatter"),
    },
    "tiles in shared memory": {
        FORWARD: ("direct-register", "shared-output-tile"),
        WGRAD: ("wgrad-partial", "wgrad-shared"),
    },
    "im2col and a matrix product": {
        FORWARD: ("shared-output-tile", "unroll-matmul"),
        WGRAD: ("wgrad-shared", "wgrad-matmul"),
    },
    "implicit GEMM, tiles in registers": {
        FORWARD: ("unroll-matmul", "igemm"),
        WGRAD: ("wgrad-matmul", "wgrad-igemm"),
        DGRAD: ("dgrad-phases", "dgrad-igemm"),
    },
    "tensor cores (mma), hi and lo terms": {
        FORWARD: ("igemm", "mma-split"),
        WGRAD: ("wgrad-igemm", "wgrad-mma-split"),
        DGRAD: ("dgrad-igemm", "dgrad-mma-split"),
    },
    "TMA and wgmma": {
        FORWARD: ("mma-split", "wgmma-split"),
        WGRAD: ("wgrad-mma-split", "wgrad-wgmma-split"),
        DGRAD: ("dgrad-mma-split", "dgrad-wgmma-split"),
    },
}
# Wanted: a direction's kernel time over the fastest right one of cuDNN, by class and layers.
GOALS: Sequence[tuple[str, str, Sequence[int], float]] = (
    *((DGRAD, precision, LAYERS[1:], goal) for precision, goal in (("fp32", 0.22), ("tf32", 0.50), ("fp16", 0.80))),
    *((WGRAD, precision, LAYERS, goal) for precision, goal in (("fp32", 0.45), ("tf32", 0.45), ("fp16", 0.55))),
    (WGRAD, "fp16", LAYERS[1:], 0.85),
)
REFUSED = ("direction", "cuDNN", "layer", "error over norms", "tolerance", "its kernels")
KERNELS = ("winograd", "fft")  # words in the names of an engine's kernels, which say how it computes


def of_direction(records: Iterable[Record], direction: str) -> dict[str, dict[int, Record]]:
    """The records of a direction with default constants, by rung and layer."""
    by_rung: dict[str, dict[int, Record]] = {}
    for record in records:
        if record["point"].get(DIRECTION, FORWARD) == direction and not changed_in(record):
            by_rung.setdefault(record["point"]["rung"], {})[record["point"]["layer"]] = record
    return by_rung


def cell(record: Record | None) -> Cell:
    """The kernel time of a point in ms, or its status."""
    if record is None:
        return MISSING
    ms = median_of(record, "kernel")
    return record["status"] if ms is None else f"{ms:.4g}"


def rows(records: Sequence[Record], direction: str) -> Iterator[tuple[Cell, ...]]:
    """Each class's rungs in ladder order, then cuDNN in the same class."""
    by_rung = of_direction(records, direction)
    ours = [rung.name for rung in ALL_DIRECTIONS if rung.name in by_rung]
    peers = [name for name in by_rung if name not in ALL_DIRECTIONS.named]
    for precision in PRECISIONS:
        for name in (*ours, *peers):
            layers = by_rung[name]
            if next(iter(layers.values()))["point"]["precision"] != precision:
                continue
            of_sum = [layer for layer in LAYERS if direction == WGRAD or layer > 1]
            total = summed([median_of(layers[layer], "kernel") if layer in layers else None for layer in of_sum])
            errors = [float(record["error"]["scaled"]) for record in layers.values() if record["status"] == "ok"]
            yield (
                f"`{name}`",
                precision,
                *(cell(layers.get(layer)) for layer in LAYERS),
                MISSING if total is None else f"{total:.4g}",
                f"{max(errors):.1e}" if errors else MISSING,
                same_bits(name),
            )


def same_bits(name: str) -> str:
    """Whether every run of a rung has the same bits; of a peer, whether it is asked for."""
    if rung := ALL_DIRECTIONS.named.get(name):
        return "no" if rung.order_varies else "yes"
    return "yes" if name.endswith("deterministic") else MISSING


def table(records: Sequence[Record], direction: str) -> str:
    """The table of a direction."""
    added = "layers 2-5" if direction == DGRAD else "all"
    columns = ("rung or peer", "class", *(f"layer {n}" for n in LAYERS), added, "max error", "same bits")
    return "\n".join(markdown_table(columns, list(rows(records, direction))))


def goals(records: Sequence[Record]) -> str:
    """A row for each goal: the fastest rungs' times over cuDNN's fastest right ones, where each layer has one."""

    def fastest(direction: str, precision: str, layer: int, *, ours: bool) -> float | None:
        times = [
            median_of(record, "kernel")
            for name, layers in of_direction(records, direction).items()
            for record in [layers.get(layer)]
            if record and record["point"]["precision"] == precision and (name in ALL_DIRECTIONS.named) == ours
        ]
        return min((ms for ms in times if ms is not None), default=None)

    lines = []
    for direction, precision, layers, goal in GOALS:
        sides = [[fastest(direction, precision, layer, ours=ours) for layer in layers] for ours in (True, False)]
        own, other = map(summed, sides)
        wrong = ", ".join(str(layer) for layer, ms in zip(layers, sides[1], strict=True) if ms is None)
        ratio = f"{own / other:.2f}" if own and other else f"cuDNN is wrong on {wrong}"
        both = [(ours / cudnn, layer) for ours, cudnn, layer in zip(*sides, layers, strict=True) if ours and cudnn]
        worst = f"{max(both)[0]:.2f} (layer {max(both)[1]})" if both else MISSING
        lines.append((direction, precision, f"{layers[0]}-{layers[-1]}", f"{goal:.2f}", ratio, worst))
    columns = "direction", "class", "layers", "wanted over cuDNN", "measured", "worst layer"
    return "\n".join(markdown_table(columns, lines))


def refused(records: Sequence[Record]) -> str:
    """Peers whose gradients are beyond the tolerance of their class, with the engine that cuDNN found the fastest."""
    lines = []
    for record in records:
        point = record["point"]
        if record["status"] == "wrong" and "peer" in record:
            names = " ".join(record["peer"].get("kernels", ())).lower()
            engine = ", ".join(word for word in KERNELS if word in names) or "others"
            error = record["error"]
            figures = f"{float(error['scaled']):.1e}", f"{error['tolerance']:.1e}"
            lines.append((point[DIRECTION], f"`{point['rung']}`", str(point["layer"]), *figures, engine))
    return "\n".join(markdown_table(REFUSED, lines)) if lines else "None."


def pays(records: Sequence[Record]) -> str:
    """How much faster each idea makes each direction, on layers 1 and 3."""
    of = {direction: of_direction(records, direction) for direction in DIRECTIONS}

    def gain(idea: str, direction: str, layer: int) -> Cell:
        rungs = [of[direction].get(name, {}).get(layer) for name in IDEAS[idea].get(direction, ())]
        times = [median_of(record, "kernel") for record in rungs if record]
        known = [ms for ms in times if ms]
        return faster(known[0] / known[1]) if len(known) == 2 else MISSING

    columns = ("idea", *(f"{direction}, layer {layer}" for direction, layer in COMPARED))
    return "\n".join(markdown_table(columns, [(idea, *(gain(idea, *place) for place in COMPARED)) for idea in IDEAS]))


def others(records: Sequence[Record]) -> str:
    """Points of other batch sizes or constants: kernel times in ms by layer."""
    by_kind: dict[tuple[str, int, str], dict[int, Record]] = {}
    for record in records:
        point, changed = record["point"], changed_in(record)
        constants = " ".join(f"{name}={point['constants'][name]}" for name in changed) or "as chosen"
        by_kind.setdefault((point["rung"], point["N"], constants), {})[point["layer"]] = record
    lines = [
        (f"`{rung}`", str(N), constants, *(cell(layers.get(layer)) for layer in LAYERS[1:]))
        for (rung, N, constants), layers in sorted(by_kind.items())
    ]
    return "\n".join(markdown_table(("rung or peer", "N", "constants", *(f"layer {n}" for n in LAYERS[1:])), lines))


def clusters(records: Sequence[Record]) -> str:
    """Kernel times in ms without clusters and with them, by rung, batch size and layer."""
    by_kind: dict[tuple[str, int], dict[tuple[int, bool], Record]] = {}
    for record in records:
        point = record["point"]
        if point["workload"] == "alexnet" and record["status"] == "ok":
            of_kind = by_kind.setdefault((point["rung"], point["N"]), {})
            of_kind[point["layer"], point["constants"]["CLUSTER"] > 1] = record
    both = {kind: of_kind for kind, of_kind in by_kind.items() if any(clustered for _, clustered in of_kind)}
    lines = [
        (
            f"`{rung}`",
            str(N),
            *(" / ".join(str(cell(of_kind.get((layer, size)))) for size in (False, True)) for layer in LAYERS),
        )
        for (rung, N), of_kind in sorted(both.items())
    ]
    return "\n".join(markdown_table(("rung", "N", *(f"layer {n}" for n in LAYERS)), lines))


COUNTED = ("share", "tensor_pipe", "l2_throughput", "dram_throughput")  # in percent
COUNTER_COLUMNS = ("rung", "N", "kernel", "share of the time", "tensor pipe", "L2 cache", "memory")
LEAST_SHARE = 5.0  # of a kernel in the table


def counted(profiles: Sequence[Record]) -> str:
    """Nsight Compute's counters of the kernels that take LEAST_SHARE of a rung's time or more, over its layers."""
    by_kernel: dict[tuple[str, int, str], list[Record]] = {}
    for profile in profiles:
        if profile["metrics"]["share"] >= LEAST_SHARE:
            point = profile["point"]
            by_kernel.setdefault((point["rung"], point["N"], profile["entry"]), []).append(profile["metrics"])

    def spread(values: Sequence[float]) -> str:
        least, most = (f"{value:.0f}" for value in (min(values), max(values)))
        return f"{least}%" if least == most else f"{least} to {most}%"

    rungs = list(ALL_DIRECTIONS.named)
    ordered = sorted(by_kernel, key=lambda kernel: (-kernel[1], rungs.index(kernel[0])))
    lines = [
        (f"`{rung}`", str(N), f"`{entry}`", *(spread([of[name] for of in kernels]) for name in COUNTED))
        for rung, N, entry in ordered
        for kernels in [by_kernel[rung, N, entry]]
    ]
    return "\n".join(markdown_table(COUNTER_COLUMNS, lines))


def grouped(records: Sequence[Record]) -> str:
    """Kernel times in us of dgrad on layers with groups, by rung and cuDNN."""
    rungs = list(dict.fromkeys(record["point"]["rung"] for record in records))
    by_layer: dict[tuple[str, int, int], dict[str, Record]] = {}
    for record in records:
        point = record["point"]
        by_layer.setdefault((point["workload"], point["layer"], point["N"]), {})[point["rung"]] = record

    def us(record: Record | None) -> Cell:
        return f"{microseconds(record):.1f}" if record and record["status"] == "ok" else MISSING

    lines = [
        (workload, str(layer), shape(WORKLOADS[workload].layers[layer - 1]), str(N), *map(us, map(of.get, rungs)))
        for (workload, layer, N), of in by_layer.items()
    ]
    columns = "network", "layer", "shape", "N", *(f"`{rung}`" for rung in rungs)
    return "\n".join(markdown_table(columns, lines))


def where(records: Records) -> str:
    """The card and the batch, in a line."""
    cards = dict.fromkeys(header["name"] for header in records.headers.values() if header["type"] == "device")
    (N,) = {record["point"]["N"] for record in records.points}
    (workload,) = {record["point"]["workload"] for record in records.points}
    return f"Kernel times in ms, {workload}, N = {N}, {' and '.join(cards)}."


def bits(records: Records, again: Records) -> str:
    """Of how many gradients the outputs have the same bits on two cards, and of which they have others."""
    both, differ = bits_compared(compare(records, again, "kernel"))
    cards = [header for of in (records, again) for header in devices_of(of)]
    names = " and ".join(f"{header['name']} ({card_of(header)})" for header in cards)
    others = f"; others have {', '.join(differ)}" if differ else ""
    return f"{both - len(differ)} of {both} gradients have the same bits on {names}{others}."


def forward_at(record: Record, gradients: Sequence[Record]) -> bool:
    """Whether a forward record is of the gradients' workload and batch size, without copies of its own."""
    (batch,) = {(of["point"]["workload"], of["point"]["N"]) for of in gradients}
    point = record["point"]
    return (point["workload"], point["N"]) == batch and point["transfer"] == "pageable"


def parts(
    files: Sequence[Path],
    forward: Sequence[Path] = (),
    more: Sequence[Path] = (),
    in_clusters: Sequence[Path] = (),
    again: Sequence[Path] = (),
    with_groups: Sequence[Path] = (),
    counters: Sequence[Path] = (),
) -> dict[str, str]:
    """The generated parts of docs/gradients.md, from records of gradients, and of forward rungs.

    ``more``: records of other batch sizes and constants; ``in_clusters``: of rungs with clusters and without;
    ``again``: of gradients on another card; ``with_groups``: of layers with groups; ``counters``: Nsight Compute's.
    """
    records = read(files)
    latest = records.latest()
    of_forward = [record for record in read(forward).latest() if forward_at(record, latest)] if forward else []
    tables = {direction: table(latest, direction) for direction in (DGRAD, WGRAD)}
    return {
        "gradients-where": where(records),
        **tables,
        "goals": goals(latest),
        "refused": refused(latest),
        "pays": pays([*latest, *of_forward]),
        **({"others": others(read(more).latest())} if more else {}),
        **({"clusters": clusters(read(in_clusters).latest())} if in_clusters else {}),
        **({"bits": bits(records, read(again))} if again else {}),
        **({"gradients-groups": grouped(read(with_groups).latest())} if with_groups else {}),
        **({"gradients-counters": counted(of_kind(counters, "profile"))} if counters else {}),
    }
