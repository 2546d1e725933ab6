"""The stages of a network: their shapes, their float64 reference, their error bounds, and how they pass errors on.

A stage's shape is a ``Conv`` with its input and output planes; kernels take their geometry from it.  Arrays are in the
study's order, ``[N][C][H][W]`` in and ``[N][M][E][F]`` out.

**Bounds.**  A stage is checked against float64 computed from the values that it was given, so no error of an earlier
stage hides or excuses one of its own.  ``u`` is the unit roundoff of fp32, in which every stage computes; a store to
fp16 adds ``2^-11`` of the output, and ``2^-25`` below fp16's normal numbers.

* Convolution and linear layers: the bound of the rung's class on a sum of K products (``alexconv.precisions``).
* Max pooling: none; outputs are inputs, and must be equal.
* Normalization, ``x / s^(3/4)`` with ``s = k + alpha sum x^2`` over n channels: all terms are positive, so s has n + 1
  roundings of squares and additions, and three more of alpha, its product and k; the power multiplies their relative
  error by 3/4; two square roots, their product, its reciprocal and the product with x add 1 + 1/2 + 1 + 1 + 1 (the
  inner root's error halves in the outer one): ``(3/4 (n + 4) + 9/2) u``.
* Softmax, ``exp(x - m) / sum``: a difference d has the error ``d u``, which the exponential makes relative; the
  exponential itself has 2 ulp, so ``e = (d + 4) u``; the sum has the mean of these, weighted by its terms, and a
  rounding for each of its additions; the division adds one.
* Bias and ReLU apart from their product: one rounding of the sum.

**Errors passed on.** If the error of a stage's output has at most ``gain`` times the 2-norm of its input's, the error
at the end is at most the sum over stages of their own errors' norms times the gains after them.  ``ANY`` holds for any
input: for a convolution ``||w||_2 sqrt(ceil(R / U) ceil(S / V))``, as an input lies in so many patches; for pooling
likewise, without the filters; for normalization ``k^(-3/4) (1 + 3/2)``, as ``alpha |x_i x_j|`` summed over a window is
at most s; for softmax 1/2, and no more than the largest probability, of which the one computed is at least half.  Over
AlexNet's depth it exceeds what errors do by many orders of magnitude.  Where filters are random, zero-mean and
independent of the errors, ``USUAL``, an error passes as the signal does, as a random walk: the root mean square is
``sqrt(sum |w_m|^2 / K * R S / (U V))``; ReLU sets half of the outputs to zero, and their errors with them; an output of
pooling has the error of one input, of the half that are not zero: ``sqrt(2 E F / (H W))``; for normalization
``k^(-3/4)``.  A norm is a sum over thousands of such terms and close to that; MARGIN covers what is not independent.
"""

from dataclasses import dataclass, field, replace
from math import ceil, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv.cpu_reference.reference import filter_norms, patch_norms, reference
from alexconv.precisions import HALF_ROUNDOFF, HALF_SUBNORMAL, PRECISIONS, SUBNORMAL, USUAL
from alexconv.shapes import Conv

Values = npt.NDArray[Any]

ROUNDOFF = 2.0**-24  # of fp32
FLUSHED = 2.0**-126  # what a stage's arithmetic may lose to underflow
RECTIFIED = 0.5  # the share of outputs that ReLU leaves
MARGIN = 4.0  # of usual data's gains
EXPONENTIAL = 4  # roundoffs of expf: 2 ulp
SOFTMAX_THREADS = 256  # of a block, whose sums are added in a tree


@dataclass(frozen=True)
class Parameters:
    """A stage's filters ``[M][C / groups][R][S]`` and, where it has one, its bias ``[M]``."""

    w: Values
    bias: Values | None = None

    def stored_as(self, dtype: str) -> "Parameters":
        """Rounded to a type, in float32: what a network of that type computes with."""

        def rounded(values: Values) -> Values:
            return values if np.dtype(dtype) == values.dtype else values.astype(dtype).astype(np.float32)

        return Parameters(rounded(self.w), None if self.bias is None else rounded(self.bias))


