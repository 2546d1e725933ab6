"""The precision classes: a row of PRECISIONS for each, with all that depends on the class.

**Tolerance.**  An output is a sum of K products.  Its error is compared with ``||x patch||_2 * ||w||_2``, the largest
value that such a sum can have, so one figure serves every layer.  The inputs are zero-mean, so both the partial sums
and the rounding errors are random walks (Higham and Mary, "A new approach to probabilistic rounding error analysis",
SIAM J. Sci. Comput. 41(5), 2019, give the general sqrt(K) form; for zero-mean data the partial sums themselves grow
with the square root only, and the error relative to the norms no longer depends on K).  Per output and in units of
the norms, the standard deviations are about

* ``u_sum / sqrt(6)`` from K roundings of a random walk in an accumulator with unit roundoff ``u_sum``;
* ``u_operand * sqrt(2 / (3 K))`` from K products of operands rounded with ``u_operand``;
* ``u_store`` at most, from the last rounding.

The classes: ``fp32``; ``fp32-tile``, the same with a guarantee in terms of a tile; ``tf32``, operands with 10
mantissa bits, sums and outputs in fp32; ``fp16``, operands and outputs in fp16, sums in fp32; ``half``, everything in
fp16.  Tensor cores truncate when they add, so ``u_sum`` of ``tf32`` and ``fp16`` is twice that of fp32.

The tolerance is DEVIATIONS times the first two terms, plus the third: far beyond what a sum of roundings reaches in
10^9 outputs, and far below what a wrong tap does (a single product is up to 3/K of the norms, 9e-4 at K = 3456).  In
half arithmetic at large K the roundings themselves are larger than a tap: there the exact check decides.

**Guarantees.**  That tolerance is for zero-mean data of one magnitude.  Whatever the data, a class promises

    |y - exact| <= factor * ||x patch||_2 * ||w||_2 + absolute

with one of two factors (``docs/precision.md`` derives them): ``any`` holds for every finite input, ``walk`` where
roundings are independent of each other, which only repeated values prevent.  The absolute term is for gradual underflow
and, in rungs that accumulate in global memory with atomics, for flushed subnormals.  A class with a ``reach`` uses the
norm of a wider patch, which covers all tiles that hold the output.  A data set says which of the three bounds applies
(``alexconv.data``).
"""

from dataclasses import astuple, dataclass, replace
from math import inf, sqrt
from typing import Any

USUAL, WALK, ANY = "usual", "walk", "any"  # kinds of data: see the module's text
DEVIATIONS = 30  # of the two random walks; see the module's text
HALF_ROUNDOFF = 2.0**-11  # unit roundoff of fp16
IEEE = "ieee"  # fp32 arithmetic, as torch names it


@dataclass(frozen=True)
class Bound:
    """An error bound of an output: ``factor`` times the norms of filter and patch, plus ``absolute``."""

    factor: float
    absolute: float = 0.0
    reach: int = 0  # columns by which the patch is widened to each side
    limit: float = inf  # of the norms, beyond which finite values may overflow


@dataclass(frozen=True)
class Guarantee:
    """The error that a class guarantees on any data, per output, in units of the norms.

    Sums of K products add ``2 K + any_steps`` times ``u``, or ``walk sqrt(K) + walk_steps`` times ``u`` where roundings
    are independent; where sums are blocked, with the longest chain of additions in place of K.
    """

    rounding: float  # of operands and output
    u: float  # unit roundoff of the sums
    walk: int
    least: float  # absolute error of underflow, for each product, or once if ``stored``
    stored: bool = False
    limit: float = 2.0**127  # sums of |x| |w| up to this do not overflow
    growth: int = 1  # factor on all of it, from Winograd's transforms
    reach: int = 0  # the bound's
    any_steps: int = 32
    walk_steps: int = 16

    def bound(self, K: int, kind: str, chain: int = 0) -> Bound:
        """The bound of a sum of K products, each in a chain of at most ``chain`` additions (K): ``any`` or ``walk``."""
        chain = chain or K
        steps = 2 * chain + self.any_steps if kind == ANY else self.walk * sqrt(chain) + self.walk_steps
        factor = self.growth * (self.rounding + steps * self.u)
        return Bound(factor, self.least * (1 if self.stored else K), self.reach, self.limit)


