"""The order of work when timing on a GPU, with a stand-in that records its calls."""

from functools import partial
from types import SimpleNamespace

import pytest

from alexconv.executors.cuda import timing
from alexconv.executors.cuda.buffers import Pipeline
from alexconv.executors.cuda.timing import (
    FLUSHED_PIECES,
    HOST_READINGS,
    WARM_MS,
    rested,
    time_on_device,
    time_once,
    under_load,
    without_waits,
)
from alexconv.records.faults import timeline as well_formed

TICK = 0.01


class Event:
    def __init__(self, at, *, passed=False):
        self.at, self.passed = at, passed

    def query(self):
        return self.passed

    def time_since(self, other):
        return self.at - other.at


class Gpu:
    """An executor whose clock counts milliseconds of enqueued work; ``done`` lists the work."""

    def __init__(self, times=(3.0, 2.0)):
        self.done, self.now, self.stream, self.times = [], 0.0, self, times

    def flush(self):
        self.done.append("flush")
        self.now += 100.0

    def reset_persisting_lines(self):
        self.done.append("forget")

    def mark(self, stream):
        return Event(self.now)

    def synchronize(self):
        self.done.append("synchronize")

    def wait(self):
        self.done.append("wait")

    def host_ms(self):
        return self.now

    def run(self):
        """Cold after a flush, else hot."""
        self.now += self.times[self.done[-1] != "flush"]
        self.done.append("run")


@pytest.fixture
def rests(monkeypatch):
    """The seconds of every rest, on a clock that moves by 10 ms each time it is read."""
    now, seconds = [0.0], []
    monkeypatch.setattr(timing, "perf_counter", lambda: now.append(now[-1] + TICK) or now[-1])
    monkeypatch.setattr(timing, "sleep", seconds.append)
    return seconds


def test_a_cold_run_follows_the_flush_and_a_hot_one_the_cold(rests):
    gpu = Gpu()
    assert time_once(gpu, [gpu.run], None, []) == ({"kernel": 2.0, "kernel_cold": 3.0}, False)
    assert gpu.done == ["forget", "flush", "run", "run", "synchronize", "wait"]


@pytest.mark.parametrize("event", [0, 1], ids=["cold", "hot"])
def test_a_sample_for_which_the_device_waited_is_retaken_behind_more_flushes(rests, event):
    class Hurried(Gpu):
        """Comes to one event of the first three samples before what follows is enqueued."""

        marked = 0

        def mark(self, stream):
            number, self.marked = self.marked, self.marked + 1
            return Event(self.now, passed=number in (event, 3 + event, 6 + event))

    gpu = Hurried()
    once = without_waits(partial(time_once, gpu, [gpu.run], None, []))
    assert once() == {"kernel": 2.0, "kernel_cold": 3.0}
    assert gpu.done.count("flush") == 1 + 2 + 4 + 8
    once()
    assert gpu.done.count("flush") == 1 + 2 + 4 + 8 + 8, "a later sample begins with as many"


def test_a_sample_of_a_host_that_is_always_late_counts_after_some_tries():
    flushes = []
    assert without_waits(lambda count: flushes.append(count) or ({"kernel": 2.0}, True))() == {"kernel": 2.0}
    assert flushes == [1, 2, 4, 8, *[16] * 6]


def test_the_device_rests_between_samples_for_as_long_as_one_took(rests):
    gpu = Gpu()
    once = rested(without_waits(partial(time_once, gpu, [gpu.run], None, [])))
    assert once() == {"kernel": 2.0, "kernel_cold": 3.0}
    assert not rests, "no rest before the first sample"
    assert once() == {"kernel": 2.0, "kernel_cold": 3.0}
    assert rests == [pytest.approx(TICK)]
    time_on_device(gpu, [gpu.run], 1.0)
    assert len(rests) == 1 + 9, "ten new samples"


def test_no_rest_is_longer_than_the_longest(rests, monkeypatch):
    monkeypatch.setattr(timing, "MOST_REST", TICK / 2)
    gpu = Gpu()
    time_on_device(gpu, [gpu.run], 1.0)
    assert rests == [TICK / 2] * 9