@dataclass(frozen=True)
class Stage:
    """A stage without weights."""

    name: str
    shape: Conv
    kind: str = field(init=False, default="")  # its rung: kernels/stages/ladder.py

    @property
    def constants(self) -> dict[str, int]:
        """The constants of its rung."""
        return {}

    @property
    def filters(self) -> tuple[int, ...] | None:
        """The shape of its filters; None without weights."""
        return None

    @property
    def planes_out(self) -> tuple[int, int, int]:
        """The shape of its output, ``(M, E, F)``."""
        return self.shape.M, self.shape.E, self.shape.F

    def reference(self, x: Values, parameters: Parameters | None) -> Values:
        """The output in float64 arithmetic, float32 or float64, of ``x [N][C][H][W]``, whatever its type."""
        raise NotImplementedError

    def bound(self, x: Values, due: Values, parameters: Parameters | None, precision: str, kind: str) -> Values:
        """The largest error that each output may have; broadcasts to ``due``, the reference."""
        raise NotImplementedError

    def gain(self, parameters: Parameters | None, kind: str, y: Values) -> float:
        """How much larger than its input's error the error of its output y is, for a kind of data."""
        raise NotImplementedError


def stored(due: Values, relative: float | Values, precision: str) -> Values:
    """The bound of a result with a relative error in fp32, once it is stored in the class's type."""
    half = PRECISIONS[precision].dtype == "float16"
    rounding, least = (HALF_ROUNDOFF, HALF_SUBNORMAL) if half else (ROUNDOFF, SUBNORMAL)
    allowed: Values = np.abs(due) * (relative + rounding) + (least + FLUSHED)
    return allowed


@dataclass(frozen=True)
class Product(Stage):
    """A convolution, or a linear layer, with bias and ReLU where its shape has them.

    ``planes`` are a linear layer's inputs ``(C, H, W)``, which it takes as one vector in that order.
    """

    planes: tuple[int, int, int] | None = None
    kind: str = field(init=False, default="product")

    @property
    def filters(self) -> tuple[int, ...]:
        """``[M][C / groups][R][S]``."""
        return self.shape.w_shape()

    def _as_taken(self, x: Values) -> Values:
        return np.ascontiguousarray(x, np.float32).reshape(self._layer.x_shape(len(x)))

    @property
    def _layer(self) -> Conv:
        """What is computed of an input as it is taken."""
        return self.shape

    def reference(self, x: Values, parameters: Parameters | None) -> Values:
        """See Stage; summed in float64."""
        assert parameters
        return reference(self._layer, self._as_taken(x), parameters.w, parameters.bias)

    def bound(self, x: Values, due: Values, parameters: Parameters | None, precision: str, kind: str) -> Values:
        """See Stage: the class's, in units of the norms of patch and filter for the sum, of the output for rounding.

        In fp16 the rounding is most of the class's factor, and norms are many times an output.
        """
        assert parameters
        bound, rounding = PRECISIONS[precision].bound(self.shape.K, kind), PRECISIONS[precision].u_store
        patches = patch_norms(self._layer, self._as_taken(x), bound.reach)
        norms = patches if patches.ndim == due.ndim else patches[:, None]
        of_sum: Values = (bound.factor - rounding) * filter_norms(parameters.w, parameters.bias)[:, None, None] * norms
        return of_sum + rounding * (np.abs(due) + of_sum) + bound.absolute

    def gain(self, parameters: Parameters | None, kind: str, y: Values) -> float:
        """See Stage."""
        assert parameters
        conv, w = self.shape, parameters.w.reshape(self.shape.groups, -1, self.shape.K).astype(np.float64)
        (down, across), overlaps = conv.strides, conv.R * conv.S
        if kind == USUAL:
            passed = RECTIFIED if conv.relu else 1.0
            return sqrt(passed * float(np.square(w).sum()) / conv.K / conv.groups * overlaps / (down * across))
        largest = max(_largest_singular_value(group) for group in w)
        return largest * sqrt(ceil(conv.R / down) * ceil(conv.S / across))


def _largest_singular_value(w: Values) -> float:
    """An upper bound of a matrix's 2-norm: ``||G^4||_F^(1/8)`` of the smaller Gram matrix G.

    It is never below the norm, and at most rank^(1/16) times it.
    """
    gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
    scale = float(np.linalg.norm(gram)) or 1.0
    fourth = np.linalg.matrix_power(gram / scale, 4)
    return sqrt(scale * float(np.linalg.norm(fourth)) ** (1 / 4))


