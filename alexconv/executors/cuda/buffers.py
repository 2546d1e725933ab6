"""A planned rung's arrays on a GPU, one class for each way they move: copied, streamed, managed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from alexconv.errors import LaunchError
from alexconv.executors.cuda.audit import Audit
from alexconv.executors.cuda.bindings import answer
from alexconv.executors.cuda.device import CudaDevice
from alexconv.executors.cuda.program import CudaProgram
from alexconv.executors.cuda.timing import time_on_device, under_load
from alexconv.executors.cuda.watched import WatchedArrays
from alexconv.executors.host_memory import copied, filled_with_nan
from alexconv.executors.interface import NAN_BYTE, Suspect, Values, fill_with_nan
from alexconv.executors.sampling import Samples, repeat
from alexconv.kernels.rung import BIAS
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import Transfer
from alexconv.records.store import Record

GUARD_BYTES, CANARY = 4096, 0xA5  # the guard zones before and after each array, and their fill
PAGE = 4096  # bytes; the host's pages, in which unified memory migrates


def guards(allocation: int, nbytes: int) -> tuple[int, int]:
    """Addresses of the guard zones before and after an array of ``nbytes`` bytes."""
    return allocation, allocation + GUARD_BYTES + nbytes


class CudaBuffers:
    """Buffer sets on the device and kernel timing, shared by all transfers."""

    y: Values  # on the host, in the rung's layout, as x

    def __init__(
        self,
        gpu: CudaDevice,
        program: CudaProgram,
        plan: Plan,
        x: Values,
        w: Values,
        transfer: Transfer,
        bias: Values | None = None,
    ) -> None:
        self.x, self.w, self.bias = x, w, bias
        self.gpu, self.program, self.plan, self.transfer = gpu, program, plan, transfer
        self.driver, self.stream = gpu.driver, gpu.stream
        self.conv, self.roles, self.dtype = program.bound.conv, program.bound.roles, x.dtype
        self._allocations: list[tuple[Any, int, str]] = []
        self._on_host: list[Values] = []
        self._stale: set[str] = set()  # scratch arrays that ``fill`` leaves alone
        self._audit: tuple[Audit, int] | None = None  # with the number of the first audited image
        self._findings: Record = {}
        self.bytes = program.bound.piece_bytes(plan.images_per_piece)
        self.prepared_bytes = program.bound.prepared_bytes()
        gpu.flush()  # allocates the flush buffer before the arrays of the plan

    def allocate(self, nbytes: int, name: str) -> int:
        """Address of ``nbytes`` bytes on the device between guard zones, freed by ``close``."""
        allocation = self.driver.mem_alloc(GUARD_BYTES + nbytes + GUARD_BYTES)
        self._allocations.append((allocation, nbytes, name))
        for zone in guards(int(allocation), nbytes):
            self.driver.memset_d8(zone, CANARY, GUARD_BYTES)
        return int(allocation) + GUARD_BYTES

    def host_array(self, shape: tuple[int, ...]) -> Values:
        """An array in the transfer's host memory, released by ``close``."""
        page_locked = self.transfer.page_locked
        self._on_host.append(self.gpu.host_memory.take(shape, self.dtype, page_locked=page_locked))
        return self._on_host[-1]

    def on_host(self, values: Values) -> Values:
        """A copy of inputs or filters in page-locked memory, or the array itself if the transfer takes any memory."""
        return copied(values, self.host_array(values.shape)) if self.transfer.page_locked else values

    def outputs_on_host(self) -> Values:
        """An array full of NaN for the batch's outputs: first touches of its pages must not count as copying."""
        return filled_with_nan(self.host_array(self.program.bound.rung.y_shape(self.conv, self.plan.N)))

    def of_piece(self, piece: tuple[int, int]) -> Values:
        """A piece's outputs on the host: all of them, where they are sums over the images."""
        return self.y if self.roles.sums_images else self.y[slice(*piece)]

    def check_guards(self) -> None:
        """Raises LaunchError if a kernel stored into a guard zone."""
        content = np.empty(GUARD_BYTES, np.uint8)
        for allocation, nbytes, name in self._allocations:
            for side, zone in zip(("before", "after"), guards(int(allocation), nbytes), strict=True):
                self.driver.memcpy_dtoh(content, zone)
                if (content != CANARY).any():
                    raise LaunchError(f"{self.program.bound.rung.name}: a kernel stored right {side} {name}")

    def filter_set(self, w: Values) -> dict[str, int]:
        """Addresses of the filters, in constant memory if the rung keeps them there, and of prepared arrays.

        All pieces share them.
        """
        constant = self.program.constant_filters
        filters = self.allocate(w.nbytes, self.roles.w) if constant is None else constant
        return {self.roles.w: filters, **self.prepared_set()}

    def prepared_set(self) -> dict[str, int]:
        """Addresses of prepared arrays and of the bias."""
        addresses = {name: self.allocate(nbytes, name) for name, nbytes in self.prepared_bytes.items()}
        if self.bias is not None:
            addresses[BIAS] = self.allocate(self.bias.nbytes, BIAS)
            self.gpu.upload(addresses[BIAS], self.bias, self.stream)
        return addresses

    def buffer_set(self, names: list[str], filters: dict[str, int]) -> dict[str, int]:
        """Addresses of one piece's arrays, with those of the filters."""
        return {**filters, **{name: self.allocate(self.bytes[name], name) for name in names}}

    def fill(self, pointers: dict[str, int], stream: Any) -> None:
        """Fills output and scratch arrays on the device with NaN, except stale ones."""
        for name, nbytes in self.bytes.items():
            if name != self.roles.x and name in pointers and name not in self._stale:
                self.driver.memset_d8_async(pointers[name], NAN_BYTE, nbytes, stream)

    def prepare(self, pointers: dict[str, int], stream: Any, *, fill: bool = False) -> None:
        """Enqueues the rung's ``prepare`` launches; with ``fill``, fills their arrays with NaN first."""
        for name, nbytes in self.prepared_bytes.items() if fill else ():
            self.driver.memset_d8_async(pointers[name], NAN_BYTE, nbytes, stream)
        self.program.prepare(pointers, stream)

    def measure_kernels(self, pointers: dict[str, int], seconds: float, piece: int) -> Samples:
        """Hot and cold samples of the kernels alone, over the whole batch, all on the piece that is on the device.

        ``piece`` is its number; its checked outputs are on the device too.  Preparing filters is a figure of its own.
        """
        sizes = {last - first for first, last in self.plan.pieces}
        images = min(sizes)
        watched = WatchedArrays(self.gpu, self.program.bound, pointers, images, self.allocate)
        bound = self.program.bound
        audit = Audit(watched, watched.items, exact=not bound.rung.order_varies, odd=bound.conv.is_linear)
        for images in sizes if self.program.bound.rung.maps else ():  # encodes the maps, which a capture forbids
            self.program.enqueue(images, pointers, self.stream)
        self.stream.synchronize()
        with ExitStack() as stack:
            graphs = {
                images: stack.enter_context(self.gpu.recorded(partial(self.program.enqueue, images, pointers)))
                for images in sizes
            }
            pieces = [graphs[last - first] for first, last in self.plan.pieces]
            samples = time_on_device(self.gpu, pieces, seconds, audit)
            facts = under_load(self.gpu, pieces, samples, warm_ms=0)  # the second clock's runs have just ended
            self._findings = {**facts, **audit.finish()}
            self._audit = audit, self.plan.pieces[piece][0]
            if self.program.bound.rung.prepare:
                preparation = stack.enter_context(self.gpu.recorded(partial(self.program.prepare, pointers)))
                samples["prepare"] = time_on_device(self.gpu, [preparation], seconds)["kernel"]
        return samples

    def run(self, *, fill: bool = False) -> Any:
        """Runs from host arrays to host arrays once; returns the times in ms.  Each transfer has its own."""
        raise NotImplementedError

    def outputs(self, *, stale: bool = False) -> Values:
        """See Buffers."""
        self.leave_scratch(stale=stale)
        with self.gpu.errors(self.program.bound.rung.name):
            self.run(fill=True)
            self.check_guards()
        return self.y

    def leave_scratch(self, *, stale: bool) -> None:
        """Sets whether ``fill`` keeps the last run's values in scratch arrays."""
        self._stale = self.bytes.keys() - {self.roles.x, self.roles.y} if stale else set()

    def audited(self) -> tuple[Record, list[Suspect]]:
        """See Buffers."""
        with self.gpu.errors(self.program.bound.rung.name):
            self.check_guards()
        if self._audit is None:
            return self._findings, []
        audit, first = self._audit

        def whole(y: Values) -> Values:
            if len(y) == len(self.y):
                return y
            batch = copied(self.y)
            batch[first : first + len(y)] = y
            return batch

        return self._findings, [Suspect(when, whole(y)) for when, y in audit.suspects]

    def timeline(self) -> list[Record]:
        """Nothing: only streams overlap."""
        return []

    def close(self) -> None:
        """Frees the arrays; after a fault that destroyed the context there is nothing left to free."""
        for allocation, _, _ in self._allocations:
            with suppress(self.driver.Error):
                allocation.free()
        self._allocations.clear()
        for values in self._on_host:
            self.gpu.host_memory.give_back(values, page_locked=self.transfer.page_locked)
        self._on_host.clear()
        self.x = self.y = np.empty(0, self.dtype)
        self._audit = None  # refers to these arrays: a cycle would keep the kernels until garbage is collected


