"""A point leaves nothing on a GPU for the garbage collector, which would break a capture."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from alexconv.errors import LaunchError
from alexconv.executors.cuda import graphs
from alexconv.executors.cuda.audit import Audit
from alexconv.executors.cuda.buffers import CopiedBuffers, StreamedBuffers
from alexconv.executors.cuda.graphs import Graph
from alexconv.executors.cuda.watched import WatchedArrays
from alexconv.executors.host_memory import HostMemory
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.shapes import Conv

CONV, N = Conv(C=2, H=6, W=6, M=3, R=3, S=3), 4


def nothing(*arguments, **named):
    return None


class Program:
    """A stand-in for a loaded rung, whose kernels are unloaded with it."""

    constant_filters = None

    def __init__(self, bound):
        self.bound = bound


def opened(opener, transfer, program):
    """A point's arrays on a GPU without memory."""
    allocation = type("Allocation", (int,), {"free": nothing})(4096)
    stream = SimpleNamespace(synchronize=nothing)
    driver = SimpleNamespace(
        mem_alloc=lambda nbytes: allocation,
        memset_d8=nothing,
        memset_d8_async=nothing,
        memcpy_htod_async=nothing,
        memcpy_dtoh=nothing,
        Stream=lambda: stream,
        Error=OSError,
    )
    gpu = SimpleNamespace(
        driver=driver,
        stream=stream,
        flush=nothing,
        host_memory=HostMemory(np.empty),
        audit_kernels=SimpleNamespace(launch=nothing),
    )
    x, w = (np.ones(shape, np.float32) for shape in (CONV.x_shape(N), CONV.w_shape()))
    return opener(gpu, program, Plan(program.bound, N, 1, 0), x, w, TRANSFERS[transfer], None)


@pytest.fixture
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("opener, transfer", [(CopiedBuffers, "pageable"), (StreamedBuffers, "streamed")])
def test_a_points_kernels_are_unloaded_as_soon_as_it_ends(no_collection, opener, transfer):
    rung = RUNGS["direct"]
    program = Program(BoundRung(rung, CONV, rung.resolve(CONV, {}, N)))
    loaded = weakref.ref(program)
    buffers = opened(opener, transfer, program)
    watched = WatchedArrays(buffers.gpu, program.bound, {"x": 0, "w": 0, "y": 0}, N, buffers.allocate)
    buffers._audit = Audit(watched, N), 0
    del program
    assert loaded() is not None
    buffers.close()
    del buffers
    assert loaded() is None


@pytest.fixture
def bindings(monkeypatch):
    """cuda-bindings with a driver that captures nothing."""
    mode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    names = ("cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphDestroy")
    calls = {name: lambda *arguments: (0, None) for name in names}
    monkeypatch.setattr(graphs, "require_bindings", lambda what: SimpleNamespace(CUstreamCaptureMode=mode, **calls))


def test_no_garbage_is_collected_while_a_graph_is_captured(bindings):
    collects = []
    Graph(lambda: collects.append(gc.isenabled()), SimpleNamespace(handle=0))
    assert (collects, gc.isenabled()) == ([False], True)


def test_garbage_is_collected_again_after_a_capture_that_fails(bindings):
    def fail():
        raise LaunchError("no launch")

    with pytest.raises(LaunchError):
        Graph(fail, SimpleNamespace(handle=0))
    assert gc.isenabled()


def test_disabled_garbage_collection_stays_disabled_after_a_capture(bindings, no_collection):
    Graph(nothing, SimpleNamespace(handle=0))
    assert not gc.isenabled()
