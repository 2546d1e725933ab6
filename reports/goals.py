"""The frontier's goals, and what the records say of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from alexconv.planning.peers import GEMM
from alexconv.records.statistics import Ratio, faster
from alexconv.reports.comparison import (
    CONTRACTS,
    LAYERS,
    MANY,
    MOST,
    ONE,
    Contract,
    Frontier,
    Source,
    least,
    on_cuda_cores,
    over,
    rate,
    speed,
    speed_interval,
    times_over,
    total,
)
from alexconv.reports.elements import Cell, Faster, shown
from alexconv.reports.measurements import Measured

FIRST_LAYER = 0.20  # goal 4
NO_LAYER = 1.0  # goal 5
CUDA_CORES, CUDA_LAYERS = 0.90, (2, 3, 4, 5)  # goal 7, of cuBLAS's rate
PIPELINE_MS = 7.5  # goal 8
PER_IMAGE = 1.0  # goal 9
MICRO = 1000  # microseconds in a millisecond


@dataclass(frozen=True)
class Goal:
    """One line of the table: ``met`` is None where something was not measured."""

    number: int
    subject: str
    wanted: str
    met: bool | None = None
    ours: str | None = None
    peer: str | None = None
    ratio: float | None = None  # of times as Faster
    interval: str | None = None  # of the ratio
    best_layout: Faster | None = None  # the ratio if each layer of cuDNN's has its faster layout

    def row(self) -> tuple[Cell, ...]:
        """The cells, in the order of COLUMNS."""
        ratios = self.ratio, self.interval, self.best_layout
        return self.number, self.subject, self.ours, self.peer, *ratios, self.wanted, verdict(self.met)


COLUMNS = ("goal", "what", "ours", "peer", "speed, or ratio", "95 %", "than the faster layouts", "wanted", "verdict")


def goals(frontier: Frontier) -> list[Goal]:
    """All of them in order."""
    return [
        *sums(frontier.many),
        *first_layers(frontier.many),
        slowest(frontier.many),
        *(graph(frontier.graphs, contract) for contract in CONTRACTS),
        cuda_cores(frontier.many),
        *(pipeline(frontier.pipelines, contract) for contract in CONTRACTS if contract.dtype == "float32"),
        *(per_image(frontier.scaling, contract) for contract in CONTRACTS),
    ]


def sums(source: Source | None) -> Iterator[Goal]:
    """Goals 1 to 3: times of all layers, and in the study's layout errors."""
    for contract in CONTRACTS:
        subject = f"{contract.title}: five layers, over {contract.peer}"
        yield times(contract.goals.number, subject, source, contract, LAYERS, contract.goals.layers)
        if contract.dtype == "float32":
            yield errors(contract.goals.number, source, contract)


def first_layers(source: Source | None) -> Iterator[Goal]:
    """Goal 4: the layer with the fewest channels."""
    for contract in CONTRACTS:
        yield times(4, f"layer 1, {contract.name}: over {contract.peer}", source, contract, (1,), FIRST_LAYER)


def times(
    number: int, subject: str, source: Source | None, contract: Contract, layers: Sequence[int], most: float
) -> Goal:
    """A goal on the time of some layers at N=128, as a share of cuDNN's."""
    wanted = at_least(most)
    if source is None:
        return Goal(number, subject, wanted)
    ours, theirs = source.sum_of(contract, MANY, layers), source.named_sum(contract.peer, MANY, layers)
    ratio, other = speed(ours, theirs), speed(ours, source.faster_layouts(contract, MANY, layers))
    both = source.bests(contract, MANY, layers), source.all_named(contract.peer, MANY, layers)
    met, within = at_most(over(ours, theirs), most), speed_interval(times_over(*both))
    return Goal(number, subject, wanted, met, in_ms(ours), in_ms(theirs), ratio, within, other)


def errors(number: int, source: Source | None, contract: Contract) -> Goal:
    """A goal on the largest error of all layers at N=128: no worse than plain multiply-adds', or cuDNN's."""
    floats = contract.precision.keeps_floats
    standard = "plain fp32 multiply-adds" if floats else contract.peer
    subject, wanted = f"{contract.title}: largest error, over that of {standard}", "at most 1"
    if source is None:
        return Goal(number, subject, wanted)
    ours = largest_error([some(source.best(contract, layer, MANY)) for layer in LAYERS])
    theirs = largest_error(
        [
            source.all_of(on_cuda_cores, layer, MANY) if floats else some(source.named(contract.peer, layer, MANY))
            for layer in LAYERS
        ]
    )
    ratio = over(ours, theirs)
    cells = [None if error is None else shown(error) for error in (ours, theirs)]
    return Goal(number, subject, wanted, at_most(ratio, 1.0), cells[0], cells[1], ratio)


