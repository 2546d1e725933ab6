"""When an output is correct: the max-error check, and the exact check on integers.

**Max error.**  An output is a sum of K products.  Its error is compared with ``||x patch||_2 * ||w||_2``, the largest
value that such a sum can have, so one figure serves every layer.  ``alexconv.precisions`` says what each class may
have, on which data.

NaN and infinities must be exactly where float64 arithmetic has them.  Where products of finite values can overflow, an
output may also be NaN or infinite, as in IEEE arithmetic, but not another number.

**Exact check.**  On integers small enough that every partial sum is exact in the class, and on such integers times
powers of two, a kernel must equal the reference bit for bit, whatever its order of summation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Protocol

import numpy as np

from alexconv.parallel import each_block, each_slice
from alexconv.precisions import Bound, Precision
from alexconv.shapes import DGRAD, Conv

# Of a layer's operands and output in its direction: x [N][C][H][W], w [M][C][R][S]; y [N][M][E][F].
Convolve = Callable[[Conv, np.ndarray, np.ndarray], np.ndarray]

MOST_BIAS = 8  # of exact inputs
BASES, MOST_GROUPS = 2, 8  # images from which exact batches are made, and groups of their elements
CHECKED_BYTES = 2 << 20  # of images checked at once: fewer keep threads waiting for the GIL, more exceed the cache
CACHED_BYTES = 256 << 20  # of expected outputs, up to which a batch of integers caches them: a run holds one a class
NORMS = Bound(0.0)  # for measuring errors over the norms of filter and patch


class Outputs(Protocol):
    """An array of outputs, or an object that copies those of some images to the host."""

    @property
    def ndim(self) -> int:
        """The number of axes."""

    def __len__(self) -> int: ...
    def __getitem__(self, images: slice) -> np.ndarray: ...


@dataclass(frozen=True)
class Expected:
    """What outputs are compared with: reference ``[N][M][E][F]``, patch norms ``[N][E][F]``, filter norms ``[M]``.

    ``sums`` are those of |x| |w|, ``[N][M][E][F]`` of the first images.  ``rectified``: after ReLU.  Patch norms may
    have all four axes.  Gradients have the shape of theirs: of wgrad, filters are in the place of images.
    """

    reference: np.ndarray
    patch_norms: np.ndarray
    filter_norms: np.ndarray
    sums: np.ndarray | None = None
    rectified: bool = False


@dataclass
class MaxError:
    """Largest error so far.  A NaN anywhere makes all figures NaN, and NaN passes no check."""

    absolute: float = 0.0
    scaled: float = 0.0  # over the norms of filter and patch
    componentwise: float | None = None  # over the sum of |x| |w|, where that is known
    misplaced: int = 0  # outputs that are NaN or infinite where the reference is not, or the other way round

    def add(self, y: Outputs, expected: Expected, bound: Bound = NORMS) -> None:
        """Adds some images' outputs ``[N][M][E][F]``, measured against a bound."""
        of_images = partial(errors, y, expected, bound)
        for absolute, scaled, of_sums, misplaced in chain(*each_block(of_images, expected.reference, CHECKED_BYTES)):
            self.absolute = float(np.maximum(self.absolute, absolute))
            self.scaled = float(np.maximum(self.scaled, scaled))
            self.misplaced += misplaced
            if expected.sums is not None:
                self.componentwise = float(np.maximum(self.componentwise or 0.0, of_sums))

    def passes(self, tolerance: float) -> bool:
        """Whether the error is within the tolerance; false for NaN."""
        return self.scaled <= tolerance


