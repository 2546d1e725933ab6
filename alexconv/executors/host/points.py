"""Points on the host executor: the same plans, checks and records as on a GPU, and no times.

What a CPU needs for a kernel says nothing about a GPU, so nothing is measured here.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from alexconv.cpu_reference.machine import cpu_model
from alexconv.executors.host.executor import HostBuffer, HostExecutor, HostModule
from alexconv.executors.host.maps import encode
from alexconv.executors.point import PlannedPoint, Samples, Values, fill_with_nan
from alexconv.kernels.problem import H200, Constants, Problem
from alexconv.kernels.rung import BATCH, Rung, defines
from alexconv.measuring.launches import Configured, configure, configure_preparation, from_image, turns
from alexconv.measuring.planner import Plan
from alexconv.measuring.transfers import Transfer
from alexconv.records.environment import available_memory
from alexconv.records.store import Record
from alexconv.shapes import Conv

MEMORY_SHARE = 0.5  # of the memory available now; inputs and the reference need some too


class HostProgram:
    """A rung compiled for the CPU, for one shape and one set of constants."""

    def __init__(self, module: HostModule, rung: Rung, conv: Conv, constants: Constants) -> None:
        self.module, self.rung, self.conv, self.constants = module, rung, conv, dict(constants)

    def run(self, images: int, buffers: Mapping[str, HostBuffer]) -> None:
        """Runs the rung's launches over so many images; raises LaunchError."""
        for first, count in turns(images, self.constants):
            launches = configure(self.rung, self.conv, count, self.constants)
            self._launch(launches, self.arguments(first, count, buffers))

    def prepare(self, buffers: Mapping[str, HostBuffer]) -> None:
        """Runs the launches that prepare the filters; raises LaunchError."""
        self._launch(configure_preparation(self.rung, self.conv, self.constants), buffers)

    def arguments(self, first: int, images: int, buffers: Mapping[str, HostBuffer]) -> dict[str, HostBuffer | int]:
        """All that launches over so many images take by name, from one image on: numbers, arrays and maps of these."""
        pointers = {name: buffer.pointer for name, buffer in buffers.items()}
        addresses = from_image(first, pointers, self.rung.image_bytes(self.conv))
        problem = Problem(self.conv, images, self.constants)
        maps = {
            tensor_map.name: encode(tensor_map, problem, addresses[tensor_map.array]) for tensor_map in self.rung.maps
        }
        return {BATCH: images, **addresses, **maps}

    def _launch(self, launches: Sequence[Configured], arguments: Mapping[str, HostBuffer | int]) -> None:
        for launch in launches:
            taken = [arguments[name] for name in launch.args]
            self.module.launch(launch.entry, launch.grid, launch.block, launch.dynamic_shared, taken)

    def launches(self, images: int) -> list[Record]:
        """Entry, grid, block and dynamic shared memory of each launch: a CPU allots no registers to tell of."""
        return [
            {
                "entry": launch.entry,
                "grid": launch.grid,
                "block": launch.block,
                "dynamic_shared": launch.dynamic_shared,
            }
            for launch in configure(self.rung, self.conv, images, self.constants)
        ]


class HostPoint:
    """A point in host memory: each piece is copied into buffers as a GPU would have them, computed, copied out."""

    def __init__(self, executor: HostExecutor, program: HostProgram, plan: Plan, x: Values, w: Values) -> None:
        self.program, self.plan, self.x = program, plan, x
        rung, conv, self.dtype = program.rung, program.conv, x.dtype
        problem = Problem(conv, plan.images, plan.constants)
        sizes = {
            **{name: plan.images * nbytes for name, nbytes in rung.image_bytes(conv).items()},
            "w": w.nbytes,
            **{array.name: array.nbytes(problem) for array in rung.scratch},
            **{array.name: array.nbytes(problem.over(1)) for array in rung.prepared},
        }
        self.buffers = {name: executor.allocate(size) for name, size in sizes.items()}
        self.kept = {"x", "w", *(array.name for array in rung.prepared)}  # from one piece to the next
        if rung.constant_symbol:
            program.module.symbol(rung.constant_symbol)[:] = w.reshape(-1).view(np.uint8)
        else:
            self.buffers["w"].array(w.dtype, w.shape)[:] = w
        for array in rung.prepared:
            fill_with_nan(self.buffers[array.name].bytes)
        program.prepare(self.buffers)
        self.y = np.empty(rung.y_shape(conv, plan.N), self.dtype)

    def outputs(self) -> Values:
        """See PlannedPoint."""
        for first, last in self.plan.pieces:
            self.bring_in(first, last)
            self.program.run(last - first, self.buffers)
            shape = self.program.rung.y_shape(self.program.conv, last - first)
            self.y[first:last] = self.buffers["y"].array(self.dtype, shape)
        return self.y

    def bring_in(self, first: int, last: int) -> None:
        """Copies a piece's images in, and fills output and scratch arrays with NaN."""
        for name, buffer in self.buffers.items():
            if name not in self.kept:
                fill_with_nan(buffer.bytes)
        shape = self.program.rung.x_shape(self.program.conv, last - first)
        self.buffers["x"].array(self.dtype, shape)[:] = self.x[first:last]

    def measure(self, seconds: float) -> Samples:
        """No figures."""
        return {}

    def timeline(self) -> list[Record]:
        """Nothing overlaps."""
        return []

    def close(self) -> None:
        """Gives the memory back."""
        self.buffers.clear()


class HostRungs:
    """The host executor as the run sees it.  Raises MissingTool without a C++ compiler."""

    name = "host"
    transfers: tuple[str, ...] = ("pageable",)
    measures = False
    device = H200

    def __init__(self, build: str = "fast", order: int = 0, because: str | None = None) -> None:
        self.executor = HostExecutor(build=build, order=order)
        self._because = because

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
        """Bytes that a point's buffers may take."""
        return int(available_memory() * MEMORY_SHARE)

    def key(self, rung: Rung, conv: Conv, constants: Constants) -> str:
        """Digest of kernel source, run-time, macros, flags and compiler."""
        return str(self.executor.key(rung.path, defines(rung, conv, constants, self.device)))

    def build(self, rung: Rung, conv: Conv, constants: Constants) -> None:
        """Compiles a rung into the cache; raises CompileError."""
        self.load(rung, conv, constants)

    def load(self, rung: Rung, conv: Conv, constants: Constants) -> HostProgram:
        """A rung ready to run; raises CompileError."""
        entries = [launch.entry for launch in (*rung.prepare, *rung.launches)]
        module = self.executor.compile(rung.path, defines(rung, conv, constants, self.device), entries)
        return HostProgram(module, rung, conv, constants)

    def open(self, program: HostProgram, plan: Plan, x: Values, w: Values, transfer: Transfer) -> PlannedPoint:
        """Allots the buffers of a point; the only transfer is a copy in host memory."""
        return HostPoint(self.executor, program, plan, x, w)

    def health(self) -> Record:
        """Nothing: no figure depends on it."""
        return {}

    def lost(self) -> bool:
        """Never: a faulty launch is abandoned and the next one starts afresh."""
        return False
