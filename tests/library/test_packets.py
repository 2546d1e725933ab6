"""What a call enqueues: launches, addresses, streams and workspaces, with a stand-in for the driver; no GPU needed."""

import copy
import ctypes
import gc
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace

import choices as trials
import numpy as np
import pytest
from stand_ins import Machine, Tensor, Torch, compiled_driver

import alexconv
from alexconv.errors import CompileError, LaunchError
from alexconv.kernels import ladder
from alexconv.kernels.ladder import RUNGS
from alexconv.library import choices, devices, gradients, operation, routes, workspaces
from alexconv.library.calls import dtype_of
from alexconv.library.terms import Terms
from alexconv.planning import planner
from alexconv.shapes import Conv
from alexconv.tune import auto, estimate, measured
from alexconv.tune import cache as tuning_cache
from alexconv.tune.measured import Request

X, W, Y = 1 << 40, 1 << 41, 1 << 42
SMALL = {"x": (1, 256, 15, 15), "w": (384, 256, 3, 3)}  # for a rung with split-K: one launch
OF_A_SLICE = 512 * 169, 169, 13, 1  # strides, in an array of 512 channels
LARGE = {"x": (128, 256, 15, 15), "w": (384, 256, 3, 3)}  # for one with launches that prepare the input


class Status(IntEnum):
    """The driver's."""

    CUDA_ERROR_OUT_OF_MEMORY = 2


@pytest.fixture
def torch(monkeypatch):
    return Torch(monkeypatch)


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    return compiled_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def machine(driver, monkeypatch, torch):
    stand_in = Machine(driver, monkeypatch)
    torch.bindings = stand_in.bindings
    yield stand_in
    stand_in.close()


def layer_of(sizes, **terms):
    return alexconv.Conv2d(Tensor(sizes["w"], W), **terms)


def lying(strides, address):
    """An output of SMALL's layer, without padding in memory, or an array like it."""
    return Tensor((1, 384, 13, 13), address, strides=strides)


def on_device(shape, address, stream):
    """An array of no known library, on a stream."""
    fields = {"shape": shape, "typestr": "<f4", "data": (address, False), "version": 3, "stream": stream}
    return SimpleNamespace(__cuda_array_interface__=fields)


def names(launches):
    return [launch.entry for launch in launches]


def test_a_second_call_launches_the_rung_alone_on_its_arrays(machine):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    layer(x)
    assert names(machine.launched())[-1] == "mma_split"
    assert len(layer._operation._packets) == 1
    for address in (X, X + 4096):
        y = layer(Tensor(SMALL["x"], address))
        (launch,) = machine.launched()
        assert launch.entry == "mma_split"
        assert {address, y.address} <= set(launch.words)
    out = Tensor((1, 384, 13, 13), Y)
    assert layer(x, out) is out
    assert Y in machine.launched()[-1].words


def test_a_copy_of_a_layer_prepares_the_copied_filters(machine):
    class Filters(Tensor):
        __module__ = "torch"

        def __deepcopy__(self, memo):
            return Filters(self.shape, self.address + 4096)

    layer, x = alexconv.Conv2d(Filters(SMALL["w"], W)), Tensor(SMALL["x"], X)
    layer(x), machine.launched()
    copied = copy.deepcopy(layer)
    del layer
    copied(x)
    addresses = {word for launch in machine.launched() for word in launch.words}
    assert W + 4096 in addresses and W not in addresses


def test_only_launches_after_the_first_are_dependent(machine):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    dependent = []
    for _ in range(3):
        layer(x)
        dependent.append(machine.launched()[-1].dependent)
    assert dependent == [0, 61, 61]  # attribute 6, value 1


