"""The tables of docs/peers.md: the best of all of cuDNN's plans, what torch picks, other libraries, and ours."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import fsum
from operator import attrgetter
from pathlib import Path

from alexconv.kernels.ladder import RUNGS
from alexconv.records.statistics import median_of
from alexconv.records.store import Record, Records, read
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.board import MS, table
from alexconv.reports.comparison import CONTRACTS, LAYERS, MANY, Contract
from alexconv.reports.elements import Cell, Faster
from alexconv.reports.goals import FIRST_LAYER, NO_LAYER, at_least, verdict
from alexconv.reports.library import source
from alexconv.reports.measurements import sum_or_none
from alexconv.reports.networks import microseconds
from alexconv.shapes import DIRECTIONS, FORWARD, WORKLOADS

TORCH, FRONTEND = "torch", "cudnn"  # libraries, with which peers' names begin
STRICT = "-strict"  # how those without FFT and Winograd end


@dataclass
class Peers:
    """What computed a layer with N images on one card: our fastest rung of each class, and peers by name."""

    device: str
    workload: str
    layer: int
    N: int
    direction: str
    ours: dict[str, Record]
    peers: dict[str, Record]


def by_layer(records: Records) -> list[Peers]:
    """The correct, timed records of each card; of a peer's the last."""
    points: dict[tuple[str, str, int, int, str], Peers] = {}
    for record in records.points:
        point = record["point"]
        if record["status"] != "ok" or not median_of(record, "kernel"):
            continue
        where = record["device"], point["workload"], point["layer"], point["N"], point.get("direction", FORWARD)
        beside = points.setdefault(where, Peers(*where, {}, {}))
        if record.get("peer"):
            beside.peers[point["rung"]] = record
        else:
            fastest = beside.ours.setdefault(point["precision"], record)
            if microseconds(record) < microseconds(fastest):
                beside.ours[point["precision"]] = record
    return list(points.values())


def ours_and_faster(beside: Peers, precision: str, peer_ms: float) -> tuple[Cell, ...]:
    """Our fastest rung of a class, its ms, and how much faster it is than a peer's."""
    if not (record := beside.ours.get(precision)):
        return None, None, None
    ms = microseconds(record) / MS
    return f"`{record['point']['rung']}`", ms, Faster(peer_ms / ms)


def searched_ms(beside: Peers, precision: str, strict: bool) -> float | None:
    """The fastest of cuDNN in a class, in any layout, as torch picks it or as the search finds it."""
    names = [
        name
        for name, record in beside.peers.items()
        if record["point"]["precision"] == precision and name.endswith(STRICT) == strict
    ]
    if not any(name.startswith(FRONTEND) for name in names):
        return None
    libraries = TORCH, FRONTEND
    return min(microseconds(beside.peers[name]) / MS for name in names if name.partition("-")[0] in libraries)


@dataclass(frozen=True)
class BestOfAll:
    """AlexNet's layers with many images beside the fastest plans of cuDNN that searches found, on one card."""

    device: Record
    pairs: dict[int, tuple[float, float]]  # ms by layer: ours, cuDNN's

    def times(self, layers: Sequence[int] = LAYERS) -> tuple[float, float]:
        """Sums over some layers: ours, cuDNN's."""
        ours, theirs = (fsum(side) for side in zip(*(self.pairs[layer] for layer in layers), strict=True))
        return ours, theirs

    def ratio(self, layers: Sequence[int] = LAYERS) -> float:
        """cuDNN's time over ours."""
        ours, theirs = self.times(layers)
        return theirs / ours


