"""``alexconv.conv2d`` on the host: right on any shape, clear where arrays do not fit, and no needless copies."""

import subprocess
import sys
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import alexconv
from alexconv.cpu_reference.reference import filter_norms, patch_norms, reference
from alexconv.errors import OutOfMemory
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.rung import TF32_OPERANDS
from alexconv.library import __main__ as warm
from alexconv.library import arrays, on_host
from alexconv.library.arrays import Descriptor, View, in_place, packed_strides, view
from alexconv.library.calls import call_of, dtype_of, memory_of, overlaps
from alexconv.library.terms import Terms
from alexconv.library.workspaces import Gpu
from alexconv.planning.checks import Expected, MaxError
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv

SHAPES = 25


def random_case(generator, largest=12):
    """x ``[N][C][H][W]`` and filters in float32, the stride and the padding."""
    R, S = generator.integers(1, 6, 2)
    padding = tuple(int(size) for size in generator.integers(0, 4, 2))
    H, W = (int(max(k - 2 * p, 1) + generator.integers(0, largest)) for k, p in zip((R, S), padding, strict=True))
    N, C, M = generator.integers(1, 5, 3)
    x = generator.uniform(-1, 1, (N, C, H, W)).astype(np.float32)
    w = generator.uniform(-1, 1, (M, C, R, S)).astype(np.float32)
    return x, w, int(generator.integers(1, 4)), padding


def assert_right(y, x, w, stride, padding, precision):
    """The max-error check of ``y`` ``[N][M][E][F]`` against the reference in float64."""
    rows, columns = padding
    planes = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (rows, rows), (columns, columns)))
    w = w.astype(np.float32)
    N, C, H, W = planes.shape
    M, _, R, S = w.shape
    conv = Conv(C, H, W, M, R, S, stride)
    assert y.shape == conv.y_shape(N)
    error = MaxError()
    error.add(y, Expected(reference(conv, planes, w), patch_norms(conv, planes), filter_norms(w)))
    assert error.passes(PRECISIONS[precision].tolerance(conv.K)), (conv, error)


@pytest.mark.parametrize("number", range(SHAPES))
def test_random_shapes_on_the_host(number):
    x, w, stride, padding = random_case(np.random.default_rng(number))
    precision = list(PRECISIONS)[number % len(PRECISIONS)] if number % 3 else "fp32"
    x, w = (values.astype(dtype_of(precision)) for values in (x, w))
    if number % 2:
        y = alexconv.conv2d(x, w, stride, padding, precision, backend="host")
    else:
        turned = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
        y = alexconv.conv2d(turned, w, stride, padding, precision, layout="nhwc", backend="host").transpose(0, 3, 1, 2)
    assert y.dtype == dtype_of(precision)
    assert_right(y, x, w, stride, padding, precision)


def case(shape=(2, 3, 7, 6), filters=(4, 3, 3, 2), dtype=np.float32):
    random = np.random.default_rng(0)
    return random.uniform(-1, 1, shape).astype(dtype), random.uniform(-1, 1, filters).astype(dtype)


def test_any_strides_will_do_and_out_is_returned():
    x, w = case((6, 7, 3, 2))
    x, w = x.transpose(3, 2, 1, 0)[:, :, ::-1], w[:, :, ::-1]
    out = np.empty((4, 5, 5, 2), np.float32).transpose(3, 0, 2, 1)
    y = alexconv.conv2d(x, w, out=out, backend="host")
    assert y is out
    assert_right(out, x, w, 1, (0, 0), "fp32")


def test_a_conv2d_serves_several_shapes_and_an_empty_batch():
    x, w = case()
    layer = alexconv.Conv2d(w, padding=1, backend="host")
    assert_right(layer(x), x, w, 1, (1, 1), "fp32")
    assert_right(layer(x[:1, :, :4]), x[:1, :, :4], w, 1, (1, 1), "fp32")
    assert layer(x[:0]).shape == (0, 4, 7, 7)


def test_a_conv2d_keeps_its_filters_whatever_becomes_of_the_array():
    x, w = case()
    filters = w.copy()
    layer = alexconv.Conv2d(filters, backend="host")
    for _ in range(2):
        assert_right(layer(x), x, w, 1, (0, 0), "fp32")
        filters[:] = np.nan


