"""What the launches of all rungs have in common: a block's limits, and why a shape or a constant exceeds them."""

from collections.abc import Callable

from alexconv.kernels.rung import MAX_BLOCK, Constants, Dims
from alexconv.shapes import Conv

Block = Callable[[Conv, Constants], Dims]
SharedBytes = Callable[[Conv, Constants], int]
Refusal = Callable[[Conv, Constants], str | None]

FLOAT, HALF = 4, 2  # bytes
WARP = 32  # threads
PORTABLE_SHARED = 48 * 1024  # bytes of shared memory that a block has on every CUDA GPU
MAX_SHARED = 227 * 1024  # and on the largest, from Hopper on
MULTIPROCESSORS = 132  # of an H100 or H200; more or fewer blocks than these work too
MAX_CONSTANT = 64 * 1024  # bytes of constant memory, on every CUDA GPU


def no_bytes(conv: Conv, constants: Constants) -> int:
    """No dynamic shared memory."""
    return 0


def outside_block(block: Block, shared: SharedBytes = no_bytes) -> Refusal:
    """Refuses a shape, or a choice of constants, that asks more of a block than any GPU gives."""

    def reason(conv: Conv, constants: Constants) -> str | None:
        x, y, _ = block(conv, constants)
        if x * y > MAX_BLOCK:
            return f"a block of {x} x {y} threads exceeds {MAX_BLOCK}"
        needed = shared(conv, constants)
        if needed > MAX_SHARED:
            return f"a block needs {needed} bytes of shared memory, the most on any GPU is {MAX_SHARED}"
        return None

    return reason


def outside_constant_memory(otherwise: Refusal) -> Refusal:
    """Refuses filters that constant memory cannot hold, and whatever else ``otherwise`` refuses."""

    def reason(conv: Conv, constants: Constants) -> str | None:
        needed = conv.M * conv.K * FLOAT
        if needed > MAX_CONSTANT:
            return f"the filters need {needed} bytes of constant memory, a GPU has {MAX_CONSTANT}"
        return otherwise(conv, constants)

    return reason
