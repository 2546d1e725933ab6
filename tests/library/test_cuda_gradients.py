"""Gradients of ``conv2d`` on a GPU: bounds, hard data, the same bits, graphs, autocast, and a network that trains."""

import copy
from itertools import product

import numpy as np
import pytest

import alexconv
from alexconv.cpu_reference.reference import norms, reference
from alexconv.library import gradients, routes
from alexconv.planning.checks import Expected, MaxError
from alexconv.precisions import PRECISIONS
from alexconv.shapes import DGRAD, WGRAD, Conv

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # torch's own warnings are no errors

RUNS = 100
LAYERS = {
    "alexnet 3": Conv(256, 13, 13, 384, 3, 3, top=1, bottom=1, left=1, right=1),
    "stride 4": Conv(3, 63, 63, 96, 11, 11, 4),
    "groups, stride pair": Conv(32, 15, 14, 48, 3, 2, 2, top=1, left=1, right=2, V=1, groups=2),
    "depthwise, dilated": Conv(24, 17, 17, 24, 3, 3, top=2, bottom=2, left=2, right=2, dilation_rows=2,
                               dilation_columns=2, groups=24),
}  # fmt: skip
each_layer = pytest.mark.parametrize("layer", LAYERS)
each_precision = pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
N = 6


def arguments(conv):
    """conv2d's arguments for a layer."""
    return {"stride": conv.strides, "padding": conv.padding, "dilation": conv.dilation, "groups": conv.groups}


def tensors(torch, conv, precision, images=N, last=False, draw=None):
    """x, filters and bias, which require gradients, and dy."""
    random, dtype = np.random.default_rng(1), PRECISIONS[precision].dtype
    draw = draw or (lambda size: random.uniform(-1, 1, size))
    sizes = conv.x_shape(images), conv.w_shape(), (conv.M,), conv.y_shape(images)
    x, w, bias, dy = (torch.tensor(draw(size).astype(dtype), device="cuda") for size in sizes)
    if last:
        x, w, dy = (values.contiguous(memory_format=torch.channels_last) for values in (x, w, dy))
    return *(values.requires_grad_() for values in (x, w, bias)), dy


def gradients_of(torch, conv, precision, x, w, bias, dy):
    y = alexconv.conv2d(x, w, precision=precision, bias=bias, **arguments(conv))
    return torch.autograd.grad(y, (x, w, bias), dy)


def expected_of(conv, direction, x, w, dy):
    problem, values = conv.toward(direction), {"x": x, "w": w, "dy": dy}
    operands = [values[role].detach().float().cpu().contiguous().numpy() for role in (problem.roles.x, problem.roles.w)]
    with np.errstate(invalid="ignore", over="ignore"):
        return problem, reference(problem, *operands), norms(problem, *operands)


