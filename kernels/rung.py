"""A ladder entry: data and small functions of a ``Problem``, no behaviour.

The same constants go to the compiler (as ``-D``) and to the functions that give grid, block and array sizes, so a
kernel and its launch cannot disagree.  The results of those functions for one image also go to the compiler, as macros
that a kernel can assert (``defines``):

* ``LADDER_<ENTRY>_THREADS``, ``_BLOCK_X``, ``_BLOCK_Y``, ``_BLOCK_Z``: the block of the launch of an entry point;
* ``LADDER_<ENTRY>_SHARED_BYTES``: its dynamic shared memory;
* ``LADDER_<ENTRY>_GRID_X``, ``_GRID_Y``, ``_GRID_Z``: its grid for one image;
* ``LADDER_<ARRAY>_ELEMENTS``: elements of a scratch or prepared array for one image;
* ``LADDER_<MAP>_DIM_0``, ...; ``_STRIDE_0``, ...; ``_BOX_0``, ...: a tensor map's sizes for one image;
* ``LADDER_<NAME>``: one of the rung's ``sizes``.

Names are the ladder's in capitals: ``static_assert(THREADS == LADDER_MULTIPLY_THREADS);``
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from alexconv.kernels.dynamic import Dynamic
from alexconv.kernels.problem import H200, TYPICAL_BATCH, Constants, Device, Problem
from alexconv.kernels.times import Time
from alexconv.precisions import PRECISIONS
from alexconv.shapes import FILTERS, FORWARD, Conv

Dims = tuple[int, int, int]
STUDY_LAYOUT = "nchw"

FOLDER = Path(__file__).resolve().parent
MAX_BLOCK = 1024  # threads in a block, on every CUDA GPU
MOST_INTEGER = 2**31 - 1  # of 32 bits
BATCH = "N"  # the argument of a launch that is not an array
# An exception to the guarantee of its class, of a rung whose operands are rounded to tf32.
TF32_OPERANDS = (
    "an operand below 2^-126 is cut to a multiple of 2^-136, one within 2^-12 of the largest float rounds to infinity"
)
TERMS_PREFIX = "y_"
BIAS, RESIDUAL = "bias", "residual"  # the last arguments of launches that store outputs, where the layer has them
SLICE_BYTES = 16  # channels of an array with the channels innermost whose slices rungs store: whole vectors of these
# Two constants never reach a kernel: the planner's, and the one that keeps scratch arrays in the L2 cache.
IMAGES_PER_PIECE = "IMAGES_PER_PIECE"
MICRO_BATCH = "MICRO_BATCH"


@dataclass(frozen=True)
class Constant:
    """A compile-time constant of a rung."""

    name: str
    meaning: str
    default: Callable[[Problem], int]  # for a shape, batch, device and the rung's constants before this one
    choices: tuple[int, ...] = ()  # the values to try; none: any from ``least``
    matters: Callable[[Problem], bool] = lambda p: True  # false where every value gives the same kernel
    ceiling: Callable[[Problem], int] | None = None  # up to which the planner may raise it to save scratch memory
    least: int = 1
    before: int | None = None  # the value that gives the kernel of records which lack it, made before the rung had it

    @property
    def allowed(self) -> str:
        """The values that it takes, as text."""
        return ", ".join(map(str, self.choices)) or f"{self.least} or more"


@dataclass(frozen=True)
class Array:
    """A scratch or prepared array on the device.

    Filled with 0xFF before the first run, so unwritten floats read as NaN and counters begin at a known value.
    """

    name: str
    shape: Callable[[Problem], tuple[int, ...]]  # for the images of one launch
    itemsize: int = 4  # bytes of an element
    lasting: bool = False  # must hold what the last launches over the same problem left, or be new


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: TMA's descriptor of an array of two-byte elements, which a launch takes as an argument.

    A tiled map (no ``window``) loads boxes.  An im2col map has the dimensions (channels, w, h, n) and loads some
    channels at some output pixels.  Rows of a box are 128 bytes, swizzled by 128 bytes; elements outside the array are
    zero.
    """

    name: str
    array: str
    dims: Callable[[Problem], tuple[int, ...]]  # extents, innermost first
    strides: Callable[[Problem], tuple[int, ...]]  # bytes, of all dimensions but the innermost; they may overlap
    box: Callable[[Problem], tuple[int, ...]]  # elements, innermost first; of an im2col map (channels, pixels)
    # Of an im2col map: the filter (S, R); with padding or strides also left, top, right, bottom, strides along w and h.
    window: Callable[[Problem], tuple[int, ...]] | None = None