@pytest.mark.parametrize(
    ("shape", "strides", "overlap"),
    [
        ((2, 4, 5, 5), (100, 25, 5, 1), False),
        ((2, 4, 5, 5), (200, 50, -5, 1), False),
        ((2, 4, 5, 5), (1, 2, 8, 40), False),
        ((1, 1, 1, 1), (0, 0, 0, 0), False),
        ((1, 4, 5, 5), (0, 25, 5, 1), False),
        ((2, 4, 5, 5), (99, 25, 5, 1), True),
        ((2, 4, 5, 5), (100, 25, 4, 1), True),
        ((2, 4, 5, 5), (100, 25, -1, 1), True),
        ((2, 4, 5, 5), (100, 0, 5, 1), True),
    ],
)
def test_outputs_with_overlapping_elements_are_detected(shape, strides, overlap):
    assert overlaps(Descriptor(shape, strides, np.dtype("f4"), None)) == overlap


MALFORMED = [
    None,
    [],
    "array",
    *({"shape": value} for value in (None, 4, "abcd", (1, 2, 3, "4"), (1, 2, 3, 4.0), (1, 2, 3, -4))),
    *({"typestr": value} for value in (None, 4, "nonsense", "<f4\0", {})),
    *({"strides": value} for value in (4, "abcd", (1.0, 2, 3, 4), (None,) * 4)),
    *({"data": value} for value in (None, 4, (1,), (None, False), ("a", False), (-1, False), (0, False), (2**70, 1))),
    *({"stream": value} for value in ("a", -3, 1.5)),
]


@pytest.mark.parametrize("odd", MALFORMED, ids=str)
def test_a_malformed_interface_is_one_error(odd):
    values = OnDevice(**odd) if isinstance(odd, dict) else OnDevice()
    if not isinstance(odd, dict):
        values.__cuda_array_interface__ = odd
    with pytest.raises(ValueError, match=r"^x (has|names|is) ") as caught:
        view(values, "x")
    assert "\n" not in str(caught.value)


def test_dlpack_in_host_memory_is_numpys():
    class Lender:
        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

    x, w = case()
    assert_right(alexconv.conv2d(Lender(), w, backend="host"), x, w, 1, (0, 0), "fp32")