def test_a_captured_launch_is_dependent_only_after_a_kernel(machine, torch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    layer(x), machine.launched()
    machine.variable("capturing").value, torch.stream = 1, 0x7000
    dependent = []
    for nodes, kind in ((0, 0), (1, 0), (1, 2), (2, 0)):  # nodes that it depends on, and their type; 0 is a kernel
        machine.variable("dependencies").value, machine.variable("node_type").value = nodes, kind
        layer(x)
        dependent.append(machine.launched()[-1].dependent)
    assert dependent == [0, 61, 0, 0]


def test_a_rung_that_takes_padding_bias_and_relu_is_alone(machine):
    layer = layer_of(SMALL, padding=1, bias=Tensor((384,), 5 << 40), activation="relu")
    x = Tensor((1, 256, 13, 13), X)
    layer(x), machine.launched()
    y = layer(x)
    (launch,) = machine.launched()
    assert launch.entry == "mma_split" and {X, y.address} <= set(launch.words)


def test_a_residual_and_a_slice_of_channels_reach_the_rung(machine):
    layer = layer_of(SMALL, padding=1, bias=Tensor((384,), 5 << 40), activation="relu")
    x, out, residual = Tensor((1, 256, 13, 13), X), lying(OF_A_SLICE, 6 << 40), lying(OF_A_SLICE, 7 << 40)
    layer(x, out, residual), machine.launched()
    for moved in (0, 1 << 30):
        layer(x, lying(OF_A_SLICE, out.address + moved), lying(OF_A_SLICE, residual.address + moved))
        (launch,) = machine.launched()
        assert launch.entry == "mma_split" and {X, out.address + moved} <= set(launch.words)
        assert launch.words[-1] == residual.address + moved


def test_a_slice_of_channels_is_copied_from_where_the_rung_stores_it(machine, monkeypatch):
    layer, x, copied = layer_of({"w": (8, 5, 3, 3)}), Tensor((4, 5, 15, 15), X), []
    out, copy = Tensor((4, 8, 13, 13), Y, strides=(24 * 169, 169, 13, 1)), workspaces.generic.copy
    layer(x, out)
    (loaded,) = machine.gpu._programs.values()
    budget = loaded.bound.device_bytes(2)  # of pieces whose inputs are not aligned
    monkeypatch.setitem(machine.gpu.__dict__, "workspace_bytes", budget)
    monkeypatch.setattr(workspaces.generic, "copy", lambda *arrays: copied.append(arrays[0]) or copy(*arrays))
    machine.gpu._programs.clear(), layer._operation._packets.clear(), layer._operation._quick.clear()
    layer(x, out)
    of_outputs = [source for source in copied if source.shape[1] == 8]
    assert [(source.shape[0], source.strides[0]) for source in of_outputs] == [(2, 24 * 169)] * 2


def test_a_residual_in_another_order_is_added_after_the_rung(machine):
    layer = layer_of(SMALL, padding=1, bias=Tensor((384,), 5 << 40), activation="relu6")
    x, residual = Tensor((1, 256, 13, 13), X), lying((384 * 169, 1, 384 * 13, 384), 7 << 40)
    layer(x, None, residual), machine.launched()
    y = layer(x, None, residual)
    multiply, finish = machine.launched()
    assert (multiply.entry, finish.entry) == ("mma_split", "finish")
    assert finish.words[:3] == [0, residual.address, y.address] and y.address in multiply.words


def test_for_other_rungs_padding_is_copied_and_bias_and_relu_finish(machine, cache):
    rung, plain = RUNGS["igemm-async"], Conv(256, 15, 15, 384, 3, 3)
    assert not rung.takes
    best = tuning_cache.Best(rung, rung.resolve(plain, {}, 1), 0.001)
    tuning_cache.keep_best(machine.gpu.executor, plain, 1, best, print)
    layer = layer_of(SMALL, padding=1, bias=Tensor((384,), 5 << 40), activation="relu")
    x = Tensor((1, 256, 13, 13), X)
    layer(x), machine.launched()
    y = layer(x)
    copy, multiply, finish = machine.launched()
    assert (copy.entry, multiply.entry, finish.entry) == ("copy_elements", "igemm_async", "finish")
    assert copy.words[0] == X and copy.words[1] == multiply.words[0]
    assert finish.words[1:3] == [0, y.address] and finish.words[0] in machine.bindings.allocated


@pytest.mark.parametrize("sizes", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_an_explanation_names_the_rung_that_runs(machine, sizes, precision):
    x, w = Tensor(sizes["x"], X), Tensor(sizes["w"], W)
    explanation = alexconv.explain(x, w, padding=1, precision=precision)
    alexconv.conv2d(x, w, padding=1, precision=precision)
    rung = RUNGS[explanation.rung]
    assert set(names(machine.launched())) >= {launch.entry for launch in rung.launches}
    assert explanation.exceptions == rung.exceptions
    assert rung.precision == explanation.precision in (precision, "fp32")
    first, *others = explanation.candidates
    assert first.rung == explanation.rung and str(first) in str(explanation)
    assert all(other.us + other.copies >= first.us + first.copies for other in others)


def innermost(shape):
    """The strides of an array with its channels innermost."""
    _, C, H, W = shape
    return C * H * W, 1, C * W, C


def test_floats_are_converted_where_that_and_products_of_halves_take_less_time(machine):
    """Channels innermost: a rung that reads floats in place, or a copy to the layout of one that multiplies halves."""
    shape = 32, 512, 28, 28
    x = Tensor(shape, X, strides=innermost(shape))
    for size, fastest in ((1, "nhwc"), (7, "nchw")):
        w = Tensor((512, 512, size, size), W)
        explanation = alexconv.explain(x, w, padding=size // 2, precision="tf32")
        first, *others = explanation.candidates
        assert (first.rung, first.layout) == (explanation.rung, fastest)
        assert {(candidate.layout, candidate.copies > 0) for candidate in (first, *others)} >= {
            ("nhwc", False),
            ("nchw", True),
        }
        alexconv.conv2d(x, w, padding=size // 2, precision="tf32")
        assert names(machine.launched()).count("copy_transposed") == (2 if first.copies else 0)


def test_the_choice_and_its_rivals_are_tried_each_once(machine):
    drawn = trials.cases(20, seed=3)
    assert drawn == trials.cases(20, seed=3) and {case.kind for case in drawn} == set(trials.KINDS)
    for case in drawn:
        first, *others = trials.likeliest(machine.gpu, case, most=4)
        assert first == routes.candidates(machine.gpu, trials.call(case))[0]
        assert len(others) <= 4 and (others or case.kind == "grouped")
        assert first not in others and len({routes.key_of(candidate, case.N) for candidate in others}) == len(others)


def test_depthwise_layers_are_computed_in_place_in_both_layouts(machine):
    shape, w = (4, 32, 28, 28), Tensor((32, 1, 3, 3), W)
    rungs = {launch.entry: rung for rung in RUNGS.values() if rung.family == "depthwise" for launch in rung.launches}
    for strides, layout in ((None, "nchw"), (innermost(shape), "nhwc")):
        alexconv.conv2d(Tensor(shape, X, strides=strides), w, padding=1, groups=32)
        (launch,) = machine.launched()
        assert rungs[launch.entry].layout == layout


def test_an_explanation_of_a_layer_with_two_groups_names_a_rung_on_tensor_cores(machine):
    x, w = Tensor((32, 96, 27, 27), X), Tensor((256, 48, 5, 5), W)
    explanation = alexconv.explain(x, w, padding=2, groups=2)
    assert RUNGS[explanation.rung].tensor_factors == "fp16"
    assert explanation.precision == "fp32"


def test_an_explanation_of_a_layer_that_no_rung_takes(machine, monkeypatch):
    monkeypatch.setattr("alexconv.library.explanation.candidates", lambda device, call: ())
    explanation = alexconv.explain(Tensor((2, 6, 9, 9), X), Tensor((9, 2, 3, 3), W), (1, 2), groups=3, precision="tf32")
    assert (explanation.rung, explanation.precision, explanation.exceptions) == (None, "fp32", ())
    assert "generic.cu" in explanation.reason


def test_one_generic_kernel_computes_what_no_rung_takes(machine, monkeypatch):
    monkeypatch.setattr(operation, "route_of", lambda device, call: routes.Route(None))
    alexconv.conv2d(Tensor((2, 6, 9, 9), X), Tensor((9, 2, 3, 3), W), (1, 2), dilation=2, groups=3)
    (launch,) = machine.launched()
    assert (launch.entry, launch.words[:3]) == ("convolve_each", [X, W, 0])


def test_captured_calls_of_the_generic_kernel_leave_nothing_behind(machine, torch, monkeypatch):
    monkeypatch.setattr(operation, "route_of", lambda device, call: routes.Route(None))
    layer, x = layer_of({"w": (9, 2, 3, 3)}, groups=3), Tensor((2, 6, 9, 9), X)
    layer(x)
    before, torch.stream = len(layer._operation._quick), 0x7000
    machine.variable("capturing").value = 1
    layer(x), layer(x)
    machine.library.end_graph()
    assert len(layer._operation._quick) == before == 1


def test_an_output_in_the_memory_of_what_is_read_is_refused(machine):
    layer, x = layer_of({"w": (256, 256, 3, 3)}, padding=1), Tensor(SMALL["x"], X)
    for _ in range(2):  # before and after a similar call
        with pytest.raises(ValueError, match="out and x have the same memory"):
            layer(x, x)
        with pytest.raises(ValueError, match="out and residual have the same memory"):
            layer(x, Tensor(SMALL["x"], Y), Tensor(SMALL["x"], Y))
        layer(x, Tensor(SMALL["x"], Y)), layer(x, Tensor(SMALL["x"], Y), x)
    empty = Tensor((0, 256, 15, 15), 0)
    assert layer(empty, empty) is empty


def test_kernels_for_every_shape_of_which_one_did_not_load_are_loaded_again(machine, monkeypatch):
    builds = [SimpleNamespace(source=name, macros={"ELEMENT_BYTES": 4}, compile=lambda: b"") for name in "ab"]
    monkeypatch.setattr(workspaces, "of_library", lambda arch: builds)
    monkeypatch.setattr(workspaces, "missing", lambda wanted: [])
    gpu, loaded = machine.gpu, []

    def load(cubin):
        loaded.append(len(loaded))
        if len(loaded) == 2:
            raise LaunchError("loading kernels: CUDA_ERROR_OUT_OF_MEMORY")
        return loaded[-1]

    monkeypatch.setattr(gpu.executor.gpu, "load", load)
    with pytest.raises(LaunchError):
        workspaces.Gpu.any_shape(gpu)
    assert workspaces.Gpu.any_shape(gpu).keys() == {("a", 4), ("b", 4)}


def test_filters_of_conv2d_are_prepared_in_each_call(machine):
    for address in (W, W + 64):
        alexconv.conv2d(Tensor(SMALL["x"], X), Tensor(SMALL["w"], address))
        launches = machine.launched()
        assert names(launches) == ["find_filter_exponents", "mma_split_filters", "mma_split"]
        assert launches[0].words[0] == launches[1].words[0] == address


def test_each_stream_has_its_own_workspace_and_calls_on_one_share_it(machine, torch):
    layer, x = layer_of(LARGE), Tensor(LARGE["x"], X)
    other, shorter = layer_of({"w": (128, 256, 3, 3)}), Tensor((64, *LARGE["x"][1:]), X)
    scratch = {}
    for stream in (0, 0x7000, 0x8000, 0x7000):
        torch.stream = stream
        for which, source in ((layer, x), (other, shorter)):
            which(source), machine.launched(), which(source)
            launches = machine.launched()
            assert {launch.stream for launch in launches} == {stream}
            scratch.setdefault(stream, set()).add(launches[0].words[1])
    assert [len(places) for places in scratch.values()] == [1, 1, 1]
    assert len(set.union(*scratch.values())) == 3


def test_counters_are_filled_once_for_each_stream(machine, torch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    for _ in range(2):
        for stream in (0, 0x7000):
            torch.stream = stream
            layer(x), layer(x)
    filled = [call for call in machine.bindings.calls if call[0] == "cuMemsetD8Async"]
    assert [(call[2], call[4]) for call in filled] == [(0xFF, 0), (0xFF, 0x7000)]


def test_a_larger_workspace_replaces_the_first_and_its_packets(machine):
    layer, x, small = layer_of(LARGE), Tensor(LARGE["x"], X), Tensor((64, *LARGE["x"][1:]), X)
    for source in (small, x, small):
        layer(source), layer(source)
    before = len(machine.bindings.allocated)
    machine.launched()
    layer(small), layer(x)
    places = {launch.words[1] for launch in machine.launched() if launch.entry == "prepare_input"}
    (place,) = places
    assert place in machine.bindings.allocated and len(machine.bindings.allocated) == before


def test_a_batch_is_cut_again_where_its_workspace_no_longer_fits(machine, torch, monkeypatch):
    layer, x = layer_of(LARGE), Tensor(LARGE["x"], X)
    layer(x), machine.launched(), layer(x)
    whole, most = len(machine.launched()), machine.gpu._lanes[0, 0].nbytes // 2
    allocate = machine.bindings.cuMemAlloc

    def short(nbytes):
        return allocate(nbytes) if nbytes < most else (Status.CUDA_ERROR_OUT_OF_MEMORY, 0)

    monkeypatch.setattr(machine.bindings, "cuMemAlloc", short, raising=False)
    monkeypatch.setattr(machine.gpu.executor, "memory_budget", lambda: most - 1)
    torch.stream = 0x7000
    layer(x), machine.launched(), layer(x)
    assert len(machine.launched()) > whole


def test_a_captured_graph_has_a_workspace_that_ends_with_it(machine, torch):
    layer, x = layer_of(LARGE), Tensor(LARGE["x"], X)
    torch.stream = 0x7000
    layer(x), layer(x)
    (eager,) = {launch.words[1] for launch in machine.launched() if launch.entry == "prepare_input"}
    machine.variable("capturing").value = 1
    before = len(machine.bindings.calls)
    layer(x), layer(x)
    (captured,) = {launch.words[1] for launch in machine.launched() if launch.entry == "prepare_input"}
    assert captured != eager
    assert not {call[0] for call in machine.bindings.calls[before:]} & {"cuStreamWaitEvent", "cuEventRecord"}
    assert machine.variable("mode_now").value == 0 and machine.variable("relaxed_calls").value > 0
    machine.library.end_graph()
    machine.variable("capture", ctypes.c_longlong).value = 78
    layer(x)
    assert captured not in machine.bindings.allocated and eager in machine.bindings.allocated


@pytest.fixture
def ended(machine, torch):
    """Address of an ended graph's workspace, which only a captured call or one that needs memory frees."""
    layer, x = layer_of(LARGE), Tensor(LARGE["x"], X)
    layer(x), machine.launched()
    torch.stream = 0x7000
    machine.variable("capturing").value = 1
    layer(x), layer(x)
    (address,) = {launch.words[1] for launch in machine.launched() if launch.entry == "prepare_input"}
    machine.library.end_graph()
    machine.variable("capturing").value = 0
    return address


def test_a_call_on_a_new_stream_keeps_an_ended_graphs_workspace(machine, torch, ended):
    before = set(machine.bindings.allocated)
    torch.stream = 0x8000
    layer_of(LARGE)(Tensor(LARGE["x"], X))
    assert ended in before and before < set(machine.bindings.allocated)


def test_an_ended_graphs_workspace_is_freed_before_those_of_streams(machine, torch, ended, monkeypatch):
    monkeypatch.setitem(machine.gpu.__dict__, "workspace_bytes", machine.gpu._reclaimable_bytes() + 4096)
    before = set(machine.bindings.allocated)
    torch.stream = 0x8000
    layer_of(LARGE)(Tensor(LARGE["x"], X))
    freed = before - set(machine.bindings.allocated)
    assert ended in freed
    streams = {lane.stream for lane in machine.gpu._lanes.values()}
    assert streams == {0, 0x8000}


def test_filters_of_a_first_call_that_is_captured_are_copied_beside_the_capture(machine, torch):
    torch.stream = 0x7000
    machine.variable("capturing").value = 1
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)  # with filters on the captured stream
    layer(x)
    launches = machine.launched()
    assert [launch.stream for launch in launches[:-1]] == [7] * (len(launches) - 1) and launches[-1].stream == 0x7000
    assert {call[-1] for call in machine.bindings.calls if call[0] == "cuEventRecord"} == {7}


def test_filters_on_the_default_stream_fail_during_a_blocking_capture(machine, torch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    torch.stream = 0x7000
    machine.variable("capturing").value = machine.variable("implicit", ctypes.c_longlong).value = 1
    with pytest.raises(LaunchError, match="the default stream cannot be used while"):
        layer(x)
    assert machine.variable("mode_now").value == 0 and machine.variable("capturing").value == 1
    machine.variable("capturing").value, torch.stream = 0, 0
    layer(x)
    assert names(machine.launched())[-1] == "mma_split"


def test_the_default_stream_is_refused_during_a_blocking_capture_which_stays_valid(machine, torch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    layer(x), layer(x)
    machine.variable("capturing").value = machine.variable("implicit", ctypes.c_longlong).value = 1
    for source, target in ((x, None), (on_device(SMALL["x"], X, 1), Tensor((1, 384, 13, 13), Y))):
        with pytest.raises(LaunchError, match="the default stream cannot be used while"):
            layer(source, target)
    assert machine.variable("capturing").value == 1


def call_and_forget_layers(machine):
    """Calls of new shapes, with arrays on another stream and of NumPy, whose layers, outputs and kernels then go."""
    for channels in (32, 64, 96):
        layer = layer_of({"w": (channels, 256, 3, 3)})
        layer(on_device(SMALL["x"], X, 0x8000)).numpy()
        alexconv.conv2d(np.ones((2, 8, 9, 9), np.float32), np.ones((channels, 8, 3, 3), np.float32), backend="cuda")
    del layer
    for function in (operation.cached_operation, routes.route_of, routes.chosen):
        function.cache_clear()
    gc.collect()


def test_what_another_thread_does_leaves_a_capture_valid(machine, torch, monkeypatch):
    monkeypatch.setattr(workspaces, "MOST_PROGRAMS", 1)
    call_and_forget_layers(machine)
    machine.variable("captured", ctypes.c_longlong).value = 0x7000
    machine.variable("capturing").value = 1
    with ThreadPoolExecutor(1) as threads:
        threads.submit(call_and_forget_layers, machine).result()
    call_and_forget_layers(machine)  # the capturing thread's own calls, on another stream
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    torch.stream = 0x8000
    layer(x), layer(x), layer(x)
    torch.stream = 0x7000
    layer(x)
    assert machine.launched()[-1].stream == 0x7000
    assert machine.variable("capturing").value == 1 and machine.variable("mode_now").value == 0


def test_a_capture_that_its_caller_breaks_leaves_all_else_usable(machine, torch):
    layer, x = layer_of(LARGE), Tensor(LARGE["x"], X)
    torch.stream = 0x7000
    machine.variable("captured", ctypes.c_longlong).value = 0x7000
    machine.variable("capturing").value = 1
    layer(x)
    (broken,) = {launch.words[1] for launch in machine.launched() if launch.entry == "prepare_input"}
    machine.variable("capturing").value = 2  # as after a synchronization by the caller
    with pytest.raises(LaunchError, match="capture has failed"):
        layer(x)
    torch.stream = 0x8000
    layer(x)
    assert machine.launched()[-1].stream == 0x8000
    machine.variable("capturing").value, torch.stream = 0, 0x7000
    machine.library.end_graph()
    layer(x)
    machine.variable("capturing").value = 1
    machine.variable("capture", ctypes.c_longlong).value = 78
    layer(x)
    assert {launch.stream for launch in machine.launched() if launch.entry == "prepare_input"} == {0x7000}
    assert broken not in machine.bindings.allocated


def test_new_arrays_of_other_libraries_are_allocated_while_a_graph_is_captured(machine, torch):
    machine.variable("capturing").value = 1
    y = layer_of(SMALL)(on_device(SMALL["x"], X, 0x7000))
    assert y.address in machine.bindings.allocated and machine.variable("mode_now").value == 0


def test_a_failed_capture_and_a_failed_launch_are_one_line(machine, torch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    layer(x), layer(x)
    machine.variable("status").value = 700
    with pytest.raises(LaunchError, match=r"^a launch: CUDA_ERROR_STAND_IN$"):
        layer(x)
    machine.variable("status").value, machine.variable("capturing").value, torch.stream = 0, 2, 0x7000
    with pytest.raises(LaunchError, match="capture has failed"):
        layer(x)


def test_first_calls_do_not_wait_for_a_compilation_and_later_ones_notice_its_end(machine, monkeypatch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    machine.gpu.building = Future()
    for _ in range(2):
        layer(x)
        assert names(machine.launched())[-1] == "convolve_tiles"
    machine.gpu.building.set_result(None)
    machine.gpu.building = None
    layer(x)
    assert names(machine.launched())[-1] == "mma_split"


def test_builds_for_every_shape_compile_after_what_calls_wait_for(monkeypatch):
    monkeypatch.setattr(workspaces, "cores", lambda: 1)
    compilers, ready, order = workspaces.Compilers(), threading.Event(), []
    jobs = [compilers.submit(ready.wait), compilers.submit(order.append, "for every shape", later=True)]
    jobs.append(compilers.submit(order.append, "of a call"))
    ready.set()
    for job in jobs:
        job.result()
    assert order == ["of a call", "for every shape"]


def dynamic(machine) -> list[bool]:
    """Of each loaded rung in order, whether it is in its build for every shape."""
    return [key.dynamic for key in machine.gpu._programs]


def test_a_build_for_every_shape_computes_first_calls_until_the_rung_is_compiled(machine):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    machine.gpu.building, machine.gpu.built = Future(), True
    for _ in range(2):
        layer(x)
        last = names(machine.launched())[-1]
        assert last in ("mma_split", "multiply", "compute_full_range", "copy_transposed") and dynamic(machine) == [True]
    machine.gpu.building.set_result(None)
    machine.gpu.building = None
    wait_for_rungs(layer)
    layer(x)
    assert dynamic(machine) == [True, False] and names(machine.launched())[-1] == "mma_split"


def wait_for_rungs(layer) -> None:
    for packet in layer._operation._packets.values():
        packet.waits.result(60)


def test_a_rung_is_chosen_in_the_background_where_a_build_for_every_shape_computes(machine, monkeypatch, cache):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    machine.gpu.built, choosing, choose = True, threading.Event(), routes.auto.choose

    def slow(*arguments):
        assert choosing.wait(60)
        return choose(*arguments)

    monkeypatch.setattr(routes.auto, "choose", slow)
    layer(x)
    assert dynamic(machine) == [True]
    choosing.set()
    wait_for_rungs(layer)
    layer(x)
    assert dynamic(machine) == [True, False]


def test_a_capture_takes_a_build_for_every_shape_rather_than_wait(machine, torch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    machine.gpu.building, machine.gpu.built = Future(), True
    machine.variable("capturing").value, torch.stream = 1, 0x7000
    layer(x)
    assert dynamic(machine) == [True] and not machine.gpu.building.done()


def test_a_machine_without_a_compiler_takes_builds_for_every_shape(machine, monkeypatch):
    monkeypatch.setattr(machine.gpu.executor, "toolkit", "")
    monkeypatch.setattr(machine.gpu, "build", lambda bound: None if bound.dynamic else pytest.fail("compiles"))
    machine.gpu.built = True
    layer_of(SMALL)(Tensor(SMALL["x"], X))
    assert dynamic(machine) == [True]


def test_without_a_bias_a_build_for_every_shape_gets_none(machine):
    machine.gpu.building, machine.gpu.built = Future(), True
    layer_of(SMALL)(Tensor(SMALL["x"], X))
    (loaded,) = machine.gpu._programs.values()
    storing = [launch for launch in loaded.bound.launches(1) if "bias" in launch.args]
    launched = [launch for launch in machine.launched() if launch.entry in {launch.entry for launch in storing}]
    assert launched and all(
        launch.words[configuration.args.index("bias")] == 0
        for launch, configuration in zip(launched, storing, strict=True)
    )


def test_an_explanation_names_the_build_that_computes_first_calls(machine):
    x, w = (Tensor(SMALL[name], address) for name, address in (("x", X), ("w", W)))
    assert "generic.cu" in alexconv.explain(x, w).reason
    machine.gpu.built = True
    assert "in its build for every shape" in alexconv.explain(x, w).reason


def test_a_capture_waits_for_a_compilation(machine, torch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    machine.gpu.building = Future()
    machine.gpu.building.set_running_or_notify_cancel()
    layer(x), machine.launched()
    machine.variable("capturing").value, torch.stream = 1, 0x7000
    compiled = []

    def compile_it() -> None:
        compiled.append(True)
        machine.gpu.building.set_result(None)

    threading.Timer(0.05, compile_it).start()
    layer(x)
    assert compiled
    assert names(machine.launched())[-1] == "mma_split"


@pytest.fixture
def queue(machine, monkeypatch, cache):
    """The queued compilations, which nothing begins, of the GPU's own way of building."""
    queue = []

    def submit(job, *arguments):
        queue.append(Future())
        return queue[-1]

    monkeypatch.setattr(workspaces.COMPILERS, "submit", submit)
    monkeypatch.setattr(type(machine.gpu), "build", workspaces.Gpu.build)
    monkeypatch.setattr(workspaces.nvcc, "cubin_path", lambda *_: cache / "no.cubin")  # whose name needs an nvcc
    return queue


def test_a_capture_does_not_wait_for_queued_compilations(machine, torch, queue, monkeypatch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    layer(x), machine.launched()
    built = []
    monkeypatch.setattr(machine.gpu.executor, "build", built.append)
    machine.variable("capturing").value, torch.stream = 1, 0x7000
    layer(x)
    assert queue[0].cancelled() and [bound.rung.name for bound in built] == ["mma-split"]
    assert names(machine.launched())[-1] == "mma_split"


def test_a_kernel_that_did_not_compile_is_compiled_again_by_a_later_call(machine, queue):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    layer(x)
    queue[0].set_exception(CompileError("nvcc was killed"))
    with pytest.raises(CompileError, match="nvcc was killed"):
        layer(x)
    layer(x)
    assert len(queue) == 2 and names(machine.launched())[-1] == "convolve_tiles"


def test_a_compilation_that_failed_is_raised_by_the_next_call(machine, monkeypatch):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    machine.gpu.building = Future()
    layer(x)
    machine.gpu.building.set_exception(LaunchError("nvcc said so"))
    monkeypatch.setattr(operation, "IN_BACKGROUND", False)
    with pytest.raises(LaunchError, match="nvcc said so"):
        layer(x)


def test_tensor_maps_are_kept_by_address(machine, monkeypatch):
    monkeypatch.setattr(workspaces, "MOST_MAPS", 6)
    shape = (128, 256, 15, 15)
    strides = (15 * 15 * 256, 1, 15 * 256, 256)
    layer = alexconv.Conv2d(Tensor(SMALL["w"], W, "float16"), precision="fp16")
    for address in (X, X, X + 4096, *range(X, X + 12 * 4096, 4096)):
        layer(Tensor(shape, address, "float16", strides))
        launch = machine.launched()[-1]
        assert launch.entry == "multiply" and address + 1 in launch.words  # the address of this array's map
    (lane,) = machine.gpu._lanes.values()
    assert sum(map(len, lane._maps.values())) <= 6 + 2


def test_tensor_maps_of_a_captured_call_are_uploaded_beside_the_capture(machine, torch):
    shape, strides = (128, 256, 15, 15), (15 * 15 * 256, 1, 15 * 256, 256)
    layer = alexconv.Conv2d(Tensor(SMALL["w"], W, "float16"), precision="fp16")
    layer(Tensor(shape, X, "float16", strides))
    torch.stream, machine.variable("capturing").value = 0x7000, 1
    before = len(machine.bindings.calls)
    layer(Tensor(shape, X, "float16", strides))
    copies = [call for call in machine.bindings.calls[before:] if call[0] == "cuMemcpyHtoDAsync"]
    assert copies and {call[-1] for call in copies} == {7}
    assert machine.variable("mode_now").value == 0


def test_warm_calls_make_no_descriptors_and_no_plans(machine, monkeypatch):
    layer, x, out = layer_of(SMALL), Tensor(SMALL["x"], X), Tensor((1, 384, 13, 13), Y)
    layer(x, out), layer(x, out)

    def never(*arguments, **more):
        raise AssertionError("a warm call looks nothing up")

    for name in ("view", "call_of", "route_of", "empty"):
        monkeypatch.setattr(operation, name, never)
    monkeypatch.setattr(devices, "gpu", never)
    assert layer(x, out) is out
    allocated = len(machine.bindings.allocated)
    before = len(machine.bindings.calls)
    layer(x, out)
    assert (len(machine.bindings.calls), len(machine.bindings.allocated)) == (before, allocated)


@pytest.mark.parametrize("other", [0, 6])  # none, as in a new thread, and another
def test_a_thread_of_another_context_keeps_it_and_its_call_is_enqueued_in_the_gpus_own(machine, other):
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    context = machine.variable("context", ctypes.c_longlong)
    layer(x), layer(x), machine.launched()
    context.value = other
    for out in (None, Tensor((1, 384, 13, 13), Y)):
        layer(x, out)
        assert names(machine.launched())[-1] == "mma_split"
        assert context.value == other


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_inputs_are_copied_only_if_the_rungs_need_another_layout(machine, precision):
    dtype = {"fp32": "float32", "fp16": "float16"}[precision]
    layer = alexconv.Conv2d(Tensor(LARGE["w"], W, dtype), precision=precision)
    x = Tensor(LARGE["x"], X, dtype)
    layer(x), machine.launched(), layer(x)
    copies = [name for name in names(machine.launched()) if name.startswith("copy")]
    assert len(copies) == {"fp32": 0, "fp16": 2}[precision]  # rungs of fp16 want nhwc


def test_numpys_staging_needs_no_torch(machine):
    x, w = np.ones((2, 8, 9, 9), np.float32), np.ones((16, 8, 3, 3), np.float32)
    assert alexconv.conv2d(x, w, backend="cuda").shape == (2, 16, 7, 7)
    assert names(machine.launched())


def test_a_tuned_rung_is_used(machine, cache):
    conv, rung = Conv(256, 15, 15, 384, 3, 3), RUNGS["igemm-async"]
    best = tuning_cache.Best(rung, rung.resolve(conv, {}, 1), 0.001)
    tuning_cache.keep_best(machine.gpu.executor, conv, 1, best, print)
    layer, x = layer_of(SMALL), Tensor(SMALL["x"], X)
    layer(x)
    assert names(machine.launched())[-1] == "igemm_async"


def test_warm_compiles_and_names_the_rungs(machine):
    shapes = [(SMALL["x"], SMALL["w"]), {"x": (2, 6, 9, 9), "filters": (9, 2, 3, 3), "groups": 3}]
    assert alexconv.warm(shapes).rungs == ("mma-split", "direct-any")
    loaded = machine.gpu.executor.loaded
    layer = layer_of(SMALL)
    layer(Tensor(SMALL["x"], X))
    assert machine.gpu.executor.loaded == loaded
    with pytest.raises(ValueError, match="groups is a whole number"):
        alexconv.warm([alexconv.Shape(SMALL["x"], SMALL["w"], groups=0)])
    for images in (0, -2):
        with pytest.raises(ValueError, match="a call without images has no kernel"):
            alexconv.warm([alexconv.Shape((images, *SMALL["x"][1:]), SMALL["w"])])


def test_a_choice_is_kept_on_disk(machine, cache, monkeypatch, capsys):
    def forgotten():
        for function in (routes.chosen, routes.candidates, routes.route_of, operation.cached_operation):
            function.cache_clear()
        alexconv.conv2d(Tensor(SMALL["x"], X), Tensor(SMALL["w"], W))
        return names(machine.launched())[-1]

    assert forgotten() == "mma_split"
    (path,) = (file for file in (cache / choices.PART).iterdir() if "mma-split" in file.read_text())
    with monkeypatch.context() as patched:
        patched.setattr(routes.auto, "choose", lambda *arguments: pytest.fail("chosen again"))
        assert forgotten() == "mma_split"
    path.write_text(path.read_text().replace("mma-split", "mma-tf32"))
    assert forgotten() == "mma_split"
    assert f"{path} is damaged (wrong checksum) and not used" in capsys.readouterr().err
    rung, conv = RUNGS["igemm-async"], Conv(256, 15, 15, 384, 3, 3)
    best = tuning_cache.Best(rung, rung.resolve(conv, {}, 1), 0.001)
    tuning_cache.keep_best(machine.gpu.executor, conv, 1, best, print)
    assert forgotten() == "igemm_async"  # newer measurements count
    monkeypatch.setattr(choices, "code", lambda: "other code")
    (cache / "tuning").joinpath(next((cache / "tuning").glob("*.json"))).unlink()
    assert forgotten() == "mma_split"


def test_choices_depend_on_all_code_that_makes_them():
    files = set(choices.code_files())
    assert {Path(module.__file__).resolve() for module in (auto, estimate, planner, ladder)} | {measured.TABLE} <= files


def test_a_choice_of_no_rung_is_kept_too_and_one_that_does_not_fit_is_not_used(machine, cache, monkeypatch):
    executor, conv = machine.gpu.executor, Conv(256, 15, 15, 384, 3, 3)
    request = Request(conv, 1, "fp32", "nchw")
    choices.keep(executor, request, None)
    assert routes.chosen(machine.gpu, conv, 1, "fp32", "nchw") is None
    routes.chosen.cache_clear()
    rung = RUNGS["igemm-async"]
    choices.keep(executor, request, auto.Choice(rung, rung.resolve(conv, {}, 1), False))
    assert choices.load(executor, request, 100 << 30).choice.rung is rung
    assert choices.load(executor, request, 1000) is None


def test_a_choice_made_where_memory_is_scarce_is_not_kept(machine, cache, monkeypatch):
    conv = Conv(256, 15, 15, 384, 3, 3)
    with monkeypatch.context() as scarce:
        scarce.setattr(machine.gpu.executor, "memory_budget", lambda: 1000)
        assert routes.chosen(machine.gpu, conv, 1, "fp32", "nchw") is None
    routes.chosen.cache_clear()
    assert routes.chosen(machine.gpu, conv, 1, "fp32", "nchw").rung.name == "mma-split"


LAYER_2 = Terms((1, 1), (2, 2, 2, 2))
DY, PLANES, TAPS = (128, 256, 27, 27), (128, 96, 27, 27), (256, 96, 5, 5)


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "channels_last"])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_gradients_are_launches_of_a_rung_on_the_tensors(machine, precision, last):
    dtype = dtype_of(precision).name
    terms = LAYER_2._replace(precision=precision)
    dy, x = (Tensor(shape, base, dtype, innermost(shape) if last else None) for shape, base in ((DY, X), (PLANES, Y)))
    filters = Tensor(TAPS, W, dtype)
    for call in (
        lambda: gradients.dgrad(dy, filters, (27, 27), terms),
        lambda: gradients.wgrad(x, dy, (5, 5), terms),
    ):
        y, first = call(), machine.launched()
        again, launches = call(), machine.launched()
        assert names(first) == names(launches)
        words = {word for launch in launches for word in launch.words}
        assert {again.address, again.address + 1} & words and y.address not in words
        assert {X, X + 1} & words  # a tensor map of the stand-in has the address after its array's
        assert y.shape == (PLANES if y.shape[0] == 128 else TAPS) and y.dtype == dtype
        copied = [launch for launch in launches if launch.entry.startswith("copy")]
        rung = {launch.entry for launch in launches} - {launch.entry for launch in copied}
        assert any(
            rung == {launch.entry for launch in (*gradient.prepare, *gradient.launches)}
            for gradient in ladder.GRADIENTS
        ), rung
    assert gradients.dgrad(dy, filters, (27, 27), terms).strides == (innermost(PLANES) if last else x_strides(PLANES))


def x_strides(shape):
    return Tensor(shape).strides


def test_halves_that_no_rung_takes_are_computed_as_floats_and_bytes_that_do_not_fit_by_torch(machine, monkeypatch):
    terms = Terms((4, 4), (0, 0, 0, 0), "fp16", groups=2)  # strided dgrad without groups has an fp16 rung
    dy, filters = Tensor((8, 96, 55, 55), X, "float16"), Tensor((96, 3, 11, 11), W, "float16")
    dx = gradients.dgrad(dy, filters, (227, 227), terms)
    assert (dx.shape, dx.dtype) == ((8, 6, 227, 227), "float16")
    launched = {*names(machine.launched())}
    (rung,) = [rung for rung in ladder.GRADIENTS if launched & {launch.entry for launch in rung.launches}]
    assert rung.dtype == "float32" and rung.direction == "dgrad"
    monkeypatch.setattr(gradients, "route_of", lambda device, call: routes.Route(None))
    printed = []
    monkeypatch.setattr(gradients, "say_once", printed.append)
    assert gradients.dgrad(dy, filters, (227, 227), terms) is None
    assert len(printed) == 1 and printed[0].startswith("no rung computes dgrad of Conv(") and "torch" in printed[0]


def test_a_bias_gradient_is_two_launches_on_dy(machine):
    dy = Tensor(DY, X)
    sums = gradients.bias_gradient(dy, LAYER_2)
    slices, partials = machine.launched()
    assert (slices.entry, partials.entry) == ("sum_slices", "sum_partials")
    assert slices.words[0] == X and slices.words[1] == partials.words[0] and partials.words[1] == sums.address
    assert slices.grid == (256, 4, 1)


def test_rungs_of_both_gradients_compile_from_the_forward_pass_on(machine, monkeypatch):
    started = []
    monkeypatch.setattr(machine.gpu, "loaded", lambda key, *, wait: started.append((key.conv.direction, wait)))
    gradients.start(Tensor(PLANES, Y), Tensor(TAPS, W), (True, True), LAYER_2)
    assert started == [("dgrad", False), ("wgrad", False)]
    gradients.start(Tensor(PLANES, Y), Tensor(TAPS, W), (False, True), LAYER_2)
    assert started[2:] == [("wgrad", False)]