@dataclass(frozen=True)
class MaxPooling(Stage):
    """The largest value of each window; NaN where it holds one."""

    kind: str = field(init=False, default="max-pool")

    def reference(self, x: Values, parameters: Parameters | None) -> Values:
        """See Stage."""
        return pooled(self.shape, x)

    def bound(self, x: Values, due: Values, parameters: Parameters | None, precision: str, kind: str) -> Values:
        """See Stage."""
        return np.zeros((1, 1, 1, 1))

    def gain(self, parameters: Parameters | None, kind: str, y: Values) -> float:
        """See Stage."""
        (down, across), conv = self.shape.strides, self.shape
        if kind == USUAL:
            return sqrt(conv.E * conv.F / (conv.H * conv.W) / RECTIFIED)
        return sqrt(ceil(conv.R / down) * ceil(conv.S / across))


def pooled(shape: Conv, x: Values) -> Values:
    """The largest values under the windows of a shape, ``[N][C][E][F]``."""
    (down, across), (E, F) = shape.strides, (shape.E, shape.F)
    taps = (
        x[:, :, r : r + (E - 1) * down + 1 : down, s : s + (F - 1) * across + 1 : across]
        for r in range(shape.R)
        for s in range(shape.S)
    )
    y = next(taps).copy()
    for tap in taps:
        np.maximum(y, tap, out=y)
    return y


@dataclass(frozen=True)
class PooledProduct(Product):
    """A convolution and max pooling by one kernel; its shape is the convolution's."""

    pooling: MaxPooling | None = None

    @property
    def planes_out(self) -> tuple[int, int, int]:
        """See Stage."""
        assert self.pooling
        return self.pooling.planes_out

    def reference(self, x: Values, parameters: Parameters | None) -> Values:
        """See Stage."""
        return pooled(self._window, super().reference(x, parameters))

    def bound(self, x: Values, due: Values, parameters: Parameters | None, precision: str, kind: str) -> Values:
        """See Stage: the largest of the window's, as two values' maxima differ by no more than they do."""
        unpooled = super().reference(x, parameters)
        allowed = super().bound(x, unpooled, parameters, precision, kind)
        return pooled(self._window, np.broadcast_to(allowed, unpooled.shape))

    def gain(self, parameters: Parameters | None, kind: str, y: Values) -> float:
        """See Stage."""
        assert self.pooling
        return super().gain(parameters, kind, y) * self.pooling.gain(None, kind, y)

    @property
    def _window(self) -> Conv:
        assert self.pooling
        return self.pooling.shape


@dataclass(frozen=True)
class ProductOfPooled(Product):
    """Max pooling and a convolution whose kernels pool as they load; its shape is the convolution's with pooling."""

    pooling: MaxPooling | None = None

    def _as_taken(self, x: Values) -> Values:
        assert self.pooling
        return super()._as_taken(pooled(self.pooling.shape, x))

    @property
    def _layer(self) -> Conv:
        return replace(self.shape, pool_size=0, pool_stride=0, unpooled_rows=0, unpooled_columns=0)

    def gain(self, parameters: Parameters | None, kind: str, y: Values) -> float:
        """See Stage."""
        assert self.pooling
        return super().gain(parameters, kind, y) * self.pooling.gain(None, kind, y)


@dataclass(frozen=True)
class BiasReLU(Stage):
    """Bias and ReLU of a layer whose product a kernel of its own has computed, in place."""

    kind: str = field(init=False, default="bias-relu")

    def reference(self, x: Values, parameters: Parameters | None) -> Values:
        """See Stage."""
        y = x.astype(np.float64)
        if self.shape.bias:
            assert parameters and parameters.bias is not None
            y += parameters.bias[:, None, None]
        return np.maximum(y, 0) if self.shape.relu else y

    def bound(self, x: Values, due: Values, parameters: Parameters | None, precision: str, kind: str) -> Values:
        """See Stage."""
        return stored(due, ROUNDOFF, precision)

    def gain(self, parameters: Parameters | None, kind: str, y: Values) -> float:
        """See Stage."""
        return sqrt(RECTIFIED) if self.shape.relu and kind == USUAL else 1.0


