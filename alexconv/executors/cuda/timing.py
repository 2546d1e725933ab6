"""How kernels are timed on a GPU: events on an explicit stream, checked against the host's clock.

Before a timed region a large buffer is cleared on the same stream: that flushes the L2 cache, and keeps the device busy
until the host has enqueued the whole region, so launch overhead is excluded.  The region is two runs of the kernels:
the first is *cold*, the second *hot*.  On a loaded host the device may still come to an event before the host has
enqueued what follows, and would count its wait: such a sample is taken again, with more clearing before it.

No kernel is trusted: see audit.py.  Whatever is timed, the device must be idle once the last event has completed,
and the host's clock must agree with the events.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from time import perf_counter, sleep

from alexconv.errors import Untrusted
from alexconv.executors.cuda.audit import Audit
from alexconv.executors.cuda.device import CudaDevice
from alexconv.executors.sampling import Samples, repeat
from alexconv.records.store import Record

MOST_FLUSHES, MOST_TRIES = 16, 10  # before a piece, and of a sample for which the device waited
FLUSHED_PIECES = 16  # of a batch in many pieces, those timed after a flush: each flush takes time
LATE_MS, LATE_SHARE = 0.2, 0.1  # how long the device may stay busy after the last event: ms, and share of a run
CLOCK_MS, MOST_RUNS = 5.0, 200  # time and most runs for a reading of the host's clock
HOST_READINGS = 3  # of which one must agree: another process on the device can lengthen any
CLOCKS_DIFFER, LAUNCH_MS = 2.0, 0.1  # factor between both clocks, and the host's time to launch a piece
EVENTS_MS = 0.005  # what two events may add to a piece: on some hosts nearly as much
TIMES_AGAIN, AGAIN_SECONDS = 2, 0.1  # for samples in doubt
MOST_REST = 0.05  # seconds between samples: longer than the window of a device's power control
WARM_MS = 2.0  # runs before the clock under their load is read
SUSTAINED_SAMPLES, SUSTAINED_MS = 20, 2.0  # of runs back to back, and how long each should take


def time_once(
    gpu: CudaDevice, pieces: Sequence[Callable[[], None]], audit: Audit | None, late: list[float], flushes: int = 1
) -> tuple[dict[str, float], bool]:
    """Milliseconds, cold and hot, of what the pieces of a batch enqueue on the device's stream, summed over pieces.

    Before each piece the L2 cache is flushed, which also gives the host time to enqueue what follows: the piece's first
    run is cold, its second hot.  ``late`` gets the milliseconds for which the device stayed busy after the last event.
    Also returns whether the device waited for the host after a flush.
    """
    if audit:
        audit.before_sample()
    gpu.reset_persisting_lines()
    marks, waited = [], False
    for number, enqueue in enumerate(pieces):
        flushed = number < FLUSHED_PIECES
        for _ in range(flushes if flushed else 0):
            gpu.flush()
        start = gpu.mark(gpu.stream)
        enqueue()
        waited |= flushed and start.query()
        cold = between = gpu.mark(gpu.stream)
        if audit:
            audit.between()
            between = gpu.mark(gpu.stream)
        enqueue()
        waited |= flushed and between.query()
        marks.append((start, cold, between, gpu.mark(gpu.stream)))
    gpu.stream.synchronize()
    ended = gpu.host_ms()
    gpu.wait()
    late.append(gpu.host_ms() - ended)
    if audit:
        audit.after_sample()
    return {
        "kernel": sum(float(end.time_since(between)) for _, _, between, end in marks),
        "kernel_cold": sum(float(cold.time_since(start)) for start, cold, _, _ in marks),
    }, waited


def without_waits(
    once: Callable[[int], tuple[dict[str, float], bool]],
) -> Callable[[], dict[str, float]]:
    """Takes samples again for which the device waited, with twice the flushes, which later samples keep.

    The last of MOST_TRIES counts in any case.
    """
    flushes = 1

    def again() -> dict[str, float]:
        nonlocal flushes
        for _ in range(MOST_TRIES):
            sample, waited = once(flushes)
            if not waited:
                break
            flushes = min(2 * flushes, MOST_FLUSHES)
        return sample

    return again


def rested(once: Callable[[], dict[str, float]]) -> Callable[[], dict[str, float]]:
    """Takes samples with a rest before each but the first: as long as the last sample took, at most MOST_REST.

    Kernels of milliseconds back to back would run into the power limit, which short ones between the host's pauses
    never reach.
    """
    seconds = 0.0

    def again() -> dict[str, float]:
        nonlocal seconds
        if seconds:
            sleep(min(seconds, MOST_REST))
        begin = perf_counter()
        sample = once()
        seconds = perf_counter() - begin
        return sample

    return again


def time_on_device(
    gpu: CudaDevice, pieces: Sequence[Callable[[], None]], seconds: float, audit: Audit | None = None
) -> Samples:
    """Hot and cold samples in ms of what the pieces of a batch enqueue, taken for about ``seconds``.

    Samples in doubt are taken again, for at least AGAIN_SECONDS.  Raises Untrusted if each time the device stays busy
    after the last event, or the host's clock disagrees with the events.
    """
    for least_seconds in (0.0, *(AGAIN_SECONDS,) * TIMES_AGAIN):
        late: list[float] = []
        once = without_waits(partial(time_once, gpu, pieces, audit, late))
        samples = repeat(rested(once), max(seconds, least_seconds))
        hot, after_end = median(samples["kernel"]), median(late)
        if after_end > LATE_MS + LATE_SHARE * hot:
            doubt = f"the device worked for {after_end:.3f} ms after the end of the timed work"
            continue
        for _ in range(HOST_READINGS):
            on_host = host_ms(gpu, pieces, hot)
            if clocks_agree(hot, on_host, len(pieces)):
                return samples
        doubt = f"a run takes {hot:.4f} ms by the device's events, {on_host:.4f} ms by the host's clock"
    raise Untrusted(doubt)


def clocks_agree(by_events: float, on_host: float, pieces: int) -> bool:
    """Whether two times in ms of a run of ``pieces`` pieces can be of the same work."""
    least = (by_events - EVENTS_MS * pieces) / CLOCKS_DIFFER
    return least <= on_host <= CLOCKS_DIFFER * by_events + LAUNCH_MS * pieces


def runs_in(ms: float, expected: float) -> int:
    """The number of runs of ``expected`` ms that fill ``ms`` ms."""
    return max(1, min(MOST_RUNS, round(ms / expected)))


def host_ms(gpu: CudaDevice, pieces: Sequence[Callable[[], None]], expected: float) -> float:
    """Milliseconds of a run by the host's clock, averaged over about CLOCK_MS."""
    runs = runs_in(CLOCK_MS, expected)
    gpu.wait()
    begin = gpu.host_ms()
    for _ in range(runs):
        for enqueue in pieces:
            enqueue()
    gpu.wait()
    return (gpu.host_ms() - begin) / runs