class CopiedBuffers(CudaBuffers):
    """Copies in, kernels, copies out, one piece after the other; host memory pageable or page-locked."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.x, self.w = self.on_host(self.x), self.on_host(self.w)
        self.y = self.outputs_on_host()
        self.pointers = self.buffer_set(list(self.bytes), self.filter_set(self.w))

    def run(self, *, fill: bool = False) -> dict[str, float]:
        """Runs from host arrays to host arrays once; ms of copies in, copies out, and in total."""
        marks = []
        begin = perf_counter()
        for first, last in self.plan.pieces:
            start = self.gpu.mark(self.stream)
            if first == 0:
                self.driver.memcpy_htod_async(self.pointers[self.roles.w], self.w, self.stream)
                self.prepare(self.pointers, self.stream, fill=fill)
            self.driver.memcpy_htod_async(self.pointers[self.roles.x], self.x[first:last], self.stream)
            copied_in = self.gpu.mark(self.stream)
            if fill:
                self.fill(self.pointers, self.stream)
            self.program.enqueue(last - first, self.pointers, self.stream)
            computed = self.gpu.mark(self.stream)
            outputs = self.of_piece((first, last))
            self.driver.memcpy_dtoh_async(outputs, self.pointers[self.roles.y], self.stream)
            marks.append((start, copied_in, computed, self.gpu.mark(self.stream)))
        self.stream.synchronize()
        total = (perf_counter() - begin) * 1e3
        return {
            "h2d": sum(float(b.time_since(a)) for a, b, _, _ in marks),
            "d2h": sum(float(d.time_since(c)) for _, _, c, d in marks),
            "total": total,
        }

    def enqueue(self, *, pdl: bool) -> None:
        """Enqueues the kernels over the whole batch, which must be one piece, on the device's stream.

        With ``pdl`` another rung's kernels precede them, and the first may be a programmatic dependent launch.
        """
        self.program.enqueue(self.plan.N, self.pointers, self.stream, pdl=pdl)

    def download(self) -> Values:
        """Copies the outputs of a batch in one piece to the host and returns them."""
        self.driver.memcpy_dtoh_async(self.y, self.pointers[self.roles.y], self.stream)
        self.stream.synchronize()
        return self.y

    def measure(self, seconds: float) -> Samples:
        """See Buffers."""
        with self.gpu.errors(self.program.bound.rung.name):
            samples = self.measure_kernels(self.pointers, seconds, len(self.plan.pieces) - 1)
            return samples | repeat(self.run, seconds)


class StreamedBuffers(CudaBuffers):
    """Pieces of the batch rotate over several streams with their own buffers, so copies and kernels overlap.

    Copies overlap kernels, so only the total is timed; ``timeline`` says when each ran.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.x, self.w = self.on_host(self.x), self.on_host(self.w)
        self.y = self.outputs_on_host()
        self._filters = self.filter_set(self.w)
        self.sets: dict[int, dict[str, int]] = {}  # by stream
        order = [(0, piece) for piece in range(len(self.plan.pieces))]
        self.pipeline = Pipeline(self.gpu, [self], order, self.transfer.streams)

    def set_of(self, stream: int) -> dict[str, int]:
        """Addresses of a stream's arrays, allocated on first use."""
        if stream not in self.sets:
            self.sets[stream] = self.buffer_set(list(self.bytes), self._filters)
        return self.sets[stream]

    def run(self, *, fill: bool = False) -> float:
        """Host arrays to host arrays once; total milliseconds."""
        return self.pipeline.run(fill=fill)

    def timeline(self) -> list[Record]:
        """See Pipeline."""
        return self.pipeline.timeline()

    def close(self) -> None:
        """See Buffers."""
        super().close()
        self.pipeline.batches = ()  # likewise a cycle

    def measure(self, seconds: float) -> Samples:
        """See Buffers."""
        with self.gpu.errors(self.program.bound.rung.name):
            pieces = range(0, len(self.plan.pieces), len(self.pipeline.streams))  # of the first stream
            return self.measure_kernels(self.set_of(0), seconds, pieces[-1]) | repeat(
                lambda: {"total": self.run()}, seconds
            )