@dataclass(frozen=True)
class Normalization(Stage):
    """Local response normalization over ``window`` channels, its alpha not divided by their number."""

    window: int = 5
    k: float = 2.0
    alpha: float = 1e-4
    kind: str = field(init=False, default="normalize")

    @property
    def constants(self) -> dict[str, int]:
        """See Stage."""
        return {"WINDOW": self.window, "K_BITS": bits(self.k), "ALPHA_BITS": bits(self.alpha)}

    def _bases(self, x: Values) -> Values:
        """``k + alpha sum x^2``."""
        beside = self.window // 2
        squares = np.pad(np.square(x, dtype=np.float64), ((0, 0), (beside, beside), (0, 0), (0, 0)))
        windows: Values = sum(squares[:, i : i + x.shape[1]] for i in range(self.window))  # type: ignore[assignment]
        return float(np.float32(self.k)) + float(np.float32(self.alpha)) * windows

    def reference(self, x: Values, parameters: Parameters | None) -> Values:
        """See Stage."""
        root = np.sqrt(self._bases(x))
        y: Values = x / (root * np.sqrt(root))
        return y

    def bound(self, x: Values, due: Values, parameters: Parameters | None, precision: str, kind: str) -> Values:
        """See Stage."""
        return stored(due, (0.75 * (self.window + 4) + 4.5) * ROUNDOFF, precision)

    def gain(self, parameters: Parameters | None, kind: str, y: Values) -> float:
        """See Stage."""
        least = float(self.k**-0.75)
        return least if kind == USUAL else least * (1 + 1.5)


@dataclass(frozen=True)
class Softmax(Stage):
    """Scores as probabilities."""

    kind: str = field(init=False, default="softmax")

    def reference(self, x: Values, parameters: Parameters | None) -> Values:
        """See Stage."""
        powers = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
        y: Values = powers / powers.sum(axis=1, keepdims=True)
        return y

    def bound(self, x: Values, due: Values, parameters: Parameters | None, precision: str, kind: str) -> Values:
        """See Stage."""
        below = x.max(axis=1, keepdims=True) - x.astype(np.float64)
        own = below + EXPONENTIAL
        additions = ceil(x.shape[1] / SOFTMAX_THREADS) + SOFTMAX_THREADS.bit_length() + SOFTMAX_THREADS // 32
        of_sum = (due * own).sum(axis=1, keepdims=True) + additions
        return stored(due, (own + of_sum + 1) * ROUNDOFF, precision)

    def gain(self, parameters: Parameters | None, kind: str, y: Values) -> float:
        """See Stage."""
        return min(0.5, 2 * float(y.max()))


def bits(value: float) -> int:
    """The bits of a number as a float."""
    return int(np.float32(value).view(np.uint32))


# What makes the stages of a table.


def convolution(name: str, conv: Conv, *, bias: bool = True) -> Product:
    """A convolution with ReLU."""
    return Product(name, replace(conv, bias=bias, relu=True))


def normalization(name: str, before: Stage) -> Normalization:
    """Local response normalization as AlexNet has it, of a stage's output."""
    conv = before.shape
    return Normalization(name, Conv(conv.M, conv.E, conv.F, conv.M, 1, 1, groups=conv.M))


def max_pooling(name: str, before: Stage, size: int, stride: int) -> MaxPooling:
    """Max pooling of a stage's output, without padding."""
    conv = before.shape
    return MaxPooling(name, Conv(conv.M, conv.E, conv.F, conv.M, size, size, stride, groups=conv.M))


def product_of_pooled(pooling: MaxPooling, product: Product) -> ProductOfPooled:
    """Max pooling without padding, and the convolution after it, as one stage."""
    of = pooling.shape
    shape = replace(product.shape, pool_size=of.R, pool_stride=of.U, unpooled_rows=of.H, unpooled_columns=of.W)
    return ProductOfPooled(f"{pooling.name}+{product.name}", shape, pooling=pooling)


def linear(name: str, before: Stage, outputs: int, *, relu: bool) -> Product:
    """A linear layer with bias on all of a stage's output."""
    conv = before.shape
    inputs = conv.M * conv.E * conv.F
    return Product(name, Conv(inputs, 1, 1, outputs, 1, 1, bias=True, relu=relu), planes=(conv.M, conv.E, conv.F))


def softmax(name: str, before: Stage) -> Softmax:
    """Softmax of a linear layer's output."""
    M = before.shape.M
    return Softmax(name, Conv(M, 1, 1, M, 1, 1, groups=M))
