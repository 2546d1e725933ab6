"""What networks need of ``alexconv`` on a GPU: every feature, captured graphs, torch's operator and models."""

import copy
import gc
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

import alexconv
from alexconv.library import devices, operation, routes, workspaces
from alexconv.precisions import PRECISIONS

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # torch's own warnings are no errors

SHAPES = 500  # per precision


@pytest.fixture
def waiting(monkeypatch):
    """First calls wait for their rung."""
    monkeypatch.setattr(operation, "IN_BACKGROUND", False)


def uniform(torch, shape, dtype="float32", seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.rand(shape, generator=generator, device="cuda") * 2 - 1).to(getattr(torch, dtype))


@contextmanager
def captured_in(torch, graph):
    """Like torch.cuda.graph, but a failed capture leaves torch's stream and allocator as they were."""
    torch.cuda.synchronize()
    device, pool = torch.cuda.current_device(), torch.cuda.graph_pool_handle()
    with torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin(pool)
        try:
            yield
        except BaseException:
            abandon(torch, graph, device, pool)
            raise
        try:
            graph.capture_end()
        except RuntimeError:
            abandon(torch, graph, device, pool)
            raise


def abandon(torch, graph, device, pool):
    """Ends a capture that has failed."""
    for end in (graph.capture_end, lambda: torch._C._cuda_endAllocateToPool(device, pool), torch.cuda.synchronize):
        try:
            end()
        except (RuntimeError, AttributeError) as error:
            print(f"{type(error).__name__}: {error}")


def scaled_error(torch, y, x, w, bias=None, stride=1, padding=(0, 0, 0, 0), dilation=1, groups=1, relu=False):
    """The largest error against float64, over the norms of patch and filter."""
    top, bottom, left, right = padding
    planes = torch.nn.functional.pad(x.double(), (left, right, top, bottom))
    conv2d, w = torch.nn.functional.conv2d, w.double()
    exact = conv2d(planes, w, None if bias is None else bias.double(), stride, 0, dilation, groups)
    squares = conv2d(planes**2, torch.ones_like(w), None, stride, 0, dilation, groups)
    norms = w.flatten(1).norm(dim=1) ** 2
    if bias is not None:
        squares, norms = squares + 1, norms + bias.double() ** 2
    exact = torch.relu(exact) if relu else exact
    assert y.shape == exact.shape
    scale = (squares * norms[None, :, None, None]).sqrt()
    return float(((y.double() - exact).abs() / scale.clamp(min=1e-300)).max())


