"""What the ladder says about a rung: data and small functions of a ``Problem``, no behaviour.

The same constants go to the compiler (as ``-D``) and to the functions that give grid, block and array sizes, so the
kernel and its launch cannot disagree.  What those functions give goes to the compiler too, for one image, so that a
kernel can assert it (``defines``):

* ``LADDER_<ENTRY>_THREADS``, ``_BLOCK_X``, ``_BLOCK_Y``, ``_BLOCK_Z``: the block of the launch of an entry point;
* ``LADDER_<ENTRY>_SHARED_BYTES``: its dynamic shared memory;
* ``LADDER_<ENTRY>_GRID_X``, ``_GRID_Y``, ``_GRID_Z``: its grid where it is over one image;
* ``LADDER_<ARRAY>_ELEMENTS``: elements of a scratch or prepared array for one image;
* ``LADDER_<MAP>_DIM_0``, ...; ``_STRIDE_0``, ...; ``_BOX_0``, ...: what a tensor map of one image describes;
* ``LADDER_<NAME>``: one of the rung's ``sizes``.

Names are those of the ladder in capitals: ``static_assert(THREADS == LADDER_MULTIPLY_THREADS);``
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TypeVar

import numpy as np

from alexconv.kernels.problem import H200, TYPICAL_BATCH, Constants, Device, Problem
from alexconv.shapes import Conv

Dims = tuple[int, int, int]
Value = TypeVar("Value")

FOLDER = Path(__file__).resolve().parent
MAX_BLOCK = 1024  # threads in a block, on every CUDA GPU
BATCH = "N"  # the argument of a launch that is not an array
BIAS = "bias"  # the last argument of launches that store outputs, where the layer has a bias
# Two constants are no kernel's: the planner's, and that of a rung whose scratch arrays are to stay in the L2 cache.
IMAGES_PER_PIECE = "IMAGES_PER_PIECE"
MICRO_BATCH = "MICRO_BATCH"


@dataclass(frozen=True)
class Constant:
    """A compile-time number of a rung.

    ``default`` gives the study's value for a shape, batch and device.  ``choices`` are the values worth trying; empty
    means any from ``least``.
    ``matters`` is false where every value gives the same kernel, given those of the rung's constants before this one.
    A constant with ``ceiling`` trades speed for memory: the planner may raise it up to that value where the scratch
    arrays would not fit.  ``formerly`` are the names that it has in older records.
    """

    name: str
    meaning: str
    default: Callable[[Problem], int]
    choices: tuple[int, ...] = ()
    matters: Callable[[Problem], bool] = lambda p: True
    ceiling: Callable[[Problem], int] | None = None
    least: int = 1
    formerly: tuple[str, ...] = ()


@dataclass(frozen=True)
class Array:
    """A scratch or prepared array on the device: its shape for the images of one launch, and bytes of an element.

    Filled with 0xFF before the first run, so unwritten floats read as NaN and counters begin at a known value.  One
    that is ``lasting`` has to be as the last launches over the same problem left it, or new; what the others have
    before is of no matter.
    """

    name: str
    shape: Callable[[Problem], tuple[int, ...]]
    itemsize: int = 4
    lasting: bool = False


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: TMA's descriptor of an array of two-byte elements; a launch takes it as an argument.

    ``dims`` gives its extents, innermost first, and ``strides`` the bytes from one element to the next along all but
    the innermost; they may overlap.  A tiled map brings boxes of ``box`` elements, innermost first.  An im2col map has
    four dimensions (channels, w, h, n), and brings ``box`` = (channels, pixels): that many channels at that many
    output pixels; ``window`` gives (S, R), the extents of the filter along w and h.  Where the array has padding or
    strides it goes on with left, top, right and bottom, and the strides along w and h.  Rows of a box are 128 bytes and
    swizzled by 128 bytes; elements outside the array are zero.
    """

    name: str
    array: str
    dims: Callable[[Problem], tuple[int, ...]]
    strides: Callable[[Problem], tuple[int, ...]]
    box: Callable[[Problem], tuple[int, ...]]
    window: Callable[[Problem], tuple[int, ...]] | None = None


@dataclass(frozen=True)
class BoundingBox:
    """Where an im2col map's pixels begin, which is ``lower``, how far they end before the array's, and their steps.

    All are along w and h.
    """

    lower: tuple[int, int]
    upper: tuple[int, int]
    steps: tuple[int, int]


