"""What the launches of all rungs have in common: a block's limits, and why a shape or a constant exceeds them."""

from collections.abc import Callable
from math import ceil

from alexconv.kernels.rung import MAX_BLOCK, Constants, Dims
from alexconv.shapes import Conv

Block = Callable[[Conv, Constants], Dims]
SharedBytes = Callable[[Conv, Constants], int]
Refusal = Callable[[Conv, Constants], str | None]

FLOAT, HALF = 4, 2  # bytes
PORTABLE_SHARED = 48 * 1024  # bytes of shared memory that a block has on every CUDA GPU
MAX_SHARED = 227 * 1024  # and on the largest, from Hopper on
L2_BYTES = 60 * 2**20  # of an H200; an H100 has 50 MiB
MULTIPROCESSORS = 132  # of an H100 or H200; more or fewer blocks than these work too
WARP = 32  # threads
AMPERE, HOPPER = (8, 0), (9, 0)  # compute capabilities: asynchronous copies and tf32; wgmma and the copy engine
MAX_CONSTANT = 64 * 1024  # bytes of constant memory, on every CUDA GPU


def round_up(count: int, unit: int) -> int:
    """The smallest multiple of ``unit`` that is no less than ``count``."""
    return ceil(count / unit) * unit


def beyond_shared(what: str, needed: int) -> str | None:
    """Why something that needs so many bytes of a block's shared memory has no GPU; None if one has them."""
    if needed <= MAX_SHARED:
        return None
    return f"{what} {needed} bytes of shared memory, the most on any GPU is {MAX_SHARED}"


def no_bytes(conv: Conv, constants: Constants) -> int:
    """No dynamic shared memory."""
    return 0


def outside_block(block: Block, shared: SharedBytes = no_bytes) -> Refusal:
    """Refuses a shape, or a choice of constants, that asks more of a block than any GPU gives."""

    def reason(conv: Conv, constants: Constants) -> str | None:
        x, y, _ = block(conv, constants)
        if x * y > MAX_BLOCK:
            return f"a block of {x} x {y} threads exceeds {MAX_BLOCK}"
        return beyond_shared("a block needs", shared(conv, constants))

    return reason


def outside_constant_memory(otherwise: Refusal) -> Refusal:
    """Refuses filters that constant memory cannot hold, and whatever else ``otherwise`` refuses."""

    def reason(conv: Conv, constants: Constants) -> str | None:
        needed = conv.M * conv.K * FLOAT
        if needed > MAX_CONSTANT:
            return f"the filters need {needed} bytes of constant memory, a GPU has {MAX_CONSTANT}"
        return otherwise(conv, constants)

    return reason
