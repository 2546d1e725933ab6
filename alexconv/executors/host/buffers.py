"""Rungs on the host executor: the same plans, checks and records as on a GPU, and no times.

What a CPU needs for a kernel says nothing about a GPU, so nothing is measured here.
"""

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from alexconv.executors.host.executor import HostBuffer, HostExecutor, HostModule
from alexconv.executors.host.maps import encode
from alexconv.executors.interface import Buffers, Samples, Values, fill_with_nan
from alexconv.kernels.bound import BoundRung, LaunchConfig
from alexconv.kernels.problem import H200, Problem
from alexconv.kernels.rung import Rung, TensorMap
from alexconv.machine import cpu_model
from alexconv.measuring.planner import Plan
from alexconv.measuring.transfers import Transfer, transfers_of
from alexconv.records.environment import available_memory
from alexconv.records.store import Record

MEMORY_SHARE = 0.5  # of the memory available now; inputs and the reference need some too


class HostProgram:
    """A bound rung compiled for the CPU."""

    def __init__(self, module: HostModule, bound: BoundRung) -> None:
        self.module, self.bound = module, bound

    def run(self, images: int, buffers: Mapping[str, HostBuffer]) -> None:
        """Runs the rung's launches over a chunk of images; raises LaunchError."""
        for first, count in self.bound.micro_batches(images):
            self._launch(self.bound.launches(count), self.arguments(first, count, buffers))

    def prepare(self, buffers: Mapping[str, HostBuffer]) -> None:
        """Runs the launches that prepare the filters; raises LaunchError."""
        self._launch(self.bound.preparation(), {name: buffer.pointer for name, buffer in buffers.items()})

    def arguments(self, first: int, images: int, buffers: Mapping[str, HostBuffer]) -> dict[str, int]:
        """See BoundRung; maps last as long as the next call's."""
        self._maps: list[HostBuffer] = []

        def encoded(tensor_map: TensorMap, p: Problem, address: int) -> int:
            self._maps.append(encode(tensor_map, p, address))
            return self._maps[-1].pointer

        addresses = {name: buffer.pointer for name, buffer in buffers.items()}
        return self.bound.arguments(first, images, addresses, encoded)

    def _launch(self, launches: Sequence[LaunchConfig], arguments: Mapping[str, int]) -> None:
        for launch in launches:
            taken = [arguments[name] for name in launch.args]
            self.module.launch(launch.entry, launch.grid, launch.block, launch.dynamic_shared, taken)

    def launches(self, images: int) -> list[Record]:
        """Entry, grid, block and dynamic shared memory of each launch: a CPU has no registers to tell of."""
        return [
            {
                "entry": launch.entry,
                "grid": launch.grid,
                "block": launch.block,
                "dynamic_shared": launch.dynamic_shared,
            }
            for launch in self.bound.launches(images)
        ]


class HostBuffers:
    """Host memory in place of the device's: each piece is copied into buffers, computed, copied out."""

    def __init__(
        self,
        executor: HostExecutor,
        program: HostProgram,
        plan: Plan,
        x: Values,
        w: Values,
        transfer: Transfer | None = None,
    ) -> None:
        self.program, self.plan, self.x, self.dtype = program, plan, x, x.dtype
        bound, rung = program.bound, program.bound.rung
        prepared = bound.prepared_bytes()
        sizes = {**bound.chunk_bytes(plan.chunk), "w": w.nbytes, **prepared}
        self.buffers = {name: executor.allocate(size) for name, size in sizes.items()}
        self.kept = {"x", "w", *prepared}  # from one piece to the next
        if rung.constant_symbol:
            program.module.symbol(rung.constant_symbol)[:] = w.reshape(-1).view(np.uint8)
        else:
            self.buffers["w"].array(w.dtype, w.shape)[:] = w
        for name in prepared:
            fill_with_nan(self.buffers[name].bytes)
        program.prepare(self.buffers)
        self.y = np.empty(rung.y_shape(bound.conv, plan.N), self.dtype)

    def outputs(self) -> Values:
        """See Buffers."""
        bound = self.program.bound
        for first, last in self.plan.pieces:
            self.bring_in(first, last)
            self.program.run(last - first, self.buffers)
            shape = bound.rung.y_shape(bound.conv, last - first)
            self.y[first:last] = self.buffers["y"].array(self.dtype, shape)
        return self.y

    def bring_in(self, first: int, last: int) -> None:
        """Copies a piece's images in, and fills output and scratch arrays with NaN."""
        for name, buffer in self.buffers.items():
            if name not in self.kept:
                fill_with_nan(buffer.bytes)
        shape = self.program.bound.rung.x_shape(self.program.bound.conv, last - first)
        self.buffers["x"].array(self.dtype, shape)[:] = self.x[first:last]

    def measure(self, seconds: float) -> Samples:
        """No figures."""
        return {}

    def timeline(self) -> list[Record]:
        """Nothing overlaps."""
        return []

    def close(self) -> None:
        """Frees the memory."""
        self.buffers.clear()


class HostRungs:
    """The host executor as the run sees it.  Raises MissingTool without a C++ compiler."""

    name = "host"
    measures = False
    usual_batch = 1
    time_limit = inf  # a CPU may need hours for a large point, and can be interrupted
    device = H200

    def __init__(self, build: str = "fast", order: int = 0, because: str | None = None) -> None:
        self.executor = HostExecutor(build=build, order=order)
        self._because = because

    @property
    def transfers(self) -> tuple[str, ...]:
        """Those that the table has for it: a copy in host memory."""
        return transfers_of(HostRungs.name)

    def describe(self) -> str:
        """What runs the kernels, and why not a GPU."""
        text = f"CUDA kernels compiled for and run on the CPU ({cpu_model()}); correctness only, no GPU times"
        return f"{text}.  No GPU is used because {self._because}" if self._because else text

    def header(self) -> Record:
        """The compiler and how the kernels are built and run."""
        return {"backend": self.name, **self.executor.describe()}

    def unsuited(self, rung: Rung) -> str | None:
        """Why the rung has no host twin, or None."""
        return f"needs a GPU: {rung.gpu_only}" if rung.gpu_only else None

    def memory_budget(self) -> int:
        """Bytes that the buffers of a plan may take."""
        return int(available_memory() * MEMORY_SHARE)

    def key(self, bound: BoundRung) -> str:
        """Digest of kernel source, run-time, macros, flags and compiler."""
        return str(self.executor.key(bound.rung.path, bound.macros))

    def build(self, bound: BoundRung) -> None:
        """Compiles a rung into the cache; raises CompileError."""
        self.load(bound)

    def load(self, bound: BoundRung) -> HostProgram:
        """A rung ready to run; raises CompileError."""
        module = self.executor.compile(bound.rung.path, bound.macros, bound.entries())
        return HostProgram(module, bound)

    def open(self, program: HostProgram, plan: Plan, x: Values, w: Values, transfer: Transfer) -> Buffers:
        """Allocates the buffers of a plan."""
        opened: Buffers = transfer.opener(HostRungs.name)(self.executor, program, plan, x, w, transfer)
        return opened

    def health(self) -> Record:
        """Nothing: no figure depends on it."""
        return {}

    def lost(self) -> bool:
        """Never: a faulty launch is abandoned and the next one starts afresh."""
        return False
