"""A rung bound to a shape, constants and a device: its launches, arrays, arguments and macros.

N is the *batch*.  The planner cuts it into *pieces*, computed one after the other in the same memory.  Launches take a
*micro-batch* of a piece: all of it, unless MICRO_BATCH or ``most_images`` is smaller.  A kernel's N is its micro-batch.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv.kernels.problem import H200, Constants, Device, Problem
from alexconv.kernels.rung import (
    BATCH,
    BIAS,
    MAX_BLOCK,
    MICRO_BATCH,
    MOST_INTEGER,
    RESIDUAL,
    Array,
    Dims,
    Launch,
    Rung,
    TensorMap,
    defines,
)
from alexconv.shapes import Conv, Direction

MAX_GRID: Dims = (2**31 - 1, 65535, 65535)
MAX_BLOCK_AXES: Dims = (1024, 1024, 64)
# Most images of a launch are a multiple that keeps the next one's arrays aligned; positions are counted in whole tiles.
ALIGNED_IMAGES, MOST_OF_TILE = 32, 512


@dataclass(frozen=True)
class LaunchConfig:
    """A ``Launch`` with numbers: entry point, argument names, grid, block, bytes of dynamic shared memory."""

    entry: str
    args: tuple[str, ...]
    grid: Dims
    block: Dims
    dynamic_shared: int
    pdl: bool = False
    cooperative: bool = False
    cluster: int = 1  # blocks that read each other's shared memory

    def facts(self) -> dict[str, Any]:
        """The launch as it is in a record's key."""
        facts = asdict(self)
        if not self.cooperative:
            del facts["cooperative"]
        del facts["cluster"]  # follows from the constants
        return facts

    def outside_limits(self) -> str | None:
        """Why CUDA would refuse the launch on any device, or None."""
        for kind, dims, limits in (("grid", self.grid, MAX_GRID), ("block", self.block, MAX_BLOCK_AXES)):
            if any(size < 1 or size > limit for size, limit in zip(dims, limits, strict=True)):
                return f"{self.entry}: a {kind} of {dims} is outside CUDA's limits {limits}"
        x, y, z = self.block
        if x * y * z > MAX_BLOCK:
            return f"{self.entry}: a block of {x} x {y} x {z} threads exceeds {MAX_BLOCK}"
        return None