X, W = np.zeros((2, 3, 7, 6), np.float32), np.zeros((4, 3, 3, 2), np.float32)
PADDING = (
    "padding is a whole number from 0 to 2147483647, two of them (rows, columns), four (top, bottom, left, right), "
    "'same', 'same_lower' or 'valid', not"
)
READ_ONLY = np.zeros((2, 4, 5, 5), np.float32)
READ_ONLY.flags.writeable = False
ERRORS = {
    "x has 3 dimensions (3, 7, 6), not 4": {"x": X[0]},
    "filters has 2 dimensions (3, 2), not 4": {"filters": W[0, 0]},
    "x has 3 channels, the filters have 2": {"filters": W[:, :2]},
    "x is float64, but precision fp32 takes float32": {"x": X.astype(np.float64)},
    "x is >f4, but": {"x": X.astype(">f4")},
    "filters is float16, but precision tf32 takes float32": {"filters": W.astype(np.float16), "precision": "tf32"},
    "filters is float32, but precision fp16 takes float16": {"precision": "fp16"},
    "a filter of 3 x 2 is larger than the padded plane of 2 x 6": {"x": X[:, :, :2]},
    "a filter of 3 x 2 is larger than the padded plane of 7 x 1": {"x": X[..., :1]},
    "an array is empty: x has shape (2, 0, 7, 6)": {"x": X[:, :0]},
    f"{PADDING} -1": {"padding": -1},
    f"{PADDING} (1, -1)": {"padding": (1, -1)},
    f"{PADDING} 0.5": {"padding": 0.5},
    "stride is a whole number from 1 to 2147483647, or two of them, not 0": {"stride": 0},
    "stride is a whole number from 1 to 2147483647, or two of them, not (1, 1, 1)": {"stride": (1, 1, 1)},
    f"{PADDING} (1, 2, 3)": {"padding": (1, 2, 3)},
    f"{PADDING} ((1, 2), (3,))": {"padding": ((1, 2), (3,))},
    f"{PADDING} 'full'": {"padding": "full"},
    "dilation is a whole number from 1 to 2147483647, or two of them, not 0": {"dilation": 0},
    "groups is a whole number from 1 to 2147483647, not 0": {"groups": 0},
    "groups is a whole number from 1 to 2147483647, not (1, 1)": {"groups": (1, 1)},
    "x has 3 channels, the filters have 3 in each of 3 groups": {"groups": 3},
    "groups is 3, which does not divide 4 filters": {"groups": 3, "filters": W[:, :1]},
    "a filter of 9 x 2 with dilation 4 x 1 is larger than the padded plane of 7 x 6": {"dilation": (4, 1)},
    "unknown activation 'tanh': choose from None, relu": {"activation": "tanh"},
    "bias has 3 elements, there are 4 filters": {"bias": np.zeros(3, np.float32)},
    "bias has 2 dimensions (4, 1), not 1": {"bias": np.zeros((4, 1), np.float32)},
    "bias is float64, but precision fp32 takes float32": {"bias": np.zeros(4)},
    "bias is not contiguous: its stride is 2": {"bias": np.zeros(8, np.float32)[::2]},
    "unknown precision 'bf16': choose from fp32, fp32-tile, tf32, fp16, half": {"precision": "bf16"},
    "unknown precision ['fp32']: choose from fp32, fp32-tile, tf32, fp16, half": {"precision": ["fp32"]},
    "unknown layout 'chwn': choose from nchw, nhwc": {"layout": "chwn"},
    "unknown backend 'gpu': choose from auto, cuda, host": {"backend": "gpu"},
    "out has shape (2, 4, 5, 4), the output has (2, 4, 5, 5)": {"out": np.zeros((2, 4, 5, 4), np.float32)},
    "out has shape (2, 4, 5, 5), the output has (2, 3, 3, 4)": {
        "x": np.zeros((2, 5, 4, 3), np.float32),
        "layout": "nhwc",
        "out": np.zeros((2, 4, 5, 5), np.float32),
    },
    "out is float16, but precision fp32 takes float32": {"out": np.zeros((2, 4, 5, 5), np.float16)},
    "out is read-only": {"out": READ_ONLY},
    "elements of out may overlap": {
        "out": np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2, 4, 5, 5), (0, 0, 0, 0))
    },
}


@pytest.mark.parametrize("message", ERRORS)
def test_invalid_arguments_are_one_line(message):
    arguments = {"x": X, "filters": W, "backend": "host", **ERRORS[message]}
    with pytest.raises(ValueError) as caught:
        alexconv.conv2d(**arguments)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


HUGE = 2**31, 2**63, 2**64, 10**30, -(2**63), (1, 2**63)
NO_NUMBERS = None, 1.5, float("nan"), "1", b"1", [], {}, {1, 2}, 1j, np.float32(2), np.ones((2, 2), int), object(), int
NO_NAMES = 1, "", "FP32", b"fp32", ["fp32"], {}, np.array(["fp32", "relu"]), "x" * 10_000, "two\nlines"
NO_ARRAYS = [[[[1.0]]]], 1, 1.0, "array", b"", object(), np.float32(1), memoryview(b"abcd"), iter([X]), np.ndarray, {}
BAD_VALUES = [
    *product(("stride", "padding", "dilation", "groups"), (*HUGE, *NO_NUMBERS)),
    *product(("precision", "layout", "backend", "activation"), NO_NAMES),
    *product(("x", "filters", "bias", "out"), (X[0], X.astype(complex), X.astype(object), X[:0, :0], np.zeros(()))),
]


@pytest.mark.parametrize("number", range(len(BAD_VALUES)))
def test_any_bad_value_is_a_value_error_of_one_short_line(number):
    name, value = BAD_VALUES[number]
    for call in (alexconv.conv2d, layer_call):
        with pytest.raises(ValueError, match=r"^[^\n]{1,300}$") as caught:
            call(**{"x": X, "filters": W, "backend": "host", name: value})
        assert type(caught.value) is ValueError
        assert name in str(caught.value) or name in ("x", "filters")


@pytest.mark.parametrize("values", NO_ARRAYS, ids=lambda values: type(values).__name__)
@pytest.mark.parametrize("name", ["x", "filters", "bias", "out"])
def test_what_is_no_array_is_a_type_error(name, values):
    for call in (alexconv.conv2d, layer_call):
        with pytest.raises(TypeError, match=rf"^{name} is a \w+, not an array: [^\n]*$"):
            call(**{"x": X, "filters": W, "backend": "host", name: values})