def best_of_all(files: Sequence[Path], *, strict: bool = False) -> dict[str, BestOfAll]:
    """Each class of which one card has all layers; of several cards the last.  ``strict``: no FFT, no Winograd."""
    records = read(files)
    of_card: dict[str, dict[int, Peers]] = {}
    for beside in by_layer(records):
        if (beside.workload, beside.N, beside.direction) == (WORKLOAD, MANY, FORWARD):
            of_card.setdefault(beside.device, {})[beside.layer] = beside
    classes: dict[str, BestOfAll] = {}
    for device, layers in of_card.items():
        for contract in CONTRACTS:
            pairs = {
                layer: (ours, theirs)
                for layer, beside in layers.items()
                if (theirs := searched_ms(beside, contract.precision.peer, strict)) is not None
                and (ours := fastest_ms(beside, contract)) is not None
            }
            if pairs.keys() >= set(LAYERS) and any(contract.name in beside.ours for beside in layers.values()):
                classes[contract.name] = BestOfAll(records.headers[device], pairs)
    return classes


def fastest_ms(beside: Peers, contract: Contract) -> float | None:
    """Ms of our fastest rung that keeps a contract."""
    records = (record for record in beside.ours.values() if contract.kept_by(RUNGS[record["point"]["rung"]]))
    return min((microseconds(record) / MS for record in records), default=None)


@dataclass(frozen=True)
class Search:
    """The best of all plans of a layer, in a class and layout, and what torch picks there, in ms."""

    beside: Peers
    kind: str  # layout and class, as peers' names end
    precision: str
    best: float
    picked: float | None
    plan: Record

    @property
    def faster(self) -> float:
        """Ms of the faster of both."""
        return min(self.best, self.picked or self.best)

    @property
    def ours(self) -> float | None:
        """Ms of our fastest rung of the class."""
        record = self.beside.ours.get(self.precision)
        return microseconds(record) / MS if record else None


def searches(records: Records) -> Iterator[Search]:
    """Every search of engines and knobs for one layer."""
    for beside in by_layer(records):
        for name, best in beside.peers.items():
            library, _, kind = name.partition("-")
            if library != FRONTEND or len(best["peer"]["plans"]) != 1:
                continue
            (plan,) = best["peer"]["plans"]
            if "proposed_ms" not in plan:
                continue  # of before engines and knobs were searched
            picked = beside.peers.get(f"{TORCH}-{kind}")
            times = microseconds(best) / MS, microseconds(picked) / MS if picked else None
            yield Search(beside, kind, best["point"]["precision"], *times, plan)


def sum_rows(records: Records) -> Iterator[tuple[Cell, ...]]:
    """Sums over the layers of each workload, N, direction, class and layout, on the card that has most layers."""
    groups: dict[tuple[str, str, int, str], dict[int, Search]] = {}
    of_cards: dict[tuple[str, str, int, str, str], dict[int, Search]] = {}
    for search in searches(records):
        beside = search.beside
        place = beside.workload, beside.direction, beside.N, search.kind
        layers = of_cards.setdefault((*place, beside.device), {})
        layers[beside.layer] = search
        if coverage(layers) >= coverage(groups.get(place, {})):
            groups[place] = layers
    for (workload, direction, N, kind), layers in sorted(groups.items(), key=in_order):
        of_layers = [search for _, search in sorted(layers.items())]
        torch, ours = (sum_or_none([figure(search) for search in of_layers]) for figure in (PICKED, OURS))
        best, theirs = (fsum(figure(search) for search in of_layers) for figure in (BEST, FASTER))
        yield (
            *(workload, direction, N, kind, ", ".join(map(str, sorted(layers))), torch, best),
            *(Faster(torch / best) if torch else None, ours, Faster(theirs / ours) if ours else None),
        )


def coverage(layers: Mapping[int, Search]) -> tuple[int, int]:
    """How many layers were searched, and for how many torch's pick was timed, too."""
    return len(layers), sum(search.picked is not None for search in layers.values())


PICKED, OURS, BEST, FASTER = (attrgetter(name) for name in ("picked", "ours", "best", "faster"))
SUMS = (
    *("workload", "direction", "N", "cuDNN", "layers", "torch picks, ms", "best of all, ms", "best than torch's"),
    *("ours, ms", "ours than the faster"),
)