@each_precision
@each_layer
@pytest.mark.parametrize("last", [False, True], ids=["nchw", "channels_last"])
def test_gradients_keep_the_bound_of_their_class(torch, layer, precision, last):
    conv, row = LAYERS[layer], PRECISIONS[precision]
    x, w, bias, dy = tensors(torch, conv, precision, last=last)
    dx, dw, of_bias = gradients_of(torch, conv, precision, x, w, bias, dy)
    assert dx.is_contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    for direction, gradient in ((DGRAD, dx), (WGRAD, dw)):
        problem, exact, scale = expected_of(conv, direction, x, w, dy)
        error = MaxError()
        error.add(gradient.cpu().contiguous().numpy(), Expected(exact, *scale))
        assert gradient.dtype == x.dtype
        assert error.passes(row.tolerance(problem.products(N))), (direction, error)
    exact = dy.double().sum((0, 2, 3))
    norm = dy.double().square().sum((0, 2, 3)).sqrt() * (dy.numel() / conv.M) ** 0.5
    assert ((of_bias.double() - exact).abs() <= row.tolerance(dy.numel() // conv.M) * norm).all()


@each_layer
def test_integers_come_out_exactly_and_nan_and_infinity_as_in_float64(torch, layer):
    random, conv = np.random.default_rng(2), LAYERS[layer]
    x, w, bias, dy = tensors(torch, conv, "fp32", draw=lambda size: random.integers(-3, 4, size))
    for special in (False, True):
        if special:
            dy.view(-1)[:: dy.numel() // 7] = float("inf")
            dy.view(-1)[5 :: dy.numel() // 5] = float("nan")
        dx, dw, of_bias = gradients_of(torch, conv, "fp32", x, w, bias, dy)
        for direction, gradient in ((DGRAD, dx), (WGRAD, dw)):
            _, exact, _ = expected_of(conv, direction, x, w, dy)
            np.testing.assert_array_equal(gradient.cpu().numpy(), exact)
        np.testing.assert_array_equal(of_bias.cpu().numpy(), dy.double().sum((0, 2, 3)).float().cpu().numpy())


def scales(random, size):
    """Images, or filters, of very different magnitudes."""
    return random.uniform(-1, 1, size) * 2.0 ** random.integers(-30, 30, (size[0], *(1,) * (len(size) - 1)))


HARD = {
    "scales": scales,
    "heavy tail": lambda random, size: random.standard_cauchy(size),
    "all equal": lambda random, size: np.full(size, 0.1),
}


@each_layer
@pytest.mark.parametrize("data", HARD)
def test_hard_data_keeps_the_bound_for_every_input(torch, layer, data):
    random, conv = np.random.default_rng(3), LAYERS[layer]
    x, w, bias, dy = tensors(torch, conv, "fp32", draw=lambda size: HARD[data](random, size))
    dx, dw, _ = gradients_of(torch, conv, "fp32", x, w, bias, dy)
    for direction, gradient in ((DGRAD, dx), (WGRAD, dw)):
        problem, exact, (of_outputs, _) = expected_of(conv, direction, x, w, dy)
        bound = PRECISIONS["fp32"].bound(problem.products(N), "any", chain=problem.chain(N))
        error = np.abs(gradient.cpu().numpy().astype("f8") - exact)
        assert (error <= bound.factor * of_outputs + bound.absolute + 2.0**-24 * np.abs(exact)).all(), direction


@each_precision
@pytest.mark.parametrize("layer", ["alexnet 3", "stride 4"])
def test_gradients_have_the_same_bits_in_every_run_and_on_every_stream(torch, layer, precision):
    conv, images = LAYERS[layer], 32
    x, w, bias, dy = tensors(torch, conv, precision, images)
    first = gradients_of(torch, conv, precision, x, w, bias, dy)
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    runs = []
    for run in range(RUNS):
        with torch.cuda.stream(streams[run % len(streams)]):
            runs.append(gradients_of(torch, conv, precision, x, w, bias, dy))
    torch.cuda.synchronize()
    for run in runs:
        assert all(torch.equal(*pair) for pair in zip(run, first, strict=True))


def test_a_captured_step_trains_as_an_eager_one(torch):
    torch.manual_seed(3)
    nn = torch.nn
    model = nn.Sequential(
        nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 10, 7)
    ).cuda()
    x, labels = torch.rand(16, 3, 13, 13, device="cuda"), torch.arange(16, device="cuda") % 10
    alexconv.patch(model, say=str)
    eager = copy.deepcopy(model)

    def step(network):
        for parameter in network.parameters():
            parameter.grad = None
        value = nn.functional.cross_entropy(network(x).flatten(1), labels)
        value.backward()
        return value

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step(model)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(model)
    for _ in range(3):
        x.copy_(torch.rand(x.shape, device="cuda"))
        graph.replay()
        assert torch.equal(captured, step(eager))
        for one, other in zip(model.parameters(), eager.parameters(), strict=True):
            assert torch.equal(one.grad, other.grad)


def test_autocast_and_compiled_models_train(torch):
    torch.manual_seed(4)
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, padding=1)).cuda()
    x = torch.randn(8, 3, 20, 20, device="cuda").contiguous(memory_format=torch.channels_last)

    def gradients_in(context):
        model.zero_grad()
        with context:
            value = (model(x).float() ** 2).mean()
        value.backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    exact = gradients_in(torch.enable_grad())
    alexconv.patch(model, "fp16", autocast=True, say=str)
    halves = gradients_in(torch.autocast("cuda", torch.float16))
    for one, other in zip(halves, exact, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=2e-2, atol=2e-3)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.autocast("cuda", torch.float16):
        value = (compiled(x).float() ** 2).mean()
    model.zero_grad()
    value.backward()
    for parameter, half in zip(model.parameters(), halves, strict=True):
        torch.testing.assert_close(parameter.grad, half, rtol=1e-3, atol=1e-4)


def test_torch_computes_what_no_rung_takes_and_says_so(torch, monkeypatch):
    monkeypatch.setattr(gradients, "route_of", lambda device, call: routes.Route(None))
    messages = []
    monkeypatch.setattr(gradients, "say_once", messages.append)
    for asymmetric, last in product((False, True), repeat=2):
        conv = Conv(8, 12, 11, 16, 3, 3, 2, top=1, bottom=1 + asymmetric, left=2, right=2)
        x, w, bias, dy = tensors(torch, conv, "fp32", last=last)
        dx, dw, _ = gradients_of(torch, conv, "fp32", x, w, bias, dy)
        for direction, gradient in ((DGRAD, dx), (WGRAD, dw)):
            _, exact, _ = expected_of(conv, direction, x, w, dy)
            np.testing.assert_allclose(gradient.cpu().numpy(), exact, rtol=1e-4, atol=1e-4)
    assert len(messages) == 8 and all(line.endswith("torch does") for line in messages)


def test_an_explanation_names_the_rungs_of_gradients(torch):
    conv = LAYERS["alexnet 3"]
    x, w, _, _ = tensors(torch, conv, "tf32")
    for direction in (DGRAD, WGRAD):
        explained = alexconv.explain(x, w, precision="tf32", direction=direction, **arguments(conv))
        assert explained.rung.startswith(direction) and explained.precision in ("tf32", "fp32")


def test_a_first_step_has_the_bits_of_later_ones(torch, cache):
    """Nothing is compiled: the forward pass waits for its rung, too."""
    conv = Conv(24, 14, 13, 40, 3, 3, top=1, bottom=1, left=1, right=1)
    x, w, bias, dy = tensors(torch, conv, "fp32")
    runs = []
    for _ in range(2):
        y = alexconv.conv2d(x, w, bias=bias, **arguments(conv))
        runs.append((y.detach(), *torch.autograd.grad(y, (x, w, bias), dy)))
    assert all(torch.equal(*pair) for pair in zip(*runs, strict=True))