def layer_call(x, filters, out=None, **terms):
    return alexconv.Conv2d(filters, **terms)(x, out)


@pytest.mark.parametrize(("name", "what"), [("X", X), ("W", W)])
def test_onnx_conv_refuses_the_same_values(name, what):
    with pytest.raises(TypeError, match=f"^{name} is a list, not an array"):
        alexconv.onnx_conv(**{"X": X, "W": W, name: what.tolist()})
    for attribute in ("strides", "dilations", "pads", "kernel_shape"):
        for value in (2, "ab", [2**63, 1], [1.5, 1], [1, 1, 1]):
            with pytest.raises(ValueError, match=rf"^{attribute} [^\n]*$"):
                alexconv.onnx_conv(X, W, **{attribute: value})


def far(*shape, dtype="f4"):
    """An array of that shape in four bytes."""
    return np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, (0,) * len(shape))


@pytest.mark.parametrize(
    "shape", [5, (1, 2), {"x": X.shape}, (X[0].shape, W.shape), ((1, 2, 3, "4"), W.shape), (X.shape, W.shape, 0)]
)
def test_a_shape_to_warm_up_that_makes_no_sense_is_a_value_error(shape):
    with pytest.raises(ValueError, match=r"^[^\n]*$"):
        alexconv.warm([shape])


def test_shapes_to_warm_up_are_several():
    with pytest.raises(ValueError, match=r"^shapes are several of alexconv.Shape, not 5$"):
        alexconv.warm(5)


def test_the_command_warm_names_itself_where_there_is_no_gpu(monkeypatch, capsys):
    monkeypatch.setattr("alexconv.executors.cuda.bindings.import_bindings", lambda: None)
    monkeypatch.setattr("alexconv.library.__main__.gpu", Gpu)
    assert warm.main([]) == 1
    assert capsys.readouterr().err.startswith("error: warm without --arch is for this machine's GPU: conv2d on a GPU ")


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_explanation_names_the_rung_that_the_cpu_runs(precision, dilation, monkeypatch):
    opened, open_rung = [], on_host.open_rung

    def noting(executor, cut, *rest):
        opened.append(cut.bound.rung)
        return open_rung(executor, cut, *rest)

    monkeypatch.setattr(on_host, "open_rung", noting)
    arguments = {"x": X.astype(dtype_of(precision)), "filters": W.astype(dtype_of(precision)), "precision": precision}
    explanation = alexconv.explain(**arguments, dilation=dilation, backend="host")
    assert not opened, "nothing runs"
    alexconv.conv2d(**arguments, dilation=dilation, backend="host")
    assert {rung.name for rung in opened} == {explanation.rung}
    assert explanation.precision in (precision, *PRECISIONS[precision].stricter)
    assert explanation.exceptions == opened[0].exceptions == ((TF32_OPERANDS,) if precision == "tf32" else ())
    assert explanation.rung in str(explanation) and explanation.reason in str(explanation)


