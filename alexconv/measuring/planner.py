"""Memory is planned before it is allocated: how many images of a point the device takes at a time."""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from alexconv.kernels.problem import H200, Constants, Device, Problem
from alexconv.kernels.rung import IMAGES_PER_PIECE, Rung
from alexconv.measuring.launches import configure, configure_preparation, outside_limits
from alexconv.shapes import Conv

if TYPE_CHECKING:
    from alexconv.executors.point import Executor

MEBIBYTE = 2**20  # bytes, in which messages give memory


@dataclass(frozen=True)
class Plan:
    """A point cut into pieces of at most ``images`` images, computed one after the other in the same memory.

    ``constants`` are the rung's, with those raised that had to be; ``device_bytes`` is what the largest piece needs.
    """

    N: int
    images: int
    constants: dict[str, int]
    device_bytes: int

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """First image and the one after the last, of each piece."""
        return [(first, min(first + self.images, self.N)) for first in range(0, self.N, self.images)]


class DoesNotFit(Exception):
    """The point cannot be computed there, or no cut of it fits the budget; the text says why, with the figures."""


def device_bytes(
    rung: Rung, conv: Conv, images: int, constants: Constants, copies: int = 1, device: Device = H200
) -> int:
    """Bytes on the device for ``copies`` buffer sets of ``images`` images each, and one set of filters.

    The filters count twice where a rung prepares them.
    """
    problem = Problem(conv, images, constants, device)
    per_set = images * sum(rung.image_bytes(conv).values())
    filters = prod(conv.w_shape()) * np.dtype(rung.dtype).itemsize + rung.prepared_bytes(problem)
    return copies * (per_set + rung.scratch_bytes(problem)) + filters


def plan(
    rung: Rung,
    conv: Conv,
    N: int,
    constants: Constants,
    budget: int,
    copies: int = 1,
    at_least: int = 1,
    device: Device = H200,
) -> Plan:
    """The fewest pieces (but ``at_least`` so many, if N allows) whose memory fits ``budget`` bytes.

    A rung's constant IMAGES_PER_PIECE bounds the pieces too.
    Where a single image is too large, the constants that trade speed for memory are doubled until it fits.
    Raises DoesNotFit.
    """
    values = dict(constants)
    problem = Problem(conv, N, values, device)

    def needed(images: int) -> int:
        return device_bytes(rung, conv, images, values, copies, device)

    while needed(1) > budget:
        raised = {
            constant.name: min(2 * values[constant.name], constant.ceiling(problem))
            for constant in rung.constants
            if constant.ceiling and values[constant.name] < constant.ceiling(problem)
        }
        if not raised:
            need = needed(1)
            raise DoesNotFit(
                f"one image needs {need / MEBIBYTE:.1f} MiB of device memory, the budget is {budget / MEBIBYTE:.1f}"
            )
        values |= raised
    most = bisect_right(range(1, N + 1), budget, key=needed)
    if values.get(IMAGES_PER_PIECE):
        most = min(most, values[IMAGES_PER_PIECE])
    images = ceil(N / max(ceil(N / most), min(at_least, N)))
    return Plan(N, images, values, needed(images))


def plan_on(
    executor: "Executor",
    rung: Rung,
    conv: Conv,
    N: int,
    constants: Constants,
    budget: int | None = None,
    copies: int = 1,
    at_least: int = 1,
) -> Plan:
    """The plan of a point that the executor can run: one that suits it, the rung and the limits of CUDA and device.

    ``budget`` is the executor's own unless given.  Raises DoesNotFit.
    """
    device = executor.device
    if reason := executor.unsuited(rung) or rung.refuses(Problem(conv, N, constants, device)):
        raise DoesNotFit(reason)
    budget = executor.memory_budget() if budget is None else budget
    cut = plan(rung, conv, N, constants, budget, copies, at_least, device)
    launches = configure(rung, conv, cut.images, cut.constants, device)
    checked = launches + configure_preparation(rung, conv, cut.constants, device)
    if reason := next(
        filter(
            None,
            (rung.refuses(Problem(conv, N, cut.constants, device)), *(outside_limits(launch) for launch in checked)),
        ),
        None,
    ):
        raise DoesNotFit(reason)
    largest = max(launch.dynamic_shared for launch in checked)
    if largest > device.shared_per_block:
        raise DoesNotFit(f"a block needs {largest} bytes of shared memory, this device has {device.shared_per_block}")
    return cut
