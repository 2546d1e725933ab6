"""Large host arrays: filled and copied whole, and kept only for the next point of the same size."""

import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from points import batch_of, point_of

from alexconv.executors import host_memory, interface
from alexconv.executors.cuda.buffers import CopiedBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.host_memory import HostMemory, copied, filled_with_nan
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import H200
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.layouts import from_study
from alexconv.planning.planner import Plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.shapes import Conv

SMALL = Conv(C=2, H=6, W=6, M=3, R=3, S=3)
LARGE = 1000  # bytes, in these tests


@pytest.fixture(autouse=True)
def sizes(monkeypatch):
    monkeypatch.setattr(host_memory, "LARGE", LARGE)
    monkeypatch.setattr(host_memory, "BLOCK", 256)


@pytest.fixture
def locked():
    """Bytes of each page-locked array that was made."""
    return []


@pytest.fixture
def memory(locked):
    return HostMemory(lambda length, dtype: locked.append(length) or np.empty(length, dtype))


def address(values):
    return values.ctypes.data


@pytest.mark.parametrize("shape", [(1,), (1, 1000), (7, 13), (100, 3, 5), (1000,)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_value_is_forgotten_and_copied(shape, dtype):
    values = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    turned = values.transpose(0, *range(values.ndim - 1, 0, -1))  # images first, as in any layout
    copy = copied(turned)
    assert address(copy) != address(values)
    np.testing.assert_array_equal(copy, turned)
    assert filled_with_nan(values) is values
    assert np.isnan(values).all()


def test_a_large_array_is_kept_for_a_request_of_its_size(memory):
    first = memory.take((10, 50), "float32", page_locked=False)
    at = address(first)
    memory.give_back(first, page_locked=False)
    again = memory.take((50, 20), "float16", page_locked=False)
    assert (again.shape, again.dtype, again.nbytes) == ((50, 20), np.float16, first.nbytes)
    assert address(again) == at
    assert address(memory.take((10, 50), "float32", page_locked=False)) != at, "one user at a time"


def returned_array(memory, count, *, page_locked=False):
    """A weak reference to an array of ``count`` floats that was given back."""
    values = memory.take((count,), "float32", page_locked=page_locked)
    memory.give_back(values, page_locked=page_locked)
    return weakref.ref(values.base)


def test_kept_arrays_are_freed_before_one_of_another_size_is_made(memory):
    waiting = returned_array(memory, 500)
    assert waiting() is not None
    memory.take((10,), "float32", page_locked=False)
    assert waiting() is not None, "small arrays disturb nothing"
    memory.take((501,), "float32", page_locked=False)
    assert waiting() is None


def test_kept_arrays_can_be_freed(memory):
    waiting = returned_array(memory, 500)
    memory.free()
    assert waiting() is None


def test_small_arrays_are_not_kept(memory):
    assert returned_array(memory, LARGE // 4 - 1)() is None


def test_page_locked_memory_is_page_locked_when_taken_again(memory, locked):
    returned_array(memory, 500)
    returned_array(memory, 500, page_locked=True)
    assert locked == [2000], "pageable memory is not reused"
    memory.take((500,), "float32", page_locked=True)
    assert locked == [2000]


def opened(memory, transfer, N):
    """A point's arrays on a GPU without memory."""
    rung = RUNGS["direct"]
    allocation = type("Allocation", (int,), {"free": lambda self: None})(4096)
    driver = SimpleNamespace(mem_alloc=lambda nbytes: allocation, memset_d8=lambda *arguments: None, Error=OSError)
    gpu = SimpleNamespace(driver=driver, stream=None, flush=lambda: None, host_memory=memory)
    bound = BoundRung(rung, SMALL, rung.resolve(SMALL, {}, N, H200), H200)
    program = SimpleNamespace(bound=bound, constant_filters=None)
    x, w = (np.ones(shape, np.float32) for shape in (SMALL.x_shape(N), SMALL.w_shape()))
    return CopiedBuffers(gpu, program, Plan(bound, N, N, 0), x, w, TRANSFERS[transfer], None), x


@pytest.mark.parametrize("transfer", ["pageable", "pinned"])
def test_points_of_one_size_share_memory_that_holds_nothing_of_the_last(memory, transfer, locked):
    before, _ = opened(memory, transfer, 10)
    at = address(before.y)
    before.y.fill(7)
    before.close()
    assert before.x.size == before.y.size == 0
    after, x = opened(memory, transfer, 10)
    assert address(after.y) == at
    assert np.isnan(after.y).all()
    np.testing.assert_array_equal(after.x, x)
    assert (after.x is x) == (transfer == "pageable")
    large = 4 * 10 * (2 * 6 * 6), 4 * 10 * (3 * 4 * 4)
    assert [nbytes for nbytes in locked if nbytes >= LARGE] == list(large if transfer == "pinned" else ())


def test_kept_arrays_are_freed_between_layers():
    freed = []

    class Keeping(HostExecutor):
        def free_cached_arrays(self):
            freed.append(True)

    points = [point_of(batch_of("alexnet", layer, 1), "direct") for layer in (1, 1, 2)]
    runner = Runner(Keeping(), points, Settings())
    assert [(runner.layer(point).of.layer, len(freed)) for point in points] == [(1, 1), (1, 1), (2, 2)]


@pytest.mark.parametrize("rung", ["direct", "tiled-half", "mma-half"])  # one as they are, two in fp16
def test_images_are_converted_to_a_rungs_type_and_layout(monkeypatch, rung):
    monkeypatch.setattr(interface, "CHECKED_BYTES", 1)
    conv, taker = Conv(C=2, H=6, W=5, M=3, R=3, S=3), RUNGS[rung]
    x = np.random.default_rng(0).standard_normal(conv.x_shape(5)).astype("f4")
    array = interface.in_rung_layout(x, "x", taker)
    np.testing.assert_array_equal(array, from_study(x.astype(taker.dtype), taker.layout))
    assert (array.dtype, array.flags.c_contiguous) == (np.dtype(taker.dtype), True)
    assert (array is x) == (rung == "direct")
