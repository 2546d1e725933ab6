"""What every executor offers for a planned rung; the run knows no more of an executor than this."""

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
from alexconv.planning.layouts import from_study, to_study
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import Opener, Transfer
from alexconv.records.store import Record

Values = npt.NDArray[Any]

NAN_BYTE = 0xFF  # a float or half whose bytes are all this is a NaN
TIME_LIMIT = 600.0  # seconds, of a point on a GPU


class Program(Protocol):
    """A bound rung, compiled and loaded."""

    def launches(self, images: int) -> list[Record]:
        """Per launch over a piece of the batch: entry, grid, block, and what the compiler gave it."""
        ...


class Suspect(NamedTuple):
    """Outputs of the batch, in the rung's layout, that are to be checked again, and when they were there."""

    when: str
    y: Values


class Buffers(Protocol):
    """The arrays of a planned rung, in which it can be run again and again."""

    x: Values  # on the host, in the rung's layout; each run brings it to the device

    def outputs(self, *, stale: bool = False) -> Values:
        """Runs host arrays to host arrays into output and scratch arrays full of NaN; the outputs in the rung's layout.

        With ``stale`` scratch arrays are as the last run left them.  The array is one of the buffers: the next run
        overwrites it.  Raises LaunchError.
        """
        ...

    def measure(self, seconds: float) -> Samples:
        """Timed repetitions in about ``seconds`` for each figure; empty where times would mean nothing."""
        ...

    def audited(self) -> tuple[Record, list[Suspect]]:
        """What auditing the timed launches found, for the record, and outputs to be checked again."""
        ...

    def timeline(self) -> list[Record]:
        """What overlapped in the last run: stream, piece, what, start and end in ms; empty where nothing does."""
        ...

    def close(self) -> None:
        """Frees the memory."""
        ...


class Executor(Protocol):
    """Compiles and runs rungs.  ``build`` may be called from several threads at once."""

    name: str
    measures: bool  # whether its runs have times
    usual_batch: int  # images, where none are asked for
    time_limit: float  # seconds for a point, beyond which its kernel counts as endless
    sustained: float  # seconds of runs in a row after which kernels are timed once more, 0 for never
    device: Device  # what the ladder has to know of it

    @property
    def most_flops(self) -> float:
        """Operations per second that no kernel exceeds, infinite where nothing is timed."""
        ...

    @property
    def opens(self) -> Mapping[str, Opener]:
        """By transfer that it has, what makes the arrays of a plan: a class of Buffers."""
        ...

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

    def key(self, bound: BoundRung) -> str:
        """Digest of all that the compiled rung depends on."""
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
        """Allocates the arrays of a plan, ``x`` in the rung's layout, all of its type; raises OutOfMemory."""
        ...

    def health(self) -> Record:
        """Clocks and throttle reasons at this moment; empty where there is nothing to tell."""
        ...

    def changed_settings(self) -> str:
        """What is set on the device otherwise than when this executor was made, with both values; or nothing."""
        ...

    def lost(self) -> bool:
        """Whether the device no longer answers after a fault."""
        ...


@dataclass(frozen=True)
class OpenedRung:
    """A rung with its arrays, whose outputs come in the study's layout.  ``buffers`` are the executor's own."""

    rung: Rung
    program: Any
    buffers: Any

    def outputs(self, *, stale: bool = False) -> Values:
        """The outputs ``[N][M][E][F]`` of a run, as ``Buffers`` says: the next run overwrites them."""
        return self.in_study_layout(self.buffers.outputs(stale=stale))

    def turn(self, sign: int) -> None:
        """Has the next run take the images in reverse order, times 1 or -1: in the array that it was opened on."""
        x = self.buffers.x
        x[:] = sign * x[::-1]

    def in_study_layout(self, y: Values) -> Values:
        """A view ``[N][M][E][F]`` of outputs in the rung's layout."""
        return to_study(y, self.rung.layout)


@contextmanager
def open_rung(
    executor: Executor, plan: Plan, x: Values, w: Values, transfer: Transfer, bias: Values | None = None
) -> Iterator[OpenedRung]:
    """A planned rung, compiled and opened on ``x [N][C][H][W]``, ``w [M][C][R][S]`` and ``bias [M]``; then closed.

    They may be of any type; a layer without a bias has none.  Raises CompileError, MissingTool and OutOfMemory.
    """
    rung = plan.bound.rung
    program = executor.load(plan.bound)
    inputs = from_study(x.astype(rung.dtype, copy=False), rung.layout)
    added = () if bias is None else (bias.astype(rung.dtype, copy=False),)
    buffers = executor.open(program, plan, inputs, w.astype(rung.dtype, copy=False), transfer, *added)
    try:
        yield OpenedRung(rung, program, buffers)
    finally:
        buffers.close()


def fill_with_nan(values: Values) -> None:
    """Makes every element NaN, so that unwritten ones are noticed."""
    values.view(np.uint8).fill(NAN_BYTE)
