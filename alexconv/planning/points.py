"""Points, and the parsing of the options that choose them."""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import Enum
from itertools import product
from typing import Any, ClassVar, Generic, Literal, TypeVar

from alexconv.data import DATA_SETS, UNIFORM, data_set
from alexconv.errors import UsageError
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS, RUNGS, TRANSFER_ALIASES, Ladder
from alexconv.kernels.problem import H200, Constants, Device
from alexconv.kernels.rung import MOST_INTEGER, Rung
from alexconv.kernels.studies import PUBLISHED, STUDY_WORKLOADS
from alexconv.planning.peers import Peer
from alexconv.planning.transfers import TRANSFERS, Transfer, transfer_named
from alexconv.precisions import PRECISIONS
from alexconv.records.labels import SEQUENCE_SUFFIX, changed_constants, label_of, particulars
from alexconv.records.store import AXES, DATA, DIRECTION, MIX
from alexconv.shapes import DIRECTIONS, FORWARD, WORKLOADS, Conv, Workload

PAGEABLE = "pageable"
ALL_LAYERS = ALL_RUNGS = "all"
_LAYERS = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_BATCHES = re.compile(r"([0-9]{1,18})(?::([0-9]{1,18}):x([0-9]{1,18}))?")
FAMILY = "family"  # before a family's name, as in family:igemm
MOST_GUESSES = 3  # for a word that is unknown
Selected = tuple[Rung, str | None]  # a rung, and the transfer that its alias implies, if any
TunedConstants = Callable[[Rung, Conv, int], Constants]  # those found for a rung, shape and batch size, if any


class Kind(Enum):
    """What computes a point: a rung of the ladder, or another library."""

    RUNG, PEER = "rung", "peer"


@dataclass(frozen=True)
class Batch:
    """N images of a layer in a direction, from a data set.  Points of the same batch share inputs and reference."""

    workload: str
    layer: int
    conv: Conv
    N: int
    data: str = UNIFORM

    @property
    def direction(self) -> str:
        """What is computed of the layer."""
        return self.conv.direction

    def toward(self, direction: str) -> "Batch":
        """The layer's problem in a direction."""
        return self if direction == self.direction else replace(self, conv=self.conv.toward(direction))


@dataclass(frozen=True)
class _OfBatch:
    """What a rung's and a peer's points have in common.  Constants, which a peer has none of, are no part of a hash."""

    batch: Batch
    entry: Rung | Peer
    transfer: str = PAGEABLE
    constants: dict[str, int] = field(default_factory=dict, hash=False)

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.batch.workload

    @property
    def layer(self) -> int:
        """The layer's number, from 1."""
        return self.batch.layer

    @property
    def conv(self) -> Conv:
        """The layer's shape."""
        return self.batch.conv

    @property
    def N(self) -> int:
        """The number of images."""
        return self.batch.N

    @property
    def data(self) -> str:
        """The name of the data set."""
        return self.batch.data

    @property
    def direction(self) -> str:
        """What is computed of the layer."""
        return self.batch.direction

    @property
    def rung(self) -> str:
        """The name of what computes it, in a record the axis of this name."""
        return self.entry.name

    @property
    def precision(self) -> str:
        """The error class that is checked."""
        return self.entry.precision

    def axes(self) -> dict[str, Any]:
        """The point as a record holds it."""
        axes = {axis: getattr(self, axis) for axis in (*AXES, DATA, DIRECTION)}
        return {**axes, "constants": dict(self.constants)}

    def changed(self) -> list[str]:
        """The constants that differ from the rung's defaults today."""
        return []

    def label(self) -> str:
        """The point in a few words, for progress lines."""
        return label_of(self.axes(), {name: self.constants[name] for name in self.changed()})


