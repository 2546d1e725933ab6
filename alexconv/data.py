"""Input images and filters from a counter-based generator: image i is the same at every batch size.

Each array comes from a Philox generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
whose key is a hash of (seed, workload, layer, data set, array, image), so any image can be generated alone.

``DATA_SETS`` has the distributions: ``uniform``, which the studies and most records use, and others, each hard for a
kernel in one way.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import inf, nan, prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from alexconv.errors import UsageError
from alexconv.parallel import each_slice
from alexconv.precisions import USUAL, WALK
from alexconv.shapes import FORWARD, Conv

STREAM = 1  # the first part of every generator's key: another number gives other data
UNIFORM = "uniform"
AT_ONCE = 1 << 19  # values that a thread generates at once

Floats = npt.NDArray[np.float32]
Generator = np.random.Generator
Shape = tuple[int, int, int]  # of an image without its border: C, rows, columns


@dataclass(frozen=True)
class DataSet:
    """A distribution of inputs and filters.

    ``image`` generates ``[C][rows][columns]`` of an image, without its zero border, ``filters`` all filters
    ``[M][C][R][S]``, ``gradient`` the gradient ``[M][E][F]`` of an image's outputs, as ``image`` does unless given.
    ``kind`` is the bound that results are held to (``alexconv.planning.checks``): ``usual`` for independent zero-mean
    filters and products of one magnitude, ``walk``, or ``any`` where values, and so roundings, repeat.  ``finite``: no
    value is NaN or infinite.
    """

    name: str
    meaning: str
    image: Callable[[Generator, Shape, int], Floats]
    filters: Callable[[Generator, Conv], Floats]
    kind: str = "usual"
    finite: bool = True
    gradient: Callable[[Generator, Shape, int], Floats] | None = None

    def kind_of(self, direction: str) -> str:
        """The bound that results are held to in a direction: gradients' sums cross images, channels and rows."""
        return WALK if direction != FORWARD and self.kind == USUAL and self.name != UNIFORM else self.kind


def uniform(generator: Generator, shape: tuple[int, ...]) -> Floats:
    """Values uniform in [-1, 1)."""
    values: Floats = 2 * generator.random(shape, dtype=np.float32) - 1
    return values


def normal(generator: Generator, shape: tuple[int, ...]) -> Floats:
    """Standard normal values."""
    return generator.standard_normal(shape, dtype=np.float32)


def relu(generator: Generator, shape: tuple[int, ...]) -> Floats:
    """Standard normal values after ReLU: half of them are zero."""
    return np.maximum(normal(generator, shape), 0)


def heavy_tail(generator: Generator, shape: tuple[int, ...]) -> Floats:
    """Half zeros, half values of a log-normal size: the largest are a million times the median."""
    values: Floats = relu(generator, shape) * np.exp(3 * normal(generator, shape))
    return values


def heavy_tail_gradient(generator: Generator, shape: tuple[int, ...]) -> Floats:
    """Values of a log-normal size, of both signs."""
    values: Floats = normal(generator, shape) * np.exp(3 * normal(generator, shape))
    return values


def uniform_filters(generator: Generator, conv: Conv) -> Floats:
    """Filters uniform in [-1, 1)."""
    return uniform(generator, conv.w_shape())


def normal_filters(generator: Generator, conv: Conv) -> Floats:
    """Standard normal filters."""
    return normal(generator, conv.w_shape())


def decades(count: int) -> npt.NDArray[np.float64]:
    """Powers of ten, from 1e-10 to 1e10 in an order in which neighbours are far apart; the first is 1e-10."""
    powers: npt.NDArray[np.float64] = np.power(10.0, np.arange(count) * 8 % 21 - 10)
    return powers


def scaled(values: Floats, factors: npt.NDArray[np.float64]) -> Floats:
    """Values times factors along the first axis."""
    return (values * factors.reshape(-1, *[1] * (values.ndim - 1))).astype(np.float32)


def scaled_image(generator: Generator, shape: Shape, number: int) -> Floats:
    """A factor for each image."""
    values: Floats = (uniform(generator, shape) * decades(number + 1)[-1]).astype(np.float32)
    return values


def scaled_channels(generator: Generator, shape: Shape, number: int) -> Floats:
    """A factor for each channel."""
    return scaled(uniform(generator, shape), decades(shape[0]))


