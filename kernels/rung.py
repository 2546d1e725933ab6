"""What the ladder says about a rung: data and small functions of the shape, no behaviour.

The same constants go to the compiler (as ``-D``) and to the functions that give grid, block and array sizes, so the
kernel and its launch cannot disagree.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from alexconv.shapes import Conv

Constants = Mapping[str, int]
Dims = tuple[int, int, int]

FOLDER = Path(__file__).resolve().parent
MAX_BLOCK = 1024  # threads in a block, on every CUDA GPU
IMAGES_PER_PIECE = "IMAGES_PER_PIECE"  # the one constant that is not the kernel's but the planner's


@dataclass(frozen=True)
class Constant:
    """A compile-time number of a rung.

    ``default`` gives the study's value for a shape.  ``choices`` are the values worth trying; empty means any from
    ``least``.
    ``matters`` is false where every value gives the same kernel, given those of the rung's constants before this one.
    A constant with ``ceiling`` trades speed for memory: the planner may raise it up to that value where the scratch
    arrays would not fit.
    """

    name: str
    meaning: str
    default: Callable[[Conv], int]
    choices: tuple[int, ...] = ()
    matters: Callable[[Conv, Constants], bool] = lambda conv, constants: True
    ceiling: Callable[[Conv], int] | None = None
    least: int = 1


@dataclass(frozen=True)
class Array:
    """A scratch array on the device: its shape for N images, and the type of its elements."""

    name: str
    shape: Callable[[Conv, int, Constants], tuple[int, ...]]
    itemsize: int = 4

    def nbytes(self, conv: Conv, N: int, constants: Constants) -> int:
        """Bytes for N images."""
        return prod(self.shape(conv, N, constants)) * self.itemsize


@dataclass(frozen=True)
class Launch:
    """One kernel launch over N images.  ``args`` name the arrays it takes: x, w, y or a scratch array."""

    entry: str
    args: tuple[str, ...]
    grid: Callable[[Conv, int, Constants], Dims]
    block: Callable[[Conv, Constants], Dims]
    dynamic_shared: Callable[[Conv, Constants], int] = lambda conv, constants: 0


def everywhere(conv: Conv, constants: Constants) -> str | None:
    """A rung that takes every shape."""
    return None


@dataclass(frozen=True)
class Rung:
    """One way to compute a layer: its names, its place in the ladder, its file and its launches.

    ``precision`` names the error class (see ``alexconv.checks``), ``dtype`` the NumPy type of input, filters and
    output.  ``refuses`` returns the reason why a shape cannot be computed, else None; ``gpu_only`` the reason why the
    host executor cannot run the file, else None.  ``order_varies`` says that a sum's order, and so its rounding, may
    change from run to run.  ``constant_symbol`` names the ``__constant__`` array ``[M][C][R][S]`` of the file that has
    to hold the filters before a launch, for a rung whose launches do not take w.
    """

    name: str
    alias: str
    idea: str
    family: str
    parent: str | None
    file: str
    launches: tuple[Launch, ...]
    constants: tuple[Constant, ...] = ()
    scratch: tuple[Array, ...] = ()
    precision: str = "fp32"
    dtype: str = "float32"
    refuses: Callable[[Conv, Constants], str | None] = everywhere
    gpu_only: str | None = None
    order_varies: bool = False
    constant_symbol: str | None = None

    @property
    def path(self) -> Path:
        """The rung's ``.cu`` file."""
        return FOLDER / self.file

    def resolve(self, conv: Conv, chosen: Constants) -> dict[str, int]:
        """Every constant's value for a shape: the chosen one where it matters there, else the default.

        Raises ValueError for a value outside a constant's choices.
        """
        values: dict[str, int] = {}
        for constant in self.constants:
            value = chosen.get(constant.name, constant.default(conv))
            if (value not in constant.choices) if constant.choices else value < constant.least:
                allowed = ", ".join(map(str, constant.choices)) or f"{constant.least} or more"
                raise ValueError(f"{constant.name} of {self.name} is {allowed}, not {value}")
            values[constant.name] = value if constant.matters(conv, values) else constant.default(conv)
        return values

    def scratch_bytes(self, conv: Conv, N: int, constants: Constants) -> int:
        """Bytes of all scratch arrays for N images."""
        return sum(array.nbytes(conv, N, constants) for array in self.scratch)


def defines(conv: Conv, constants: Constants) -> dict[str, int]:
    """The macros that a kernel is compiled with: the shape as ``CONV_C`` to ``CONV_F``, then its constants."""
    compiled = {name: value for name, value in constants.items() if name != IMAGES_PER_PIECE}
    return {**{f"CONV_{letter}": size for letter, size in conv.sizes().items()}, **compiled}
