"""Plans memory before it is allocated: cuts a batch into pieces that fit on the device."""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil
from typing import Protocol

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.problem import Device
from alexconv.kernels.rung import IMAGES_PER_PIECE, Rung

MEBIBYTE = 2**20  # bytes; messages give memory in it


@dataclass(frozen=True)
class Plan:
    """A batch of N images cut into pieces that are computed one after the other in the same arrays."""

    bound: BoundRung  # with constants raised where that saves memory
    N: int
    images_per_piece: int  # at most
    device_bytes: int  # of the largest piece

    @property
    def constants(self) -> dict[str, int]:
        """The rung's constants."""
        return dict(self.bound.constants)

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """``(first, last + 1)`` image of each piece."""
        return [
            (first, min(first + self.images_per_piece, self.N)) for first in range(0, self.N, self.images_per_piece)
        ]


class Target(Protocol):
    """The part of an executor that plans need."""

    device: Device

    def unsuited(self, rung: Rung) -> str | None:
        """Why the rung cannot run there, whatever the shape, or None."""
        ...

    def memory_budget(self) -> int:
        """Bytes that a point may take."""
        ...


class DoesNotFit(Exception):
    """The executor cannot compute the point, or no cut of it fits the budget; the text says why, with numbers."""


def plan(bound: BoundRung, N: int, budget: int, copies: int = 1, at_least: int = 1) -> Plan:
    """The fewest pieces that fit ``budget`` bytes, but not fewer than ``at_least`` if N allows.

    ``copies`` buffer sets are in memory together.  A rung's constant IMAGES_PER_PIECE bounds the pieces too.  If a
    single image does not fit, constants that trade speed for memory are doubled until it does.  A batch whose outputs
    are sums over its images is one piece.  Raises DoesNotFit.
    """
    if bound.roles.sums_images:
        return whole(bound, N, budget, at_least)
    while (needed := bound.device_bytes(1, copies)) > budget:
        problem = bound.problem(1)
        raised = {
            constant.name: min(2 * problem[constant.name], constant.ceiling(problem))
            for constant in bound.rung.constants
            if constant.ceiling and problem[constant.name] < constant.ceiling(problem)
        }
        if not raised:
            raise DoesNotFit(
                f"one image needs {needed / MEBIBYTE:.1f} MiB of device memory, the budget is {budget / MEBIBYTE:.1f}"
            )
        bound = bound.having(raised)
    most = bisect_right(range(1, N + 1), budget, key=lambda images: bound.device_bytes(images, copies))
    if bound.constants.get(IMAGES_PER_PIECE):
        most = min(most, bound.constants[IMAGES_PER_PIECE])
    images = ceil(N / max(ceil(N / most), min(at_least, N)))
    return Plan(bound, N, images, bound.device_bytes(images, copies))


def whole(bound: BoundRung, N: int, budget: int, at_least: int) -> Plan:
    """The batch as one piece; raises DoesNotFit."""
    if min(at_least, N) > 1:
        raise DoesNotFit(f"{bound.conv.direction} sums over the batch, which a transfer in pieces would cut")
    if bound.most_images is not None and bound.most_images < N:
        raise DoesNotFit(f"{bound.conv.direction} of {N} images is one launch, which takes {bound.most_images} at most")
    if (needed := bound.device_bytes(N)) > budget:
        raise DoesNotFit(
            f"{bound.conv.direction} of {N} images needs {needed / MEBIBYTE:.1f} MiB of device memory in one piece, "
            f"the budget is {budget / MEBIBYTE:.1f}"
        )
    return Plan(bound, N, N, needed)


def plan_on(
    executor: Target, bound: BoundRung, N: int, budget: int | None = None, copies: int = 1, at_least: int = 1
) -> Plan:
    """The plan of a bound rung on an executor, within the limits of CUDA and of the device.

    ``budget`` is the executor's own unless given.  Raises DoesNotFit.
    """
    if reason := executor.unsuited(bound.rung) or bound.refusal():
        raise DoesNotFit(reason)
    cut = plan(bound, N, executor.memory_budget() if budget is None else budget, copies, at_least)
    launches = cut.bound.launches(cut.images_per_piece) + cut.bound.preparation()
    refused = cut.bound.refusal()
    if reason := next(filter(None, (refused, *(launch.outside_limits() for launch in launches))), None):
        raise DoesNotFit(reason)
    largest, most = max(launch.dynamic_shared for launch in launches), executor.device.shared_per_block
    if largest > most:
        raise DoesNotFit(f"a block needs {largest} bytes of shared memory, this device has {most}")
    return cut
