"""What every executor offers for one planned point; the run knows no more of an executor than this."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from alexconv.kernels.problem import Constants, Device
from alexconv.kernels.rung import Rung
from alexconv.measuring.layouts import from_study, to_study
from alexconv.measuring.planner import Plan
from alexconv.measuring.transfers import Transfer
from alexconv.records.store import Record
from alexconv.shapes import Conv

Values = npt.NDArray[Any]
Samples = dict[str, list[float]]  # milliseconds per batch, by figure: kernel, kernel_cold, h2d, d2h, total

NAN_BYTE = 0xFF  # a float or half whose bytes are all this is a NaN


class Program(Protocol):
    """A rung compiled for one shape and one set of constants."""

    def launches(self, images: int) -> list[Record]:
        """Per launch over so many images: entry, grid, block, and what the compiler allotted to it."""
        ...


class PlannedPoint(Protocol):
    """A point with its arrays allotted, ready to be run again and again."""

    def outputs(self) -> Values:
        """Runs host arrays to host arrays into output and scratch arrays full of NaN; the outputs in the rung's layout.

        The array is the point's own: the next run overwrites it.  Raises LaunchError.
        """
        ...

    def measure(self, seconds: float) -> Samples:
        """Timed repetitions, about so many seconds for each figure; empty where times would mean nothing."""
        ...

    def timeline(self) -> list[Record]:
        """What overlapped in the last run: stream, piece, what, start and end in ms; empty where nothing does."""
        ...

    def close(self) -> None:
        """Gives the memory back."""
        ...


class Executor(Protocol):
    """Compiles rungs and runs planned points.  ``build`` may be called from several threads at once."""

    name: str
    transfers: tuple[str, ...]
    measures: bool  # whether its points have times
    device: Device  # what the ladder has to know of it

    def describe(self) -> str:
        """One line for a reader: what will run the kernels."""
        ...

    def header(self) -> Record:
        """What the record file says about the machine that ran the kernels."""
        ...

    def unsuited(self, rung: Rung) -> str | None:
        """Why the rung cannot run here, whatever the shape, or None."""
        ...

    def memory_budget(self) -> int:
        """Bytes that a point may take on the device."""
        ...

    def key(self, rung: Rung, conv: Conv, constants: Constants) -> str:
        """Digest of all that the compiled rung depends on."""
        ...

    def build(self, rung: Rung, conv: Conv, constants: Constants) -> None:
        """Compiles a rung into the cache; raises CompileError, or MissingTool without a compiler."""
        ...

    def load(self, rung: Rung, conv: Conv, constants: Constants) -> Program:
        """A rung ready to run, compiled if the cache lacks it; raises as ``build`` does."""
        ...

    def open(self, program: Any, plan: Plan, x: Values, w: Values, transfer: Transfer) -> PlannedPoint:
        """Allots the arrays of a point, ``x`` in the rung's layout, both of its type; raises OutOfMemory."""
        ...

    def health(self) -> Record:
        """Clocks and throttle reasons at this moment; empty where there is nothing to tell."""
        ...

    def lost(self) -> bool:
        """Whether the device no longer answers after a fault."""
        ...


@dataclass(frozen=True)
class OpenedRung:
    """A rung with its arrays allotted, whose outputs come in the study's layout.  ``point`` is the executor's own."""

    rung: Rung
    program: Any
    point: Any

    def outputs(self) -> Values:
        """The outputs ``[N][M][E][F]`` of a run, as ``PlannedPoint`` says: the next run overwrites them."""
        return self.in_study_layout(self.point.outputs())

    def in_study_layout(self, y: Values) -> Values:
        """A view ``[N][M][E][F]`` of outputs in the rung's layout."""
        return to_study(y, self.rung.layout)


@contextmanager
def open_rung(
    executor: Executor, rung: Rung, conv: Conv, plan: Plan, x: Values, w: Values, transfer: Transfer
) -> Iterator[OpenedRung]:
    """A planned rung, compiled and opened on ``x [N][C][H][W]`` and ``w [M][C][R][S]`` of any type; then closed.

    Raises CompileError, MissingTool and OutOfMemory.
    """
    program = executor.load(rung, conv, plan.constants)
    inputs = from_study(x.astype(rung.dtype, copy=False), rung.layout)
    point = executor.open(program, plan, inputs, w.astype(rung.dtype, copy=False), transfer)
    try:
        yield OpenedRung(rung, program, point)
    finally:
        point.close()


def fill_with_nan(values: Values) -> None:
    """Makes every element NaN, so that one nobody writes is noticed."""
    values.view(np.uint8).fill(NAN_BYTE)