def case(torch, precision, number):
    """Arguments of a call with any of the features."""
    random = np.random.default_rng([list(PRECISIONS).index(precision), number])
    groups = int(random.choice([1, 1, 1, 2, 3, 8]))
    C, M = (groups * int(size) for size in (random.integers(1, 9), random.integers(1, 13)))
    R, S = (int(size) for size in random.integers(1, 5, 2))
    dilation = tuple(int(size) for size in random.integers(1, 3, 2)) if random.integers(0, 2) else (1, 1)
    padding = tuple(int(size) for size in random.integers(0, 4, 4))
    rows, columns = (R - 1) * dilation[0] + 1, (S - 1) * dilation[1] + 1
    H, W = (
        max(1, size - sum(zeros)) + int(random.integers(0, 20))
        for size, zeros in ((rows, padding[:2]), (columns, padding[2:]))
    )
    x = uniform(torch, (int(random.integers(1, 5)), C, H, W), PRECISIONS[precision].dtype, number)
    if random.integers(0, 2):
        x = x.contiguous(memory_format=torch.channels_last)
    w = uniform(torch, (M, C // groups, R, S), PRECISIONS[precision].dtype, number + 1)
    bias = uniform(torch, (M,), PRECISIONS[precision].dtype, number + 2) if random.integers(0, 2) else None
    stride = tuple(int(size) for size in random.integers(1, 4, 2))
    relu = bool(random.integers(0, 2))
    return x, w, {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias}, relu


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("alone", [True, False], ids=["generic.cu", "rungs"])
def test_residuals_and_slices_of_channels(torch, waiting, monkeypatch, precision, alone):
    """Channels 32 to 96 of 160, with a residual that lies as they do and one that does not, in each order of memory."""
    if alone:
        monkeypatch.setattr(operation, "route_of", lambda device, call: routes.Route(None))
    shape, filters, dtype = (3, 64, 14, 14), (64, 64, 3, 3), PRECISIONS[precision].dtype
    x, w, bias = (uniform(torch, size, dtype, 11) for size in (shape, filters, filters[:1]))
    whole = torch.nn.functional.conv2d(x.double(), w.double(), bias.double(), padding=1)
    for kind in (torch.contiguous_format, torch.channels_last):
        x = x.contiguous(memory_format=kind)
        for other in (torch.contiguous_format, torch.channels_last):
            array = torch.full((3, 160, 14, 14), 7.0, dtype=getattr(torch, dtype), device="cuda")
            array = array.contiguous(memory_format=kind)
            z = uniform(torch, (3, 160, 14, 14), dtype, 12).contiguous(memory_format=other)
            out, residual = array[:, 32:96], z[:, 32:96]
            layer = alexconv.Conv2d(w, padding=1, precision=precision, bias=bias, activation="relu")
            for _ in range(2):
                assert layer(x, out, residual) is out
            exact = torch.relu(whole + residual.double())
            scale = 64**0.5 * 3 * w.double().flatten(1).norm(dim=1)[None, :, None, None] + 1
            error = float(((out.double() - exact).abs() / scale).max())
            assert error <= PRECISIONS[precision].tolerance(w[0].numel())
            assert (array[:, :32] == 7).all() and (array[:, 96:] == 7).all()


@pytest.mark.parametrize("name", ["googlenet", "resnet18", "densenet121", "mobilenet_v2", "efficientnet_b0"])
def test_a_patched_network_of_torchvision_computes_what_it_did(torch, waiting, name):
    models = pytest.importorskip("torchvision").models
    torch.manual_seed(0)
    model = models.get_model(name, weights=None, **({"aux_logits": False} if name == "googlenet" else {}))
    model = model.eval().cuda().to(memory_format=torch.channels_last)
    x = uniform(torch, (2, 3, 64, 64)).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = copy.deepcopy(model).double()(x.double())
        alexconv.patch(model, fuse=True, say=str)
        y = model(x)
    assert float((y - expected).abs().max() / expected.abs().max()) < 1e-4


@pytest.mark.parametrize("precision", PRECISIONS)
def test_random_layers_with_every_feature(torch, precision, monkeypatch):
    """On the kernel that takes every shape; test_cuda_library.py tests the rungs."""
    monkeypatch.setattr(operation, "route_of", lambda device, call: routes.Route(None))
    wrong = []
    for number in range(SHAPES):
        x, w, terms, relu = case(torch, precision, number)
        y = alexconv.conv2d(x, w, precision=precision, activation="relu" if relu else None, **terms)
        error = scaled_error(torch, y, x, w, relu=relu, **terms)
        if not error <= PRECISIONS[precision].tolerance(w[0].numel()):
            wrong.append((number, x.shape, w.shape, terms, relu, error))
    assert wrong == []


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_rungs_get_padding_bias_and_relu(torch, waiting, precision):
    for number, (shape, filters) in enumerate([((1, 64, 13, 13), (96, 64, 3, 3)), ((40, 32, 17, 17), (64, 32, 3, 3))]):
        x, w, bias = (
            uniform(torch, size, PRECISIONS[precision].dtype, number + 7) for size in (shape, filters, filters[:1])
        )
        for kind in (torch.contiguous_format, torch.channels_last):
            x = x.contiguous(memory_format=kind)
            layer = alexconv.Conv2d(w, padding=(1, 2), precision=precision, bias=bias, activation="relu")
            for _ in range(3):
                y = layer(x)
                error = scaled_error(torch, y, x, w, bias, padding=(1, 1, 2, 2), relu=True)
                assert error <= PRECISIONS[precision].tolerance(w[0].numel())
                assert y.is_contiguous(memory_format=kind)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("images", [1, 40])
@pytest.mark.parametrize("last", [False, True], ids=["nchw", "channels_last"])
def test_a_captured_call_reads_its_inputs_current_values(torch, waiting, precision, images, last):
    x = uniform(torch, (images, 64, 17, 17), PRECISIONS[precision].dtype)
    if last:
        x = x.contiguous(memory_format=torch.channels_last)
    w, other = (uniform(torch, (96, 64, 3, 3), PRECISIONS[precision].dtype, seed) for seed in (1, 2))
    layer = alexconv.Conv2d(w, padding=1, precision=precision)
    layer(x), alexconv.conv2d(x, other, 1, 1, precision)
    graph, tolerance = torch.cuda.CUDAGraph(), PRECISIONS[precision].tolerance(w[0].numel())
    with captured_in(torch, graph):
        first, second = layer(x), alexconv.conv2d(x, other, 1, 1, precision)
        third = layer(x)
    del layer
    for seed in range(3, 6):
        x.copy_(uniform(torch, x.shape, PRECISIONS[precision].dtype, seed))
        other.copy_(uniform(torch, other.shape, PRECISIONS[precision].dtype, -seed % 97))
        graph.replay()
        for y, filters in ((first, w), (second, other), (third, w)):
            assert scaled_error(torch, y, x, filters, padding=(1,) * 4) <= tolerance


def test_replays_and_calls_beside_them_share_no_workspace(torch, waiting):
    x, w = uniform(torch, (48, 64, 27, 27)), uniform(torch, (96, 64, 3, 3), seed=1)
    layer = alexconv.Conv2d(w)
    expected, other = layer(x).clone(), layer(-2 * x).clone()
    graph, sources = torch.cuda.CUDAGraph(), (x, -2 * x)
    with captured_in(torch, graph):
        captured = layer(x)
    streams = [torch.cuda.Stream() for _ in range(3)]
    torch.cuda.synchronize()
    pairs = []
    for _ in range(20):
        with torch.cuda.stream(streams[0]):
            graph.replay()
            pairs.append((captured.clone(), expected))
        for stream, source, right in zip(streams[1:], sources, (expected, other), strict=True):
            with torch.cuda.stream(stream):
                pairs.append((layer(source), right))
    torch.cuda.synchronize()
    assert all(torch.equal(y, right) for y, right in pairs)


def test_a_first_call_may_be_captured(torch):
    x, w = uniform(torch, (3, 24, 19, 23)), uniform(torch, (40, 24, 3, 3), seed=1)
    graph = torch.cuda.CUDAGraph()
    layer = alexconv.Conv2d(w, padding=1)
    torch.cuda.synchronize()
    with captured_in(torch, graph):
        y, z = layer(x), alexconv.conv2d(x, w, padding=1)
    x.mul_(-3)
    graph.replay()
    for output in (y, z):
        assert scaled_error(torch, output, x, w, padding=(1,) * 4) <= PRECISIONS["fp32"].tolerance(w[0].numel())


def test_a_graphs_workspaces_are_freed_with_it(torch, waiting):
    x, w = uniform(torch, (64, 64, 29, 29)), uniform(torch, (96, 64, 3, 3), seed=1)
    layer, device = alexconv.Conv2d(w), devices.gpu(0)
    layer(x)

    def captures():
        return [lane for lane in device._lanes.values() if lane.life]

    def captured():
        graph = torch.cuda.CUDAGraph()
        with captured_in(torch, graph):
            layer(x)
        return graph

    gc.collect()
    graph = captured()
    (lane,) = (lane for lane in captures() if not lane.life.ended())
    assert lane.nbytes > x.nbytes // 2
    graph.replay()
    graph.reset()
    torch.cuda.synchronize()
    deadline = time.monotonic() + 30
    while not lane.life.ended() and time.monotonic() < deadline:  # the driver destroys a graph's objects in its time
        time.sleep(0.01)
    captured()  # a new lane frees those of ended graphs
    assert lane not in captures() and lane.nbytes == 0


def test_captures_succeed_beside_threads_that_call_new_shapes(torch, cache, monkeypatch):
    monkeypatch.setattr(workspaces, "MOST_PROGRAMS", 4)  # programs are dropped during captures, too
    pixels, filters = (
        uniform(torch, (1 << 20,), seed=seed) for seed in range(2)
    )  # torch allocates before the captures
    streams = [torch.cuda.Stream() for _ in range(8)]

    def call_new_shapes(number):
        for size in range(8, 20):
            C = 4 + 8 * number
            x, w = pixels[: C * size * size].view(1, C, size, size), filters[: 16 * C * 9].view(16, C, 3, 3)
            with torch.cuda.stream(streams[number]):
                alexconv.Conv2d(w, padding=1)(x)
                alexconv.conv2d(x, w)
            alexconv.conv2d(np.ones(x.shape, np.float32), np.ones(w.shape, np.float32), stride=2, backend="cuda")

    captured = []
    with ThreadPoolExecutor(len(streams)) as threads:
        calls = [threads.submit(call_new_shapes, number) for number in range(len(streams))]
        for size in range(30, 42):
            x, w = pixels[: 24 * size * size].view(1, 24, size, size), filters[: 40 * 24 * 9].view(40, 24, 3, 3)
            graph = torch.cuda.CUDAGraph()
            with captured_in(torch, graph):
                y = alexconv.Conv2d(w, padding=1)(x)
            graph.replay()
            captured.append((y.clone(), x, w))
        for call in calls:
            call.result()
    for y, x, w in captured:
        assert scaled_error(torch, y, x, w, padding=(1,) * 4) <= PRECISIONS["fp32"].tolerance(w[0].numel())


def test_a_capture_that_its_caller_breaks_leaves_calls_and_captures_usable(torch, waiting):
    x, w = uniform(torch, (2, 24, 17, 19)), uniform(torch, (40, 24, 3, 3), seed=1)
    layer, tolerance = alexconv.Conv2d(w), PRECISIONS["fp32"].tolerance(w[0].numel())
    with pytest.raises(RuntimeError), captured_in(torch, torch.cuda.CUDAGraph()):
        layer(x)
        torch.cuda.synchronize()
    assert scaled_error(torch, layer(x), x, w) <= tolerance
    graph = torch.cuda.CUDAGraph()
    with captured_in(torch, graph):
        y = layer(x)
    graph.replay()
    assert scaled_error(torch, y, x, w) <= tolerance


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread-local", "relaxed"])
@pytest.mark.parametrize("flags", [0, 1], ids=["blocking", "non-blocking"])
def test_a_stream_of_the_driver_is_captured(torch, waiting, mode, flags):
    x, w, out = (uniform(torch, shape) for shape in ((2, 32, 11, 11), (48, 32, 3, 3), (2, 48, 9, 9)))
    layer = alexconv.Conv2d(w)
    layer(x)
    driver = devices.gpu(0).driver
    _, stream = driver.cuStreamCreate(flags)
    torch.cuda.synchronize()
    assert int(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode(mode))[0]) == 0
    try:
        with torch.cuda.stream(torch.cuda.ExternalStream(int(stream))):
            layer(x, out=out)
    finally:
        _, graph = driver.cuStreamEndCapture(stream)
    _, executable = driver.cuGraphInstantiate(graph, 0)
    x.mul_(2)
    out.zero_()
    torch.cuda.synchronize()
    driver.cuGraphLaunch(executable, stream)
    torch.cuda.synchronize()
    assert scaled_error(torch, out, x, w) <= PRECISIONS["fp32"].tolerance(w[0].numel())
    driver.cuGraphExecDestroy(executable), driver.cuGraphDestroy(graph), driver.cuStreamDestroy(stream)


def test_first_calls_work_while_a_rung_compiles(torch, cache):
    x, w = uniform(torch, (2, 40, 15, 15)), uniform(torch, (56, 40, 3, 3), seed=1)
    layer, tolerance = alexconv.Conv2d(w, padding=1), PRECISIONS["fp32"].tolerance(w[0].numel())
    assert scaled_error(torch, layer(x), x, w, padding=(1,) * 4) <= tolerance
    (packet,) = layer._operation._packets.values()
    assert packet.waits is not None
    packet.waits.result()
    assert scaled_error(torch, layer(x), x, w, padding=(1,) * 4) <= tolerance
    layer(x)
    assert [packet.waits for packet in layer._operation._packets.values()] == [None]


def test_gradients_match_torch(torch):
    x, w, bias = (uniform(torch, shape) for shape in ((3, 8, 14, 15), (12, 4, 3, 3), (12,)))
    ours, theirs = ([array.clone().requires_grad_() for array in (x, w, bias)] for _ in range(2))
    y = alexconv.conv2d(*ours[:2], (2, 1), (1, 2), bias=ours[2], groups=2, activation="relu")
    expected = torch.relu(torch.nn.functional.conv2d(*theirs, (2, 1), (1, 2), 1, 2))
    for output in (y, expected):
        (output**2).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-3)