def test_the_pieces_of_a_batch_are_timed_one_by_one_and_added(rests):
    gpu = Gpu()
    assert time_once(gpu, [gpu.run] * 3, None, []) == ({"kernel": 6.0, "kernel_cold": 9.0}, False)
    assert gpu.done == ["forget", *(["flush", "run", "run"] * 3), "synchronize", "wait"]
    many = Gpu()
    time_once(many, [many.run] * (FLUSHED_PIECES + 5), None, [])
    assert many.done.count("flush") == FLUSHED_PIECES
    assert many.done.count("run") == 2 * (FLUSHED_PIECES + 5)


def test_hot_and_cold_have_the_same_number_of_samples(rests):
    gpu = Gpu()
    samples = time_on_device(gpu, [gpu.run], 0.2)
    assert samples == {"kernel": [2.0] * 10, "kernel_cold": [3.0] * 10}


@pytest.mark.parametrize("disturbed", [0, 2, 3])
def test_a_disturbed_reading_of_the_hosts_clock_is_retaken(rests, monkeypatch, disturbed):
    readings = iter([9.0] * disturbed + [2.0] * 9)
    monkeypatch.setattr(timing, "host_ms", lambda gpu, pieces, expected: next(readings))
    samples = time_on_device(gpu := Gpu(), [gpu.run], 0.2)
    assert samples["kernel"] == [2.0] * 10
    assert gpu.done.count("flush") == (10 if disturbed < HOST_READINGS else 20), "beyond that, samples are retaken too"


def test_the_kernel_that_reads_the_clock_is_compiled_before_the_runs():
    done = []

    class Compiling(Gpu):
        sustained = 0.0

        @property
        def audit_kernels(self):
            done.append("compile")
            return SimpleNamespace(clock_mhz=lambda: 1980.0)

    under_load(Compiling(), [lambda: done.append("run")], {"total": [WARM_MS]})
    assert done == ["compile", "run"]


@pytest.mark.parametrize(("warm", "runs"), [({}, 4), ({"warm_ms": 0}, 0)])
def test_runs_warm_up_the_device_before_its_clock_is_read(warm, runs):
    done = []
    clock = SimpleNamespace(clock_mhz=lambda: done.append("clock") or 1500.0)
    gpu = SimpleNamespace(sustained=0.0, audit_kernels=clock)
    facts = under_load(gpu, [lambda: done.append("run")], {"kernel": [WARM_MS / 4]}, **warm)
    assert facts == {"clock_mhz": 1500.0}
    assert done == [*["run"] * runs, "clock"]


class Stream:
    """A stream whose events are as late as its own work takes; it starts where its batch's filters are copied."""

    def __init__(self):
        self.now = 0.0

    def wait_for_event(self, event):
        self.now = max(self.now, event.at)

    def synchronize(self):
        pass


class Streamed:
    """A batch in pieces whose filters take a time to copy and prepare."""

    def __init__(self, ms_of_filters, pieces):
        self.roles, self.x, self.w = SimpleNamespace(x="x", w="w", y="y"), "images", None
        self.plan = SimpleNamespace(pieces=[(number, number + 1) for number in range(pieces)])
        self.program, self.ms_of_filters = SimpleNamespace(enqueue=self.enqueue), ms_of_filters

    def set_of(self, lane):
        return dict.fromkeys("xwy", lane)

    def prepare(self, pointers, stream, *, fill):
        stream.now += self.ms_of_filters

    def enqueue(self, images, pointers, stream):
        stream.now += 1.0

    def of_piece(self, piece):
        return None


def test_a_timeline_begins_with_the_first_operation_of_any_batch():
    driver = SimpleNamespace(Stream=Stream, memcpy_htod_async=lambda *_: None, memcpy_dtoh_async=lambda *_: None)
    gpu = SimpleNamespace(driver=driver, mark=lambda stream: Event(stream.now))
    slow, fast = Streamed(5.0, pieces=2), Streamed(0.5, pieces=1)
    pipeline = Pipeline(gpu, [slow, fast], [(0, 0), (1, 0), (0, 1)], streams=3)
    pipeline.run()
    starts = [event["start"] for event in pipeline.timeline() if event["what"] == "h2d"]
    assert starts == [4.5, 0.0, 4.5]
    assert well_formed(pipeline.timeline())
