"""Interfaces beyond ``conv2d``: ONNX's Conv, torch's own cases, features on the host, torch's operator if installed."""

import copy
from collections import OrderedDict

import numpy as np
import pytest

import alexconv
from alexconv.cpu_reference.reference import filter_norms, patch_norms, reference
from alexconv.library.calls import dtype_of
from alexconv.library.terms import explicit_padding, padding_of, terms_of
from alexconv.planning.checks import Expected, MaxError
from alexconv.precisions import PRECISIONS
from alexconv.shapes import Conv


def arange(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def exact(x, w, bias=None, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1, relu=False):
    """The reference's layer and output, and the norms of its patches and filters."""
    _, C, H, W = x.shape
    top, bottom, left, right = padding
    conv = Conv(C, H, W, *w.shape[:1], *w.shape[2:], stride[0], V=stride[1], top=top, bottom=bottom, left=left,
                right=right, dilation_rows=dilation[0], dilation_columns=dilation[1], groups=groups,
                bias=bias is not None, relu=relu)  # fmt: skip
    x, w = x.astype("f4"), w.astype("f4")
    bias = None if bias is None else bias.astype("f4")
    return conv, reference(conv, x, w, bias), (patch_norms(conv, x), filter_norms(w, bias))


def assert_right(y, x, w, precision="fp32", **terms):
    conv, expected, norms = exact(x, w, **terms)
    assert y.shape == expected.shape
    error = MaxError()
    error.add(y, Expected(expected, *norms))
    assert error.passes(PRECISIONS[precision].tolerance(conv.K)), (conv, error)


# The node tests of ONNX's operator Conv: shapes, attributes, and values to check by hand.
ONNX = {
    "basic_conv_with_padding": ((5, 5), {"pads": [1, 1, 1, 1]}, (1, 1, 1, 1), (1, 1), [12, 21, 27, 33, 24]),
    "basic_conv_without_padding": ((5, 5), {"pads": [0, 0, 0, 0]}, (0, 0, 0, 0), (1, 1), [54, 63, 72]),
    "conv_with_autopad_same": (
        *((5, 5), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
        *((1, 1, 1, 1), (2, 2), [12, 27, 24]),
    ),
    "conv_with_strides_padding": (
        *((7, 5), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        *((1, 1, 1, 1), (2, 2), [12, 27, 24]),
    ),
    "conv_with_strides_no_padding": (
        *((7, 5), {"pads": [0, 0, 0, 0], "strides": [2, 2]}),
        *((0, 0, 0, 0), (2, 2), [54, 72]),
    ),
    "conv_with_strides_and_asymmetric_padding": (
        *((7, 5), {"pads": [1, 0, 1, 0], "strides": [2, 2]}),
        *((1, 1, 0, 0), (2, 2), [21, 33]),
    ),
}


@pytest.mark.parametrize("name", ONNX)
def test_onnx_node_cases(name):
    plane, attributes, padding, stride, first_row = ONNX[name]
    x, w = arange(1, 1, *plane), np.ones((1, 1, 3, 3), np.float32)
    y = alexconv.onnx_conv(x, w, kernel_shape=[3, 3], backend="host", **attributes)
    np.testing.assert_array_equal(y[0, 0, 0], first_row)
    np.testing.assert_array_equal(y, exact(x, w, stride=stride, padding=padding)[1])


# torch's own module tests of Conv2d, and those that ONNX derives from them: constructor and input.
TORCHS = {
    "Conv2d": ((3, 4, (3, 2)), {}, (2, 3, 7, 5)),
    "strided": ((3, 4, (3, 3)), {"stride": (2, 2)}, (2, 3, 6, 6)),
    "padding": ((3, 4, (3, 3)), {"stride": (2, 2), "padding": (1, 1)}, (2, 3, 6, 6)),
    "dilated": ((3, 2, (3, 3)), {"stride": (2, 2), "padding": (1, 1), "dilation": (2, 2)}, (2, 3, 8, 8)),
    "no_bias": ((3, 4, (3, 2)), {"bias": False}, (2, 3, 6, 5)),
    "zero_batch": ((3, 4, (3, 2)), {}, (0, 3, 7, 5)),
    "groups": ((4, 6, (3, 2)), {"groups": 2}, (2, 4, 6, 5)),
    "depthwise": ((4, 4, (3, 3)), {"groups": 4}, (2, 4, 6, 6)),
    "depthwise_with_multiplier": ((4, 8, (3, 3)), {"groups": 4}, (2, 4, 6, 6)),
    "depthwise_strided": ((4, 4, (3, 3)), {"stride": (2, 2), "groups": 4}, (2, 4, 6, 6)),
    "depthwise_padded": ((4, 4, (3, 3)), {"padding": (1, 1), "groups": 4}, (2, 4, 6, 6)),
    "depthwise_dilated": ((4, 4, (2, 2)), {"dilation": (2, 2), "groups": 4}, (2, 4, 5, 5)),
    "pad_valid": ((2, 4, (3, 4)), {"padding": "valid"}, (2, 2, 6, 5)),
    "pad_same": ((2, 4, (3, 4)), {"padding": "same"}, (2, 2, 6, 5)),
    "pad_same_dilated": ((2, 4, (3, 4)), {"padding": "same", "dilation": 2}, (2, 2, 6, 5)),
    "stride_pair": ((3, 5, (2, 3)), {"stride": (3, 2), "padding": (1, 2)}, (2, 3, 9, 8)),
}


@pytest.mark.parametrize(("name", "precision"), [*((name, "fp32") for name in TORCHS), ("pad_same_dilated", "fp16")])
def test_torchs_module_cases(name, precision):
    (C, M, filters), options, shape = TORCHS[name]
    options = {"bias": True, "groups": 1, **options}
    dtype = {"fp32": "f4", "fp16": "f2"}[precision]
    sizes = shape, (M, C // options["groups"], *filters), (M,)
    random = np.random.default_rng(5)
    x, w, bias = (random.uniform(-1, 1, size).astype(dtype) for size in sizes)
    bias = bias if options.pop("bias") else None
    y = alexconv.conv2d(x, w, **options, precision=precision, bias=bias, backend="host")
    terms = terms_of(*(options.get(key, value) for key, value in (("stride", 1), ("padding", 0))), precision, "nchw",
                     options.get("dilation", 1))  # fmt: skip
    padding = explicit_padding(terms, shape[2:], filters)
    arguments = {"stride": terms.stride, "padding": padding, "dilation": terms.dilation, "groups": options["groups"]}
    if not len(x):
        assert y.shape == (0, M, 5, 4)
    else:
        assert_right(y, x, w, precision, bias=bias, **arguments)


@pytest.mark.parametrize("number", range(10))
def test_random_layers_with_every_feature_on_the_host(number):
    random = np.random.default_rng(number)
    precision = list(PRECISIONS)[number % len(PRECISIONS)]
    dtype = "f2" if precision in ("fp16", "half") else "f4"
    groups, C, M, R, S = (int(size) for size in random.integers(1, 4, 5))
    stride, dilation = (tuple(int(size) for size in random.integers(1, 4, 2)) for _ in range(2))
    padding = tuple(int(size) for size in random.integers(0, 4, 4))
    H, W = (int(size) for size in random.integers(10, 16, 2))
    x = random.uniform(-1, 1, (2, groups * C, H, W)).astype(dtype)
    w, bias = (random.uniform(-1, 1, size).astype(dtype) for size in ((groups * M, C, R, S), (groups * M,)))
    relu = bool(number % 2)
    terms = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "bias": bias}
    layer = alexconv.Conv2d(w, precision=precision, activation="relu" if relu else None, backend="host", **terms)
    assert_right(layer(x), x, w, precision, relu=relu, **terms)


LAYERS_WITH_GAPS = {
    "dilated": {"dilation": 2},
    "dilated and strided": {"dilation": (3, 2), "stride": (2, 3), "padding": 1},
    "dilated groups": {"dilation": (2, 3), "groups": 2, "padding": (0, 2, 1, 0)},
    "groups": {"groups": 3, "stride": 2},
    "depthwise": {"groups": 6, "dilation": 2},
    "stride pair": {"stride": (3, 2), "padding": 1},
}


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("layer", LAYERS_WITH_GAPS)
def test_no_infinity_between_taps_reaches_an_output(layer, precision):
    """NaN and infinities are where float64 has them: nothing multiplies a zero that is not the layer's."""
    arguments = {"groups": 1, **LAYERS_WITH_GAPS[layer]}
    random, dtype = np.random.default_rng(7), dtype_of(precision)
    x = random.uniform(-1, 1, (2, 6, 13, 12)).astype(dtype)
    w = random.uniform(-1, 1, (6, 6 // arguments["groups"], 3, 2)).astype(dtype)
    places = random.choice(x.size, 12, replace=False)
    x.reshape(-1)[places] = np.resize([np.inf, -np.inf, np.nan], 12)
    y = alexconv.conv2d(x, w, **arguments, precision=precision, backend="host")
    terms = terms_of(
        arguments.get("stride", 1), arguments.get("padding", 0), precision, "nchw", arguments.get("dilation", 1)
    )
    of_terms = {"stride": terms.stride, "padding": terms.padding, "dilation": terms.dilation}
    expected = exact(x, w, **of_terms, groups=arguments["groups"])[1]
    assert np.isfinite(expected).any() and not np.isfinite(expected).all()
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected))
    np.testing.assert_array_equal(np.where(np.isinf(y), y, 0), np.where(np.isinf(expected), expected, 0))


def test_one_axis_is_one_row():
    random = np.random.default_rng(5)
    x, w = random.uniform(-1, 1, (2, 3, 11)).astype("f4"), random.uniform(-1, 1, (4, 3, 3)).astype("f4")
    y = alexconv.onnx_conv(x, w, strides=[2], pads=[1, 2], dilations=[2], backend="host")
    assert_right(y[:, :, None], x[:, :, None], w[:, :, None], stride=(1, 2), padding=(0, 0, 1, 2), dilation=(1, 2))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"auto_pad": "SAME"}, "unknown auto_pad 'SAME': choose from NOTSET, SAME_UPPER, SAME_LOWER, VALID"),
        ({"pads": [1, 1]}, r"pads are 4 whole numbers from 0 to 2147483647, not \[1, 1\]"),
        ({"pads": [1, 1, 1, -1]}, "pads are 4 whole numbers"),
        ({"strides": [1]}, "strides are 2 whole numbers from 1 to 2147483647"),
        ({"dilations": [0, 1]}, "dilations are 2 whole numbers from 1 to 2147483647"),
        ({"kernel_shape": [3, 2]}, r"kernel_shape is \[3, 2\], but W has \(3, 3\)"),
        ({"pads": [1, 0, 0, 0], "auto_pad": "SAME_UPPER"}, "pads and auto_pad=SAME_UPPER exclude each other"),
        ({"group": 2}, "x has 1 channels, the filters have 1 in each of 2 groups"),
    ],
)
def test_attributes_that_make_no_sense(attributes, message):
    with pytest.raises(ValueError, match=message):
        alexconv.onnx_conv(arange(1, 1, 5, 5), np.ones((1, 1, 3, 3), "f4"), backend="host", **attributes)
    with pytest.raises(ValueError, match="W has 3 spatial axes"):
        alexconv.onnx_conv(arange(1, 1, 5, 5, 5), np.ones((1, 1, 3, 3, 3), "f4"))