def test_a_model_is_patched_compiled_and_captured(torch, waiting):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 7, 2, 3, bias=False),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 32, 3, padding=1, groups=32),
        torch.nn.Conv2d(32, 48, 1),
        torch.nn.Conv2d(48, 48, 3, padding="same", dilation=2),
    )
    model = model.cuda().eval()
    x = uniform(torch, (4, 3, 64, 64))
    with torch.no_grad():
        expected, plain = model(x), copy.deepcopy(model)
        messages = []
        assert alexconv.patch(model, say=messages.append).replaced == ("0", "3", "4", "5")
        assert messages == ["4 convolutions replaced, 0 left alone"]
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)
        fused = copy.deepcopy(plain)
        assert alexconv.patch(fused, fuse=True, say=messages.append).fused == ("1", "2")
        torch.testing.assert_close(fused(x), expected, rtol=1e-4, atol=1e-4)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-4)
        graph = torch.cuda.CUDAGraph()
        with captured_in(torch, graph):
            y = model(x)
        graph.replay()
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
        expected = torch.nn.functional.conv2d(model[:5](x), 2 * model[5].weight, None, padding="same", dilation=2)
        model[5].weight.mul_(2)  # seen by the next call
        model[5].bias.zero_()
        torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


def test_two_devices(torch, waiting):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    x, w = uniform(torch, (5, 32, 15, 15)), uniform(torch, (48, 32, 3, 3), seed=1)
    layer = alexconv.Conv2d(w.cpu(), padding=1)
    outputs = [layer(x.to(f"cuda:{number}")) for number in (0, 1, 0, 1)]
    assert [y.device.index for y in outputs] == [0, 1, 0, 1]
    assert all(torch.equal(y.cpu(), outputs[0].cpu()) for y in outputs)
    assert torch.cuda.current_device() == 0
    with pytest.raises(ValueError, match="x is on GPU 1, the filters on GPU 0"):
        alexconv.conv2d(x.to("cuda:1"), w)