def errors(y: Outputs, expected: Expected, bound: Bound, images: slice) -> list[tuple[float, float, float, int]]:
    """For some images, together or each: largest error, over norms, over sums, and number of misplaced values.

    See MaxError.add.
    """
    reference, sums = expected.reference[images], expected.sums
    with np.errstate(all="ignore"):
        error = y[images].astype(np.float32, copy=False) - reference
        np.abs(error, out=error)
        patches = expected.patch_norms[images]
        norms = expected.filter_norms[:, None, None] * (patches if patches.ndim == y.ndim else patches[:, None])
        misplaced = 0
        if not np.isfinite(error.max()):
            if len(error) > 1:  # each image is judged by itself
                return [errors(y, expected, bound, slice(at, at + 1))[0] for at in range(*images.indices(len(y)))]
            finite = np.isfinite(norms)
            overflows = finite & (norms > bound.limit)
            may_be_zero = overflows & (y[images] == 0) if expected.rectified else np.False_
            error, misplaced = judged(error, y[images], reference, overflows, may_be_zero)
            norms = np.where(finite, norms, 1)  # where NaN or an infinity is due, an error is 0 or NaN
        over = np.maximum(error - np.float32(bound.absolute), 0) if bound.absolute else error
        smallest = np.finfo(np.float32).tiny  # an all-zero patch: its output must be exactly zero
        np.maximum(norms, smallest, out=norms)
        scaled, of_sums = np.divide(over, norms, out=norms).max(), 0.0
        if sums is not None and (summed := sums[images]).size:
            known = np.where(np.isfinite(summed), np.maximum(summed, smallest), 1)
            of_sums = (over[: len(known)] / known).max()
    return [(error.max(), scaled, of_sums, misplaced)]


def judged(
    error: np.ndarray, y: np.ndarray, reference: np.ndarray, overflows: np.ndarray, may_be_zero: np.ndarray | np.bool_
) -> tuple[np.ndarray, int]:
    """Errors of an image: 0 for NaN and infinities that match the reference, NaN for others; and the number of others.

    Where finite values may overflow, a finite output is compared with the largest number; one that ``may_be_zero`` may
    be ReLU of a negative infinity.
    """
    due = (y == reference) | (np.isnan(y) & np.isnan(reference)) | (overflows & ~np.isfinite(y)) | may_be_zero
    largest = np.finfo(y.dtype).max
    error = np.where(overflows & np.isfinite(y), np.abs(y - np.clip(reference, -largest, largest)), error)
    differences = np.where(due, 0, error)
    wrong = ~np.isfinite(differences)
    return np.where(wrong, np.nan, differences), int(wrong.sum())


def worst(outcomes: Sequence[tuple[MaxError, float]]) -> tuple[MaxError, float]:
    """An error that fails its tolerance, else the one nearest to it."""
    return max(outcomes, key=lambda outcome: (not outcome[0].passes(outcome[1]), outcome[0].scaled / outcome[1]))