def some(point: Measured | None) -> list[Measured]:
    """The point, if there is one."""
    return [point] if point else []


def largest_error(layers: Sequence[Sequence[Measured]]) -> float | None:
    """The largest error over norms of points by layer; None unless every layer has one."""
    of_layers = [[point.error for point in points if point.error is not None] for points in layers]
    return max(map(max, of_layers)) if all(of_layers) else None


def slowest(source: Source | None) -> Goal:
    """Goal 5: the layer and class that gains least."""
    wanted, places = at_least(NO_LAYER), [(contract, layer) for contract in CONTRACTS for layer in LAYERS]
    subject = "no layer of any class slower than cuDNN"
    goals_of = {
        (contract.name, layer): times(
            5, f"{subject}: least on layer {layer}, {contract.name}", source, contract, (layer,), NO_LAYER
        )
        for contract, layer in places
    }
    known = [goal for goal in goals_of.values() if goal.ratio is not None]
    return min(known, key=lambda goal: goal.ratio or 0.0) if len(known) == len(places) else Goal(5, subject, wanted)


def graph(source: Source | None, contract: Contract) -> Goal:
    """Goal 6: one image through all layers in one graph, over the faster of cuDNN's layouts."""
    most = contract.goals.graph
    subject, wanted = f"N=1, five layers in one graph, {contract.name}: over cuDNN's faster layout", at_least(most)
    if source is None:
        return Goal(6, subject, wanted)
    ours = min((ms for ms, _ in source.graphs(contract, ONE)), default=None)
    theirs = least([source.peer_graph(name, ONE) for name in contract.peers])
    ratio, within = speed(ours, theirs), speed_interval(source.graphs_ratio(contract, ONE))
    return Goal(6, subject, wanted, at_most(over(ours, theirs), most), in_ms(ours), in_ms(theirs), ratio, within, ratio)


def cuda_cores(source: Source | None) -> Goal:
    """Goal 7: the CUDA cores alone, beside cuBLAS."""
    subject = f"CUDA cores only, fp32, layers 2 to 5: rate over that of {GEMM}"
    wanted = at_least(1 / CUDA_CORES)
    if source is None:
        return Goal(7, subject, wanted)
    points = [source.fastest(on_cuda_cores, layer, MANY) for layer in CUDA_LAYERS]
    ours = rate(CUDA_LAYERS, MANY, total(points))
    theirs = rate(CUDA_LAYERS, MANY, source.named_sum(GEMM, MANY, CUDA_LAYERS))
    ratio, met = speed(theirs, ours), at_most(over(theirs, ours), 1 / CUDA_CORES)
    cells = [None if value is None else f"{shown(value)} TFLOP/s" for value in (ours, theirs)]
    within = speed_interval(times_over(points, source.all_named(GEMM, MANY, CUDA_LAYERS)))
    return Goal(7, subject, wanted, met, cells[0], cells[1], ratio, within)


def pipeline(source: Source | None, contract: Contract) -> Goal:
    """Goal 8: host arrays to host arrays."""
    subject = f"host arrays (nchw float32) to host arrays, five layers in one pipeline, {contract.name}"
    ours = min((ms for ms, _ in source.pipelines(contract, MANY)), default=None) if source else None
    return Goal(8, subject, f"at most {PIPELINE_MS} ms", at_most(ours, PIPELINE_MS), in_ms(ours))


def per_image(source: Source | None, contract: Contract) -> Goal:
    """Goal 9: what a large batch costs per image, beside the usual one."""
    subject = f"time per image at N={MOST}, {contract.name}: over that at N={MANY}, ours"
    large, usual = (
        None if source is None or (ms := source.sum_of(contract, N)) is None else ms / N * MICRO for N in (MOST, MANY)
    )
    ratio, met = speed(large, usual), at_most(over(large, usual), PER_IMAGE)
    within = times_over(source.bests(contract, MOST), source.bests(contract, MANY)) if source else None
    share = MANY / MOST
    text = speed_interval(Ratio(within.value * share, within.low * share, within.high * share) if within else None)
    cells = [None if value is None else f"{shown(value)} µs" for value in (large, usual)]
    return Goal(9, subject, at_least(PER_IMAGE), met, cells[0], cells[1], ratio, text)


def at_least(most: float) -> str:
    """What is wanted of our time over another's, as a speed."""
    return f"{'at least' if most <= 1 else 'at most'} {faster(1 / most)}"


def verdict(met: bool | None) -> str:
    """A bound's verdict in words."""
    return "not measured" if met is None else "met" if met else "missed"


def at_most(value: float | None, most: float) -> bool | None:
    """Whether a bound is kept; None where there is no value."""
    return None if value is None else value <= most


def in_ms(time: float | None) -> str | None:
    """A time with its unit."""
    return None if time is None else f"{shown(time)} ms"