@dataclass(frozen=True)
class Point(_OfBatch):
    """One measurement to make: a batch computed by a rung.  It can be described, run and recorded on its own.

    ``device`` is the one whose defaults the constants start from; it is not an axis, since the constants are.
    """

    kind: ClassVar[Literal[Kind.RUNG]] = Kind.RUNG
    entry: Rung
    device: Device = field(default=H200, compare=False, repr=False)

    @classmethod
    def with_defaults(cls, batch: Batch, rung: Rung, device: Device = H200) -> "Point":
        """A rung with its defaults for a batch and a device; the layer's problem is that of the rung's direction."""
        batch = batch.toward(rung.direction)
        return cls(batch, rung, PAGEABLE, rung.resolve(batch.conv, {}, batch.N, device), device)

    @classmethod
    def from_axes(cls, axes: Mapping[str, Any], ladder: Ladder = ALL_DIRECTIONS) -> "Point":
        """The point of a record whose rung is of the ladder."""
        workload, number = WORKLOADS[axes["workload"]], axes["layer"]
        (batch,) = batches_of(workload, [number], [axes["N"]], [axes.get(DATA, UNIFORM)])
        batch = batch.toward(axes.get(DIRECTION, FORWARD))
        rung = ladder.named[axes["rung"]]
        return cls(batch, rung, axes["transfer"], rung.recorded(axes["constants"]))

    def bound(self, device: Device) -> BoundRung:
        """The rung with the point's shape and constants, on a device."""
        return BoundRung(self.entry, self.conv, self.constants, device)

    def changed(self) -> list[str]:
        """The constants that differ from the rung's defaults today."""
        return list(changed_constants(self.entry, self.constants, self.conv, self.N, self.device))

    def points(self) -> list["Point"]:
        """The point itself; a sequence has several."""
        return [self]


@dataclass(frozen=True)
class PeerPoint(_OfBatch):
    """One measurement to make of another library's implementation.

    It copies nothing: reports put it next to the rungs under the study's transfer.
    """

    kind: ClassVar[Literal[Kind.PEER]] = Kind.PEER
    entry: Peer

    def points(self) -> list["PeerPoint"]:
        """The point itself; a sequence has several."""
        return [self]


Chosen = TypeVar("Chosen", Point, PeerPoint)


@dataclass(frozen=True)
class LayerSequence(Generic[Chosen]):
    """Several layers measured as one sequence, N images each.  Its ``layer`` in a record is their range as text."""

    rung: str
    precision: str
    chosen: tuple[Chosen, ...]

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers' numbers."""
        return tuple(point.layer for point in self.chosen)

    @property
    def batch(self) -> Batch:
        """The first layer's batch, whose workload, number of images and data set the others share."""
        return self.chosen[0].batch

    @property
    def N(self) -> int:
        """The number of images."""
        return self.batch.N

    @property
    def transfer(self) -> str:
        """The transfer of all layers."""
        return self.chosen[0].transfer

    @property
    def mix(self) -> str:
        """Each layer's rung and changed constants, as ``--mix`` takes them; empty for its own rung's defaults."""
        words = [word_in_mix(point) for point in self.chosen]
        if set(words) == {self.rung.removesuffix(SEQUENCE_SUFFIX)}:
            return ""
        return ",".join(f"{layer}={word}" for layer, word in zip(self.layers, words, strict=True))

    def axes(self) -> dict[str, Any]:
        """The point as a record holds it; all constants of the layers are elsewhere in the record."""
        layers = {"layer": layer_range(self.layers), "rung": self.rung, "precision": self.precision}
        return {**self.chosen[0].axes(), **layers, "constants": {}, **({MIX: self.mix} if self.mix else {})}

    def changed(self) -> list[str]:
        """None: constants are those of its layers."""
        return []

    def label(self) -> str:
        """The point in a few words, for progress lines."""
        place = f"{self.batch.workload} layers {layer_range(self.layers)} N={self.N}"
        return f"{place} {self.rung} {self.transfer}{particulars(self.axes())}"

    def points(self) -> list[Chosen]:
        """Each layer as a separate point."""
        return list(self.chosen)