@dataclass(frozen=True)
class BoundingBox:
    """The bounding box of an im2col map's pixels, along w and h, as cuTensorMapEncodeIm2col takes it."""

    lower: tuple[int, int]  # corner, from the array's first element
    upper: tuple[int, int]  # corner, from the array's last element
    steps: tuple[int, int]  # traversal strides


def bounding_box(window: tuple[int, ...]) -> BoundingBox:
    """The bounding box of a ``TensorMap``'s window."""
    S, R, left, top, right, bottom, across, down = (*window, 0, 0, 0, 0, 1, 1) if len(window) == 2 else window
    return BoundingBox((-left, -top), (right + 1 - S, bottom + 1 - R), (across, down))


@dataclass(frozen=True)
class Launch:
    """One kernel launch over a micro-batch of N images."""

    entry: str  # entry point
    args: tuple[str, ...]  # x, w, y, scratch and prepared arrays, tensor maps, or N as a 64-bit integer, by name
    grid: Callable[[Problem], Dims]
    block: Callable[[Problem], Dims]
    dynamic_shared: Callable[[Problem], int] = lambda p: 0  # bytes
    # Programmatic dependent launch: the kernel may start while the previous one on its stream still runs, and calls
    # griddepcontrol.wait before it touches anything but prepared arrays.
    pdl: bool = False
    # Stores outputs: its last arguments are the layer's bias and residual, where it has them.
    stores: bool = False
    cooperative: bool = False  # blocks wait for each other, so all must be resident: one launch takes the whole grid
    # Blocks of a cluster that wait for each other and read each other's shared memory; the file has CLUSTER_DIMS.
    cluster: Callable[[Problem], int] = lambda p: 1
    grouped: tuple[str, ...] = ()  # further arguments, before the bias, where the layer has groups
    terms: tuple[str, ...] = ()  # the same where the layer stores its outputs' terms
    converts: bool = False  # writes the input's terms: not launched where the layer before has stored them


def beyond_integers(subject: str, values: int) -> str | None:
    """Why kernels, which number an array's values with 32-bit integers, cannot compute a layer, or None."""
    return f"{subject} of {values} values exceeds {MOST_INTEGER}" if values > MOST_INTEGER else None


def refusing_features(
    direction: str, takes: Container[str], refuses: Callable[[Problem], str | None]
) -> Callable[[Problem], str | None]:
    """Refuses other directions, features that a rung does not take, images beyond 32-bit integers, and the rest."""

    def reason(p: Problem) -> str | None:
        if p.conv.direction != direction:
            return f"computes {direction}, not {p.conv.direction}"
        beyond = [name for name in p.conv.features if name not in takes]
        if beyond:
            return f"takes no {', no '.join(beyond)}"
        values = max(prod(p.conv.x_shape(1)), p.conv.M * p.conv.E * p.conv.F)
        return beyond_integers("an image", values) or refuses(p)

    return reason


def everywhere(p: Problem) -> str | None:
    """The ``refuses`` of a rung that takes every shape."""
    return None