@dataclass(frozen=True)
class BoundRung:
    """A rung with all its constants, for one shape on one device.

    ``dynamic``: in the build for every shape.
    """

    rung: Rung
    conv: Conv
    constants: Constants = field(hash=False)
    device: Device = H200
    dynamic: bool = False

    def having(self, constants: Constants) -> "BoundRung":
        """The same rung with some constants replaced."""
        return replace(self, constants={**self.constants, **constants})

    def problem(self, images: int) -> Problem:
        """The argument of the ladder's functions for a launch over ``images`` images."""
        return Problem(self.rung.posed(self.conv), images, self.constants, self.device)

    @property
    def macros(self) -> dict[str, int]:
        """The macros that the rung's file is compiled with."""
        if self.dynamic and self.rung.dynamic:
            return self.rung.dynamic.macros(self.problem(1))
        return defines(self.rung, self.conv, self.constants, self.device)

    def refusal(self) -> str | None:
        """Why the rung cannot compute the shape with these constants, or None."""
        if self.dynamic and not (self.rung.dynamic and self.rung.dynamic.suits(self.problem(1))):
            return "has no build for every shape with these constants"
        return self.rung.refuses(Problem(self.conv, 1, self.constants, self.device))

    @property
    def numbers(self) -> npt.NDArray[np.uint32] | None:
        """What a build for every shape has in constant memory (``dynamic.SYMBOL``); None in a build for this one."""
        return self.rung.dynamic.values(self.problem(1)) if self.dynamic and self.rung.dynamic else None

    def atomic_additions(self, images: int = 1) -> int:
        """Additions to an output by atomics that flush subnormal floats, in a batch of so many images."""
        return self.rung.atomic_additions(self.problem(images))

    @property
    def exceptions(self) -> tuple[str, ...]:
        """What outputs may lose beyond the guarantee of the rung's class, in words."""
        additions = self.atomic_additions()
        flushed = f"each of {additions} atomic additions to an output may flush a number below 2^-126"
        return (*self.rung.exceptions, flushed) if additions else self.rung.exceptions

    def micro_batch(self, images: int) -> int:
        """Images that a sequence of launches takes; the sequence repeats for the rest."""
        return min(images, self.constants.get(MICRO_BATCH) or images, self.most_images or images)

    @cached_property
    def most_images(self) -> int | None:
        """Images of a launch at most, of a rung that numbers their pixels with 32-bit integers."""
        if not self.rung.numbers_pixels:
            return None
        one, two = self.problem(1), self.problem(2)
        extents = [extent for each in self.rung.maps for extent in zip(each.dims(one), each.dims(two), strict=True)]
        # A plane's padding is numbered, too; rows of a tensor map are those of all products of a layer with groups.
        planes = prod(one.conv.padded), one.conv.E * one.conv.F
        positions = max(*planes, *(of_two - of_one for of_one, of_two in extents))
        most = MOST_INTEGER // (-(-positions // MOST_OF_TILE) * MOST_OF_TILE)
        return most if most < ALIGNED_IMAGES else most // ALIGNED_IMAGES * ALIGNED_IMAGES

    def micro_batches(self, images: int) -> list[tuple[int, int]]:
        """First image and size of each micro-batch of these images."""
        most = self.micro_batch(images)
        return [(first, min(most, images - first)) for first in range(0, images, most)]

    def launches(self, images: int) -> list[LaunchConfig]:
        """The launches over the first micro-batch of these images, in order."""
        problem = self.problem(self.micro_batch(images))
        launches = (launch for launch in self.rung.launches if not (launch.converts and self.conv.takes_terms))
        return [_config(launch, problem, dynamic=self.dynamic) for launch in launches]

    def preparation(self) -> list[LaunchConfig]:
        """The launches that prepare the filters, in order."""
        return [_config(launch, self.problem(1), dynamic=self.dynamic) for launch in self.rung.prepare]

    def launch_facts(self, N: int) -> list[Any]:
        """The launch data in a record's key, for N images: types, launches, array sizes, tensor maps."""
        rung, problem = self.rung, self.problem(self.micro_batch(N))

        def window(tensor_map: TensorMap) -> tuple[int, ...] | None:
            return tensor_map.window(problem) if tensor_map.window else None

        launches = [launch.facts() for launch in self.preparation() + self.launches(N)]
        arrays = [[name, nbytes] for name, nbytes in _sizes((*self._working_arrays, *rung.prepared), problem).items()]
        maps = [
            [
                tensor_map.name,
                tensor_map.array,
                tensor_map.dims(problem),
                tensor_map.strides(problem),
                tensor_map.box(problem),
                window(tensor_map),
            ]
            for tensor_map in rung.maps
        ]
        return [rung.dtype, rung.layout, rung.constant_symbol, launches, arrays, maps]

    def entries(self) -> list[str]:
        """The entry points of the rung's file."""
        return [launch.entry for launch in (*self.rung.prepare, *self.rung.launches)]

    @property
    def roles(self) -> Direction:
        """The names of the layer's arrays in its direction."""
        return self.conv.roles

    def piece_bytes(self, images: int) -> dict[str, int]:
        """Bytes of x, y and the scratch arrays, by name, for a piece of the batch."""
        x_and_y = {
            self.roles.x: self._bytes_of(self.rung.x_shape(self.conv, images)),
            self.roles.y: self._bytes_of(self.rung.y_shape(self.conv, images)),
        }
        return x_and_y | _sizes(self._working_arrays, self.problem(self.micro_batch(images)))

    def scratch_bytes(self, images: int) -> int:
        """Bytes of all scratch arrays for a piece of the batch."""
        return sum(_sizes(self._working_arrays, self.problem(self.micro_batch(images))).values())

    @property
    def _working_arrays(self) -> tuple[Array, ...]:
        return self.rung.working_arrays(self.conv)

    @cached_property
    def image_bytes(self) -> dict[str, int]:
        """Bytes of an image in each array that has one."""
        return self.rung.image_bytes(self.conv)

    def filter_bytes(self, images: int = 1) -> int:
        """Bytes of the filters, before any preparation; where w has images, of theirs."""
        return self._bytes_of(self.rung.w_shape(self.conv, images))

    def _bytes_of(self, shape: tuple[int, ...]) -> int:
        return prod(shape) * np.dtype(self.rung.dtype).itemsize

    def bias_bytes(self) -> int:
        """Bytes of the bias, if the layer has one."""
        return self.conv.M * np.dtype(self.rung.dtype).itemsize if self.conv.bias else 0

    def prepared_bytes(self) -> dict[str, int]:
        """Bytes of the prepared arrays, by name."""
        return _sizes(self.rung.prepared, self.problem(1))

    def device_bytes(self, images: int, copies: int = 1) -> int:
        """Bytes on the device: ``copies`` buffer sets of a piece, one set of filters, and the prepared arrays."""
        filters = self.filter_bytes(images) + self.bias_bytes() + sum(self.prepared_bytes().values())
        return copies * sum(self.piece_bytes(images).values()) + filters

    def arguments(
        self,
        first: int,
        images: int,
        addresses: Mapping[str, int],
        encoded: Callable[[TensorMap, Problem, int], int],
    ) -> dict[str, int]:
        """The arguments of the launches over a micro-batch, by name: number of images, addresses of arrays and maps.

        ``first`` is the micro-batch's first image in the arrays at ``addresses``; ``encoded`` returns the address of a
        tensor map of the array at a given address.
        """
        moved = {name: addresses[name] + first * nbytes for name, nbytes in self.image_bytes.items()}
        if self.conv.residual:
            moved[RESIDUAL] = addresses[RESIDUAL] + first * self.image_bytes[self.roles.y]
        none = {BIAS: 0} if self.dynamic and not self.conv.bias else {}
        values = {BATCH: images, **addresses, **moved, **none}
        if self.rung.maps:
            problem = self.problem(images)
            values |= {
                tensor_map.name: encoded(tensor_map, problem, values[tensor_map.array]) for tensor_map in self.rung.maps
            }
        return values


def _config(launch: Launch, p: Problem, *, dynamic: bool) -> LaunchConfig:
    """The launch of a problem; in a build for every shape it takes a bias, which may be none."""
    further = (*(launch.grouped if p.conv.groups > 1 else ()), *(launch.terms if p.conv.stores_terms else ()))
    added = {BIAS: p.conv.bias or dynamic, RESIDUAL: p.conv.residual} if launch.stores else {}
    return LaunchConfig(
        launch.entry,
        (*launch.args, *further, *(name for name, has in added.items() if has)),
        launch.grid(p),
        launch.block(p),
        launch.dynamic_shared(p),
        launch.pdl,
        launch.cooperative,
        launch.cluster(p),
    )


def _sizes(arrays: tuple[Array, ...], p: Problem) -> dict[str, int]:
    return {array.name: prod(array.shape(p)) * array.itemsize for array in arrays}
