"""Points, and the parsing of the options that choose them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from itertools import product
from typing import Any

from alexconv.data import DATA_SETS, UNIFORM, data_set
from alexconv.errors import UsageError
from alexconv.kernels.ladder import ALIASES, LADDER, RUNGS, TRANSFER_ALIASES
from alexconv.kernels.problem import H200, Constants, Device
from alexconv.kernels.rung import Rung
from alexconv.kernels.studies import PUBLISHED, STUDY_WORKLOADS
from alexconv.planning.checks import PRECISIONS
from alexconv.planning.transfers import TRANSFERS, Transfer, transfer_named
from alexconv.records.labels import changed_constants, label_with, of_data
from alexconv.records.store import AXES, DATA
from alexconv.shapes import WORKLOADS, Conv, Workload

GEMM = "torch-gemm-fp32"  # the peer that is one product of cuBLAS

ALL_LAYERS = "all"
_LAYERS = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_BATCHES = re.compile(r"([0-9]+)(?::([0-9]+):x([0-9]+))?")
FAMILY = "family"  # before a family's name, as in family:igemm
MOST_GUESSES = 3  # for a word that is unknown
Selected = tuple[Rung, str | None]  # a rung, and the transfer that its alias implies, if any
TunedConstants = Callable[[Rung, Conv, int], Constants]  # those found for a rung, shape and batch size, if any


@dataclass(frozen=True)
class Point:
    """One measurement to make: it can be described, run and recorded on its own.

    ``device`` is the one whose defaults the constants start from; it is not an axis, since the constants are.
    """

    workload: str
    layer: int
    N: int
    rung: str
    transfer: str
    precision: str
    constants: dict[str, int] = field(hash=False)
    device: Device = field(default=H200, compare=False, repr=False)
    data: str = UNIFORM

    @property
    def conv(self) -> Conv:
        """The layer's shape."""
        return WORKLOADS[self.workload].layer(self.layer)

    def axes(self) -> dict[str, Any]:
        """The point as a record holds it."""
        axes = {axis: getattr(self, axis) for axis in (*AXES, DATA)}
        return {**axes, "constants": dict(self.constants)}

    def changed(self) -> list[str]:
        """The constants that differ from the rung's defaults today."""
        return list(changed_constants(self.rung, self.constants, self.conv, self.N, self.device))

    def points(self) -> list["Point"]:
        """The point itself; a ``LayerSequence`` has several."""
        return [self]

    def label(self) -> str:
        """The point in a few words, for progress lines."""
        # a record's point may be a sequence, which has no single shape, or a peer, which has no constants
        rung = self.rung
        if rung in RUNGS:
            rung = label_with(rung, changed_constants(rung, self.constants, self.conv, self.N, self.device))
        return f"{self.workload} layer {self.layer} N={self.N} {rung} {self.transfer}{of_data(self.data)}"


@dataclass(frozen=True)
class LayerSequence:
    """Several layers measured as one sequence, N images each.  Its ``layer`` in a record is their range as text."""

    workload: str
    layers: tuple[int, ...]
    N: int
    rung: str
    transfer: str
    precision: str
    constants: dict[str, int] = field(default_factory=dict, hash=False)
    data: str = UNIFORM

    def axes(self) -> dict[str, Any]:
        """The point as a record holds it."""
        axes = asdict(self)
        return {"workload": axes.pop("workload"), "layer": layer_range(axes.pop("layers")), **axes}

    def changed(self) -> list[str]:
        """None: constants are those of its layers."""
        return []

    def label(self) -> str:
        """The point in a few words, for progress lines."""
        of = of_data(self.data)
        return f"{self.workload} layers {layer_range(self.layers)} N={self.N} {self.rung} {self.transfer}{of}"

    def points(self) -> list[Point]:
        """Each layer as a separate point."""
        rest = (self.N, self.rung, self.transfer, self.precision, self.constants)
        return [Point(self.workload, layer, *rest, data=self.data) for layer in self.layers]


def peer_name(layout: str, precision: str) -> str:
    """The name of a peer's convolution."""
    return f"torch-{layout}-{precision}"


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
    return each_once(layers)


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
    return each_once(batches)


def each_once(numbers: Iterable[int]) -> tuple[int, ...]:
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


def choose_rungs(text: str) -> list[Selected]:
    """Rungs by name, alias or family, or ``all``, each with the transfer that its alias implies, if any.

    A name that a rung and a family share is the rung's; ``family:igemm`` is always the family.  Raises UsageError for
    an unknown word.
    """
    words = rungs_by_word()
    chosen: dict[tuple[str, str | None], Selected] = {}
    for word in text.split(","):
        if word not in words:
            guess = f"; did you mean {' or '.join(near)}?" if (near := near_words(word, words)) else ":"
            families = ", ".join(sorted({rung.family for rung in LADDER}))
            raise UsageError(f"unknown rung {word!r}{guess} alexconv run --list has all; families are {families}")
        chosen |= {(rung.name, transfer): (rung, transfer) for rung, transfer in words[word]}
    return list(chosen.values())