def test_an_explanation_takes_and_refuses_the_arguments_of_a_call():
    assert "no images" in alexconv.explain(X[:0], W).reason
    with pytest.raises(ValueError, match="stride is a whole number"):
        alexconv.explain(X, W, 0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'"):
        alexconv.explain(X, W, size=3)


TOO_LARGE = {
    "output": {"x": far(2**20, 3, 2**12, 2**12)},
    "padding": {"padding": 2**20},
    "filters": {"filters": far(2**31 - 1, 3, 3, 2)},
    "patches": {"x": far(2**20, 3, 2**12, 2**12, dtype="f2"), "filters": W.astype("f2"), "precision": "half",
                "dilation": 2},
    "beyond addresses": {"padding": 2**30 - 8},
}  # fmt: skip


@pytest.mark.parametrize("name", TOO_LARGE)
def test_arrays_beyond_memory_are_out_of_memory_with_the_figure(name):
    with pytest.raises(OutOfMemory, match=r"^[^\n]*\d [KMGTPE]iB[^\n]*$"):
        alexconv.conv2d(**{"x": X, "filters": W, "backend": "host", **TOO_LARGE[name]})


def test_a_plane_beyond_32_bits_is_refused():
    with pytest.raises(ValueError, match="an axis has more than 2147483647 elements: x has shape"):
        alexconv.conv2d(X, W, padding=2**31 - 1, backend="host")


class OnDevice:
    """Claims to be on a GPU."""

    def __init__(self, **changed):
        self.__cuda_array_interface__ = {
            **{"version": 3, "shape": X.shape, "typestr": "<f4", "strides": None, "data": (4096, False), "stream": 7},
            **changed,
        }


class Lent:
    """Claims through DLPack to be on a device of some kind; the memory is NumPy's."""

    def __init__(self, values, kind=2):
        self.values, self.kind, self.stream = values, kind, None

    def __dlpack_device__(self):
        return self.kind, 3

    def __dlpack__(self, stream=None):
        self.stream = stream
        return self.values.__dlpack__()


def test_the_cuda_array_interface_is_read():
    array = view(OnDevice(), "x")
    assert array == View(4096, Descriptor(X.shape, packed_strides(X.shape, "nchw"), np.dtype("f4"), 0), 7)
    assert view(OnDevice(stream=None), "x").stream == 1
    assert not view(OnDevice(data=(4096, True)), "out").descriptor.writable
    assert not view(OnDevice(data=(4104, False)), "x").descriptor.aligned
    assert view(OnDevice(strides=(504, 4, 72, 12)), "x").descriptor.lies("nhwc")


def test_the_cuda_array_interface_is_read_where_bindings_lack_a_driver(monkeypatch):
    def cuPointerGetAttribute(kind, address):
        raise RuntimeError("libcuda.so.1 is missing")

    attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9)
    bindings = SimpleNamespace(CUpointer_attribute=attribute, cuPointerGetAttribute=cuPointerGetAttribute)
    monkeypatch.setattr(arrays, "import_bindings", lambda: bindings)
    assert view(OnDevice(), "x").descriptor.device == 0


def test_dlpack_is_read():
    values = np.zeros((5, 7, 6, 3), np.float16)[1:].transpose(0, 3, 1, 2)
    lent = Lent(values)
    array = view(lent, "x")
    descriptor = array.descriptor
    assert (array.address, descriptor.shape, descriptor.dtype) == (values.ctypes.data, values.shape, np.float16)
    assert (descriptor.device, array.stream, lent.stream, array.waits) == (3, 1, 1, True)
    assert descriptor.lies("nhwc") and not descriptor.lies("nchw")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (OnDevice(mask=OnDevice()), "x has a mask"),
        (np.ma.MaskedArray(X), "x has a mask"),
        (OnDevice(stream=0), "stream 0"),
        (OnDevice(shape=(2, 3), strides=None), "x has 2 dimensions"),
        (OnDevice(strides=(504, 168, 24, 3)), "not multiples of its 4-byte elements"),
        (Lent(X.astype(np.int32)), "x has elements of DLPack's type"),
        (Lent(X, kind=10), "a device of DLPack's type 10"),
    ],
)
def test_device_arrays_that_cannot_be_used(values, message):
    with pytest.raises(ValueError, match=message):
        view(values, "x")


def test_out_of_memory_errors_give_the_figures(monkeypatch):
    monkeypatch.setattr(HostExecutor, "memory_budget", lambda self: 1000)
    on_host.chosen.cache_clear()
    with pytest.raises(OutOfMemory, match=r"direct-register: .* the budget is 0\.0"):
        alexconv.conv2d(X, W, backend="host")
    on_host.chosen.cache_clear()


def test_device_and_host_arrays_do_not_mix():
    with pytest.raises(ValueError, match="x is in host memory, the filters on GPU 0"):
        alexconv.conv2d(X, OnDevice(shape=W.shape))
    with pytest.raises(ValueError, match="x is on GPU 3, the filters on GPU 0"):
        alexconv.conv2d(Lent(X), OnDevice(shape=W.shape))
    with pytest.raises(ValueError, match="x is in host memory, out on GPU 0"):
        alexconv.conv2d(X, W, out=OnDevice(shape=(2, 4, 5, 5)))
    with pytest.raises(ValueError, match="x is on GPU 0, but backend host"):
        alexconv.conv2d(OnDevice(), W, backend="host")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.zeros((2, 3, 4, 5), "f4"), "nchw"),
        (np.zeros((2, 4, 5, 3), "f4").transpose(0, 3, 1, 2), "nhwc"),
        (np.zeros((2, 1, 4, 5), "f4"), "nchw"),
        (np.zeros((2, 3, 4, 10), "f4")[..., ::2], "nchw"),
    ],
)
def test_the_layout_of_memory_follows_from_strides(values, expected):
    assert memory_of(view(values, "x").descriptor) == expected