def countered_filters(generator: Generator, conv: Conv) -> Floats:
    """The inverse factor for each channel: all channels contribute equally to each sum."""
    values = uniform(generator, conv.w_shape())
    of_groups = np.repeat(decades(conv.C).reshape(conv.groups, -1), conv.M // conv.groups, axis=0)
    return (values / of_groups[:, :, None, None]).astype(np.float32)


def scaled_rows(generator: Generator, shape: Shape, number: int) -> Floats:
    """The upper half a million times smaller than the lower."""
    values = uniform(generator, shape)
    values[:, : shape[1] // 2] *= np.float32(1e-6)
    return values


def scaled_filters(generator: Generator, conv: Conv) -> Floats:
    """A factor for each filter."""
    return scaled(uniform(generator, conv.w_shape()), decades(conv.M))


def with_one(value: float) -> Callable[[Generator, Shape, int], Floats]:
    """Uniform images with this value in one random place."""

    def image(generator: Generator, shape: Shape, number: int) -> Floats:
        values = uniform(generator, shape)
        values.reshape(-1)[generator.integers(values.size)] = value
        return values

    return image


def subnormal_image(generator: Generator, shape: Shape, number: int) -> Floats:
    """Uniform values below the least normal number, 2^-126."""
    return uniform(generator, shape) * np.float32(2.0**-126)


def with_nonfinite(generator: Generator, shape: Shape, number: int) -> Floats:
    """Uniform images of four kinds in turn: finite; with an infinity; with a NaN; with infinities of both signs."""
    values = uniform(generator, shape)
    bad = ((), (inf,), (nan,), (inf, -inf))[number % 4]
    values.reshape(-1)[generator.choice(values.size, len(bad), replace=False)] = bad
    return values


def nonfinite_filters(generator: Generator, conv: Conv) -> Floats:
    """Uniform filters: every fourth has an infinity or a NaN, in turn."""
    values = uniform(generator, conv.w_shape())
    for number, m in enumerate(range(1, conv.M, 4)):
        values[m].reshape(-1)[generator.integers(conv.K)] = (inf, nan, -inf)[number % 3]
    return values


def large(generator: Generator, shape: Shape) -> Floats:
    """Uniform values times 1e20."""
    return uniform(generator, shape) * np.float32(1e20)


def large_filters(generator: Generator, conv: Conv) -> Floats:
    """Uniform filters, every other one times 1e20."""
    return scaled(uniform(generator, conv.w_shape()), np.resize([1, 1e20], conv.M))


def all_of(value: float) -> Callable[[Generator, Shape, int], Floats]:
    """Images of one value."""
    return lambda generator, shape, number: np.full(shape, value, np.float32)


def constant_filters(generator: Generator, conv: Conv) -> Floats:
    """Filters of one value each."""
    return scaled(np.full(conv.w_shape(), 1 / 7, np.float32), np.arange(1.0, conv.M + 1))


DIGITS = Path(__file__).parent / "digits" / "weights" / "digits.npz"
WEIGHTS = Path(__file__).parent / "digits" / "weights" / "lenet-digits.npz"
GREY = 3  # channels up to which an image is a grey digit; with more it is a later layer's input


@cache
def trained(name: str) -> Floats:
    """An array of the digits' network by name; ``digits`` are unseen images ``[64][8][8]`` from 0 to 1."""
    with np.load(DIGITS if name == "digits" else WEIGHTS) as arrays:
        values: Floats = arrays[name].astype(np.float32)
    return values


def resampled(values: Floats, rows: int, columns: int) -> Floats:
    """The last two axes brought to another size, each value the nearest."""
    of_rows, of_columns = (
        np.arange(new) * old // new for new, old in zip((rows, columns), values.shape[-2:], strict=True)
    )
    resized: Floats = values[..., of_rows[:, None], of_columns]
    return resized


def repeated(values: Floats, count: int, axis: int) -> Floats:
    """Entries repeated along an axis up to the number asked for, each repetition shifted by one more pixel."""
    length = values.shape[axis]
    parts = [np.roll(values, (turn, turn), (-2, -1)) for turn in range(-(-count // length))]
    return np.concatenate(parts, axis).take(range(count), axis)


def real_image(generator: Generator, shape: Shape, number: int) -> Floats:
    """A digit; for a later layer, the output of the network's first one: convolution, ReLU, pooling."""
    channels, rows, columns = shape
    digits = trained("digits")
    grey = np.pad(np.kron(digits[number % len(digits)], np.ones((8, 8), np.float32)), 3)[None]
    if channels > GREY:
        windows = np.lib.stride_tricks.sliding_window_view(grey[0], (5, 5))
        maps = np.maximum(np.tensordot(trained("conv1")[:, 0], windows, ((1, 2), (2, 3))), 0)
        grey = maps.reshape(len(maps), 33, 2, 33, 2).max(axis=(2, 4))
    return resampled(repeated(grey, channels, 0), rows, columns)


def real_filters(generator: Generator, conv: Conv) -> Floats:
    """The trained filters of the digits' network, repeated and resampled to the layer's shape."""
    taps = resampled(trained("conv1" if conv.C <= GREY else "conv2"), conv.R, conv.S)
    return repeated(repeated(taps, conv.M, 0), conv.one_group.C, 1)


def plain(function: Callable[[Generator, Shape], Floats]) -> Callable[[Generator, Shape, int], Floats]:
    """Images that do not depend on their number."""
    return lambda generator, shape, number: function(generator, shape)


DATA_SETS: dict[str, DataSet] = {
    data.name: data
    for data in (
        DataSet(UNIFORM, "uniform in [-1, 1)", plain(uniform), uniform_filters),
        DataSet("normal", "standard normal", plain(normal), normal_filters),
        DataSet("relu", "normal after ReLU: half are zero", plain(relu), normal_filters, gradient=plain(normal)),
        DataSet(
            "heavy-tail",
            "log-normal after ReLU",
            plain(heavy_tail),
            normal_filters,
            "walk",
            gradient=plain(heavy_tail_gradient),
        ),
        DataSet("scales-images", "images from 1e-10 to 1e10", scaled_image, uniform_filters),
        DataSet(
            "scales-channels",
            "channels from 1e-10 to 1e10, filters inversely",
            scaled_channels,
            countered_filters,
            "walk",
        ),
        DataSet("scales-rows", "upper halves of images times 1e-6", scaled_rows, uniform_filters, "walk"),
        DataSet("scales-filters", "filters from 1e-10 to 1e10", plain(uniform), scaled_filters),
        DataSet("one-large", "one input of 1e4", with_one(1e4), uniform_filters, "walk"),
        DataSet("one-huge", "one input of 1e20", with_one(1e20), uniform_filters, "walk"),
        DataSet("subnormal", "inputs below 2^-126", subnormal_image, uniform_filters, "walk"),
        DataSet("constant", "inputs all 1/3, filters of one value each", all_of(1 / 3), constant_filters, "any"),
        DataSet("zeros", "inputs all zero", all_of(0), uniform_filters),
        DataSet("overflow", "products up to 1e40", plain(large), large_filters, "walk"),
        DataSet("non-finite", "NaN and infinities in both", with_nonfinite, nonfinite_filters, "walk", finite=False),
        DataSet("real", "digits through trained filters", real_image, real_filters, "walk"),
    )
}


def data_set(name: str) -> DataSet:
    """The data set of that name; raises UsageError, which lists the names, for any other."""
    if name not in DATA_SETS:
        raise UsageError(f"unknown data {name!r}: choose from {', '.join(DATA_SETS)}")
    return DATA_SETS[name]


def keyed_generator(*key: object) -> Generator:
    """The counter-based generator of a key, the same in every process."""
    digest = hashlib.sha256("/".join(map(str, (STREAM, *key))).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def _key(workload: str, layer: int, seed: int, data: str) -> tuple[object, ...]:
    """The part of the key that a layer's generators share; uniform data adds no name to it."""
    return (seed, workload, layer) if data == UNIFORM else (seed, workload, layer, data)


def images(
    workload: str, layer: int, conv: Conv, first: int, last: int, seed: int = 0, data: str = UNIFORM
) -> np.ndarray:
    """Images ``first`` to ``last - 1`` of a layer's input: float32 ``[last - first][C][H][W]``, its border zero."""
    x = np.zeros(conv.x_shape(last - first), np.float32)
    inner = x[:, :, conv.pad : conv.H - conv.pad, conv.pad : conv.W - conv.pad]
    _fill(inner, data_set(data).image, (*_key(workload, layer, seed, data), "image"), first)
    return x


def gradients(
    workload: str, layer: int, conv: Conv, first: int, last: int, seed: int = 0, data: str = UNIFORM
) -> np.ndarray:
    """Gradients of a layer's outputs for images ``first`` to ``last - 1``: float32 ``[last - first][M][E][F]``."""
    dy = np.empty(conv.y_shape(last - first), np.float32)
    make = data_set(data).gradient or data_set(data).image
    _fill(dy, make, (*_key(workload, layer, seed, data), "gradient"), first)
    return dy


def _fill(values: Floats, make: Callable[[Generator, Shape, int], Floats], key: tuple[object, ...], first: int) -> None:
    """Fills an array image by image, each from a generator of its own; ``first`` is the number of the first."""
    shape: Shape = values.shape[1:]

    def fill(places: slice) -> None:
        for i in range(len(values))[places]:
            values[i] = make(keyed_generator(*key, first + i), shape, first + i)

    each_slice(fill, len(values), AT_ONCE // prod(shape))


def filters(workload: str, layer: int, conv: Conv, seed: int = 0, data: str = UNIFORM) -> np.ndarray:
    """A layer's filters: float32 ``[M][C][R][S]``."""
    return data_set(data).filters(keyed_generator(*_key(workload, layer, seed, data), "filters"), conv)


def biases(workload: str, layer: int, conv: Conv, seed: int = 0, data: str = UNIFORM) -> np.ndarray:
    """A bias for each filter, float32 ``[M]``, uniform in [-1, 1) for every data set."""
    return uniform(keyed_generator(*_key(workload, layer, seed, data), "biases"), (conv.M,))
