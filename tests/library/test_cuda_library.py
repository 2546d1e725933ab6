"""``alexconv.conv2d`` on a GPU: hundreds of random shapes against torch, streams, layouts, and no copies."""

import copy
import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product

import numpy as np
import pytest
from test_library import assert_right, random_case

import alexconv
from alexconv.cpu_reference.reference import filter_norms, patch_norms
from alexconv.executors.cuda.graphs import gc_paused
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import MICRO_BATCH
from alexconv.library import devices, operation, outputs, routes, workspaces
from alexconv.library.arrays import view
from alexconv.library.packets import Symbol
from alexconv.planning.checks import Expected, MaxError
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv
from alexconv.tune import auto

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # torch's own warnings are no errors

SHAPES = 300  # per precision, all different
WIDE = 24  # of the random planes
CHANNELS = (1, 2, 3, 4, 5, 8, 16, 24, 32, 64, 72, 128)
FILTERS = (1, 2, 7, 8, 12, 31, 32, 64, 96, 100, 130)


def shape(precision, number):
    """A random_case with more channels and filters, and whether it is channels_last."""
    generator = np.random.default_rng([list(PRECISIONS).index(precision), number])
    x, w, stride, padding = random_case(generator, largest=WIDE)
    C, M = int(generator.choice(CHANNELS)), int(generator.choice(FILTERS))
    N, _, H, W = x.shape
    x = generator.uniform(-1, 1, (N, C, H, W)).astype(np.float32)
    w = generator.uniform(-1, 1, (M, C, *w.shape[2:])).astype(np.float32)
    return x, w, stride, padding, bool(generator.integers(0, 2))


def planes(x, padding):
    rows, columns = padding
    return np.pad(x, ((0, 0), (0, 0), (rows, rows), (columns, columns)))


def conv_of(x, w, stride, padding):
    _, C, H, W = x.shape
    return Conv(C, H + 2 * padding[0], W + 2 * padding[1], *w.shape[:1], *w.shape[2:], stride)


@pytest.fixture(scope="module")
def compiled(torch):
    """The rungs of all cases, with their kernels compiled in parallel."""
    cases = [(*shape(precision, number), precision) for precision, number in product(PRECISIONS, range(SHAPES))]
    shapes = [
        alexconv.Shape(x.shape, w.shape, stride, padding, precision, channels_last=last)
        for x, w, stride, padding, last, precision in cases
    ]
    return set(alexconv.warm(shapes).rungs)


@pytest.fixture(autouse=True)
def waiting(monkeypatch):
    """First calls wait for their rung, unless a test says otherwise."""
    monkeypatch.setattr(operation, "IN_BACKGROUND", False)


def torchs_error(torch, y, x, w, stride, padding):
    """The largest error of y against torch's float32 output, in units of the norms, and the layer."""
    expected = torch.nn.functional.conv2d(x.float(), w.float(), stride=stride, padding=padding).cpu().numpy()
    values, filters = x.float().cpu().numpy(), w.float().cpu().numpy()
    conv = conv_of(values, filters, stride, padding)
    error = MaxError()
    norms = patch_norms(conv, planes(values, padding)), filter_norms(filters)
    error.add(y.cpu().numpy(), Expected(expected, *norms))
    return error, conv


@pytest.mark.parametrize("precision", PRECISIONS)
def test_random_shapes_match_torch(torch, compiled, precision):
    assert len(compiled) >= 4
    wrong = []
    for number in range(SHAPES):
        x, w, stride, padding, last = shape(precision, number)
        x, w = (torch.from_numpy(values).cuda().to(getattr(torch, PRECISIONS[precision].dtype)) for values in (x, w))
        if last:
            x = x.contiguous(memory_format=torch.channels_last)
        y = alexconv.conv2d(x, w, stride, padding, precision)
        assert y.is_contiguous(memory_format=torch.channels_last if view(x, "x").descriptor.lies("nhwc") else
                               torch.contiguous_format) or min(x.shape[1:]) == 1  # fmt: skip
        assert (y.dtype, y.device) == (x.dtype, x.device)
        error, conv = torchs_error(torch, y, x, w, stride, padding)
        reference = PRECISIONS["fp32"].tolerance(conv.K)  # torch's own error, in float32
        if not error.passes(PRECISIONS[precision].tolerance(conv.K) + reference):
            wrong.append((number, conv, len(x), last, error.scaled))
    assert wrong == []


@pytest.fixture
def pair(torch):
    generator = torch.Generator(device="cuda").manual_seed(0)
    x = torch.rand((8, 64, 27, 27), generator=generator, device="cuda") - 0.5
    return x, torch.rand((96, 64, 3, 3), generator=generator, device="cuda") - 0.5


