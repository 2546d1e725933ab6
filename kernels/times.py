"""How long a rung's launches take on a GPU: data of its entry, by which ``auto`` compares it with others.

``alexconv.tune.estimate`` evaluates it.  A launch lasts as long as its slowest multiprocessor, which computes waves
of tiles, or as the bytes take that all multiprocessors move together.  The constants here and in the families' ladders
were fitted to an H200's times of AlexNet's and networks' layers (``tests/tune/test_estimate.py`` checks them against
the records); on other GPUs only the order of the times is meaningful.
"""

from collections.abc import Callable
from dataclasses import dataclass

from alexconv.kernels.problem import Problem

CLOCK = 1.6e3  # cycles per microsecond, under load
TILE = 1.6  # microseconds of a tile that are neither products nor loads: filling the pipeline, storing outputs
STREAM_K = 15.0  # microseconds of short blocks and tails of a stream-K schedule, whatever the layer


def none(p: Problem) -> float:
    """No bytes."""
    return 0.0


@dataclass(frozen=True)
class Time:
    """The time of a rung's launches over N images, without the preparation of filters.

    The product takes as long as ``busy`` or as ``moves``, whichever is longer; ``fixed`` and ``passes`` are added.
    """

    busy: Callable[[Problem], float]  # microseconds of the slowest multiprocessor in the product
    moves: Callable[[Problem], float] = none  # bytes that the multiprocessors move meanwhile
    passes: Callable[[Problem], float] = none  # bytes that the launches before and after the product move
    fixed: float = 0.0  # microseconds besides
    slower: float = 1.0  # how much longer all of it takes
    tiles: tuple[str, ...] = ()  # constants that give a tile's size, of which ``auto`` compares all choices


def inputs(p: Problem) -> int:
    """Values of the batch's input."""
    return p.N * p.conv.C * p.conv.H * p.conv.W


def outputs(p: Problem) -> int:
    """Values of the batch's output."""
    return p.N * p.conv.M * p.conv.E * p.conv.F


def values(x: int, y: int) -> Callable[[Problem], float]:
    """Bytes of the batch's input and output, for so many bytes of each value."""
    return lambda p: x * inputs(p) + y * outputs(p)


def multiplying(rate: float, products: Callable[[Problem], float], scratch: Callable[[Problem], float] = none) -> Time:
    """A rung that keeps all multiprocessors busy with ``products``, those of empty parts of tiles included.

    ``rate``: multiply-adds per cycle of a multiprocessor.  ``scratch``: bytes that are written and read again.
    """
    return Time(lambda p: products(p) / (rate * p.device.multiprocessors * CLOCK), passes=lambda p: 2 * scratch(p))


def on_cuda_cores(rate: float, tap: float = 0.0) -> Time:
    """A rung whose threads each compute outputs, tap after tap, without tensor cores.

    ``rate``: multiply-adds per cycle of a multiprocessor.  ``tap``: least microseconds per tap of a thread.
    """

    def busy(p: Problem) -> float:
        return max(p.conv.macs(p.N) / (rate * p.device.multiprocessors * CLOCK), tap * p.conv.K)

    return Time(busy, values(4, 4))