def test_padding_has_many_spellings():
    spellings = [2, (2, 2), (2, 2, 2, 2), [[2, 2], (2, 2)], np.int64(2)]
    assert {padding_of(spelling) for spelling in spellings} == {(2, 2, 2, 2)}
    assert padding_of(((1, 2), (3, 4))) == padding_of((1, 2, 3, 4)) == (1, 2, 3, 4)
    upper, lower = (terms_of(2, kind, "fp32", "nchw") for kind in ("same", "same_lower"))
    assert explicit_padding(upper, (6, 5), (3, 3)) == (0, 1, 1, 1)
    assert explicit_padding(lower, (6, 5), (3, 3)) == (1, 0, 1, 1)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.mark.filterwarnings("default")  # torch's own warnings are no errors
def test_the_operator_of_torch_is_traced_and_has_gradients(torch):
    torch.manual_seed(0)
    x, w, bias = torch.randn(2, 4, 9, 8), torch.randn(6, 2, 3, 3), torch.randn(6)
    for padding in ((1, 2), (1, 2, 0, 1)):
        ours, theirs = ([array.clone().requires_grad_() for array in (x, w, bias)] for _ in range(2))
        y = alexconv.conv2d(*ours[:2], (2, 1), padding, bias=ours[2], activation="relu", groups=2)
        top, bottom, left, right = padding_of(padding)
        planes = torch.nn.functional.pad(theirs[0], (left, right, top, bottom))
        expected = torch.relu(torch.nn.functional.conv2d(planes, *theirs[1:], (2, 1), groups=2))
        for output in (y, expected):
            (output**2).sum().backward()
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-4)
    compiled = torch.compile(
        lambda x, w: alexconv.conv2d(x, w, padding="same", groups=2) + 1, fullgraph=True, backend="eager"
    )
    torch.testing.assert_close(compiled(x, w), torch.nn.functional.conv2d(x, w, padding="same", groups=2) + 1)
    for output in (x.requires_grad_(), x.detach().contiguous(memory_format=torch.channels_last)):
        torch.library.opcheck(
            torch.ops.alexconv.conv2d.default, (output, w, bias, [2, 1], [1, 1, 2, 2], [1, 1], 2, True, "fp32")
        )