class Pipeline:
    """Pieces of one or several streamed batches, on several streams in rotation.

    ``order`` lists the pieces as pairs (index in ``batches``, piece).  A batch's filters are copied and prepared before
    its first piece.
    """

    def __init__(
        self,
        gpu: CudaDevice,
        batches: Sequence[StreamedBuffers],
        order: Sequence[tuple[int, int]],
        streams: int,
    ) -> None:
        self.gpu, self.batches, self.order = gpu, batches, order
        self.streams = [gpu.driver.Stream() for _ in range(min(streams, len(order)))]
        for number, (batch, _) in enumerate(order):
            batches[batch].set_of(number % len(self.streams))

    def run(self, *, fill: bool = False) -> float:
        """Host arrays to host arrays once; total milliseconds."""
        begin = perf_counter()
        self.enqueue(fill=fill)
        for stream in self.streams:
            stream.synchronize()
        return (perf_counter() - begin) * 1e3

    def forget(self) -> None:
        """Fills outputs and scratch arrays, on the device and on the host, with NaN."""
        for batch in self.batches:
            filled_with_nan(batch.y)
            for pointers in batch.sets.values():
                batch.fill(pointers, self.gpu.stream)
        self.gpu.stream.synchronize()

    @contextmanager
    def recorded(self) -> Iterator[Callable[[], float]]:
        """``run`` as a CUDA graph, without launch overhead for many small pieces; returns total ms."""

        def enqueue(stream: Any) -> None:
            begin = self.gpu.mark(stream)
            for branch in self.streams:
                branch.wait_for_event(begin)
            self.enqueue()
            for branch in self.streams:
                stream.wait_for_event(self.gpu.mark(branch))

        def timed() -> float:
            begin = perf_counter()
            launch()
            self.gpu.stream.synchronize()
            return (perf_counter() - begin) * 1e3

        self.run()  # first uses allocate memory, which a capture forbids
        with self.gpu.recorded(enqueue) as launch:
            yield timed

    def enqueue(self, *, fill: bool = False) -> None:
        """Puts all copies and kernels on the streams."""
        filter_events: dict[int, Any] = {}  # by batch: the event after they are prepared
        ordered_lanes: set[tuple[int, int]] = set()  # batches and streams that have waited for it
        marks: list[list[Any]] = []
        for number, (batch_number, piece) in enumerate(self.order):
            batch, lane = self.batches[batch_number], number % len(self.streams)
            stream, pointers = self.streams[lane], batch.set_of(lane)
            if batch_number not in filter_events:
                self.gpu.driver.memcpy_htod_async(pointers[batch.roles.w], batch.w, stream)
                batch.prepare(pointers, stream, fill=fill)
                filter_events[batch_number] = self.gpu.mark(stream)
            elif (batch_number, lane) not in ordered_lanes:
                stream.wait_for_event(filter_events[batch_number])
            ordered_lanes.add((batch_number, lane))
            marks.append(self._enqueue(batch, piece, stream, pointers, fill))
        self._marks = marks

    def _enqueue(
        self, batch: StreamedBuffers, piece: int, stream: Any, pointers: dict[str, int], fill: bool
    ) -> list[Any]:
        """A piece's copies and kernels; the events before, between and after them."""
        first, last = batch.plan.pieces[piece]
        marks = [self.gpu.mark(stream)]
        self.gpu.driver.memcpy_htod_async(pointers[batch.roles.x], batch.x[first:last], stream)
        marks.append(self.gpu.mark(stream))
        if fill:
            batch.fill(pointers, stream)
        batch.program.enqueue(last - first, pointers, stream)
        marks.append(self.gpu.mark(stream))
        self.gpu.driver.memcpy_dtoh_async(batch.of_piece((first, last)), pointers[batch.roles.y], stream)
        return [*marks, self.gpu.mark(stream)]

    def timeline(self) -> list[Record]:
        """When the last run's operations were at the head of their streams, in ms after the first of them.

        An operation that waits for a copy engine or for multiprocessors counts as running.
        """
        times = [[float(mark.time_since(self._marks[0][0])) for mark in marks] for marks in self._marks]
        first = min(start for start, *_ in times)  # of any stream: another batch's may precede the first piece
        return [
            {
                "stream": number % len(self.streams),
                "piece": number,
                "what": operation,
                "start": round(start - first, 4),
                "end": round(end - first, 4),
            }
            for number, ends in enumerate(times)
            for operation, start, end in zip(("h2d", "kernel", "d2h"), ends, ends[1:], strict=False)
        ]