def time_sustained(
    gpu: CudaDevice, pieces: Sequence[Callable[[], object]], seconds: float, expected: float
) -> tuple[list[float], Record]:
    """Samples in ms of runs back to back, after ``seconds`` of such runs, and the device's health under this load.

    ``expected`` is the time of one run in ms.  Health has the mean energy of a run, too, where the device counts it.
    """
    runs, marks = runs_in(SUSTAINED_MS, expected), []
    before = max(1, round(1e3 * seconds / (runs * expected)))
    gpu.stream.synchronize()
    joules = gpu.management.energy()
    for sample in range(before + SUSTAINED_SAMPLES):
        if sample >= before:
            marks.append(gpu.mark(gpu.stream))
        for _ in range(runs):
            for enqueue in pieces:
                enqueue()
    marks.append(gpu.mark(gpu.stream))
    health = gpu.management.health()
    gpu.stream.synchronize()
    if joules is not None and (joules_after := gpu.management.energy()) is not None:
        health["joules_per_run"] = (joules_after - joules) / (runs * (before + SUSTAINED_SAMPLES))
    return [float(end.time_since(start)) / runs for start, end in pairwise(marks)], health


def under_load(
    gpu: CudaDevice, pieces: Sequence[Callable[[], object]], samples: Samples, *, warm_ms: float = WARM_MS
) -> Record:
    """The SM clock in MHz under the timed load, read by a kernel right after ``warm_ms`` ms of runs.

    With ``sustained`` seconds, also adds the figure ``kernel_sustained`` to samples of kernels, and the device's health
    after it.
    """
    expected, facts = median(samples["kernel"] if "kernel" in samples else samples["total"]), {}
    if gpu.sustained and "kernel" in samples:
        samples["kernel_sustained"], facts["sustained"] = time_sustained(gpu, pieces, gpu.sustained, expected)
    kernels = gpu.audit_kernels  # compiled on first use, which must not come between the load and the reading
    for _ in range(runs_in(warm_ms, expected) if warm_ms else 0):
        for enqueue in pieces:
            enqueue()
    return {"clock_mhz": round(kernels.clock_mhz(), 1), **facts}
