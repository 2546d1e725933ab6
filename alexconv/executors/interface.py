"""The interface of executors: everything that a run uses of one.

Arrays have the roles of ``alexconv.shapes.Direction``: of dgrad, ``x`` is dy, and ``y`` is dx.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from alexconv.executors.sampling import Samples
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.problem import Device
from alexconv.kernels.rung import Rung
from alexconv.parallel import each_block
from alexconv.planning.checks import CHECKED_BYTES
from alexconv.planning.layouts import STUDY, from_study, to_study
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import Opener, Transfer
from alexconv.records.store import Record
from alexconv.shapes import DIRECTIONS

Values = npt.NDArray[Any]

NAN_BYTE = 0xFF  # a float or half with all bytes 0xFF is a NaN
TIME_LIMIT = 600.0  # seconds for a point on a GPU


class Program(Protocol):
    """A bound rung, compiled and loaded."""

    def launches(self, images: int) -> list[Record]:
        """Entry, grid, block, registers and memory of each launch over a piece of the batch."""
        ...


class Suspect(NamedTuple):
    """Outputs of the batch, in the rung's layout, to be checked again, and when they were computed."""

    when: str
    y: Values


class Buffers(Protocol):
    """The arrays of a planned rung, in which it can run repeatedly."""

    x: Values  # on the host, in the rung's layout; each run brings it to the device

    def outputs(self, *, stale: bool = False) -> Values:
        """Runs from host arrays to host arrays and returns the outputs, in the rung's layout.

        Output and scratch arrays are filled with NaN first; with ``stale``, scratch arrays keep the last run's values.
        The next run overwrites the returned array.  Raises LaunchError.
        """
        ...

    def measure(self, seconds: float) -> Samples:
        """Samples in ms, taken for about ``seconds`` per figure; empty on an executor without times."""
        ...

    def audited(self) -> tuple[Record, list[Suspect]]:
        """The findings of the audit of timed launches, for the record, and outputs to be checked again."""
        ...

    def timeline(self) -> list[Record]:
        """Operations of the last run: stream, piece, what, start and end in ms; empty if none overlap."""
        ...

    def close(self) -> None:
        """Frees the memory."""
        ...


class Executor(Protocol):
    """Compiles and runs rungs.  ``build`` may be called from several threads at once."""

    name: str
    measures: bool  # whether it times kernels
    usual_batch: int  # images, the default of --N
    time_limit: float  # seconds for a point
    sustained: float  # seconds of back-to-back runs before kernels are timed again; 0: not at all
    device: Device  # its properties that the ladder uses

    @property
    def most_flops(self) -> float:
        """Peak operations per second of any kernel; infinite on an executor without times."""
        ...

    @property
    def opens(self) -> Mapping[str, Opener]:
        """The transfers that it supports, each with its class of Buffers."""
        ...

    def describe(self) -> str:
        """The device in one line, for a reader."""
        ...

    def header(self) -> Record:
        """The record file's facts about the device and its toolchain."""
        ...

    def unsuited(self, rung: Rung) -> str | None:
        """Why the rung cannot run here, whatever the shape, or None."""
        ...

    def memory_budget(self) -> int:
        """Bytes that a point may take on the device."""
        ...

    def key(self, bound: BoundRung) -> str:
        """Digest of everything that the compiled rung depends on."""
        ...

    def build(self, bound: BoundRung) -> None:
        """Compiles a rung into the cache; raises CompileError, or MissingTool without a compiler."""
        ...

    def load(self, bound: BoundRung) -> Program:
        """A rung ready to run, compiled if the cache lacks it; raises as ``build`` does."""
        ...

    def open(
        self, program: Any, plan: Plan, x: Values, w: Values, transfer: Transfer, bias: Values | None = None
    ) -> Buffers:
        """Allocates the arrays of a plan; x in the rung's layout, all in its type.  Raises OutOfMemory."""
        ...

    def free_cached_arrays(self) -> None:
        """Frees the arrays that are cached for the next point, for others that need the memory."""
        ...

    def health(self) -> Record:
        """Clocks, throttle reasons, power and temperature now; empty where unknown."""
        ...

    def changed_settings(self) -> str:
        """Device settings that changed since this executor was created, with both values, or an empty text."""
        ...

    def lost(self) -> bool:
        """Whether a fault has left the device unusable."""
        ...


@dataclass(frozen=True)
class OpenedRung:
    """A rung with its arrays, whose outputs come in the study's layout, NCHW."""

    rung: Rung
    program: Any
    buffers: Any

    def outputs(self, *, stale: bool = False) -> Values:
        """The outputs ``[N][M][E][F]`` of a run; see ``Buffers.outputs``."""
        return self.in_study_layout(self.buffers.outputs(stale=stale))

    def turn(self, sign: int) -> None:
        """Reverses the order of the images for the next runs and multiplies them by 1 or -1, in place.

        Images that are summed with others of w stay in their order.
        """
        x = self.buffers.x
        if DIRECTIONS[self.rung.direction].sums_images:
            x *= sign
            return
        N, half = len(x), len(x) // 2

        def swap(images: slice) -> None:
            opposite = slice(N - images.stop, N - images.start)
            first_ones, last_ones = sign * x[images], sign * x[opposite]
            x[images], x[opposite] = last_ones[::-1], first_ones[::-1]

        each_block(swap, x[:half], CHECKED_BYTES)  # not at once: a batch may take half of the host's memory
        x[half : N - half] *= sign

    def in_study_layout(self, y: Values) -> Values:
        """A view ``[N][M][E][F]`` of outputs in the rung's layout."""
        return to_study(y, self.rung.layout_of(DIRECTIONS[self.rung.direction].y))


@contextmanager
def open_rung(
    executor: Executor, plan: Plan, x: Values, w: Values, transfer: Transfer, bias: Values | None = None
) -> Iterator[OpenedRung]:
    """Compiles a planned rung and opens it on ``x [N][C][H][W]``, ``w [M][C][R][S]`` and ``bias [M]`` of any type.

    Of a gradient, on its operands in these roles.
    A context; raises CompileError, MissingTool and OutOfMemory.
    """
    rung, roles = plan.bound.rung, plan.bound.roles
    program = executor.load(plan.bound)
    inputs, filters = (in_rung_layout(values, role, rung) for values, role in ((x, roles.x), (w, roles.w)))
    del x, w  # copies in the rung's layout replace them
    added = () if bias is None else (bias.astype(rung.dtype, copy=False),)
    buffers = executor.open(program, plan, inputs, filters, transfer, *added)
    try:
        yield OpenedRung(rung, program, buffers)
    finally:
        buffers.close()


def in_rung_layout(values: Values, array: str, rung: Rung) -> Values:
    """An array, by its name, in a rung's type and layout, from the study's; itself if it has both."""
    dtype, layout = rung.dtype, rung.layout_of(array)
    if values.dtype == dtype and layout == STUDY:
        return values
    ordered = np.empty(values.shape if layout == STUDY else [values.shape[axis] for axis in (0, 2, 3, 1)], dtype)

    def convert(images: slice) -> None:
        ordered[images] = from_study(values[images].astype(dtype, copy=False), layout)

    each_block(convert, values, CHECKED_BYTES)
    return ordered


def fill_with_nan(values: Values) -> None:
    """Fills an array with NaN, so that unwritten elements show."""
    values.view(np.uint8).fill(NAN_BYTE)