class ManagedBuffers(CudaBuffers):
    """Unified memory: host and kernels use the same arrays, and pages migrate by faults or by prefetching.

    Without prefetching the kernel's time includes page faults on inputs and outputs; d2h is the host's first touch of
    every page of the output.  PyCUDA has no prefetch, so cuda-bindings' cuMemPrefetchAsync is used.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        x, w = self.x, self.w
        self.x, self.w = (self._managed(values.shape) for values in (x, w))
        self.y = self._managed(self.program.bound.rung.y_shape(self.conv, self.plan.N))
        np.copyto(self.x, x)
        np.copyto(self.w, w)
        self.prefetches = self.transfer.prefetches
        constant = self.program.constant_filters
        self.in_constant_memory = constant is not None
        filters = {self.roles.w: self.w.ctypes.data if constant is None else constant, **self.prepared_set()}
        self.scratch = self.buffer_set([array.name for array in self.program.bound.rung.scratch], filters)

    def _managed(self, shape: tuple[int, ...]) -> Values:
        everywhere = self.driver.mem_attach_flags.GLOBAL
        managed: Values = self.driver.managed_empty(shape, self.dtype, mem_flags=everywhere)
        return managed

    def prefetch(self, values: Values, *, to_device: bool) -> None:
        """Enqueues the prefetch of an array's pages."""
        bindings = self.gpu.bindings
        kinds = bindings.CUmemLocationType
        place = bindings.CUmemLocation()
        place.type = kinds.CU_MEM_LOCATION_TYPE_DEVICE if to_device else kinds.CU_MEM_LOCATION_TYPE_HOST
        place.id = self.gpu.number if to_device else 0
        move = getattr(bindings, "cuMemPrefetchAsync_v2", bindings.cuMemPrefetchAsync)
        answer(move(values.ctypes.data, values.nbytes, place, 0, self.stream.handle), "prefetching")

    def run(self, *, fill: bool = False) -> dict[str, float]:
        """Runs once, from host-resident pages to host-resident pages; ms of each part."""
        for values in (self.x, self.w):
            bring_to_host(values)
        if fill:
            fill_with_nan(self.y)
            self.fill(self.scratch, self.stream)
        else:
            bring_to_host(self.y)
        self.stream.synchronize()
        begin = perf_counter()
        start = self.gpu.mark(self.stream)
        if self.prefetches:
            for values in (self.x, self.w, self.y):
                self.prefetch(values, to_device=True)
        if self.in_constant_memory:
            self.driver.memcpy_dtod_async(self.scratch[self.roles.w], self.w.ctypes.data, self.w.nbytes, self.stream)
        self.prepare(self.scratch, self.stream, fill=fill)
        moved = self.gpu.mark(self.stream)
        for first, last in self.plan.pieces:
            outputs = self.of_piece((first, last))
            pieces = {self.roles.x: self.x[first:last].ctypes.data, self.roles.y: outputs.ctypes.data}
            self.program.enqueue(last - first, self.scratch | pieces, self.stream)
        computed = self.gpu.mark(self.stream)
        if self.prefetches:
            self.prefetch(self.y, to_device=False)
        self.stream.synchronize()
        kernels_done = perf_counter()
        touch(self.y)
        end = perf_counter()
        kernel = float(computed.time_since(moved))
        h2d = float(moved.time_since(start))
        d2h = (end - begin) * 1e3 - kernel - h2d if self.prefetches else (end - kernels_done) * 1e3
        return {"kernel": kernel, "h2d": h2d, "d2h": d2h, "total": (end - begin) * 1e3}

    def measure(self, seconds: float) -> Samples:
        """See Buffers."""
        with self.gpu.errors(self.program.bound.rung.name):
            samples = repeat(self.run, seconds)
            self._findings = under_load(self.gpu, [self.run], {"total": samples["total"]})
            return samples


def touch(values: Values) -> int:
    """Reads one byte of every page, which migrates the pages to the host."""
    return int(values.reshape(-1).view(np.uint8)[::PAGE].max())


def bring_to_host(values: Values) -> None:
    """Rewrites one byte of every page, which migrates the pages to the host for writing."""
    pages = values.reshape(-1).view(np.uint8)[::PAGE]
    pages += 0
