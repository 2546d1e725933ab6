"""The host executor as the run sees it: the same plans, checks and records as on a GPU, and no times.

CPU times say nothing about a GPU, so nothing is timed here.
"""

from collections.abc import Mapping
from math import inf
from typing import ClassVar

from alexconv.executors.host.buffers import HostBuffers, HostProgram
from alexconv.executors.host.runtime import HostRuntime
from alexconv.executors.interface import Buffers, Values
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.problem import H200, Device
from alexconv.kernels.rung import Rung
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import Opener, Transfer
from alexconv.records.environment import available_memory
from alexconv.records.store import Record

MEMORY_SHARE = 0.5  # of the memory available now; inputs and the reference need some too


class HostExecutor:
    """Compiles rungs for the CPU and runs them.  Raises MissingTool without a C++ compiler."""

    name = "host"
    measures = False
    usual_batch = 1
    time_limit = inf  # a CPU may need hours for a large point, and can be interrupted
    sustained = 0.0
    opens: ClassVar[Mapping[str, Opener]] = {"pageable": HostBuffers}  # a copy in host memory
    most_flops = inf

    def __init__(self, build: str = "fast", order: int = 0, because: str | None = None, device: Device = H200) -> None:
        self.runtime = HostRuntime(build=build, order=order, device=device)
        self.device = device  # whose limits hold, and for which constants and grids are
        self._because = because

    def describe(self) -> str:
        """The CPU that runs the kernels, and why no GPU does."""
        limits = "" if self.device == H200 else f" with the limits of {self.device.name}"
        text = f"kernels run on the CPU{limits} ({self.runtime.cpu}): outputs are checked, not timed"
        return f"{text}.  No GPU: {self._because}" if self._because else text

    def header(self) -> Record:
        """The compiler and how the kernels are built and run."""
        return {"backend": self.name, **self.runtime.describe()}

    def unsuited(self, rung: Rung) -> str | None:
        """Why the device could not run the rung or why it has no host twin, or None."""
        return rung.unsuited(self.device.capability) or (f"needs a GPU: {rung.gpu_only}" if rung.gpu_only else None)

    def memory_budget(self) -> int:
        """Bytes that the buffers of a plan may take."""
        return int(available_memory() * MEMORY_SHARE)

    def key(self, bound: BoundRung) -> str:
        """Digest of kernel source, run-time, macros, flags and compiler."""
        return str(self.runtime.key(bound.rung.path, bound.macros))

    def build(self, bound: BoundRung) -> None:
        """Compiles a rung into the cache; raises CompileError."""
        self.load(bound)

    def load(self, bound: BoundRung) -> HostProgram:
        """A rung ready to run; raises CompileError."""
        module = self.runtime.compile(bound.rung.path, bound.macros, bound.entries())
        return HostProgram(module, bound)

    def open(
        self, program: HostProgram, plan: Plan, x: Values, w: Values, transfer: Transfer, bias: Values | None = None
    ) -> Buffers:
        """Allocates the buffers of a plan."""
        opened: Buffers = transfer.opener(self)(self.runtime, program, plan, x, w, transfer, bias)
        return opened

    def free_cached_arrays(self) -> None:
        """Nothing: no array outlives its point."""

    def health(self) -> Record:
        """Nothing: no figure depends on it."""
        return {}

    def changed_settings(self) -> str:
        """Nothing: no result depends on any."""
        return ""

    def lost(self) -> bool:
        """Never: a faulty launch is abandoned and the next one starts afresh."""
        return False