def is_right(torch, y, x, w, padding, precision):
    error, conv = torchs_error(torch, y, x, w, 1, padding)
    return error.passes(2 * PRECISIONS[precision].tolerance(conv.K))


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_arrays_in_place_are_not_copied(torch, pair, precision, monkeypatch):
    x, w = (values.to(getattr(torch, PRECISIONS[precision].dtype)) for values in pair)
    if precision == "fp16":
        x = x.contiguous(memory_format=torch.channels_last)
    device = devices.gpu(0)
    copied, add_copy = [], device.add_copy

    def noted(recipe, source, *others):
        if isinstance(source[0], Symbol):  # not the filters, which are copied once
            copied.append(source)
        add_copy(recipe, source, *others)

    monkeypatch.setattr(device, "add_copy", noted)
    out = torch.empty((8, 96, 25, 25), dtype=x.dtype, device="cuda")
    if precision == "fp16":
        out = out.contiguous(memory_format=torch.channels_last)
    address = out.data_ptr()
    layer = alexconv.Conv2d(w, precision=precision)
    assert layer(x, out=out) is out
    assert (out.data_ptr(), copied) == (address, [])
    assert is_right(torch, out, x, w, (0, 0), precision)


def test_filters_of_a_channels_last_model_are_read_in_place(torch, pair, monkeypatch):
    x, w = (values.half().contiguous(memory_format=torch.channels_last) for values in pair)
    device, launched = devices.gpu(0), []
    for name in ("add_copy", "add_launches"):
        add = getattr(device, name)
        monkeypatch.setattr(device, name, lambda *words, add=add, **more: (launched.append(words), add(*words, **more)))
    monkeypatch.setattr(operation, "IN_BACKGROUND", False)
    called = partial(alexconv.conv2d, x, w, (1, 1), (1, 1), "fp16")
    assert is_right(torch, called(), x, w, (1, 1), "fp16")
    assert len(launched) == 1  # the rung's, without preparation
    w.neg_()
    assert is_right(torch, called(), x, w, (1, 1), "fp16")


def test_any_strides_offsets_and_targets(torch, pair):
    x, w = pair
    odd = torch.zeros(x.numel() + 1, device="cuda")[1:].view(x.shape).copy_(x)  # not aligned to 16 bytes
    for source in (odd, x.transpose(2, 3), x[:, :, ::2, 1:], x[::2]):
        N, _, H, W = source.shape
        filters = w.transpose(2, 3)
        out = torch.full((N, W + 1, 96, H), torch.nan, device="cuda")[:, 1:].permute(0, 2, 3, 1)
        y = alexconv.conv2d(source, filters, padding=1, out=out)
        assert is_right(torch, y, source.contiguous(), filters.contiguous(), (1, 1), "fp32")


def test_work_is_on_torchs_stream(torch, pair):
    x, w = pair
    y = alexconv.conv2d(x, w, padding=1)
    expected = torch.nn.functional.conv2d(2 * x, w, padding=1)
    layer = alexconv.Conv2d(w, padding=1)
    layer(x)  # prepares its filters
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    outputs = []
    gc.collect()
    for stream in streams * 4:
        with torch.cuda.stream(stream), gc_paused():  # unloading an earlier test's kernels would wait for the device
            torch.cuda._sleep(1_000_000_000)  # half a second: longer than a busy host takes for the calls
            doubled = x * 2  # still to be computed when the call returns
            outputs.append((layer(doubled), alexconv.conv2d(doubled, w, padding=1)))
            assert not stream.query()
    torch.cuda.synchronize()
    for first, second in outputs:
        assert torch.equal(first, outputs[0][0]) and torch.equal(first, second)
        assert (first - expected).abs().max() < 1e-3
    assert (y - expected / 2).abs().max() < 1e-3


def test_kept_filters_are_waited_for_on_other_streams(torch, pair):
    x, w = pair
    for images in (8, 3):  # so that nothing below waits for the device
        alexconv.Conv2d(w)(x[:images])
    layer, expected = alexconv.Conv2d(3 * w), 3 * torch.nn.functional.conv2d(x[:3], w)
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        torch.cuda._sleep(100_000_000)
        layer(x)
    with torch.cuda.stream(second):
        y = layer(x[:3])  # has its own workspace, so that it waits only for the filters
        assert not first.query()
    torch.cuda.synchronize()
    assert len(layer.filters._prepared) == 1
    assert (y - expected).abs().max() < 1e-3


def test_a_copied_layer_has_filters_of_its_own(torch, pair):
    x, w = pair
    layer = alexconv.Conv2d(w.clone())
    y = layer(x)
    copied = copy.deepcopy(layer)
    layer.filters.arrays[0].zero_()
    assert torch.equal(copied(x), y)
    assert torch.equal(copied(x), layer(x))