def exact_inputs(
    conv: Conv, N: int, precision: Precision, seed: int, *, scaled: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Float32 input ``[N][C][H][W]`` and filters ``[M][C][R][S]`` whose sums are exact in the class, in any order.

    Integers; if ``scaled``, times powers of two along the output's first two axes.  No tap of a filter is zero, so a
    missing tap shows wherever the input under it is not zero.  Of gradients, the operands in these roles.
    """
    x, w = exact_integers(conv, N, precision, seed)
    if not scaled:
        return x, w
    of_images, of_filters = precision.exact.powers
    if conv.roles.sums_images:
        return x * along_channels(conv, of_images, conv.C), w * along_channels(conv, of_filters, conv.M)
    if conv.direction == DGRAD:
        return x * scales(conv, of_images, N), w * along_channels(conv, of_filters, conv.C // conv.groups)
    return x * scales(conv, of_images, N), w * scales(conv, of_filters, conv.M)


def exact_integers(conv: Conv, N: int, precision: Precision, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The integers of exact inputs and filters, float32."""
    generator = np.random.default_rng(seed)
    exact = precision.exact
    most_sum = exact.sum - MOST_BIAS if conv.bias else exact.sum
    K, (x_shape, w_shape) = conv.products(N), (conv.shape_of(array, N) for array in (conv.roles.x, conv.roles.w))
    w_most = max(1, min(3, most_sum // K))
    x_sum = most_sum // w_most  # largest sum of the absolute inputs of a patch
    w = generator.integers(1, w_most + 1, w_shape) * generator.choice((-1, 1), w_shape)
    mean = 0.8 * x_sum / K
    most = max(1, min(exact.value, int(2 * mean)))
    if exact.nearby:  # the largest share an exponent with many: a lone one makes kernels use unrounded floats
        most = 2 ** ((most + 1).bit_length() - 1) - 1
    x = generator.integers(-most, most + 1, x_shape)
    x[generator.random(x.shape) >= mean / (most * (most + 1) / (2 * most + 1))] = 0
    while (excess := largest_sum(conv, np.abs(x))) > x_sum:
        x[generator.random(x.shape) > 0.95 * x_sum / excess] = 0
    return x.astype(np.float32), w.astype(np.float32)


def scales(conv: Conv, powers: tuple[int, ...], count: int) -> np.ndarray:
    """Powers of two, in turn, ``[count][1][1][1]``, float32; 1 for a layer with a bias, which has one scale alone."""
    exponents = np.resize((0,) if conv.bias else powers, count)
    factors: np.ndarray = np.ldexp(1.0, exponents).astype(np.float32)
    return factors.reshape(-1, 1, 1, 1)


def along_channels(conv: Conv, powers: tuple[int, ...], count: int) -> np.ndarray:
    """Powers of two, in turn, along the second of four axes, ``[1][count][1][1]``, float32."""
    return scales(conv, powers, count).reshape(1, -1, 1, 1)


def exact_bias(conv: Conv, seed: int) -> np.ndarray | None:
    """A bias ``[M]`` for exact inputs: integers; None for a layer without one."""
    if not conv.bias:
        return None
    return np.random.default_rng(seed).integers(-MOST_BIAS, MOST_BIAS + 1, conv.M).astype(np.float32)


@dataclass(frozen=True, eq=False)
class ExactBatch:
    """A batch of different images on which a class is exact, and the outputs that they must have.

    The elements of a few base images are divided into groups at random.  An image is a base image whose groups have
    signs of their own, times a power of two.  So its output is a signed sum of the outputs of groups, exact in float32:
    a batch of any size needs the reference of the groups alone.
    """

    conv: Conv
    bases: np.ndarray  # [B][C][H][W]
    groups: np.ndarray  # [C][H][W], each element's group
    of_base: np.ndarray  # [N], each image's base image
    signs: np.ndarray  # [N][G], of its groups, times its power of two
    w: np.ndarray  # [M][C][R][S]
    bias: np.ndarray | None  # [M]
    of_parts: np.ndarray  # [B][G][M][E][F], the outputs of each base's groups, without bias and ReLU

    def images(self) -> np.ndarray:
        """The inputs ``[N][C][H][W]``."""
        x = np.empty((len(self.signs), *self.bases.shape[1:]), np.float32)

        def fill(images: slice) -> None:
            signs = np.take(self.signs[images], self.groups, axis=1)
            np.multiply(self.bases[self.of_base[images]], signs, out=x[images])

        each_block(fill, x, CHECKED_BYTES)
        return x

    def outputs(self, images: slice) -> np.ndarray:
        """The outputs of some images, ``[n][M][E][F]``."""
        of_base, signs = self.of_base[images], self.signs[images, :, None, None, None]
        y = np.empty((len(of_base), *self.of_parts.shape[2:]), np.float32)
        for base, parts in enumerate(self.of_parts):
            of_images = signs[of_base == base]
            total = of_images[:, 0] * parts[0]
            term = np.empty_like(total)
            for group in range(1, len(parts)):
                total += np.multiply(of_images[:, group], parts[group], out=term)
            y[of_base == base] = total
        if self.bias is not None:
            y += self.bias[:, None, None]
        return np.maximum(y, 0, out=y) if self.conv.relu else y

    @cached_property
    def _cached_outputs(self) -> np.ndarray:
        """The outputs of all images."""
        y = np.empty((len(self.signs), *self.of_parts.shape[2:]), np.float32)

        def fill(images: slice) -> None:
            y[images] = self.outputs(images)

        each_block(fill, y, CHECKED_BYTES)
        return y

    def wrong(self, y: Outputs, turned: int = 0) -> int:
        """How many outputs ``[N][M][E][F]`` are not exact.

        ``turned``: 1 or -1 if the images were in reverse order, times this; 0 if not.
        """
        N, nbytes = len(y), self.of_parts[0, 0].nbytes
        expected = self._cached_outputs.__getitem__ if N * nbytes <= CACHED_BYTES else self.outputs

        def of_images(images: slice) -> int:
            if not turned:
                return int(np.count_nonzero(y[images] != expected(images)))
            last_ones = expected(slice(N - images.stop, N - images.start))[::-1]
            return int(np.count_nonzero(y[images] != turned * last_ones))

        return sum(each_slice(of_images, N, CHECKED_BYTES // nbytes))


@dataclass(frozen=True, eq=False)
class ExactSum:
    """As ExactBatch, of outputs that are sums over the images."""

    x: np.ndarray  # [N][C][H][W]
    w: np.ndarray  # [N][M][E][F]
    y: np.ndarray  # [M][C][R][S]
    bias: None = None

    def images(self) -> np.ndarray:
        """The inputs ``[N][C][H][W]``, a copy: runs may change theirs."""
        return self.x.copy()

    def wrong(self, y: Outputs, turned: int = 0) -> int:
        """How many outputs are not exact; ``turned``: 1 or -1 if the inputs were multiplied by it, 0 if not."""
        return int(np.count_nonzero(y[: len(self.y)] != (turned or 1) * self.y))


def exact_batch(conv: Conv, N: int, precision: Precision, seed: int, convolve: Convolve) -> ExactBatch | ExactSum:
    """N images on which a class is exact; ``convolve`` is the reference.

    BASES * 2**MOST_GROUPS of them are different; all, where outputs are sums over them.
    """
    if conv.roles.sums_images:
        x, w = exact_inputs(conv, N, precision, seed)
        y = convolve(conv, x, w)
        return ExactSum(nearby(x, precision, seed), nearby(w, precision, seed + 1), y)
    bases = min(N, BASES)
    x, w = exact_integers(conv, bases, precision, seed)
    of_a_base = -(-N // bases)  # images
    count = min(max(1, (of_a_base - 1).bit_length()), MOST_GROUPS)
    generator = np.random.default_rng(seed)
    groups = generator.integers(0, count, x.shape[1:])
    patterns = np.resize(generator.permutation(2**count), of_a_base).repeat(bases)[:N]
    signs = (1 - 2 * (patterns[:, None] >> np.arange(count) & 1)).astype(np.float32)
    of_images, of_filters = precision.exact.powers
    if conv.direction == DGRAD:
        w = w * along_channels(conv, of_filters, w.shape[1])
    else:
        w = w * scales(conv, of_filters, conv.M)
    parts = x[:, None] * (groups == np.arange(count)[:, None, None, None])  # [B][G][C][H][W]
    of_parts = convolve(replace(conv, bias=False, relu=False), parts.reshape(-1, *groups.shape), w)
    return ExactBatch(
        conv,
        nearby(x, precision, seed),
        groups,
        np.arange(N) % bases,
        signs * scales(conv, of_images, N)[:, 0, 0],
        nearby(w, precision, seed + 1),
        exact_bias(conv, seed),
        of_parts.reshape(bases, count, *of_parts.shape[1:]),
    )


def nearby(values: np.ndarray, precision: Precision, seed: int) -> np.ndarray:
    """Exact inputs or filters, each moved by less than the class's rounding."""
    signs = np.random.default_rng(seed).choice((-1, 1), values.shape)
    moved: np.ndarray = (values * (1 + signs * precision.exact.nearby)).astype(np.float32)
    return moved


def largest_sum(conv: Conv, x: np.ndarray) -> int:
    """The largest sum of a patch of ``x [N][C][H][W]``; of gradients, of the values that an output is a sum of."""
    if conv.direction == DGRAD:
        of_pixels = np.zeros((len(x), *conv.padded), x.dtype)
        for _, _, rows, columns in conv.taps():
            of_pixels[:, rows, columns] += x.sum(axis=1)
        return int(of_pixels[:, conv.top : conv.top + conv.H, conv.left : conv.left + conv.W].max())
    if conv.roles.sums_images:
        planes = np.pad(x.sum(axis=0), ((0, 0), conv.padding[:2], conv.padding[2:]))  # [C][H][W], with the padding
        return max(int(planes[:, rows, columns].sum(axis=(1, 2)).max()) for _, _, rows, columns in conv.taps())
    (top, bottom, left, right), (apart, columns_apart) = conv.padding, conv.dilation
    sums = np.pad(x.sum(axis=1), ((0, 0), (top, bottom), (left, right)))  # [N][H][W], with the padding
    for axis, taps, step in ((1, conv.R, apart), (2, conv.S, columns_apart)):
        sums = np.lib.stride_tricks.sliding_window_view(sums, (taps - 1) * step + 1, axis)[..., ::step].sum(axis=-1)
    return int(sums.max())