def rungs_by_word() -> dict[str, tuple[Selected, ...]]:
    """What each word selects."""
    families: dict[str, tuple[Selected, ...]] = {}
    for rung in LADDER:
        families[rung.family] = (*families.get(rung.family, ()), (rung, None))
    return {
        "all": tuple((rung, None) for rung in LADDER),
        **{f"{FAMILY}:{name}": rungs for name, rungs in families.items()},
        **families,
        **{alias: ((RUNGS[name], None),) for alias, name in ALIASES.items()},
        **{alias: ((RUNGS[name], transfer),) for alias, (name, transfer) in TRANSFER_ALIASES.items()},
        **{name: ((rung, None),) for name, rung in RUNGS.items()},
    }


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


def parse_constants(texts: Sequence[str]) -> dict[str, list[int]]:
    """``NAME=V1,V2`` texts as lists of values by constant, without repeats; raises UsageError."""
    known = {constant.name for rung in LADDER for constant in rung.constants}
    chosen: dict[str, list[int]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if name not in known:
            raise UsageError(f"no rung has a constant {name!r}: they are {', '.join(sorted(known))}")
        try:
            wanted = [int(value) for value in values.split(",")]
        except ValueError:
            raise UsageError(f"{text!r}: the values of a constant are whole numbers, as in {name}=1,2") from None
        chosen[name] = list(dict.fromkeys([*chosen.get(name, []), *wanted]))
    return chosen


def refuse_unused(constants: Iterable[str], points: Sequence[Point]) -> None:
    """Raises UsageError for a chosen constant that no rung of the points has."""
    rungs = list(dict.fromkeys(point.rung for point in points))
    had = {constant.name for rung in rungs for constant in RUNGS[rung].constants}
    if unused := [name for name in constants if name not in had]:
        raise UsageError(f"{', '.join(unused)}: no constant of {', '.join(rungs) or 'any rung chosen'}")


def expand(
    workload: str,
    layers: Sequence[int],
    batches: Sequence[int],
    rungs: Sequence[tuple[Rung, str | None]],
    transfers: Sequence[Transfer],
    constants: Mapping[str, Sequence[int]],
    precisions: Sequence[str] = (),
    tuned: TunedConstants | None = None,
    device: Device = H200,
    data: Sequence[str] = (UNIFORM,),
) -> list[Point]:
    """Every combination once, in the order layer, data, N, rung, transfer; raises UsageError for a bad constant.

    Constants come from ``constants``, else from ``tuned`` for the rung, shape and batch size, else from the rung's
    defaults for ``device``.
    """

    def combinations() -> Iterator[Point]:
        for layer, values_of, N, (rung, own_transfer) in product(layers, data, batches, rungs):
            if precisions and rung.precision not in precisions:
                continue
            conv = WORKLOADS[workload].layer(layer)
            found = tuned(rung, conv, N) if tuned else {}
            names = [constant.name for constant in rung.constants if constant.name in constants]
            for values in product(*(constants[name] for name in names)):
                try:
                    wanted = {**found, **dict(zip(names, values, strict=True))}
                    resolved = rung.resolve(conv, wanted, N, device)
                except ValueError as error:
                    raise UsageError(str(error)) from None
                for transfer in [own_transfer] if own_transfer else [t.name for t in transfers]:
                    yield Point(workload, layer, N, rung.name, transfer, rung.precision, resolved, device, values_of)

    unique: list[Point] = []
    for point in combinations():
        if point not in unique:
            unique.append(point)
    return unique


def study_points(study: str, batches: Sequence[int], device: Device = H200) -> list[Point]:
    """The points of a published LeNet-style study, at these batch sizes (its own if none); raises UsageError."""
    if study not in STUDY_WORKLOADS:
        raise UsageError(f"unknown study {study!r}: choose from {', '.join(STUDY_WORKLOADS)}")
    workload = WORKLOADS[STUDY_WORKLOADS[study]]
    points: list[Point] = []
    for number, N in product(range(1, len(workload.layers) + 1), batches or workload.batches):
        for variant in (variant for (name, _), variant in PUBLISHED.items() if name == study):
            rung = RUNGS[variant.rung]
            of_layer = {
                name: value[number - 1] if isinstance(value, tuple) else value
                for name, value in variant.constants.items()
            }
            resolved = rung.resolve(workload.layer(number), of_layer, N, device)
            point = Point(workload.name, number, N, rung.name, variant.transfer, rung.precision, resolved, device)
            if point not in points:
                points.append(point)
    return points