def bounding_box(window: tuple[int, ...]) -> BoundingBox:
    """The bounding box of a ``TensorMap``'s window."""
    S, R, left, top, right, bottom, across, down = (*window, 0, 0, 0, 0, 1, 1) if len(window) == 2 else window
    return BoundingBox((-left, -top), (right + 1 - S, bottom + 1 - R), (across, down))


@dataclass(frozen=True)
class Launch:
    """One kernel launch over the N images that are taken at a time.  ``args`` name what it takes.

    That is x, w, y, a scratch or prepared array, a map, or N: the number of images, a 64-bit integer.  ``pdl`` stands
    for programmatic dependent launch: the kernel may start while the one before it on its stream still runs, and waits
    for it (griddepcontrol.wait) before it touches anything but prepared arrays.  ``formerly`` are the names that the
    entry point has in older records.  One that ``stores`` outputs takes the layer's bias as its last argument, if there
    is one.
    """

    entry: str
    args: tuple[str, ...]
    grid: Callable[[Problem], Dims]
    block: Callable[[Problem], Dims]
    dynamic_shared: Callable[[Problem], int] = lambda p: 0
    pdl: bool = False
    formerly: tuple[str, ...] = ()
    stores: bool = False


def refusing_features(
    takes: Container[str], refuses: Callable[[Problem], str | None]
) -> Callable[[Problem], str | None]:
    """What refuses layers with a feature that a rung does not take, and whatever else ``refuses`` does."""

    def reason(p: Problem) -> str | None:
        beyond = [name for name in p.conv.features if name not in takes]
        return f"takes no {', no '.join(beyond)}" if beyond else refuses(p)

    return reason


def everywhere(p: Problem) -> str | None:
    """A rung that takes every shape."""
    return None


@dataclass(frozen=True)
class Rung:
    """One way to compute a layer: its names, its place in the ladder, its file and its launches.

    ``precision`` names the error class (see ``alexconv.planning.checks``), ``dtype`` the NumPy type of input, filters
    and output.  ``layout`` says how input and output lie: ``nchw``, the study's, or ``nhwc``, channels innermost;
    filters are ``[M][C][R][S]`` always.  The launches of ``prepare`` bring the filters into the rung's own form, in
    ``prepared`` arrays, which do not grow with N; they run once for a set of filters, whatever the number of images.
    ``maps`` are the tensor maps that launches take.  ``sizes`` are further numbers that the ladder computes for a
    kernel, such as the pitch of a row.  ``min_capability`` is the least compute capability that has the rung's
    instructions; ``exact_capability`` says that no later generation has them.
    ``tensor_factors`` is the type of the factors that tensor cores multiply, ``fp16`` or ``tf32``, and empty where CUDA
    cores multiply; ``products`` says how many products stand for a multiply-add of the layer, and is None where that
    depends on the shape.
    ``refuses`` returns the reason why a shape cannot be computed, else None; ``gpu_only`` the reason why the host
    executor cannot run the file, else None.  ``order_varies`` says that a sum's order, and so its rounding, may change
    from run to run.  ``atomic_additions`` are the additions to an output by atomicAdd in global memory, which flushes
    subnormal floats: what its guarantee says of underflow.  ``constant_symbol`` names the ``__constant__`` array
    ``[M][C][R][S]`` of the file that has to hold the filters before a launch, for a rung whose launches do not take w.
    ``formerly`` are the rung's names in older records.  ``takes`` are the features of a layer
    (``alexconv.shapes.FEATURES``) that it has beyond the studies' contract, in which the input has its border in
    memory; ``refuses`` names those that it lacks.
    """

    name: str
    alias: str
    idea: str
    family: str
    parent: str | None
    file: str
    launches: tuple[Launch, ...]
    constants: tuple[Constant, ...] = ()
    sizes: tuple[tuple[str, Callable[[Problem], int]], ...] = ()
    scratch: tuple[Array, ...] = ()
    precision: str = "fp32"
    dtype: str = "float32"
    refuses: Callable[[Problem], str | None] = everywhere
    gpu_only: str | None = None
    order_varies: bool = False
    atomic_additions: Callable[[Problem], int] = lambda p: 0
    constant_symbol: str | None = None
    layout: str = "nchw"
    prepare: tuple[Launch, ...] = ()
    prepared: tuple[Array, ...] = ()
    maps: tuple[TensorMap, ...] = ()
    min_capability: tuple[int, int] = (0, 0)
    exact_capability: bool = False
    tensor_factors: str = ""
    products: int | None = 1
    formerly: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "refuses", refusing_features(self.takes, self.refuses))

    @property
    def path(self) -> Path:
        """The rung's ``.cu`` file."""
        return FOLDER / self.file

    def resolve(self, conv: Conv, chosen: Constants, N: int = TYPICAL_BATCH, device: Device = H200) -> dict[str, int]:
        """Every constant's value for a shape: the chosen one where it matters there, else the default.

        Raises ValueError for a value outside a constant's choices.
        """
        values: dict[str, int] = {}
        problem = Problem(conv, N, values, device)
        for constant in self.constants:
            value = chosen[constant.name] if constant.name in chosen else constant.default(problem)
            if (value not in constant.choices) if constant.choices else value < constant.least:
                allowed = ", ".join(map(str, constant.choices)) or f"{constant.least} or more"
                raise ValueError(f"{constant.name} of {self.name} is {allowed}, not {value}")
            values[constant.name] = value if constant.matters(problem) else constant.default(problem)
        return values

    def present_names(self, constants: Mapping[str, Value]) -> dict[str, Value]:
        """Values by constant, of an older record or command, by the names that the rung's constants have now."""
        now = {name: constant.name for constant in self.constants for name in constant.formerly}
        return {now.get(name, name): value for name, value in constants.items()}

    def present_entry(self, entry: str) -> str:
        """The name of today of an entry point in an older record."""
        launches = (*self.prepare, *self.launches)
        return next((launch.entry for launch in launches if entry in launch.formerly), entry)

    def x_shape(self, conv: Conv, N: int) -> tuple[int, int, int, int]:
        """The input array in the rung's layout."""
        return (N, conv.H, conv.W, conv.C) if self.layout == "nhwc" else conv.x_shape(N)

    def y_shape(self, conv: Conv, N: int) -> tuple[int, int, int, int]:
        """The output array in the rung's layout."""
        return (N, conv.E, conv.F, conv.M) if self.layout == "nhwc" else conv.y_shape(N)

    def image_bytes(self, conv: Conv) -> dict[str, int]:
        """Bytes of an image in the input x and in the output y."""
        itemsize = np.dtype(self.dtype).itemsize
        return {"x": prod(self.x_shape(conv, 1)) * itemsize, "y": prod(self.y_shape(conv, 1)) * itemsize}

    def unsuited(self, capability: tuple[int, int]) -> str | None:
        """Why a GPU of this compute capability cannot run the rung, or None."""
        wanted = ".".join(map(str, self.min_capability))
        if capability < self.min_capability:
            return f"needs compute capability {wanted}, this GPU has {'.'.join(map(str, capability))}"
        if self.exact_capability and capability[0] != self.min_capability[0]:
            return f"needs the instructions of compute capability {wanted}, which {capability[0]}.x does not have"
        return None


