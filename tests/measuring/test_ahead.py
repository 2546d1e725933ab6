"""Work ahead of the points: each kernel once, in their order, and nothing while a point is timed."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
from points import batch_of

from alexconv.data import UNIFORM
from alexconv.errors import CompileError
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring import ahead
from alexconv.measuring.ahead import Ahead, compile_all
from alexconv.measuring.runner import Settings, Skip
from alexconv.planning.points import choose_rungs, choose_transfers, expand

BATCHES = [batch_of("lenet-70-k5", layer, N) for layer in (1, 2) for N in (1, 2)]
POINTS = expand(BATCHES, choose_rungs("direct,channels,tiled"), choose_transfers("pageable"))
SKIPPED = "tiled"


class Stand:
    """A runner that records its calls; kernels of the rungs in ``closed`` compile until their gate opens."""

    def __init__(self, *closed, times=False):
        self.times = self.times_cpu = times
        self.settings = Settings()
        self.done, self.gates = [], {name: threading.Event() for name in closed}
        self.begun = threading.Event()  # the first kernel whose gate is closed
        self.executor = SimpleNamespace(build=self.build)

    def build(self, bound):
        if gate := self.gates.get(bound.rung.name):
            self.begun.set()
            gate.wait()
        self.done.append((bound.rung.name, bound.conv))
        raise CompileError("left to the point")

    def plan(self, point):
        if point.rung == SKIPPED:
            raise Skip("not here")
        return SimpleNamespace(bound=BoundRung(point.entry, point.conv, point.constants))

    def beyond_host_memory(self, point):
        return None

    def compute_reference(self, point):
        self.done.append(("reference", point.layer, *([] if point.data == UNIFORM else [point.data])))

    def time_cpu(self, workload, layer, conv):
        self.done.append(("cpu", layer))


def of(rung):
    return [point for point in POINTS if point.rung == rung]


def waited(runner, points, patience=400):
    """Whether the points can run before ``patience`` reports of waiting."""
    reports = []

    def tell(text):
        reports.append(text)
        if len(reports) > patience:
            raise TimeoutError

    with Ahead(runner, POINTS, tell) as ahead_:
        del reports[:]
        try:
            ahead_.wait(points)
            return True
        except TimeoutError:
            return False
        finally:
            for gate in runner.gates.values():
                gate.set()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Short waits, and a second compiler while one's gate is closed, on a host of one core too."""
    monkeypatch.setattr(ahead, "PATIENCE", 0.05)
    monkeypatch.setattr(ahead, "cores", lambda: 2)


def test_every_kernel_is_compiled_once_and_every_reference_computed_once():
    runner = Stand()
    assert waited(runner, POINTS)
    convs = {point.conv for point in POINTS}
    kernels = [(rung, conv) for rung in ("direct", "channels") for conv in convs]
    assert Counter(runner.done) == Counter([*kernels, ("reference", 1), ("reference", 2)])


def test_each_data_set_has_its_reference():
    runner, batches = Stand(), [replace(batch, data=data) for batch in BATCHES for data in (UNIFORM, "relu")]
    points = expand(batches, choose_rungs("direct"), choose_transfers("pageable"))
    with Ahead(runner, points, lambda text: None) as ahead_:
        ahead_.wait(points)
    references = {done for done in runner.done if done[0] == "reference"}
    assert references == {("reference", layer, *data) for layer in (1, 2) for data in ([], ["relu"])}


def test_a_point_that_is_only_checked_waits_for_its_own_kernel_alone():
    assert waited(Stand("channels"), of("direct"))
    assert not waited(Stand("channels"), of("channels"), 20)
    assert waited(Stand("channels", "direct"), of(SKIPPED))


def test_a_timed_point_waits_until_no_compiler_runs():
    assert not waited(Stand("channels", times=True), of("direct"), 20)
    assert waited(Stand(times=True), of("direct"))


@pytest.mark.parametrize("times", [False, True])
def test_the_last_kernels_compile_first_where_all_points_wait_for_all(monkeypatch, times):
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    runner = Stand(times=times)
    assert waited(runner, POINTS)
    compiled = [compilation for compilation in runner.done if compilation[0] in RUNGS]
    ladder = list(dict.fromkeys((point.rung, point.conv) for point in POINTS if point.rung != SKIPPED))
    assert compiled == (ladder[::-1] if times else ladder)


def test_the_cpu_is_timed_before_anything_else_starts():
    runner = Stand(times=True)
    assert waited(runner, POINTS)
    assert runner.done[:2] == [("cpu", 1), ("cpu", 2)]
    assert ("cpu", 1) not in runner.done[2:]


def test_pending_compilations_are_dropped_when_the_run_ends(monkeypatch):
    """The first kernel's gate opens when no other kernel is left to begin."""
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    runner = Stand("direct")

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait=True, *, cancel_futures=False):
            super().shutdown(wait=False, cancel_futures=cancel_futures)
            runner.gates["direct"].set()
            super().shutdown(wait=wait)

    monkeypatch.setattr(ahead, "ThreadPoolExecutor", Pool)
    with Ahead(runner, POINTS, print):
        runner.begun.wait()
    assert [name for name, _ in runner.done if name != "reference"] == ["direct"]


def test_points_that_nobody_announced_wait_for_nothing():
    runner = Stand()
    with Ahead(runner, [], print) as ahead_:
        ahead_.wait(POINTS)
    assert runner.done == []


def test_compiling_alone_computes_no_reference():
    runner = Stand()
    compile_all(runner, POINTS)
    assert {name for name, _ in runner.done} == {"direct", "channels"}
    assert len(runner.done) == 4
