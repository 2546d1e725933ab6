"""When an output counts as right: the max-error check with its tolerances, and the exact check on integers.

**Max error.**  An output is a sum of K products.  Its error is compared with ``||x patch||_2 * ||w||_2``, the largest
value that such a sum can have, so one figure serves every layer.  The inputs are zero-mean, so both the partial sums
and the rounding errors are random walks (Higham and Mary, "A new approach to probabilistic rounding error analysis",
SIAM J. Sci. Comput. 41(5), 2019, give the general sqrt(K) form; for zero-mean data the partial sums themselves grow
with the square root only, and the error relative to the norms no longer depends on K).  Per output and in units of
the norms, the standard deviations are about

* ``u_sum / sqrt(6)`` from K roundings of a random walk in an accumulator with unit roundoff ``u_sum``;
* ``u_operand * sqrt(2 / (3 K))`` from K products of operands rounded with ``u_operand``;
* ``u_store`` at most, from the last rounding.

The classes: ``fp32``; ``tf32``, operands with 10 mantissa bits, sums and outputs in fp32; ``fp16``, operands and
outputs in fp16, sums in fp32; ``half``, everything in fp16.  Tensor cores truncate where they add, so the accumulator
of the second and third has twice the roundoff.

The tolerance is DEVIATIONS times the first two and the third: far beyond what a sum of roundings reaches in 10^9
outputs, and far below what a wrong tap does (a single product is up to 3/K of the norms, 9e-4 at K = 3456).
For half arithmetic at large K the roundings themselves are larger than a tap: there the exact check decides.

**Exact check.**  On integers small enough that every partial sum is exact in the class, a kernel must equal the
reference bit for bit, whatever its order of summation.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import isqrt, sqrt
from typing import TypeVar

import numpy as np

from alexconv.machine import cores
from alexconv.shapes import Conv

Result = TypeVar("Result")

DEVIATIONS = 30  # of the two random walks; see the module's text


@dataclass(frozen=True)
class Precision:
    """An error class: unit roundoffs of operands, accumulator and output, and the largest exact integer."""

    name: str
    u_operand: float
    u_sum: float
    u_store: float
    exact_integer: int

    def tolerance(self, K: int) -> float:
        """Largest admissible error over norms, for sums of K products."""
        walk = DEVIATIONS * (self.u_sum / sqrt(6) + self.u_operand * sqrt(2 / (3 * K)))
        return walk + self.u_store


PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision("fp32", u_operand=0.0, u_sum=2.0**-24, u_store=2.0**-24, exact_integer=2**24),
        Precision("tf32", u_operand=2.0**-11, u_sum=2.0**-23, u_store=2.0**-24, exact_integer=2**24),
        Precision("fp16", u_operand=2.0**-11, u_sum=2.0**-23, u_store=2.0**-11, exact_integer=2**11),
        Precision("half", u_operand=2.0**-11, u_sum=2.0**-11, u_store=2.0**-11, exact_integer=2**11),
    )
}


@dataclass
class MaxError:
    """Largest error so far: absolute, and over the norms.  A NaN anywhere makes both NaN, and NaN passes nothing."""

    absolute: float = 0.0
    scaled: float = 0.0

    def add(self, y: np.ndarray, reference: np.ndarray, patch_norms: np.ndarray, filter_norms: np.ndarray) -> None:
        """Takes in some images: y and reference ``[N][M][E][F]``, patch norms ``[N][E][F]``, filter norms ``[M]``."""
        smallest = np.finfo(np.float32).tiny  # an all-zero patch: its output must be exactly zero

        def of_image(image: int) -> tuple[float, float]:
            """One image at a time keeps the temporaries in cache."""
            error = np.abs(y[image].astype(np.float32, copy=False) - reference[image])
            norms = filter_norms[:, None, None] * patch_norms[image]
            return error.max(), (error / np.maximum(norms, smallest)).max()

        for absolute, scaled in each_image(of_image, len(y)):
            self.absolute = float(np.maximum(self.absolute, absolute))
            self.scaled = float(np.maximum(self.scaled, scaled))

    def passes(self, tolerance: float) -> bool:
        """Whether the error is within the tolerance; false for NaN."""
        return self.scaled <= tolerance


def each_image(function: Callable[[int], Result], N: int) -> list[Result]:
    """The function of each image's number, on all cores: NumPy lets other threads run while it computes."""
    with ThreadPoolExecutor(min(cores(), N)) as pool:
        return list(pool.map(function, range(N)))


def worst(found: Sequence[tuple[MaxError, float]]) -> tuple[MaxError, float]:
    """Of errors with their tolerances the one that fails, else the one nearest to its tolerance."""
    return max(found, key=lambda each: (not each[0].passes(each[1]), each[0].scaled / each[1]))


def exact_inputs(conv: Conv, N: int, precision: Precision, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Integer-valued float32 input ``[N][C][H][W]`` and filters ``[M][C][R][S]`` whose sums are exact in the class."""
    generator = np.random.default_rng(seed)
    taps = min(conv.K, precision.exact_integer)
    bound = min(8, isqrt(precision.exact_integer // taps))
    x = generator.integers(-bound, bound + 1, conv.x_shape(N)).astype(np.float32)
    w = generator.integers(-bound, bound + 1, (conv.M, conv.K)).astype(np.float32)
    if taps < conv.K:  # more taps than the class can count: only `taps` of them, at random places, are not zero
        dropped = generator.permuted(np.tile(np.arange(conv.K) >= taps, (conv.M, 1)), axis=1)
        w[dropped] = 0
    return x, w.reshape(conv.w_shape())