def defines(rung: Rung, conv: Conv, constants: Constants, device: Device = H200) -> dict[str, int]:
    """The macros that a rung is compiled with: the shape, its constants, its geometry on the device."""
    compiled = {name: value for name, value in constants.items() if name not in (IMAGES_PER_PIECE, MICRO_BATCH)}
    return {**shape_macros(conv), **compiled, **geometry_macros(rung, Problem(conv, 1, constants, device))}


def geometry_macros(rung: Rung, p: Problem) -> dict[str, int]:
    """The macros ``LADDER_...`` of the module's text."""
    macros = {
        f"LADDER_{array.name.upper()}_ELEMENTS": prod(array.shape(p)) for array in (*rung.scratch, *rung.prepared)
    }
    macros |= {f"LADDER_{name}": size(p) for name, size in rung.sizes}
    for tensor_map in rung.maps:
        prefix = f"LADDER_{tensor_map.name.upper()}"
        parts = {"DIM": tensor_map.dims(p), "STRIDE": tensor_map.strides(p), "BOX": tensor_map.box(p)}
        macros |= {f"{prefix}_{part}_{axis}": size for part, sizes in parts.items() for axis, size in enumerate(sizes)}
    for launch in (*rung.prepare, *rung.launches):
        prefix, grid, block = f"LADDER_{launch.entry.upper()}", launch.grid(p), launch.block(p)
        macros |= {f"{prefix}_THREADS": prod(block), f"{prefix}_SHARED_BYTES": launch.dynamic_shared(p)}
        macros |= {f"{prefix}_BLOCK_{axis}": size for axis, size in zip("XYZ", block, strict=True)}
        macros |= {f"{prefix}_GRID_{axis}": size for axis, size in zip("XYZ", grid, strict=True)}
    return macros


def shape_macros(conv: Conv) -> dict[str, int]:
    """The macros ``CONV_C`` to ``CONV_F``."""
    return {f"CONV_{letter}": size for letter, size in conv.sizes().items()}