class RungSequence(LayerSequence[Point]):
    """Layers, each with its rung and constants."""

    kind: ClassVar[Literal[Kind.RUNG]] = Kind.RUNG


class PeerSequence(LayerSequence[PeerPoint]):
    """Layers, all by the same peer."""

    kind: ClassVar[Literal[Kind.PEER]] = Kind.PEER

    @property
    def entry(self) -> Peer:
        """The peer."""
        return self.chosen[0].entry


AnyPoint = Point | PeerPoint | RungSequence | PeerSequence


def word_in_mix(point: Point | PeerPoint) -> str:
    """The point's rung with its changed constants, as ``--mix`` takes them."""
    return ":".join([point.rung, *(f"{name}={point.constants[name]}" for name in point.changed())])


def layer_range(layers: Sequence[int]) -> str:
    """``1-5``, or ``1,3`` where the numbers are not consecutive."""
    first, last = layers[0], layers[-1]
    if len(layers) > 1 and list(layers) == list(range(first, last + 1)):
        return f"{first}-{last}"
    return ",".join(map(str, layers))


def workload_named(text: str) -> Workload:
    """The workload of that name; raises UsageError, which lists the names, for an unknown one."""
    if text not in WORKLOADS:
        raise UsageError(f"unknown workload '{text}': choose from {', '.join(WORKLOADS)}")
    return WORKLOADS[text]


