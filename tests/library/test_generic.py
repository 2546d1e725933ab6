"""The kernels that take every shape, on the host executor against the reference."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alexconv.cpu_reference.reference import filter_norms, patch_norms, reference
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.kernels.problem import Problem
from alexconv.library import generic
from alexconv.library.arrays import view
from alexconv.planning.checks import Expected, MaxError
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

RUNTIME = HostRuntime()
SOURCE = Path(__file__).with_name("generic_on_host.cu")
AT = {"convolve_tiles": "tiles_at", "convolve_each": "each_at", "finish": "finish_at"}
SHAPES = {
    "every-feature": Conv(6, 11, 9, 20, 3, 2, 2, top=1, bottom=2, left=0, right=3, V=3, dilation_rows=2,
                          dilation_columns=3, groups=2, bias=True, relu=True),
    "depthwise": Conv(5, 7, 8, 10, 3, 3, 1, top=1, bottom=1, left=1, right=1, groups=5, bias=True),
    "tiles-with-rest": Conv(7, 9, 13, 70, 3, 3),
    "one-tap": Conv(4, 6, 6, 9, 1, 1, 2, relu=True),
}  # fmt: skip


@pytest.fixture(scope="module", params=[2, 4], ids=["fp16", "fp32"])
def module(request):
    module = RUNTIME.compile(SOURCE, {"ELEMENT_BYTES": request.param}, list(AT.values()))
    return module, np.dtype({2: "f2", 4: "f4"}[request.param])


def on_host(values):
    memory = RUNTIME.allocate(values.nbytes)
    memory.bytes[:] = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return memory


def launch(module, configuration, arrays):
    entry, grid, block, (words,) = configuration
    module.launch(AT[entry], grid, block, 0, [*arrays, on_host(np.array(words, np.int64))])
    return entry


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_matches_the_reference(module, name, last):
    kernels, dtype = module
    conv, N = SHAPES[name], 2
    random = np.random.default_rng(3)
    x, w, bias = (random.uniform(-1, 1, shape).astype(dtype) for shape in (conv.x_shape(N), conv.w_shape(), (conv.M,)))
    x[1, -1, 3, 3:5] = np.inf, np.nan
    y = np.full(conv.y_shape(N), np.nan, dtype)
    order = (0, 2, 3, 1) if last else (0, 1, 2, 3)
    memory = [on_host(values) for values in (x.transpose(order), w, bias, y.transpose(order))]
    back = np.argsort(order)
    source, target = (np.ascontiguousarray(values.transpose(order)).transpose(back) for values in (x, y))
    descriptors = [view(values, "x").descriptor for values in (source, w, target)]
    entry = launch(
        kernels, generic.convolution(conv, N, *descriptors), [*memory[:2], memory[2] if conv.bias else 0, memory[3]]
    )
    assert entry == ("convolve_each" if conv.M // conv.groups < generic.LEAST_FILTERS else "convolve_tiles")
    outputs = memory[3].array(dtype, y.transpose(order).shape).transpose(back)
    values, filters = x.astype("f4"), w.astype("f4")
    added = bias.astype("f4") if conv.bias else None
    error = MaxError()
    norms = patch_norms(conv, values), filter_norms(filters, added)
    error.add(outputs, Expected(reference(conv, values, filters, added), *norms))
    assert error.passes(PRECISIONS["fp16" if dtype == np.float16 else "fp32"].tolerance(conv.K)), error


def test_bias_residual_and_relu_are_applied_to_outputs(module):
    kernels, dtype = module
    conv = replace(SHAPES["one-tap"], bias=True)
    y = np.random.default_rng(0).uniform(-1, 1, conv.y_shape(2)).astype(dtype)
    y[0, 0, 0, 0] = np.nan
    bias = np.linspace(-1, 1, conv.M).astype(dtype)
    memory = on_host(y)
    residual = np.random.default_rng(1).uniform(-1, 1, y.shape).astype(dtype).transpose(0, 1, 3, 2)
    lying = view(y, "y").descriptor, view(residual, "residual").descriptor
    launch(kernels, generic.finish(conv, 2, *lying), [on_host(bias), on_host(residual.transpose(0, 1, 3, 2)), memory])
    summed = y.astype("f4") + residual.astype("f4") + bias.astype("f4")[:, None, None]
    np.testing.assert_array_equal(memory.array(dtype, y.shape), np.maximum(summed, 0).astype(dtype))


def test_silu_is_applied_to_outputs(module):
    kernels, dtype = module
    conv, y = Conv(4, 6, 6, 9, 1, 1, 2, silu=True), np.linspace(-90, 20, 2 * 9 * 3 * 3).astype(dtype)
    y = y.reshape(2, 9, 3, 3)
    memory, lying = on_host(y), view(y, "y").descriptor
    launch(kernels, generic.finish(conv, 2, lying, lying), [0, 0, memory])
    expected = (y / (1 + np.exp(-y.astype("f8")))).astype(dtype)
    np.testing.assert_allclose(memory.array(dtype, y.shape), expected, rtol=1e-3 if dtype == "f2" else 1e-5, atol=1e-30)


COPIES = {"copy_elements": "elements_at", "copy_transposed": "transposed_at"}
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


@pytest.fixture(scope="module", params=[2, 4], ids=["2 bytes", "4 bytes"])
def copies(request):
    source = Path(__file__).with_name("copy_on_host.cu")
    module = RUNTIME.compile(source, {"ELEMENT_BYTES": request.param}, list(COPIES.values()))
    return module, np.dtype({2: "u2", 4: "u4"}[request.param])


@pytest.mark.parametrize("border", [0, 2])
@pytest.mark.parametrize("shape", [(2, 70, 9, 11), (2, 33, 1, 65), (3, 8, 8, 8), (2, 3, 5, 7)], ids=str)
@pytest.mark.parametrize("turned", [(False, True), (True, False), (False, False)], ids=str)
def test_planes_are_copied_in_any_order_with_a_border(copies, turned, shape, border):
    (module, dtype), (N, C, H, W) = copies, shape
    padded = (N, C, H + 2 * border, W + border)
    x = np.random.default_rng(4).integers(1, 60000, shape).astype(dtype)
    y = np.full(padded, 65535, dtype)
    source, target = (
        np.ascontiguousarray(values.transpose(TO_NHWC)).transpose(TO_NCHW) if nhwc else values
        for values, nhwc in zip((x, y), turned, strict=True)
    )
    entry, grid, block, words = generic.copy(
        view(source, "x").descriptor, view(target, "y").descriptor, (border, border)
    )
    assert (entry == "copy_transposed") == (turned[0] != turned[1] and C >= generic.LEAST_TRANSPOSED)
    axes, blocks = words[:4], words[4:]
    memory = [
        on_host(values.transpose(TO_NHWC) if nhwc else values) for values, nhwc in zip((x, y), turned, strict=True)
    ]
    module.launch(
        COPIES[entry], grid, block, 0, [*memory, *(on_host(np.array(part, np.int64)) for part in (axes, *blocks))]
    )
    order = TO_NHWC if turned[1] else (0, 1, 2, 3)
    copied = memory[1].array(dtype, y.transpose(order).shape).transpose(np.argsort(order))
    expected = np.zeros(padded, dtype)
    expected[:, :, border : border + H, border : border + W] = x
    np.testing.assert_array_equal(copied, expected)


PREPARED = Conv(24, 9, 8, 40, 3, 2, top=1, left=1)


@pytest.mark.parametrize(
    "rung",
    [
        rung
        for rung in ALL_DIRECTIONS
        if rung.prepares_nhwc(Problem(rung.posed(PREPARED.toward(rung.direction)), 1, {}))
    ],
    ids=lambda rung: rung.name,
)
def test_filters_of_a_channels_last_model_lie_as_the_rung_prepares_them(rung):
    """As a forward rung prepares them, or after the copy that turns them, as a rung of dgrad does."""
    conv = PREPARED.toward(rung.direction)
    bound = BoundRung(rung, conv, rung.resolve(conv, {}))
    w = np.random.default_rng(5).uniform(-1, 1, conv.w_shape()).astype("f2")
    (prepare,), ((name, nbytes),) = bound.preparation(), bound.prepared_bytes().items()
    arrays = {"w": on_host(w), name: RUNTIME.allocate(nbytes)}
    kernels = RUNTIME.compile(rung.path, bound.macros, [prepare.entry])
    kernels.launch(prepare.entry, prepare.grid, prepare.block, 0, [arrays[name] for name in prepare.args])
    prepared, last = arrays[name].array("u2", (w.size,)), np.ascontiguousarray(w.transpose(TO_NHWC))
    if rung.direction == "forward":
        np.testing.assert_array_equal(prepared, last.view("u2").ravel())
        return
    source, target, first = generic.turned(view(last.transpose(TO_NCHW), "w").descriptor)
    entry, grid, block, (*axes,) = generic.copy(source, target, (0, 0))
    assert entry == "copy_transposed"
    turned = np.zeros(w.size, "u2")
    copier = RUNTIME.compile(Path(__file__).with_name("copy_on_host.cu"), {"ELEMENT_BYTES": 2}, [*COPIES.values()])
    memory = on_host(turned)
    begun = memory.pointer + first * 2
    copier.launch(COPIES[entry], grid, block, 0, [on_host(last), begun, on_host(np.array(axes, np.int64))], [memory])
    np.testing.assert_array_equal(memory.array("u2", turned.shape), prepared)
