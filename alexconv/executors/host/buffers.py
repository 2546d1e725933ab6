"""Rungs and their arrays on the host executor.

CPU times say nothing about a GPU, so nothing is timed here.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from alexconv.executors.host.maps import encode
from alexconv.executors.host.memory import HostBuffer
from alexconv.executors.host.runtime import HostModule, HostRuntime
from alexconv.executors.interface import Suspect, Values, fill_with_nan
from alexconv.executors.sampling import Samples
from alexconv.kernels import dynamic
from alexconv.kernels.bound import BoundRung, LaunchConfig
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BIAS, TensorMap
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import Transfer
from alexconv.records.store import Record


class HostProgram:
    """A bound rung compiled for the CPU."""

    def __init__(self, module: HostModule, bound: BoundRung) -> None:
        self.module, self.bound = module, bound

    def run(self, images: int, buffers: Mapping[str, HostBuffer]) -> None:
        """Runs the rung's launches over a piece of the batch; raises LaunchError."""
        maps: list[HostBuffer] = []
        micro_batches = [
            (self.bound.launches(count), self.arguments(first, count, buffers, maps))
            for first, count in self.bound.micro_batches(images)
        ]
        launches = [(launch, named) for launches, named in micro_batches for launch in launches]
        self._launch(launches, [*buffers.values(), *maps])

    def prepare(self, buffers: Mapping[str, HostBuffer]) -> None:
        """Runs the launches that prepare the filters, if there are any; raises LaunchError."""
        named = {name: buffer.pointer for name, buffer in buffers.items()}
        self._launch([(launch, named) for launch in self.bound.preparation()], [*buffers.values()])

    def arguments(
        self, first: int, images: int, buffers: Mapping[str, HostBuffer], maps: list[HostBuffer]
    ) -> dict[str, int]:
        """See BoundRung; ``maps`` receives the encoded tensor maps, which must outlive the launches."""

        def encoded(tensor_map: TensorMap, p: Problem, address: int) -> int:
            maps.append(encode(tensor_map, p, address, self.module.allocate))
            return maps[-1].pointer

        addresses = {name: buffer.pointer for name, buffer in buffers.items()}
        return self.bound.arguments(first, images, addresses, encoded)

    def _launch(self, launches: Sequence[tuple[LaunchConfig, Mapping[str, int]]], arrays: Sequence[HostBuffer]) -> None:
        calls = [(launch, [arguments[name] for name in launch.args]) for launch, arguments in launches]
        if calls:
            if (numbers := self.bound.numbers) is not None:
                self.module.symbol(dynamic.SYMBOL)[:] = numbers.reshape(-1).view(np.uint8)
            self.module.run(calls, arrays)

    def launches(self, images: int) -> list[Record]:
        """Entry, grid, block and dynamic shared memory of each launch; register counts do not exist on a CPU."""
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
        executor: HostRuntime,
        program: HostProgram,
        plan: Plan,
        x: Values,
        w: Values,
        transfer: Transfer | None = None,
        bias: Values | None = None,
    ) -> None:
        self.program, self.plan, self.x, self.dtype = program, plan, x, x.dtype
        bound, rung, roles = program.bound, program.bound.rung, program.bound.roles
        prepared = bound.prepared_bytes()
        sizes = {**bound.piece_bytes(plan.images_per_piece), roles.w: w.nbytes, **prepared}
        if bias is not None:
            sizes[BIAS] = bias.nbytes
        self.buffers = {name: executor.allocate(size, name) for name, size in sizes.items()}
        self.inputs = {roles.x, roles.w, *prepared} | ({BIAS} & sizes.keys())  # never written by a piece's launches
        if rung.constant_symbol:
            program.module.symbol(rung.constant_symbol)[: w.nbytes] = w.reshape(-1).view(np.uint8)
        else:
            self.buffers[roles.w].array(w.dtype, w.shape)[:] = w
        if bias is not None:
            self.buffers[BIAS].array(bias.dtype, bias.shape)[:] = bias
        for name in prepared:
            fill_with_nan(self.buffers[name].bytes)
        with self.buffers[roles.x].read_only(), self.buffers[roles.w].read_only():
            program.prepare(self.buffers)
        self.y = np.empty(rung.y_shape(bound.conv, plan.N), self.dtype)

    def outputs(self, *, stale: bool = False) -> Values:
        """See Buffers."""
        bound = self.program.bound
        for first, last in self.plan.pieces:
            self.bring_in(first, last, stale=stale)
            with ExitStack() as stack:
                for name in self.inputs:
                    stack.enter_context(self.buffers[name].read_only())
                self.program.run(last - first, self.buffers)
            shape = bound.rung.y_shape(bound.conv, last - first)
            of_piece = self.y if bound.roles.sums_images else self.y[first:last]
            of_piece[:] = self.buffers[bound.roles.y].array(self.dtype, shape)
        return self.y

    def bring_in(self, first: int, last: int, *, stale: bool = False) -> None:
        """Copies a piece's images in, and fills output and, unless ``stale``, scratch arrays with NaN."""
        roles = self.program.bound.roles
        for name, buffer in self.buffers.items():
            if name == roles.y or (name not in self.inputs and not stale):
                fill_with_nan(buffer.bytes)
        shape = self.program.bound.rung.x_shape(self.program.bound.conv, last - first)
        self.buffers[roles.x].array(self.dtype, shape)[:] = self.x[first:last]

    def measure(self, seconds: float) -> Samples:
        """No figures."""
        return {}

    def audited(self) -> tuple[Record, list[Suspect]]:
        """Nothing is timed."""
        return {}, []

    def timeline(self) -> list[Record]:
        """Nothing overlaps."""
        return []

    def close(self) -> None:
        """Frees the memory."""
        self.buffers.clear()
