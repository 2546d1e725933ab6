"""The launch stack: a bound rung loaded on a device, and its launches over a batch's images.

Single points, sequences, pipelines and the library all enqueue through a CudaProgram, with their own arrays and
streams.
"""

from collections.abc import Mapping
from functools import cached_property, partial
from math import prod
from typing import Any

from alexconv.errors import LaunchError
from alexconv.executors.cuda.bindings import pdl_shared
from alexconv.executors.cuda.device import CudaDevice
from alexconv.executors.cuda.kernels import Kernels, Step
from alexconv.executors.cuda.tensor_maps import MapMemory, TensorMaps
from alexconv.kernels.bound import BoundRung, LaunchConfig
from alexconv.kernels.geometry import WARP
from alexconv.records.store import Record


class CudaProgram:
    """A bound rung loaded on the device; ``memory`` allocates its tensor maps.

    A stream is PyCUDA's, or another library's by its handle.
    """

    def __init__(self, gpu: CudaDevice, bound: BoundRung, kernels: Kernels, memory: MapMemory) -> None:
        self.bound, self.kernels, self.maps = bound, kernels, TensorMaps(memory)
        self._gpu = gpu
        self._steps: dict[tuple[int, bool], list[Step]] = {}  # by images; whether a kernel precedes

    @cached_property
    def constant_filters(self) -> int | None:
        """Address of the rung's filters in constant memory; None if it takes them by address."""
        symbol = self.bound.rung.constant_symbol
        return None if symbol is None else self.kernels.symbol(symbol)

    def enqueue(self, images: int, pointers: Mapping[str, int], stream: Any, *, pdl: bool = False) -> None:
        """Enqueues the rung's launches over ``images`` images; ``pointers`` has its arrays' addresses by name.

        With ``pdl`` a kernel that does not prepare their filters precedes them, and the first may be a programmatic
        dependent launch.  Tensor maps are encoded on first use, which must be outside any capture.
        """
        on, encoded = self.kernels.handle(stream), partial(self.maps.address, stream)
        for first, count in self.bound.micro_batches(images):
            arguments = self.bound.arguments(first, count, pointers, encoded)
            for step in self._steps_over(count, pdl=pdl and first == 0):
                step.enqueue(arguments, on)

    def prepare(self, pointers: Mapping[str, int], stream: Any) -> None:
        """Enqueues the rung's ``prepare`` launches."""
        on = self.kernels.handle(stream)
        for step in self._preparation:
            step.enqueue(pointers, on)

    @cached_property
    def _preparation(self) -> list[Step]:
        return [self.kernels.step(launch) for launch in self.bound.preparation()]

    def _steps_over(self, images: int, *, pdl: bool) -> list[Step]:
        key = images, pdl
        if key not in self._steps:
            launches = self.bound.launches(images)
            self._steps[key] = [self._step(launch, pdl=pdl or number > 0) for number, launch in enumerate(launches)]
        return self._steps[key]

    def _step(self, launch: LaunchConfig, *, pdl: bool) -> Step:
        shared, pdl = self.as_launched(launch, pdl=pdl)
        if launch.cooperative:
            resident = self.kernels.blocks_per_multiprocessor(launch) * self._gpu.attribute("MULTIPROCESSOR_COUNT")
            if (blocks := prod(launch.grid)) > resident:
                raise LaunchError(f"{launch.entry} needs {blocks} resident blocks, this GPU holds {resident}")
        return self.kernels.step(launch, shared, pdl=pdl)

    def as_launched(self, launch: LaunchConfig, *, pdl: bool) -> tuple[int, bool]:
        """Bytes of dynamic shared memory, and whether it becomes a programmatic dependent launch.

        It does if the rung and the device allow it and, with ``pdl``, a kernel precedes it.
        """
        if not (launch.pdl and pdl and self._gpu.has_pdl):
            return launch.dynamic_shared, False
        return pdl_shared(launch.grid, launch.dynamic_shared, self._gpu.properties), True

    def launches(self, images: int) -> list[Record]:
        """Entry, grid, block, registers, bytes of shared and local memory, theoretical occupancy of each launch."""
        records = []
        for launch in self.bound.preparation() + self.bound.launches(images):
            facts = self.kernels.facts(launch)
            records.append(
                {
                    "entry": launch.entry,
                    "grid": launch.grid,
                    "block": launch.block,
                    "registers": facts["registers"],
                    "static_shared": facts["static_shared"],
                    "dynamic_shared": launch.dynamic_shared,
                    "local": facts["local"],
                    "occupancy": self._occupancy(launch),
                }
            )
        return records

    def _occupancy(self, launch: LaunchConfig) -> float:
        """Theoretical occupancy: resident warps over a multiprocessor's maximum."""
        resident = self.kernels.blocks_per_multiprocessor(launch) * -(-prod(launch.block) // WARP) * WARP
        return float(round(resident / self._gpu.attribute("MAX_THREADS_PER_MULTIPROCESSOR"), 4))