def in_order(group: tuple[tuple[str, str, int, str], dict[int, Search]]) -> tuple[int, int, int, str]:
    """Sorting key: workloads and directions in their own order, then N, then class and layout."""
    workload, direction, N, kind = group[0]
    return list(WORKLOADS).index(workload), list(DIRECTIONS).index(direction), N, kind


def plan_rows(records: Records) -> Iterator[tuple[Cell, ...]]:
    """What torch picks, the best plan that heuristics propose, and the best of all engines and knobs, beside ours."""
    for search in searches(records):
        beside, plan = search.beside, search.plan
        knobs = ", ".join(f"{name}={value}" for name, value in plan["knobs"].items()) or "defaults"
        yield (
            *(beside.workload, beside.layer, beside.N, beside.direction, search.kind, search.picked, search.best),
            Faster(search.picked / search.best) if search.picked else None,
            *ours_and_faster(beside, search.precision, search.faster),
            *(f"`{plan['engine'].partition('_')[0]}`", knobs, plan["tried"], plan["refused"], plan.get("wrong")),
            "all" if plan["search_ended"] else "time up",
        )


PLANS = (
    *("workload", "layer", "N", "direction", "cuDNN", "torch picks, ms", "best of all, ms", "best than torch's"),
    *("our rung", "ours, ms", "ours than the faster", "engine", "knobs", "plans tried", "refused", "wrong", "search"),
)


def goal_rows(classes: Mapping[str, BestOfAll], where: str = "") -> Iterator[tuple[Cell, ...]]:
    """The goals on the five layers, on the first, and on each, beside the best of all plans."""
    for contract in CONTRACTS:
        if not (whole := classes.get(contract.name)):
            continue
        slowest = min(LAYERS, key=lambda layer: whole.ratio([layer]))
        for goal, what, layers, most in (
            (contract.goals.number, "five layers", LAYERS, contract.goals.layers),
            (4, "layer 1", LAYERS[:1], FIRST_LAYER),
            (5, f"slowest beside cuDNN: layer {slowest}", (slowest,), NO_LAYER),
        ):
            times, ratio = whole.times(layers), whole.ratio(layers)
            yield (
                goal,
                contract.name,
                f"{what}{where}",
                *times,
                Faster(ratio),
                at_least(most),
                verdict(ratio * most >= 1),
            )


GOALS = ("goal", "class", "what", "ours, ms", "cuDNN, best of all, ms", "ours", "wanted", "verdict")


def goals_parts(files: Sequence[Path]) -> dict[str, str]:
    """The part of docs/frontier.md."""
    records = read(files)
    strict = goal_rows(best_of_all(files, strict=True), "; cuDNN without FFT and Winograd")
    rows = chain(goal_rows(best_of_all(files)), strict)
    return {"goals-searched": table(GOALS, rows, source(records, records.points, files))}


def other_rows(records: Records) -> Iterator[tuple[Cell, ...]]:
    """Peers that do without cuDNN, beside ours."""
    for beside in by_layer(records):
        for name, record in beside.peers.items():
            if name.partition("-")[0] in (TORCH, FRONTEND):
                continue
            ms = microseconds(record) / MS
            tile = record["peer"].get("tiles", [{}])[0]
            shown = ", ".join(f"{name} {value}" for name, value in tile.items() if name != "tried") or None
            ours = ours_and_faster(beside, record["point"]["precision"], ms)
            yield beside.workload, beside.layer, beside.N, f"`{name}`", ms, *ours, shown


OTHERS = ("workload", "layer", "N", "peer", "ms", "our rung", "ours, ms", "ours than it", "its tile")


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The parts of docs/peers.md."""
    records = read(files)
    origin = source(records, records.points, files)
    return {
        "peers-sums": table(SUMS, sum_rows(records), origin),
        "peers-plans": table(PLANS, plan_rows(records), origin),
        "peers-others": table(OTHERS, other_rows(records), origin),
    }