@dataclass(frozen=True)
class Exact:
    """Integers on which a class is exact, with filters up to 3."""

    sum: int  # largest sum of |x| |w|; transformed inputs and filters have larger ones
    value: int  # largest input
    powers: tuple[tuple[int, ...], tuple[int, ...]]  # exponents of two that scale images, and filters, in turn
    nearby: float = 0.0  # relative offset of operands that the class rounds away: at most a quarter of the last place


@dataclass(frozen=True)
class LibraryGoals:
    """Of ``conv2d``'s times over those of cuDNN's faster layout: the geometric mean, and the share up to a limit.

    ``outside``: the mean on layers by which nothing was made; ``networks``: that of whole networks, over the fastest of
    torch and torch.compile.
    """

    mean: float
    limit: float
    share: float
    outside: float
    networks: float


@dataclass(frozen=True)
class Goals:
    """What the fastest rungs of a class are to reach, over cuDNN's time (docs/frontier.md, docs/library.md)."""

    number: int  # of the goal on AlexNet's layers together
    layers: float  # AlexNet's layers together, 128 images
    graph: float  # the same with one image, in one graph
    library: LibraryGoals | None = None  # the layers of networks
    stricter: bool = False  # whether rungs of stricter classes count, too


@dataclass(frozen=True)
class Precision:
    """A precision class: what it promises, what its arrays hold, and what it is compared with."""

    name: str
    operands: str  # what is multiplied, in words
    dtype: str  # NumPy's name of the type of input, filters and output
    u_operand: float  # unit roundoff of operands
    u_sum: float  # of the accumulator
    u_store: float  # of the output
    guarantee: Guarantee
    exact: Exact
    peer: str  # the class that peers compute in its place: itself, if they have it
    torch: str = ""  # the class of cuDNN's fp32 convolutions, as torch names it; empty where peers lack the class
    stricter: tuple[str, ...] = ()  # classes whose results also meet this one's guarantee
    goals: Goals | None = None  # none: reports do not compare it with peers

    @property
    def keeps_floats(self) -> bool:
        """Whether operands have all bits of a float."""
        return self.u_operand == 0.0

    @property
    def sums(self) -> str:
        """The type of the accumulators."""
        return "fp32" if self.u_sum < HALF_ROUNDOFF else "fp16"

    @property
    def tensor_products(self) -> int:
        """Products of fp16 numbers on tensor cores that make one as exact as the class requires: hi and lo terms'."""
        return 3 if self.keeps_floats else 1

    def tolerance(self, K: int) -> float:
        """Largest admissible error over norms on zero-mean data of one magnitude, for sums of K products."""
        walk = DEVIATIONS * (self.u_sum / sqrt(6) + self.u_operand * sqrt(2 / (3 * K)))
        return walk + self.u_store

    def tells_taps(self, K: int) -> bool:
        """Whether a missing product, even a small one, exceeds the tolerance on uniform data."""
        typical = 0.25 * 3 / K  # mean |x w| over the mean product of the norms
        return self.tolerance(K) < typical / 50

    def bound(self, K: int, kind: str, atomic_additions: int = 0, chain: int = 0) -> Bound:
        """The bound of sums of K products on data of a kind: ``usual``, ``walk`` or ``any``.

        Each of the ``atomic_additions`` to an output may flush a subnormal number.  ``chain`` is the longest chain of
        additions, K unless given.
        """
        bound = self.guarantee.bound(K, WALK if kind == USUAL else kind, chain)
        if kind == USUAL:
            bound = replace(bound, factor=min(bound.factor, self.tolerance(K)), reach=0)
        return replace(bound, absolute=bound.absolute + atomic_additions * FLUSHED)

    def facts(self, K: int) -> list[Any]:
        """What decides on sums of K products of uniform data and of integers, for a record's key."""
        return [self.tolerance(K), self.tells_taps(K), *astuple(self.exact)]