def test_a_linear_layer_has_its_weights_of_now_whatever_their_address(torch):
    from alexconv.library.torch_face import PatchedLinear

    layer = PatchedLinear.of(torch.nn.Linear(512, 512), "fp32")
    for _ in range(50):
        with torch.no_grad():
            layer.weight.add_(0.123)
        layer._layer(None, None)
        layer.half()
        layer.float()  # rounded values, often where the others were
        filters, _ = layer._layer(None, None).filters.arrays
        assert torch.equal(torch.as_tensor(filters)[:, :, 0, 0], layer.weight)


def test_a_patched_model_says_what_it_left(torch):
    nn = torch.nn
    shared = nn.Conv2d(6, 6, 1)
    model = nn.Sequential(nn.Conv2d(4, 6, 3, padding="same"), nn.Sequential(shared, nn.ReLU(), shared),
                          nn.Conv2d(6, 6, 3, 2, 1, 1, 6, bias=False), nn.Conv2d(6, 4, 3, padding_mode="reflect"),
                          nn.Conv1d(2, 2, 1), nn.Conv2d(4, 4, 1).half(), nn.ConvTranspose2d(4, 4, 1))  # fmt: skip
    before, x, messages = model[:3](x_of(torch)).detach(), x_of(torch), []
    patching = alexconv.patch(model, say=messages.append)
    assert patching.replaced == ("0", "1.0", "1.2", "2")
    assert dict(patching.left) == {
        "3": "pads with mode 'reflect'",
        "4": "is a Conv1d, not a Conv2d",
        "5": "has parameters of torch.float16, precision fp32 takes torch.float32",
        "6": "is a ConvTranspose2d, not a Conv2d",
    }
    assert messages == [str(patching)]
    assert model[1][0] is model[1][2]
    assert list(model.state_dict()) == [
        *("0.weight", "0.bias", "1.0.weight", "1.0.bias", "1.2.weight", "1.2.bias", "2.weight"),
        *("3.weight", "3.bias", "4.weight", "4.bias", "5.weight", "5.bias", "6.weight", "6.bias"),
    ]
    for context in (torch.no_grad(), torch.inference_mode(), torch.enable_grad()):
        with context:
            torch.testing.assert_close(model[:3](x), before, rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        model[2].weight.mul_(2)
        torch.testing.assert_close(model[:3](x), 2 * before, rtol=1e-5, atol=1e-5)
    exported = torch.export.export(model[:3], (x,))
    assert sum("alexconv.conv2d" in str(node.target) for node in exported.graph.nodes) == 4
    with pytest.raises(ValueError, match="model is a convolution itself"):
        alexconv.patch(nn.Conv2d(1, 1, 1))
    with pytest.raises(ValueError, match="unknown precision 'bf16'"):
        alexconv.patch(model, "bf16")


def network(torch):
    """Batch norms and ReLUs after convolutions, and some whose input is not only a convolution's output."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.relu = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
            self.second, self.last = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8, affine=False)
            self.unused, self.own = nn.BatchNorm2d(8), nn.BatchNorm2d(8, track_running_stats=False)

        def forward(self, x):
            y = self.last(self.second(self.relu(self.norm(self.first(x)))))
            return self.relu(self.own(y) + x)  # so the one ReLU is needed

    torch.manual_seed(1)
    layers = nn.Conv2d(4, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), Block(), nn.Conv2d(8, 4, 1), nn.ReLU()
    model = nn.Sequential(*layers)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d) and norm.affine:
            nn.init.uniform_(norm.weight, -2, 2), nn.init.uniform_(norm.bias)
    with torch.no_grad():
        for _ in range(3):
            model(torch.randn(8, 4, 9, 9) + 1)  # running statistics
    return model.eval()


def test_batch_norms_and_relus_are_computed_with_the_convolutions_before_them(torch):
    model, x, messages = network(torch), x_of(torch), []
    model[3].own.eval()
    expected = model(x).detach()
    patching = alexconv.patch(model, fuse=True, say=messages.append)
    assert patching.replaced == ("0", "3.first", "3.second", "4") and patching.left == ()
    assert patching.fused == ("1", "3.norm", "3.last", "2", "3.relu", "5")
    reason = "does not only follow replaced convolutions"
    assert patching.unfused == tuple((name, reason) for name in ("3.relu", "3.unused", "3.own"))  # one of ReLU's calls
    what = "batch norms, activations, additions and concatenations"
    assert messages == [str(patching)] and f"6 {what} computed with them, 3 left alone" in messages[0]
    assert type(model[1]) is torch.nn.Identity and type(model[5]) is torch.nn.ReLU
    for context in (torch.no_grad(), torch.enable_grad()):
        with context:
            torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


def test_layers_that_cannot_be_fused_are_left(torch):
    nn = torch.nn

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.relu = nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU()

        def forward(self, x):
            y = self.conv(x)
            return self.relu(self.norm(y)) + y

    class Asks(Twice):
        def forward(self, x):
            return super().forward(x if x.sum() > 0 else -x)

    for kind, own in ((Twice, ("relu", "norm")), (Asks, ())):
        model = kind().eval()
        expected = model(x_of(torch)).detach()
        patching = alexconv.patch(model, fuse=True, say=str)
        assert patching.replaced == ("conv",) and patching.fused == ()
        reason = "is in a model that cannot be traced (TraceError: "
        left = [name for name, why in patching.unfused if why.startswith(reason)]
        assert patching.own == own and [*own, *left] in (["relu", "norm"], ["norm", "relu"])
        torch.testing.assert_close(model(x_of(torch)).detach(), expected, rtol=1e-5, atol=1e-5)
    with_hook = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)).eval()
    with_hook[1].register_forward_hook(lambda *arguments: None)
    assert alexconv.patch(with_hook, fuse=True, say=str).fused == ()
    with pytest.raises(ValueError, match="the model is in training mode"):
        alexconv.patch(nn.Sequential(nn.Conv2d(1, 1, 1)), fuse=True)


def test_additions_and_concatenations_are_computed_with_convolutions(torch):
    nn = torch.nn

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(4, 8, 1), nn.Conv2d(4, 3, 3, padding=1), nn.Conv2d(15, 15, 1)
            self.norm, self.pool, self.drop = nn.BatchNorm2d(8), nn.MaxPool2d(3, 1, 1), nn.Dropout()
            self.one, self.silu = nn.Conv2d(15, 15, 1), nn.SiLU()

        def forward(self, x):
            pooled = self.norm(self.a(x))
            both = torch.cat([pooled, self.pool(pooled)[:, :4], torch.relu(self.b(x))], 1)
            first = torch.cat([nn.functional.relu6(self.a(x)), pooled], dim=1)
            y = self.silu(self.c(both) + both)
            y += self.one(self.drop(y))
            return y.relu() + self.one(y).mean((2, 3), keepdim=True), first

    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv2d(4 * number, 4, 3, padding=1) for number in (1, 2, 3))
            self.pool = nn.MaxPool2d(1)

        def forward(self, x):
            parts = [self.pool(self.layers[0](x))]
            for layer in self.layers:
                parts.append(layer(torch.cat(parts, 1)))
            return torch.cat(parts, 1)

    torch.manual_seed(3)
    for model, count in ((Branches(), 6), (Growing(), 3)):
        model = model.eval()
        for order in (torch.contiguous_format, torch.channels_last):
            x = x_of(torch).contiguous(memory_format=order)
            patched = copy.deepcopy(model)
            patching = alexconv.patch(patched, fuse=True, say=str)
            assert len(patching.fused) == count
            with torch.no_grad():
                torch.testing.assert_close(patched(x), model(x), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(patched(x), model(x), rtol=1e-5, atol=1e-5)  # through the operator


def test_a_layer_is_not_computed_after_its_input_has_changed(torch):
    nn = torch.nn

    class Changing(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)

        def forward(self, x):
            y = self.a(x)
            rectified = torch.relu_(x)
            total = self.b(rectified) + y
            y.zero_()
            return torch.relu(total) + rectified + y

    torch.manual_seed(4)
    model = Changing().eval()
    with torch.no_grad():
        expected = model(x_of(torch))
        alexconv.patch(model, fuse=True, say=str)
        torch.testing.assert_close(model(x_of(torch)), expected)


def model_of(torch, forward):
    """A model in evaluation with some layers, whose forward is a function of torch, the model and x."""
    nn = torch.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.one, self.drop = (
                nn.Conv2d(4, 4, 1),
                nn.Conv2d(4, 4, 1),
                nn.Conv2d(4, 1, 1),
                nn.Dropout(),
            )
            self.norm, self.pool, self.linear = nn.BatchNorm2d(4), nn.MaxPool2d(1), nn.Linear(6, 3)
            self.few, self.indices = nn.Conv2d(4, 4, 1), nn.MaxPool2d(2, return_indices=True)
            self.register_buffer("factor", torch.ones(1))

        def forward(self, x):
            return forward(torch, self, x)

    torch.manual_seed(6)
    model = Model().eval()
    nn.init.uniform_(model.norm.running_mean), nn.init.uniform_(model.norm.running_var, 0.5, 2)
    return model


def changes_a_view(torch, model, x):
    y = model.a(x)
    x.view(-1).zero_()
    return torch.relu(y)


def changes_by_out(torch, model, x):
    y = model.a(x)
    torch.add(x, x, out=x)
    return torch.relu(y)


def changes_gates(torch, model, x):
    h = model.a(x)
    gates = torch.sigmoid(h)
    h.zero_()
    return x * gates + h


def adds_in_place(torch, model, x):
    x += 1
    y = shortcut = model.a(x)
    y += x
    return shortcut * 2 + y


def counts_in_place(torch, model, x):
    rows = before = x.shape[2]
    rows += 1
    return model.a(x)[:, :, :before] * rows


def adds_to_what_layers_read(torch, model, x):
    y = model.a(x)
    z = model.b(y)
    y += model.norm(model.few(z))
    y = torch.relu(y)
    x.add_(1)
    return torch.cat([y, model.one(x)], 1), y + 1, z


def changes_the_sum(torch, model, x):
    y, z = model.a(x), model.b(x)
    total = y + z
    z.zero_()
    return torch.relu(total) + z


def changes_a_view_of_one_part(torch, model, x):
    whole = torch.cat([x], 1)
    whole[:, :2].mul_(2)
    return model.a(x)


def returns_a_part(torch, model, x):
    y = model.a(x)
    return torch.cat([y, model.b(x)], 1), y.view(-1), y


def reads_folded_parameters(torch, model, x):
    return torch.nn.functional.conv2d(model.norm(model.a(x)), model.a.weight) * model.norm.weight[:, None, None]


def ordered(torch, model, x):
    return OrderedDict(y=model.a(x))


FORWARDS = {
    "a view changes": changes_a_view,
    "out= changes": changes_by_out,
    "gates change": changes_gates,
    "sums in place": adds_in_place,
    "numbers in place": counts_in_place,
    "sums in place of layers": adds_to_what_layers_read,
    "an addend changes": changes_the_sum,
    "a copy changes": changes_a_view_of_one_part,
    "a part is returned": returns_a_part,
    "parameters are read": reads_folded_parameters,
    "ordered outputs": ordered,
    "chunks": lambda torch, model, x: torch.cat(model.a(x).chunk(2, 1), 1),
    "a residual that broadcasts": lambda torch, model, x: torch.cat([model.one(x) + x, model.a(x)], 1),
    "a number is added": lambda torch, model, x: torch.relu(model.a(x) + x.shape[1]),
    "a number is gated": lambda torch, model, x: x.shape[1] * torch.sigmoid(model.a(x)),
    "a layer by name": lambda torch, model, x: torch.relu(model.norm(input=model.a(input=x))),
    "others by name": lambda torch, model, x: model.pool(input=model.drop(input=torch.sigmoid(input=model.a(x)) * x)),
    "linear by name": lambda torch, model, x: torch.nn.functional.gelu(model.linear(input=model.a(x))),
    "indices": lambda torch, model, x: model.indices(model.few(x.to(memory_format=torch.channels_last))),
    "random": lambda torch, model, x: model.a(x) * torch.rand(4, 1, 1),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_a_rewritten_graph_does_what_the_model_did(torch, name):
    model = model_of(torch, FORWARDS[name])
    patched = copy.deepcopy(model)
    alexconv.patch(patched, fuse=True, say=str)
    with torch.no_grad():
        for _ in range(2):
            inputs, outputs = [x_of(torch), x_of(torch)], []
            for module, x in zip((model, patched), inputs, strict=True):
                torch.manual_seed(7 + len(outputs) // 2)
                outputs.append(module(x))
            torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-5, atol=1e-5)
            assert type(outputs[1]) is type(outputs[0])
            torch.testing.assert_close(*inputs)


def test_a_rewritten_graph_has_the_models_modules_and_buffers_of_now(torch):
    model = model_of(torch, lambda torch, model, x: model.linear(torch.relu(model.a(x * (model.factor * 2)))))
    patched = copy.deepcopy(model)
    alexconv.patch(patched, fuse=True, say=str)
    with torch.no_grad():
        for change in (
            lambda model: model.factor.mul_(2),
            lambda model: setattr(model, "factor", model.factor * 2),
            lambda model: setattr(model, "linear", torch.nn.Identity()),
        ):
            change(model), change(patched)
            for other in (patched, copy.deepcopy(patched)):
                torch.testing.assert_close(other(x_of(torch)), model(x_of(torch)), rtol=1e-5, atol=1e-5)


def test_what_a_trace_does_not_see(torch):
    nn = torch.nn

    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(4, 4, 1)

        def forward(self, x, mask=None):
            return torch.relu(self.conv(x) if mask is None else self.conv(x) * mask)

    model, seen = nn.Sequential(nn.Sequential(nn.Conv2d(4, 4, 1), nn.Dropout()), Masked()).eval(), []
    model[0][1].train()  # Monte Carlo dropout
    model[0].register_forward_hook(lambda module, arguments, output: seen.append(output))
    patched, masked = copy.deepcopy(model), copy.deepcopy(model[1])
    assert alexconv.patch(patched, fuse=True, say=str).replaced == ("0.0", "1.conv")
    assert alexconv.patch(masked, fuse=True, say=str).fused == () and seen == []
    with torch.no_grad():
        for mask in (None, x_of(torch)):
            torch.testing.assert_close(masked(x_of(torch), mask), model[1](x_of(torch), mask), rtol=1e-5, atol=1e-5)
        for module in (model, patched):
            torch.manual_seed(8)
            seen.append(module(x_of(torch)))
        torch.testing.assert_close(seen[2:], seen[:2], rtol=1e-5, atol=1e-5)


def test_a_models_own_forward_stays(torch):
    model = model_of(torch, lambda torch, model, x: model.a(x))
    model.forward = lambda x: torch.relu(model.b(x))
    expected = model(x_of(torch)).detach()
    for _ in range(2):
        assert alexconv.patch(model, fuse=True, say=str).fused == ()
        torch.testing.assert_close(model(x_of(torch)).detach(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("default")
def test_gradients_and_traces_of_a_concatenation_whose_parts_are_kept(torch):
    def forward(torch, model, x):
        y = model.a(x)
        return torch.cat([y, model.b(model.norm(y) * y)], 1)

    model, grads = model_of(torch, forward), []
    patched = copy.deepcopy(model)
    assert "cat" in alexconv.patch(patched, fuse=True, say=str).fused
    for module in (model, patched):
        x = x_of(torch).requires_grad_()
        (module(x) ** 2).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        expected, x = model(x_of(torch)), x_of(torch)
        compiled = torch.compile(patched, backend="eager", fullgraph=True)
        for traced in (compiled, torch.export.export(patched, (x,)).module(), torch.jit.trace(patched, x)):
            torch.testing.assert_close(traced(x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("default")
def test_traces_and_transforms_see_a_patched_convolution(torch):
    model, x = torch.nn.Sequential(torch.nn.Conv2d(4, 4, 1)), x_of(torch)
    expected, make_fx = model(2 * x).detach(), torch.fx.experimental.proxy_tensor.make_fx
    alexconv.patch(model, say=str)
    with torch.no_grad():
        traces = torch.jit.trace(model, x), make_fx(model)(x), lambda x: torch.func.vmap(model)(x[:, None])[:, 0]
        for traced in traces:
            torch.testing.assert_close(traced(2 * x), expected, rtol=1e-5, atol=1e-5)
        with pytest.raises(RuntimeError, match="has no forward-mode gradients"):
            torch.func.jvp(model, (x,), (x,))


def test_a_patched_convolution_has_the_filters_of_now_whatever_their_address(torch):
    model, x = torch.nn.Sequential(torch.nn.Conv2d(64, 64, 1)), torch.rand(1, 64, 2, 2)
    alexconv.patch(model, say=str)
    with torch.no_grad():
        for _ in range(50):
            parameters = {name: torch.randn_like(values) for name, values in model.named_parameters()}
            y = torch.func.functional_call(model, parameters, (x,))
            expected = torch.nn.functional.conv2d(x, parameters["0.weight"], parameters["0.bias"])
            torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
            del parameters


def test_a_patched_convolution_has_the_layers_sizes_and_takes_an_image(torch):
    layer = torch.nn.Conv2d(4, 6, 3, 2, padding="valid")
    model, x = torch.nn.Sequential(layer), x_of(torch)[0]
    expected = model(x).detach()
    alexconv.patch(model, say=str)
    assert [getattr(model[0], name) for name in layer.__constants__] == [
        getattr(layer, name) for name in layer.__constants__
    ]
    for context in (torch.no_grad(), torch.enable_grad()):
        with context:
            torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5)


def test_a_bias_alone_is_trained(torch):
    layer = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3))
    layer[0].weight.requires_grad_(False)
    alexconv.patch(layer, say=str)
    y = layer(x_of(torch))
    y.sum().backward()
    torch.testing.assert_close(layer[0].bias.grad, torch.full((6,), float(y.numel() // 6)))


def test_a_value_is_derived_again_from_changed_parameters_and_not_copied(torch):
    from alexconv.library.torch_pixels import Derived

    parameter, other, made = torch.zeros(3), torch.zeros(3), iter(range(1, 5))

    def value(derived, *parameters):
        return derived.value(parameters, lambda: next(made))

    derived = Derived()
    assert value(derived, parameter, None) == value(derived, parameter, None) == 1
    assert value(derived, other, None) == 2
    other += 1
    assert value(derived, other, None) == 3
    assert value(copy.deepcopy(derived), other, None) == 4
    assert value(derived, other, None) == 3


def test_copies_of_a_patched_model_prepare_their_own_filters(torch):
    from alexconv.library.torch_face import PatchedLinear

    model = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3))
    alexconv.patch(model, say=str)
    linear = PatchedLinear.of(torch.nn.Linear(4, 6), "fp32")
    with torch.no_grad():
        y = model(x_of(torch))
        linear._layer(None, None)
        copied = copy.deepcopy(model)
        for layer, scale in ((model[0], ()), (linear, (None,))):
            prepared, none = (
                of._layers.value((of.weight, of.bias, *scale), dict) for of in (layer, copy.deepcopy(layer))
            )
            assert prepared and not none
        torch.testing.assert_close(copied(x_of(torch)), y, rtol=0, atol=0)


def test_what_kernels_between_convolutions_read(torch):
    from alexconv.library.torch_pixels import patched, readable

    x, values = x_of(torch), torch.zeros(16)
    assert readable(values, x) and readable(values[4:], x)
    assert not readable(values[1:], x) and not readable(values[::2], x) and not readable(values.to("meta"), x)
    with torch.inference_mode():
        norm = patched(torch.nn.BatchNorm2d(4).eval())
    factors, shifts = norm.factors()
    torch.testing.assert_close(factors, (norm.running_var + norm.eps).rsqrt().detach().clone())
    assert not shifts.any()


def test_linear_layers_over_pixels_are_convolutions_with_what_follows_them(torch, monkeypatch):
    from alexconv.library import torch_face

    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 12), nn.GELU(), nn.Linear(12, 4, bias=False))
            self.scale = nn.Parameter(torch.rand(4, 1, 1))

        def forward(self, x):
            return x + self.scale * self.body(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(4, 4, 1), Block()).eval()
    x = x_of(torch).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        expected = model(x)
        patching = alexconv.patch(model, fuse=True, say=str)
        assert patching.own == ("1.body.0", "1.body.1", "1.body.2", "add")
        torch.testing.assert_close(model(x), expected)  # by torch
        computed = []
        monkeypatch.setattr(torch_face, "takes", lambda *tensors: computed.append(tensors) or True)
        for factor in (1, 3):
            model[1].scale.mul_(factor)
            before = model[0](x)
            y = nn.functional.linear(before.permute(0, 2, 3, 1), model[1].body[0].weight, model[1].body[0].bias)
            y = nn.functional.linear(nn.functional.gelu(y), model[1].body[2].weight)
            torch.testing.assert_close(model(x), before + model[1].scale * y.permute(0, 3, 1, 2), rtol=1e-5, atol=1e-5)
        assert [len(tensors) for tensors in computed] == [1, 2] * 2


def test_the_end_of_a_residual_block_that_broadcasts_is_left(torch, monkeypatch):
    from alexconv.library import torch_face

    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, scale, images):
            super().__init__()
            self.body, self.scale, self.images = nn.Linear(4, 4), nn.Parameter(scale), images

        def forward(self, x):
            return x[: self.images] + self.scale * self.body(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    torch.manual_seed(5)
    monkeypatch.setattr(torch_face, "takes", lambda *tensors: True)
    x = torch.rand(2, 4, 4, 4).contiguous(memory_format=torch.channels_last)
    for scale, images in ((torch.rand(4), 2), (torch.rand(4, 1, 1), 1), (torch.rand(1), 2)):
        model = Block(scale, images).eval()
        with torch.no_grad():
            expected = model(x)
            alexconv.patch(model, fuse=True, say=str)
            torch.testing.assert_close(model(x), expected)


def x_of(torch):
    return torch.linspace(-1, 1, 2 * 4 * 7 * 6).reshape(2, 4, 7, 6)
