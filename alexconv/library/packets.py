"""Packets: the launches of a call on one stream, with all but a few addresses in place.

A call whose arrays have the descriptors of an earlier one's writes its addresses into the packet's words and enqueues
the launches: no planning, no packing of arguments, no new driver objects.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from alexconv.errors import LaunchError
from alexconv.executors.cuda.native import Config, Words, check, launch_config, ready_launch
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Dims, TensorMap

ADDRESSES = ("x", "y", "residual", "w", "bias")  # in the order in which a packet takes them


@dataclass(frozen=True)
class Symbol:
    """An address that each call passes, plus an offset in bytes."""

    name: str
    moved: int = 0

    def __add__(self, nbytes: int) -> "Symbol":
        return Symbol(self.name, self.moved + nbytes)


@dataclass(frozen=True)
class MapOf:
    """The address of a tensor map of an array whose address each call passes."""

    tensor_map: TensorMap
    problem: Problem
    array: Symbol


class Place(NamedTuple):
    """A word to patch: with the address of that number among a call's, plus an offset in bytes."""

    word: int
    number: int
    moved: int


class MapPlace(NamedTuple):
    """A word to patch with the address of a tensor map of the array at such an address."""

    word: int
    number: int
    moved: int
    addresses: dict[int, int]  # map's address by array's
    wanted: MapOf


Value = int | Symbol | MapOf
Struct = Sequence[int]  # a parameter of several 64-bit words


class Packet:
    """Launches in order; not thread-safe.  ``resources`` are the memory and programs that they use."""

    __slots__ = (
        "_launches",
        "_make_map",
        "_maps",
        "_moved",
        "_values",
        "_words",
        "generation",
        "lane",
        "once",
        "resources",
        "waits",
    )

    def __init__(self, recipe: "Recipe", lane: Any, resources: Sequence[Any]) -> None:
        self._words = Words(recipe.values)
        self._values = self._words.values
        self._launches = tuple(
            ready_launch(function, config, [self._words.address(place) for place in places])
            for function, config, places in recipe.launches
        )
        self._moved = tuple(recipe.moved)
        self._maps, self._make_map = tuple(recipe.maps), recipe.make_map
        self.lane, self.generation, self.resources = lane, lane.generation, resources
        self.waits: Any = None  # a compilation that makes a faster packet possible
        self.once = False  # for one call only: it follows the preparation of its filters

    def usable(self) -> bool:
        """Whether its addresses are still valid and no faster packet can replace it."""
        if self.once or self.generation != self.lane.generation:
            return False
        return self.waits is None or not self.waits.done()

    def enqueue(self, addresses: Sequence[int]) -> None:
        """Enqueues the launches on arrays at these addresses: x, y, the residual or 0, and w and bias where calls pass
        them.
        """
        values = self._values
        for word, number, moved in self._moved:
            values[word] = addresses[number] + moved
        for place in self._maps:
            array = addresses[place.number] + place.moved
            address = place.addresses.get(array)
            if address is None:
                address = place.addresses[array] = self._make_map(place.wanted, array)
            values[place.word] = address
        for launch in self._launches:
            if status := launch():
                check(status, "a launch")


class Recipe:
    """A packet under construction, for a stream; ``make_map`` returns the address of a new tensor map."""

    def __init__(self, stream: int, make_map: Callable[[MapOf, int], int]) -> None:
        self.stream, self.make_map = stream, make_map
        self.values: list[int] = []
        self.moved: list[Place] = []
        self.maps: list[MapPlace] = []
        self.launches: list[tuple[int, Config, list[int]]] = []
        self._places: dict[Any, int] = {}

    def add(
        self,
        function: int,
        grid: Dims,
        block: Dims,
        shared: int,
        parameters: Sequence[Value | Struct],
        *,
        pdl: bool = False,
    ) -> None:
        """Appends a launch; a parameter is a value, or the words of a struct."""
        places = [self._place(parameter) for parameter in parameters]
        self.launches.append((function, launch_config(grid, block, shared, self.stream, pdl=pdl), places))

    def _place(self, value: Value | Struct) -> int:
        """Index of a parameter's first word; launches share the words that calls patch."""
        if isinstance(value, Sequence):
            self.values += value
            return len(self.values) - len(value)
        key = (value.tensor_map.name, value.problem.N, value.array) if isinstance(value, MapOf) else value
        if key in self._places:
            return self._places[key]
        place = self._places[key] = len(self.values)
        self.values.append(value if isinstance(value, int) else 0)
        if isinstance(value, Symbol):
            self.moved.append(Place(place, ADDRESSES.index(value.name), value.moved))
        elif isinstance(value, MapOf):
            array = value.array
            self.maps.append(MapPlace(place, ADDRESSES.index(array.name), array.moved, {}, value))
        return place


def arguments(names: Sequence[str], values: Mapping[str, Value]) -> list[Value]:
    """The values of a launch's arguments."""
    try:
        return [values[name] for name in names]
    except KeyError as missing:
        raise LaunchError(f"a launch takes {missing}, which the library does not have") from None
