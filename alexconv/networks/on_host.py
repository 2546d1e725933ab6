"""A planned network on the host executor: the same kernels and arrays, checked and not timed."""

from collections.abc import Iterator
from contextlib import ExitStack
from math import prod

import numpy as np

from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.host.memory import HostBuffer
from alexconv.executors.interface import Values, fill_with_nan
from alexconv.executors.sampling import Samples
from alexconv.kernels.rung import BIAS
from alexconv.networks.plan import IMAGES, NetworkPlan, Step, as_stored
from alexconv.planning.layouts import from_study, to_study
from alexconv.records.store import Record


class HostNetwork:
    """The arrays and programs of a plan; raises CompileError and OutOfMemory."""

    def __init__(self, executor: HostExecutor, plan: NetworkPlan) -> None:
        self.plan = plan
        sizes = plan.sizes(plan.images_per_piece)
        self._buffers = {name: executor.runtime.allocate(nbytes, name) for name, nbytes in sizes.items()}
        self._programs = [executor.load(step.bound) for step in plan.launched]
        for buffer in self._buffers.values():
            fill_with_nan(buffer.bytes)
        for step, program in zip(plan.launched, self._programs, strict=True):
            for name, values in as_stored(step, plan).items():
                self._buffers[step.arrays[name]].array(values.dtype, values.shape)[:] = values
            program.prepare(self._of(step))

    def _of(self, step: Step) -> dict[str, HostBuffer]:
        return {name: self._buffers[array] for name, array in step.arrays.items()}

    def stage_outputs(self, images: Values) -> Iterator[Values]:
        """Each stage's outputs ``[n][M][E][F]``, of images ``[n][C][H][W]``, at most a piece, as they are computed."""
        plan = self.plan
        x = from_study(images.astype(plan.dtype), plan.layout)
        self._buffers[IMAGES].array(x.dtype, x.shape)[:] = x
        for step, program in zip(plan.launched, self._programs, strict=True):
            output = self._buffers[step.output]
            inputs = {name for name in ("x", "w", BIAS) if name in step.arrays and step.arrays[name] != step.output}
            if step.arrays["x"] != step.output:
                fill_with_nan(output.bytes)
            if "activations" in step.arrays:
                fill_with_nan(self._buffers[step.arrays["activations"]].bytes)
            with ExitStack() as stack:
                for name in inputs:
                    stack.enter_context(self._buffers[step.arrays[name]].read_only())
                program.run(len(images), self._of(step))
            if not plan.whole:
                yield self._output(step, len(images))
        if plan.whole:
            for step in plan.steps:
                yield self._output(step, len(images))

    def _output(self, step: Step, images: int) -> Values:
        name, begin = self.plan.output_of(step)
        shape = step.output_shape(images)
        values = self._buffers[name].bytes[begin:].view(self.plan.dtype)[: prod(shape)]
        return np.array(to_study(values.reshape(shape), step.bound.rung.layout))

    def scores(self, images: Values) -> Values:
        """The last stage's outputs of images, at most a piece."""
        for outputs in self.stage_outputs(images):
            scores = outputs
        return scores

    def measure(self, images: Values, seconds: float, *, stages: bool) -> tuple[Samples, Record]:
        """Nothing: CPU times say nothing about a GPU."""
        return {}, {}

    def close(self) -> None:
        """Frees the memory."""
        self._buffers.clear()