def test_other_threads_may_call(torch, pair):
    x, w = pair
    layer = alexconv.Conv2d(w)
    expected = layer(x)
    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(y, expected) for y in pool.map(lambda _: layer(x), range(16)))


def test_the_first_call_may_come_from_a_thread():
    program = (
        "import threading, numpy as np, alexconv\n"
        "x, w = np.ones((2, 3, 8, 8), 'f4'), np.ones((4, 3, 3, 3), 'f4')\n"
        "found = []\n"
        "for _ in range(2):\n"
        "    thread = threading.Thread(target=lambda: found.append(alexconv.conv2d(x, w, backend='cuda')))\n"
        "    thread.start(); thread.join()\n"
        "found.append(alexconv.conv2d(x, w, backend='cuda'))\n"
        "print([float(y.max()) for y in found])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[27.0, 27.0, 27.0]\n"), done.stderr


def test_a_layer_too_large_for_the_fastest_rung_gets_another(torch, monkeypatch):
    device = devices.gpu(0)
    monkeypatch.setitem(device.__dict__, "workspace_bytes", int(4.5e6))
    forget()
    x, w = torch.rand((3, 1, 301, 301), device="cuda") - 0.5, torch.rand((3, 1, 3, 3), device="cuda") - 0.5
    assert is_right(torch, alexconv.conv2d(x, w, padding=1), x, w, (1, 1), "fp32")
    forget()


def forget():
    """Drops what was chosen for the memory so far."""
    for cached in (routes.chosen, routes.candidates, routes.route_of):
        cached.cache_clear()
    device = devices.gpu(0)
    with device.current():
        device._programs.clear()
        while device._drop_lane(but=None):
            pass


def test_new_kernels_and_full_memory_between_calls(torch, pair, monkeypatch):
    x, w = pair
    device = devices.gpu(0)
    expected = alexconv.conv2d(x, w, padding=1)
    monkeypatch.setitem(device.__dict__, "workspace_bytes", 4 << 20)  # a workspace or two, and pieces of the batch
    forget()
    for _ in range(3):
        for padding in (1, 2):
            y = alexconv.conv2d(x, w, padding=padding)
            assert (y[:, :, padding - 1 : padding + 26, padding - 1 : padding + 26] - expected).abs().max() < 1e-3
    assert any(len(loaded.plan.pieces) > 1 for loaded in device._programs.values())
    forget()


def test_micro_batches_match_torch(torch, monkeypatch):
    conv = Conv(C=3, H=23, W=23, M=16, R=5, S=5, U=2)
    rung = RUNGS["wgmma-window-scaled"]
    taken = auto.Choice(rung, rung.resolve(conv, {MICRO_BATCH: 32}), False)
    monkeypatch.setattr(auto, "choose", lambda *arguments: taken)
    forget()
    x, w = (torch.rand(shape, device="cuda") - 0.5 for shape in (conv.x_shape(170), conv.w_shape()))
    for source in (x, torch.nn.functional.pad(x, (0, 1))[..., :-1]):  # in place, and copied first
        y = alexconv.conv2d(source, w, stride=2, precision="tf32")
        error, _ = torchs_error(torch, y, source, w, 2, (0, 0))
        assert error.passes(PRECISIONS["tf32"].tolerance(conv.K))
    forget()


def test_layout_nhwc_and_host_arrays(torch, pair):
    x, w = pair
    turned = x.permute(0, 2, 3, 1).contiguous()
    y = alexconv.conv2d(turned.half(), w.half(), padding=1, precision="fp16", layout="nhwc")
    assert y.shape == (8, 27, 27, 96) and y.is_contiguous()
    assert is_right(torch, y.permute(0, 3, 1, 2), x.half(), w.half(), (1, 1), "fp16")
    values, filters = x.cpu(), w.cpu()
    y = alexconv.conv2d(values, filters, padding=1)
    assert y.device.type == "cpu"
    assert_right(y.numpy(), values.numpy(), filters.numpy(), 1, (1, 1), "fp32")
    y = alexconv.conv2d(values.numpy(), filters.numpy(), padding=1, backend="cuda")
    assert_right(y, values.numpy(), filters.numpy(), 1, (1, 1), "fp32")
    assert torch.equal(alexconv.conv2d(x, filters, padding=1), alexconv.conv2d(x, w, padding=1))


