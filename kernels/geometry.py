"""Limits of blocks and constant memory that all rungs share, and the refusals that follow from them."""

from collections.abc import Callable
from math import ceil

from alexconv.kernels.problem import Device, Problem
from alexconv.kernels.rung import MAX_BLOCK, Dims

Block = Callable[[Problem], Dims]
SharedBytes = Callable[[Problem], int]
Refusal = Callable[[Problem], str | None]

FLOAT, HALF = 4, 2  # bytes
PORTABLE_SHARED = 48 * 1024  # bytes of shared memory that a block has on every CUDA GPU
WARP = 32  # threads
# Compute capabilities: tensor cores of fp16; those of tf32; wgmma and TMA.
TURING, AMPERE, HOPPER = (7, 5), (8, 0), (9, 0)
MAX_CONSTANT = 64 * 1024  # bytes of constant memory, on every CUDA GPU


def round_up(count: int, unit: int) -> int:
    """``count`` rounded up to a multiple of ``unit``."""
    return ceil(count / unit) * unit


def beyond_shared(device: Device, subject: str, needed: int) -> str | None:
    """Why a block of the device cannot have ``needed`` bytes of shared memory, or None."""
    if needed <= device.shared_per_block:
        return None
    return f"{subject} {needed} bytes of shared memory, of which the {device.name} has {device.shared_per_block}"


def no_bytes(p: Problem) -> int:
    """No dynamic shared memory."""
    return 0


def outside_block(block: Block, shared: SharedBytes = no_bytes) -> Refusal:
    """Refuses shapes and constants that exceed the threads or the shared memory of a block."""

    def reason(p: Problem) -> str | None:
        x, y, _ = block(p)
        if x * y > MAX_BLOCK:
            return f"a block of {x} x {y} threads exceeds {MAX_BLOCK}"
        return beyond_shared(p.device, "a block needs", shared(p))

    return reason


def outside_constant_memory(otherwise: Refusal) -> Refusal:
    """Refuses filters that constant memory cannot hold, and what ``otherwise`` refuses."""

    def reason(p: Problem) -> str | None:
        needed = p.conv.M * p.conv.K * FLOAT
        if needed > MAX_CONSTANT:
            return f"the filters need {needed} bytes of constant memory, a GPU has {MAX_CONSTANT}"
        return otherwise(p)

    return reason