def parse_layers(text: str, workload: Workload) -> tuple[int, ...]:
    """Layer numbers from ``1-5``, ``1,3``, ``2-4,5`` or ``all``, each once, in the order given.

    Raises UsageError for anything else and for layers that the workload lacks.
    """
    last = len(workload.layers)
    if text == ALL_LAYERS:
        return tuple(range(1, last + 1))
    layers: list[int] = []
    for item in text.split(","):
        match = _LAYERS.fullmatch(item.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= low <= high <= last:
            raise UsageError(
                f"no layer '{item}' in {workload.name}, which has 1 to {last}: write 1-{last}, 1,{last} or {ALL_LAYERS}"
            )
        layers += range(low, high + 1)
    return without_repeats(layers)


def parse_batches(text: str) -> tuple[int, ...]:
    """Batch sizes from ``1,32,128`` or ``256:2048:x2`` (a geometric range), each once, in order.

    Raises UsageError for anything else and for sizes below one.
    """
    batches: list[int] = []
    for item in text.split(","):
        match = _BATCHES.fullmatch(item.strip())
        first, last, factor = (int(match[1]), int(match[2] or match[1]), int(match[3] or 2)) if match else (0, 0, 0)
        if not (1 <= first <= last and factor >= 2):
            raise UsageError(f"no batch size in '{item}': write whole numbers from 1, such as 1,32,128 or 256:2048:x2")
        while first <= last:
            batches.append(first)
            first *= factor
    return without_repeats(batches)


def without_repeats(numbers: Iterable[int]) -> tuple[int, ...]:
    """The numbers without repeats, in order."""
    return tuple(dict.fromkeys(numbers))


def parse_precisions(text: str | None) -> list[str]:
    """Names of error classes from ``fp32,tf32``, none for None; raises UsageError."""
    precisions = text.split(",") if text else []
    if unknown := set(precisions) - set(PRECISIONS):
        raise UsageError(f"unknown precision {', '.join(sorted(unknown))}: choose from {', '.join(PRECISIONS)}")
    return precisions


def choose_data(text: str) -> list[str]:
    """Names of data sets from ``uniform,relu`` or ``all``, each once; raises UsageError."""
    words = list(DATA_SETS) if text == "all" else text.split(",")
    return list(dict.fromkeys(data_set(word).name for word in words))


def parse_directions(text: str | None) -> list[str]:
    """Directions from ``forward,wgrad``, none for None; raises UsageError."""
    directions = text.split(",") if text else []
    if unknown := set(directions) - set(DIRECTIONS):
        raise UsageError(f"unknown direction {', '.join(sorted(unknown))}: choose from {', '.join(DIRECTIONS)}")
    return list(dict.fromkeys(directions))


def choose_rungs(text: str, ladder: Ladder = ALL_DIRECTIONS, directions: Sequence[str] = ()) -> list[Selected]:
    """Rungs by name, alias or family, or ``all``, each with the transfer that its alias implies, if any.

    Only those of these directions, if there are any; else ``all`` are those of the forward direction.  A name that a
    rung and a family share is the rung's; ``family:igemm`` is always the family.  Raises UsageError for an unknown
    word.
    """
    words = rungs_by_word(ladder)
    chosen: dict[tuple[str, str | None], Selected] = {}
    for word in text.split(","):
        if word not in words:
            guess = f"; did you mean {' or '.join(near)}?" if (near := near_words(word, words)) else ":"
            families = ", ".join(sorted({rung.family for rung in ladder}))
            raise UsageError(f"unknown rung {word!r}{guess} alexconv run --list has all; families are {families}")
        allowed = directions or ([FORWARD] if word == ALL_RUNGS else list(DIRECTIONS))
        chosen |= {
            (rung.name, transfer): (rung, transfer) for rung, transfer in words[word] if rung.direction in allowed
        }
    return list(chosen.values())


def rungs_by_word(ladder: Ladder) -> dict[str, tuple[Selected, ...]]:
    """What each word selects."""
    families: dict[str, tuple[Selected, ...]] = {}
    for rung in ladder:
        families[rung.family] = (*families.get(rung.family, ()), (rung, None))
    named = ladder.named
    return {
        ALL_RUNGS: tuple((rung, None) for rung in ladder),
        **{f"{FAMILY}:{name}": rungs for name, rungs in families.items()},
        **families,
        **{alias: ((named[name], None),) for alias, name in ladder.aliases.items()},
        **{alias: ((named[name], transfer),) for alias, (name, transfer) in TRANSFER_ALIASES.items()},
        **{name: ((rung, None),) for name, rung in named.items()},
    }


def of_precisions(rungs: Iterable[Selected], precisions: Container[str]) -> list[Selected]:
    """The rungs of these error classes; all of them if there are none."""
    return [(rung, transfer) for rung, transfer in rungs if not precisions or rung.precision in precisions]


def near_words(word: str, words: Mapping[str, tuple[Selected, ...]]) -> list[str]:
    """The likeliest words for an unknown one, nearest first, each for another selection."""
    distinct: dict[tuple[tuple[str, str | None], ...], str] = {}
    for near in get_close_matches(word, words, len(words)):
        distinct.setdefault(tuple((rung.name, transfer) for rung, transfer in words[near]), near)
    return list(distinct.values())[:MOST_GUESSES]


def choose_transfers(text: str) -> list[Transfer]:
    """Transfers by name, or ``all``; raises UsageError."""
    try:
        return list(TRANSFERS.values()) if text == "all" else [transfer_named(word) for word in text.split(",")]
    except ValueError as error:
        raise UsageError(str(error)) from None


def parse_constants(texts: Sequence[str], ladder: Ladder = ALL_DIRECTIONS) -> dict[str, list[int]]:
    """``NAME=V1,V2`` texts as lists of values by constant, without repeats; raises UsageError."""
    known = {constant.name for rung in ladder for constant in rung.constants}
    chosen: dict[str, list[int]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if name not in known:
            raise UsageError(f"no rung has a constant {name!r}: they are {', '.join(sorted(known))}")
        try:
            wanted = [int(value) for value in values.split(",")]
        except ValueError:
            raise UsageError(f"{text!r}: the values of a constant are whole numbers, as in {name}=1,2") from None
        if max(map(abs, wanted)) > MOST_INTEGER:
            raise UsageError(f"{text!r}: the values of a constant fit in an int, at most {MOST_INTEGER}")
        chosen[name] = list(dict.fromkeys([*chosen.get(name, []), *wanted]))
    return chosen


def refuse_unused(constants: Iterable[str], points: Iterable[Point]) -> None:
    """Raises UsageError for a chosen constant that no rung of the points has."""
    rungs = list(dict.fromkeys(point.entry for point in points))
    had = {constant.name for rung in rungs for constant in rung.constants}
    if unused := [name for name in constants if name not in had]:
        names = ", ".join(rung.name for rung in rungs)
        raise UsageError(f"{', '.join(unused)}: no constant of {names or 'any rung chosen'}")


def batches_of(
    workload: Workload, layers: Iterable[int], batches: Iterable[int], data: Iterable[str] = (UNIFORM,)
) -> list[Batch]:
    """Every layer with every data set and number of images, in this order."""
    places = product(layers, data, batches)
    return [Batch(workload.name, layer, workload.layer(layer), N, name) for layer, name, N in places]


@dataclass(frozen=True)
class ConstantSource:
    """Where the constants of rungs come from.

    From ``chosen``, each value in turn; else from ``tuned`` for the rung, shape and batch size; else from the rung's
    defaults for ``device``.
    """

    chosen: Mapping[str, Sequence[int]] = field(default_factory=dict)
    tuned: TunedConstants | None = None
    device: Device = H200

    def constants(self, rung: Rung, conv: Conv, N: int) -> Iterator[dict[str, int]]:
        """Every combination of a rung's constants; raises UsageError for a value outside its choices."""
        known = self.tuned(rung, conv, N) if self.tuned else {}
        names = [constant.name for constant in rung.constants if constant.name in self.chosen]
        for values in product(*(self.chosen[name] for name in names)):
            try:
                yield rung.resolve(conv, {**known, **dict(zip(names, values, strict=True))}, N, self.device)
            except ValueError as error:
                raise UsageError(str(error)) from None


DEFAULTS = ConstantSource()


def expand(
    batches: Iterable[Batch],
    rungs: Iterable[Selected],
    transfers: Sequence[Transfer],
    source: ConstantSource = DEFAULTS,
) -> list[Point]:
    """Every combination once, in the order direction, batch, rung, constants, transfer.

    Batches are those of the forward direction; points are in the directions of their rungs.  Raises UsageError for a
    bad constant.
    """
    rungs, batches = list(rungs), list(batches)
    directions = dict.fromkeys(rung.direction for rung, _ in rungs)
    points = (
        Point(batch, rung, transfer, constants, source.device)
        for direction in directions
        for batch, (rung, own_transfer) in product((batch.toward(direction) for batch in batches), rungs)
        if rung.direction == direction
        for constants in source.constants(rung, batch.conv, batch.N)
        for transfer in ([own_transfer] if own_transfer else [choice.name for choice in transfers])
    )
    return list(dict.fromkeys(points))


def study_points(study: str, batches: Sequence[int], device: Device = H200) -> list[Point]:
    """The points of a published LeNet-style study, at these batch sizes (its own if none); raises UsageError."""
    if study not in STUDY_WORKLOADS:
        raise UsageError(f"unknown study {study!r}: choose from {', '.join(STUDY_WORKLOADS)}")
    workload = WORKLOADS[STUDY_WORKLOADS[study]]
    variants = [variant for (name, _), variant in PUBLISHED.items() if name == study]
    points: list[Point] = []
    for batch in batches_of(workload, range(1, len(workload.layers) + 1), batches or workload.batches):
        for variant in variants:
            of_layer = {
                name: (value[batch.layer - 1] if isinstance(value, tuple) else value,)
                for name, value in variant.constants.items()
            }
            selected = [(RUNGS[variant.rung], variant.transfer)]
            points += expand([batch], selected, (), ConstantSource(of_layer, device=device))
    return list(dict.fromkeys(points))