def test_one_object_follows_changes_between_calls(torch, pair):
    x, w = pair
    layer = alexconv.Conv2d(w)
    out = torch.empty((8, 96, 25, 25), device="cuda")
    odd = torch.empty(x.numel() + 1, device="cuda")[1:].view(x.shape)  # not aligned to 16 bytes
    odd_out = torch.empty(out.numel() + 1, device="cuda")[1:].view(out.shape)
    last = torch.empty_like(x, memory_format=torch.channels_last)
    for factor in (1, -2, 3):
        for source in (x.clone(), odd, last):
            source.copy_(factor * x)
            expected = torch.nn.functional.conv2d(source, w)
            for target in (None, out, odd_out):
                y = layer(source, out=target)
                assert target is None or y is target
                assert (y - expected).abs().max() < 1e-3
            assert (layer(source[:3]) - expected[:3]).abs().max() < 1e-3
    for _ in range(2):
        with pytest.raises(ValueError, match="out has shape"):
            layer(x, out=out[:3])
        with pytest.raises(ValueError, match="x is float16"):
            layer(x.half())
        with pytest.raises(ValueError, match="out is not supported for tensors that require gradients"):
            layer(x, out=out.clone().requires_grad_())


def test_filters_of_one_shape_share_a_workspace_and_not_their_values(torch, pair):
    x, w = pair
    several = [w, 2 * w, w.flip(0), w.transpose(2, 3)]
    expected = [torch.nn.functional.conv2d(x, filters) for filters in several]
    layers = [alexconv.Conv2d(filters) for filters in several]
    before = len(devices.gpu(0)._programs)
    for _ in range(3):
        for filters, layer, y in zip(several, layers, expected, strict=True):
            assert (layer(x) - y).abs().max() < 1e-3
            assert (alexconv.conv2d(x, filters) - y).abs().max() < 1e-3
    assert len(devices.gpu(0)._programs) <= before + 1


def test_tensor_maps_are_evicted_at_their_limit(torch, pair, monkeypatch):
    forget()
    monkeypatch.setattr(workspaces, "MOST_MAPS", 5)
    x, w = (values.half() for values in pair)
    x = torch.cat([x] * 4).contiguous(memory_format=torch.channels_last)
    layer = alexconv.Conv2d(w, precision="fp16")
    sources = [x * factor for factor in range(8)]
    expected = torch.nn.functional.conv2d(x.float(), w.float())
    for factor, source in enumerate(sources * 2):
        assert (layer(source).float() - factor % 8 * expected).abs().max() < 0.2
        (lane,) = devices.gpu(0)._lanes.values()
        assert 0 < sum(map(len, lane._maps.values())) <= 5 + len(RUNGS["wgmma-half"].maps)


def test_the_threads_context_stays_what_it_was(torch, pair):
    x, w = pair
    layer, out = alexconv.Conv2d(w), torch.empty((8, 96, 25, 25), device="cuda")
    expected = layer(x)
    device = devices.gpu(0)

    def current():
        return int(device.driver.cuCtxGetCurrent()[1])

    def call():
        device.driver.cuCtxSetCurrent(0)
        layer(x, out=out)
        return current()

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(call).result() == 0
    torch.cuda.synchronize()
    assert torch.equal(out, expected)
    before = current()
    layer(x, out=out)
    assert current() == before != 0


def test_other_libraries(torch, pair):
    class Interface:
        def __init__(self, tensor):
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    class Lender:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, stream=None):
            return self.tensor.__dlpack__(stream=stream)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    x, w = pair
    expected = alexconv.conv2d(x, w)
    torch.cuda.synchronize()
    for kind in (Interface, Lender):
        y = alexconv.conv2d(kind(x), kind(w))
        assert isinstance(y, outputs.DeviceArray)
        np.testing.assert_array_equal(y.numpy(), expected.cpu().numpy())
        assert torch.equal(torch.as_tensor(y, device="cuda"), expected)
    cupy = pytest.importorskip("cupy")
    y = alexconv.conv2d(cupy.from_dlpack(x), cupy.from_dlpack(w))
    assert isinstance(y, cupy.ndarray)
    np.testing.assert_array_equal(y.get(), expected.cpu().numpy())


def test_unsupported_torch_tensors_are_refused(torch, pair):
    x, w = pair
    with pytest.raises(ValueError, match="resolve_neg"):
        alexconv.conv2d(torch.complex(x, x).conj().imag, w)
    with torch.no_grad():
        alexconv.conv2d(x.clone().requires_grad_(), w)
    with pytest.raises(ValueError, match="x is in host memory, the filters on GPU 0"):
        alexconv.conv2d(x.cpu(), w)
    with pytest.raises(ValueError, match="x is on GPU 0, out in host memory"):
        alexconv.conv2d(x, w, out=torch.empty(8, 96, 25, 25))
    with pytest.raises(ValueError, match=r"x is torch\.bfloat16, not float32 or float16"):
        alexconv.conv2d(x.bfloat16(), w)
    assert alexconv.conv2d(x[:0], w).shape == (0, 96, 25, 25)
