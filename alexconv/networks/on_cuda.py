"""A planned network on a GPU: its arrays, its launches on one stream or as a graph, and their times."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from alexconv.errors import LaunchError, Untrusted
from alexconv.executors.cuda.buffers import CANARY, GUARD_BYTES, guards
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.interface import NAN_BYTE, Values
from alexconv.executors.sampling import Samples, repeat
from alexconv.networks.plan import IMAGES, NetworkPlan, Step, as_stored
from alexconv.planning.layouts import from_study, to_study
from alexconv.records.store import Record

ACTIVATIONS = "activations"  # of the persistent kernel: outputs of all its stages but the last
TIMELINES = 25  # launches whose median is a timeline
STAGE_SECONDS = 0.02  # of samples for each stage
BATCHES = 16  # one after the other, of which each is copied while the one before it is computed


class CudaNetwork:
    """The arrays and programs of a plan on a GPU; raises CompileError, OutOfMemory and LaunchError."""

    def __init__(self, executor: CudaExecutor, plan: NetworkPlan) -> None:
        self.plan, self._executor, self._gpu = plan, executor, executor.gpu
        self._driver, self._stream = self._gpu.driver, self._gpu.stream
        self._allocations: list[tuple[Any, int, str]] = []
        self._on_host: list[Values] = []
        self._sizes = plan.sizes(plan.images_per_piece)
        with self._errors():
            self._gpu.flush()  # allocates the flush buffer before the arrays of the plan
            self._addresses = {name: self._allocate(name, nbytes) for name, nbytes in self._sizes.items()}
        self._programs = [executor.load(step.bound) for step in plan.launched]
        self._graphs, self._recorded = ExitStack(), dict[int, Callable[[], None]]()  # by images
        with self._errors():
            for step, program in zip(plan.launched, self._programs, strict=True):
                for name, values in as_stored(step, plan).items():
                    self._driver.memcpy_htod(self._addresses[step.arrays[name]], values)
                program.prepare(self._of(step), self._stream)
            self._stream.synchronize()

    def _errors(self) -> Any:
        return self._gpu.errors(self.plan.point.network.name)

    def _allocate(self, name: str, nbytes: int) -> int:
        """Address of an array between guard zones, filled with NaN."""
        allocation = self._driver.mem_alloc(GUARD_BYTES + nbytes + GUARD_BYTES)
        self._allocations.append((allocation, nbytes, name))
        for zone in guards(int(allocation), nbytes):
            self._driver.memset_d8(zone, CANARY, GUARD_BYTES)
        self._driver.memset_d8(int(allocation) + GUARD_BYTES, NAN_BYTE, nbytes)
        return int(allocation) + GUARD_BYTES

    def _check_guards(self) -> None:
        content = np.empty(GUARD_BYTES, np.uint8)
        for allocation, nbytes, name in self._allocations:
            for zone in guards(int(allocation), nbytes):
                self._driver.memcpy_dtoh(content, zone)
                if (content != CANARY).any():
                    raise LaunchError(f"{self.plan.point.network.name}: a kernel stored beside the array {name}")

    def _of(self, step: Step) -> dict[str, int]:
        return {name: self._addresses[array] for name, array in step.arrays.items()}

    def _as_taken(self, images: Values) -> Values:
        """Images in the network's type and layout, contiguous."""
        return np.ascontiguousarray(from_study(images.astype(self.plan.dtype, copy=False), self.plan.layout))

    def _enqueue_step(self, number: int, images: int, *, pdl: bool = False) -> None:
        step, program = self.plan.launched[number], self._programs[number]
        program.enqueue(images, self._of(step), self._stream, pdl=pdl)

    def enqueue(self, images: int) -> None:
        """Enqueues all stages over a piece whose images are on the device; the host waits if the schedule says so."""
        schedule = self.plan.point.schedule
        for number in range(len(self._programs)):
            self._enqueue_step(number, images, pdl=schedule.dependent and number > 0)
            if schedule.waits:
                self._stream.synchronize()

    def stage_outputs(self, images: Values) -> Iterator[Values]:
        """Each stage's outputs ``[n][M][E][F]``, of images ``[n][C][H][W]``, at most a piece, as they are computed."""
        with self._errors():
            self._driver.memcpy_htod(self._addresses[IMAGES], self._as_taken(images))
            for number, step in enumerate(self.plan.launched):
                written = [step.output] if step.arrays["x"] != step.output else []
                written += [step.arrays[ACTIVATIONS]] if ACTIVATIONS in step.arrays else []
                for name in written:
                    self._driver.memset_d8(self._addresses[name], NAN_BYTE, self._sizes[name])
                self._enqueue_step(number, len(images))
                self._stream.synchronize()
                if not self.plan.whole:
                    yield self._output(step, len(images))
            if self.plan.whole:
                for step in self.plan.steps:
                    yield self._output(step, len(images))
            self._check_guards()

    def launcher(self, images: int) -> Callable[[], None]:
        """What launches the stages over a piece of so many images as the schedule says."""
        if not self.plan.point.schedule.graph:
            return partial(self.enqueue, images)
        if images not in self._recorded:
            self.enqueue(images)  # encodes tensor maps, which a capture forbids
            self._stream.synchronize()
            recorded = self._gpu.recorded(lambda stream: self.enqueue(images))
            self._recorded[images] = self._graphs.enter_context(recorded)
        return self._recorded[images]

    def scores(self, images: Values) -> Values:
        """The last stage's outputs of images, at most a piece, launched as the schedule says."""
        with self._errors():
            launch = self.launcher(len(images))
            self._driver.memcpy_htod(self._addresses[IMAGES], self._as_taken(images))
            launch()
            self._stream.synchronize()
            return self._downloaded(len(images))

    def scores_of_tensor(self, images: Any) -> Any:
        """The same of torch's images on this GPU, as a tensor ``[n][M][E][F]`` there: nothing passes through the host.

        Torch's stream and this network's wait for each other.
        """
        import torch

        last, layout = self.plan.launched[-1], self.plan.layout
        memory = torch.channels_last if layout == "nhwc" else torch.contiguous_format
        x = images.to(getattr(torch, self.plan.dtype)).contiguous(memory_format=memory)
        y = torch.empty(self.plan.steps[-1].output_shape(len(x)), dtype=x.dtype, device=x.device)
        with self._errors():
            launch = self.launcher(len(x))
            torch.cuda.current_stream(x.device).synchronize()
            copy, itemsize = self._driver.memcpy_dtod_async, x.element_size()
            copy(self._addresses[IMAGES], x.data_ptr(), x.numel() * itemsize, self._stream)
            launch()
            copy(y.data_ptr(), self._addresses[last.output], y.numel() * itemsize, self._stream)
            self._stream.synchronize()
        return y.permute(0, 3, 1, 2) if last.bound.rung.layout == "nhwc" else y

    def _output(self, step: Step, images: int) -> Values:
        name, begin = self.plan.output_of(step)
        y = np.empty(step.output_shape(images), self.plan.dtype)
        self._driver.memcpy_dtoh(y, self._addresses[name] + begin)
        return to_study(y, step.bound.rung.layout)

    def _downloaded(self, images: int) -> Values:
        return self._output(self.plan.steps[-1], images)

    def measure(self, images: Values, seconds: float, *, stages: bool) -> tuple[Samples, Record]:
        """Samples in ms per batch, and facts for the record; ``stages``: the times of each stage apart, too.

        ``kernel`` is the whole between two events, hot, ``kernel_cold`` likewise; ``latency`` from an idle device to
        the scores in its memory by the host's clock; ``h2d`` and ``d2h`` are the copies, ``total`` is from host arrays,
        page-locked, to host arrays, ``overlapped`` the same for each of several batches, copied while others are
        computed, where the budget has room for the images of two.  Raises Untrusted where the timed launches do not
        compute what they did before.
        """
        plan = self.plan
        due = self.scores(images[: plan.images_per_piece])
        with self._errors():
            pieces = [self.launcher(last - first) for first, last in plan.pieces]
            self._driver.memcpy_htod(self._addresses[IMAGES], self._as_taken(images[: plan.images_per_piece]))
            samples = self._executor.time(pieces, seconds)
            facts: Record = self._executor.under_load(pieces, samples, warm_ms=0)
            samples |= repeat(partial(self._latency, pieces), seconds)
            pieces[0]()
            self._stream.synchronize()
            self._compare(due, self._downloaded(len(due)))
            if plan.whole:
                facts["timeline"] = self._timeline(pieces[0])
            elif stages:
                facts["stage_samples"] = self._stage_samples()
            samples |= self._transfers(images, pieces, due, seconds)
            if plan.point.schedule.graph and plan.takes_next_batch:
                samples |= self._overlapped(images, due, seconds)
            self._check_guards()
        return samples, facts

    def _captured_step(self, number: int, images: int) -> Callable[[Any], None]:
        return lambda stream: self._enqueue_step(number, images)

    def _latency(self, pieces: Sequence[Callable[[], None]]) -> dict[str, float]:
        self._stream.synchronize()
        begin = perf_counter()
        for enqueue in pieces:
            enqueue()
        self._stream.synchronize()
        return {"latency": (perf_counter() - begin) * 1e3}

    def _compare(self, due: Values, scores: Values) -> None:
        varies = any(step.bound.rung.order_varies for step in self.plan.steps)
        if not varies and not np.array_equal(due, scores, equal_nan=True):
            raise Untrusted("the timed launches compute other scores than those that were checked")

    def stage_times(self, images: Values) -> list[float]:
        """The median time in ms of each stage alone over images, at most a piece, when nothing is cached."""
        with self._errors():
            for number in range(len(self.plan.steps)):  # encodes tensor maps; later stages get inputs
                if number == 0:
                    self._driver.memcpy_htod(self._addresses[IMAGES], self._as_taken(images))
                self._enqueue_step(number, len(images))
            self._stream.synchronize()
            return [median(samples["kernel_cold"]) for samples in self._stage_samples()]

    def _stage_samples(self) -> list[Samples]:
        """Samples in ms of each stage alone, hot and cold, over the first piece."""
        images, samples = self.plan.images_per_piece, list[Samples]()
        for number in range(len(self.plan.steps)):
            with self._gpu.recorded(self._captured_step(number, images)) as launch:
                samples.append(self._executor.time([launch], STAGE_SECONDS))
        return samples

    def _timeline(self, launch: Callable[[], None]) -> list[float]:
        """Microseconds from the first block's begin to the last one's at each stage, and to the last one's end."""
        timelines = []
        for _ in range(TIMELINES):
            launch()
            self._stream.synchronize()
            times = np.empty(self._sizes["times"] // 8, np.int64)
            self._driver.memcpy_dtoh(times, self._addresses["times"])
            timelines.append((times - times.min()).reshape(-1, len(self.plan.steps) + 1).max(axis=0))
        return [float(time) / 1e3 for time in np.median(timelines, axis=0)]

    def _transfers(self, images: Values, pieces: Sequence[Callable[[], None]], due: Values, seconds: float) -> Samples:
        """Samples of the copies and of the total, between page-locked arrays."""
        memory, last = self._gpu.host_memory, self.plan.launched[-1]
        x = self._as_taken(images)
        inputs = memory.take(x.shape, x.dtype, page_locked=True)
        inputs[:] = x
        scores = memory.take(self.plan.steps[-1].output_shape(len(x)), x.dtype, page_locked=True)

        def once() -> dict[str, float]:
            marks, begin = [], perf_counter()
            for (first, end), enqueue in zip(self.plan.pieces, pieces, strict=True):
                start = self._gpu.mark(self._stream)
                self._driver.memcpy_htod_async(self._addresses[IMAGES], inputs[first:end], self._stream)
                copied = self._gpu.mark(self._stream)
                enqueue()
                computed = self._gpu.mark(self._stream)
                self._driver.memcpy_dtoh_async(scores[first:end], self._addresses[last.output], self._stream)
                marks.append((start, copied, computed, self._gpu.mark(self._stream)))
            self._stream.synchronize()
            total = (perf_counter() - begin) * 1e3
            h2d = sum(float(copied.time_since(start)) for start, copied, _, _ in marks)
            d2h = sum(float(ended.time_since(computed)) for _, _, computed, ended in marks)
            return {"h2d": h2d, "d2h": d2h, "total": total}

        samples = repeat(once, seconds)
        self._compare(due, to_study(scores, last.bound.rung.layout)[: len(due)])
        memory.give_back(inputs, page_locked=True)
        memory.give_back(scores, page_locked=True)
        return samples

    def _overlapped(self, images: Values, due: Values, seconds: float) -> Samples:
        """Samples of the time for a batch among several: two arrays of images take turns."""
        memory, last, copies = self._gpu.host_memory, self.plan.launched[-1], self._driver.Stream()
        x, first = self._as_taken(images), self._addresses[IMAGES]
        inputs = memory.take(x.shape, x.dtype, page_locked=True)
        inputs[:] = x
        shape = (2, *self.plan.steps[-1].output_shape(len(x)))
        scores = memory.take(shape, x.dtype, page_locked=True)
        arrays = first, self._allocate("images of the other batch", self._sizes[IMAGES])
        with ExitStack() as stack:
            launches = []
            for address in arrays:
                self._addresses[IMAGES] = address
                self.enqueue(len(x))  # encodes tensor maps, which a capture forbids
                self._stream.synchronize()
                launches.append(stack.enter_context(self._gpu.recorded(lambda stream: self.enqueue(len(x)))))
            self._addresses[IMAGES] = first

            def once() -> dict[str, float]:
                computed: list[Any] = []
                begin = perf_counter()
                for batch in range(BATCHES):
                    turn = batch % 2
                    if batch >= 2:
                        copies.wait_for_event(computed[batch - 2])  # whose images these overwrite
                    self._driver.memcpy_htod_async(arrays[turn], inputs, copies)
                    self._stream.wait_for_event(self._gpu.mark(copies))
                    launches[turn]()
                    computed.append(self._gpu.mark(self._stream))
                    self._driver.memcpy_dtoh_async(scores[turn], self._addresses[last.output], self._stream)
                self._stream.synchronize()
                return {"overlapped": (perf_counter() - begin) * 1e3 / BATCHES}

            samples = repeat(once, seconds)
        for turn in scores:
            self._compare(due, to_study(turn, last.bound.rung.layout))
        memory.give_back(inputs, page_locked=True)
        memory.give_back(scores, page_locked=True)
        return samples

    def close(self) -> None:
        """Frees graphs and arrays; after a fault that destroyed the context there is nothing left to free."""
        self._graphs.close()
        for allocation, _, _ in self._allocations:
            with suppress(self._driver.Error):
                allocation.free()
        self._allocations.clear()