SUBNORMAL = 2.0**-149
FLUSHED = 2.0**-126  # smallest normal float: atomicAdd in global memory flushes anything smaller
HALF_SUBNORMAL = 2.0**-25

FP32 = Guarantee(rounding=0.0, u=2.0**-24, walk=6, least=SUBNORMAL)
TILE = replace(FP32, growth=35, reach=7, any_steps=64, walk_steps=64)  # Winograd's tiles have up to eight columns
TF32 = Guarantee(rounding=1.25 * 2.0**-10, u=2.0**-24, walk=12, least=SUBNORMAL)
FP16 = Guarantee(rounding=2.0**-11, u=2.0**-24, walk=12, least=HALF_SUBNORMAL, stored=True, limit=2.0**15)
HALF = Guarantee(rounding=0.0, u=2.0**-11, walk=6, least=HALF_SUBNORMAL, limit=2.0**15)
FLOATS = (0, 40, -60), (0, -30, 25)
HALVES = (0, -5, 2), (0, -4, 1)

PRECISIONS: dict[str, Precision] = {
    precision.name: precision
    for precision in (
        Precision(
            "fp32",
            operands="fp32, or split into two fp16 or tf32 terms whose three products are added",
            dtype="float32",
            u_operand=0.0,
            u_sum=2.0**-24,
            u_store=2.0**-24,
            guarantee=FP32,
            exact=Exact(2**24, 2**13, FLOATS),
            peer="fp32",
            torch=IEEE,
            goals=Goals(1, layers=0.45, graph=0.25, library=LibraryGoals(0.40, 1.0, 1.0, outside=0.35, networks=0.5)),
        ),
        Precision(
            "fp32-tile",
            operands="the same, transformed",
            dtype="float32",
            u_operand=0.0,
            u_sum=2.0**-24,
            u_store=2.0**-24,
            guarantee=TILE,
            exact=Exact(2**17, 2**3, FLOATS),
            peer="fp32",
            stricter=("fp32",),
            goals=Goals(1, layers=0.45, graph=0.25, stricter=True),
        ),
        Precision(
            "tf32",
            operands="11 significant bits: tf32, or scaled fp16",
            dtype="float32",
            u_operand=HALF_ROUNDOFF,
            u_sum=2.0**-23,
            u_store=2.0**-24,
            guarantee=TF32,
            exact=Exact(2**24, 2**11, FLOATS, 2.0**-13),
            peer="tf32",
            torch="tf32",
            stricter=("fp32",),
            goals=Goals(2, layers=0.40, graph=0.50, library=LibraryGoals(0.85, 1.05, 0.95, outside=0.65, networks=0.8)),
        ),
        Precision(
            "fp16",
            operands="fp16",
            dtype="float16",
            u_operand=HALF_ROUNDOFF,
            u_sum=2.0**-23,
            u_store=HALF_ROUNDOFF,
            guarantee=FP16,
            exact=Exact(2**11, 2**11, HALVES),
            peer="fp16",
            torch="tf32",
            goals=Goals(3, layers=0.45, graph=0.50, library=LibraryGoals(0.95, 1.10, 0.95, outside=0.75, networks=0.8)),
        ),
        Precision(
            "half",
            operands="fp16",
            dtype="float16",
            u_operand=HALF_ROUNDOFF,
            u_sum=HALF_ROUNDOFF,
            u_store=HALF_ROUNDOFF,
            guarantee=HALF,
            exact=Exact(2**11, 2**11, HALVES),
            peer="fp16",
        ),
    )
}

# The classes that peers have, too.
PEER_CLASSES = tuple(peer_class for peer_class in PRECISIONS if PRECISIONS[peer_class].peer == peer_class)