def test_arrays_in_a_rungs_layout_are_used_in_place():
    def lies(values, layout, aligned=True):
        return in_place(view(values, "x").descriptor._replace(aligned=aligned), layout)

    assert lies(X, "nchw") and not lies(X, "nhwc")
    assert lies(X[1:], "nchw")
    assert lies(np.zeros((2, 7, 6, 3), "f4").transpose(0, 3, 1, 2), "nhwc")
    assert not lies(X[:, :2], "nchw") and not lies(X[:, :, ::-1], "nchw")
    assert not lies(X, "nchw", aligned=False)


INPUT = Descriptor(X.shape, packed_strides(X.shape, "nchw"), np.dtype("f4"), 0)
FILTERS = Descriptor(W.shape, packed_strides(W.shape, "nchw"), np.dtype("f4"), 0)
OUTPUT = Descriptor((2, 4, 5, 5), packed_strides((2, 4, 5, 5), "nchw"), np.dtype("f4"), 0)
TERMS = Terms()


def test_calls_with_equal_descriptors_are_shared():
    call = call_of(TERMS, FILTERS, INPUT, OUTPUT)
    same = Descriptor(*INPUT)
    assert same is not INPUT
    assert call_of(Terms(*TERMS), FILTERS, same, OUTPUT) is call
    assert (call.conv, call.N, call.x, call.y) == (Conv(3, 7, 6, 4, 3, 2), 2, INPUT, OUTPUT)
    assert call_of(TERMS, FILTERS, INPUT, None).y == OUTPUT


@pytest.mark.parametrize(
    "changed",
    [
        (TERMS._replace(padding=(1, 1, 1, 1)), FILTERS, INPUT, None),
        (TERMS._replace(precision="tf32"), FILTERS, INPUT, OUTPUT),
        (TERMS, FILTERS, INPUT._replace(aligned=False), OUTPUT),
        (TERMS, FILTERS, INPUT, OUTPUT._replace(aligned=False)),
        (TERMS, FILTERS, INPUT._replace(strides=(126, 1, 18, 3)), OUTPUT),
        (TERMS, FILTERS._replace(device=None), INPUT, OUTPUT),
    ],
)
def test_a_different_descriptor_gives_a_different_call(changed):
    assert call_of(*changed) is not call_of(TERMS, FILTERS, INPUT, OUTPUT)


@pytest.mark.parametrize(
    ("x", "out", "message"),
    [
        (INPUT._replace(device=1), OUTPUT._replace(device=1), "x is on GPU 1, the filters on GPU 0"),
        (INPUT, OUTPUT._replace(device=1), "x is on GPU 0, out on GPU 1"),
        (INPUT, OUTPUT._replace(writable=False), "out is read-only"),
        (INPUT._replace(dtype=np.dtype("f2")), OUTPUT, "x is float16"),
        (INPUT, OUTPUT._replace(strides=(100, 0, 5, 1)), "elements of out may overlap"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_every_time(x, out, message):
    call_of(TERMS, FILTERS, INPUT, OUTPUT)
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            call_of(TERMS, FILTERS, x, out)


def test_a_call_in_nhwc_names_axes_as_the_study_does():
    x, out = (
        Descriptor((2, H, V, C), packed_strides((2, H, V, C), "nchw"), INPUT.dtype, 0)
        for H, V, C in ((7, 6, 3), (5, 5, 4))
    )
    call = call_of(TERMS._replace(layout="nhwc"), FILTERS, x, out)
    assert (call.memory, call.x.shape, call.y.shape) == ("nhwc", INPUT.shape, OUTPUT.shape)
    assert in_place(call.x, "nhwc") and in_place(call.y, "nhwc")
    assert call_of(TERMS._replace(layout="nhwc"), FILTERS, x, None).y == call.y


def test_importing_alexconv_imports_nothing_heavy():
    program = "import sys, alexconv; print([n for n in ('numpy', 'pycuda', 'alexconv.library') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'conv3d'"):
        alexconv.conv3d  # noqa: B018