@dataclass(frozen=True)
class Rung:
    """One way to compute a layer in a direction.  Filters are ``[M][C][R][S]`` in every layout.

    Launches name arrays as the direction does (``alexconv.shapes.DIRECTIONS``): of dgrad ``dy``, ``w`` and ``dx``.
    """

    name: str
    alias: str  # the study's abbreviation
    idea: str  # in one line
    family: str
    parent: str | None  # the rung that it improves on
    file: str  # the .cu file, from kernels/ or absolute
    launches: tuple[Launch, ...]
    constants: tuple[Constant, ...] = ()
    sizes: tuple[tuple[str, Callable[[Problem], int]], ...] = ()  # further macros, such as the pitch of a row
    scratch: tuple[Array, ...] = ()
    precision: str = "fp32"  # the error class, see alexconv.precisions
    dtype: str = ""  # NumPy's name of the type of input, filters and output: the class's unless given
    refuses: Callable[[Problem], str | None] = everywhere  # why a shape or constants cannot be computed, or None
    gpu_only: str | None = None  # why the host executor cannot run the file, or None
    order_varies: bool = False  # the order of a sum, and so its rounding, changes from run to run
    atomic_additions: Callable[[Problem], int] = lambda p: 0  # atomicAdds to an output, which flush subnormal floats
    exceptions: tuple[str, ...] = ()  # what outputs may lose beyond the guarantee of the class, in words
    constant_symbol: str | None = None  # the __constant__ array that holds the filters, if launches do not take w
    layout: str = STUDY_LAYOUT  # of input and output; nhwc has the channels innermost
    prepare: tuple[Launch, ...] = ()  # reorder the filters into ``prepared`` arrays, once for a set of filters
    prepared: tuple[Array, ...] = ()  # independent of N
    # The outputs' terms and their range, which the layer after it takes in place of its arrays of the same names less
    # TERMS_PREFIX; where the layer stores them.
    terms: tuple[Array, ...] = ()
    # Whether the prepared filters are the posed problem's with channels innermost, [M][R][S][C], and nothing else.
    prepares_nhwc: Callable[[Problem], bool] = lambda p: False
    maps: tuple[TensorMap, ...] = ()
    min_capability: tuple[int, int] = (0, 0)  # compute capability
    exact_capability: bool = False  # no later generation has the instructions
    tensor_factors: str = ""  # operand type of the tensor cores, fp16 or tf32; empty on CUDA cores
    products: int | None = 1  # computed for each product of the layer; None: depends on the shape
    takes: tuple[str, ...] = ()  # features of a layer (alexconv.shapes.FEATURES) beyond the studies' contract
    time: Time | None = None  # by which ``auto`` compares it with others; None: it comes after those with one
    cpu_order: int = 0  # 1 for the first of its class that ``auto`` takes on the CPU, and so on; 0: it takes others
    direction: str = FORWARD
    dynamic: Dynamic | None = None  # its builds for every shape, if there are any
    # The problem that constants, launches and kernels are made for: of dgrad by a forward kernel, the turned one.
    posed: Callable[[Conv], Conv] = lambda conv: conv

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"unknown precision {self.precision!r}: choose from {', '.join(PRECISIONS)}")
        object.__setattr__(self, "dtype", self.dtype or PRECISIONS[self.precision].dtype)
        refuses = self._refusing_slices(self.refuses) if "slice" in self.takes else self.refuses
        object.__setattr__(self, "refuses", refusing_features(self.direction, self.takes, refuses))

    def _refusing_slices(self, refuses: Callable[[Problem], str | None]) -> Callable[[Problem], str | None]:
        """Refuses slices in which a pixel's channels do not begin at a whole vector."""
        vector = SLICE_BYTES // np.dtype(self.dtype).itemsize

        def reason(p: Problem) -> str | None:
            if self.layout == "nhwc" and p.conv.y_channels % vector:
                return f"stores slices of an array with a multiple of {vector} channels, not {p.conv.y_channels}"
            return refuses(p)

        return reason

    @property
    def splits_floats(self) -> bool:
        """Whether it multiplies floats as hi and lo fp16 terms, which are too coarse for faint pixels."""
        return self.tensor_factors == "fp16" and self.products != 1

    @property
    def numbers_pixels(self) -> bool:
        """Whether it numbers the pixels of all images of a launch with 32-bit integers, as TMA's coordinates are."""
        return self.exact_capability

    @property
    def path(self) -> Path:
        """The rung's ``.cu`` file."""
        return FOLDER / self.file

    def resolve(self, conv: Conv, chosen: Constants, N: int = TYPICAL_BATCH, device: Device = H200) -> dict[str, int]:
        """The values of all constants for a shape: the chosen ones where they matter, else the defaults.

        Raises ValueError for a value outside a constant's choices.
        """
        values: dict[str, int] = {}
        problem = Problem(self.posed(conv), N, values, device)
        for constant in self.constants:
            value = chosen[constant.name] if constant.name in chosen else constant.default(problem)
            if (value not in constant.choices) if constant.choices else value < constant.least:
                raise ValueError(f"{constant.name} of {self.name} is {constant.allowed}, not {value}")
            values[constant.name] = value if constant.matters(problem) else constant.default(problem)
        return values

    def recorded(self, constants: Constants) -> dict[str, int]:
        """A record's constants, with those that the rung has got since."""
        later = {constant.name: constant.before for constant in self.constants if constant.before is not None}
        return {**later, **constants}

    def shape_of(self, array: str, conv: Conv, N: int) -> tuple[int, int, int, int]:
        """An array of the layer in the rung's layout, by its name."""
        first, channels, rows, columns = conv.shape_of(array, N)
        if array == conv.roles.y and conv.y_channels:
            channels = conv.y_channels  # the whole array, of which the outputs are the first channels
        return (first, rows, columns, channels) if self.layout_of(array) == "nhwc" else (first, channels, rows, columns)

    def layout_of(self, array: str) -> str:
        """The order of an array's axes: filters, and their gradients, are ``[M][C][R][S]`` in every layout."""
        return STUDY_LAYOUT if array in FILTERS else self.layout

    def working_arrays(self, conv: Conv) -> tuple[Array, ...]:
        """The arrays besides input, filters and output that launches over a layer's images use."""
        return (*self.scratch, *self.terms) if conv.stores_terms else self.scratch

    def x_shape(self, conv: Conv, N: int) -> tuple[int, int, int, int]:
        """The operand that comes image by image, in the rung's layout."""
        return self.shape_of(conv.roles.x, conv, N)

    def w_shape(self, conv: Conv, N: int) -> tuple[int, int, int, int]:
        """The operand that comes as a whole, in the rung's layout."""
        return self.shape_of(conv.roles.w, conv, N)

    def y_shape(self, conv: Conv, N: int) -> tuple[int, int, int, int]:
        """The output array in the rung's layout."""
        return self.shape_of(conv.roles.y, conv, N)

    def image_bytes(self, conv: Conv) -> dict[str, int]:
        """Bytes of an image in each array that has one, of input and output, by name."""
        itemsize, roles = np.dtype(self.dtype).itemsize, conv.roles
        arrays = (array for array in (roles.x, roles.w, roles.y) if array not in FILTERS)
        return {array: prod(self.shape_of(array, conv, 1)) * itemsize for array in arrays}

    def unsuited(self, capability: tuple[int, int]) -> str | None:
        """Why a GPU of this compute capability cannot run the rung, or None."""
        wanted = ".".join(map(str, self.min_capability))
        if capability < self.min_capability:
            return f"needs compute capability {wanted}, this GPU has {'.'.join(map(str, capability))}"
        if self.exact_capability and capability[0] != self.min_capability[0]:
            return f"needs the instructions of compute capability {wanted}, which {capability[0]}.x does not have"
        return None


def defines(rung: Rung, conv: Conv, constants: Constants, device: Device = H200) -> dict[str, int]:
    """The macros that a rung is compiled with: shape, constants, and geometry on the device."""
    compiled = {name: value for name, value in constants.items() if name not in (IMAGES_PER_PIECE, MICRO_BATCH)}
    posed = rung.posed(conv)
    macros = {**shape_macros(posed), **compiled, **geometry_macros(rung, Problem(posed, 1, constants, device))}
    if conv.strides != posed.strides:  # a problem whose arrays are not the layer's: its kernels see both
        macros |= {f"LAYER_{letter}": size for letter, size in conv.sizes().items()}
    return macros


def geometry_macros(rung: Rung, p: Problem) -> dict[str, int]:
    """The macros ``LADDER_...``, listed at the top of this module."""
    arrays = (*rung.working_arrays(p.conv), *rung.prepared)
    macros = {f"LADDER_{array.name.upper()}_ELEMENTS": prod(array.shape(p)) for array in arrays}
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
