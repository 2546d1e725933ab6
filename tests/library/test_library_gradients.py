"""Gradients of ``conv2d``: on the CPU against float64, their operators if torch is installed, and sum.cu."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

import alexconv
from alexconv.cpu_reference.reference import norms, reference
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.kernels.problem import H200
from alexconv.library import generic
from alexconv.library.arrays import view
from alexconv.library.gradients import bias_gradient, dgrad, wgrad
from alexconv.library.terms import Terms, padding_of
from alexconv.planning.checks import Expected, MaxError
from alexconv.precisions import ANY, PRECISIONS
from alexconv.shapes import DGRAD, DIRECTIONS, WGRAD, WORKLOADS, Conv
from alexconv.tune import auto, measured

pytestmark = pytest.mark.filterwarnings("default")  # torch's own warnings are no errors

LAYERS = {
    "padding": {"stride": 1, "padding": (1, 2, 0, 1), "dilation": 1, "groups": 1},
    "groups and strides": {"stride": (2, 3), "padding": 1, "dilation": 1, "groups": 2},
    "depthwise, dilated": {"stride": 1, "padding": 2, "dilation": 2, "groups": 4},
}
each_layer = pytest.mark.parametrize("layer", LAYERS)
SHAPES = (3, 4, 11, 10), (8, 4, 3, 3), (8,)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


def problem_of(direction, x, w, terms):
    """The problem of a gradient, as the reference takes it."""
    down, across = np.broadcast_to(terms["stride"], 2)
    rows, columns = np.broadcast_to(terms["dilation"], 2)
    top, bottom, left, right = padding_of(terms["padding"])
    _, C, H, W = x.shape
    conv = Conv(C, H, W, w.shape[0], *w.shape[2:], int(down), V=int(across), top=top, bottom=bottom, left=left,
                right=right, dilation_rows=int(rows), dilation_columns=int(columns),
                groups=terms["groups"])  # fmt: skip
    return conv.toward(direction)


def sizes_of(layer):
    """The shapes of x, filters and bias."""
    (images, C, H, W), (M, _, R, S), biases = SHAPES
    return (images, C, H, W), (M, C // LAYERS[layer]["groups"], R, S), biases


def leaves(torch, layer, precision, draw=None):
    """x, filters and bias of a layer, which require gradients."""
    random, dtype = np.random.default_rng(3), PRECISIONS[precision].dtype
    draw = draw or (lambda size: random.uniform(-1, 1, size))
    return [torch.tensor(draw(size).astype(dtype)).requires_grad_() for size in sizes_of(layer)]


def loss(y):
    """Whose gradient, of y itself, is neither constant nor aligned."""
    return (y * y.detach().roll(1, -1)).sum()


@each_layer
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "half"])
def test_gradients_keep_the_bound_of_their_class(layer, precision):
    random, row = np.random.default_rng(3), PRECISIONS[precision]
    x, w, _ = (random.uniform(-1, 1, size).astype(row.dtype) for size in sizes_of(layer))
    conv = problem_of(DGRAD, x, w, LAYERS[layer])
    dy = random.uniform(-1, 1, conv.y_shape(len(x))).astype(row.dtype)
    terms = Terms(conv.strides, conv.padding, precision, "nchw", conv.dilation, conv.groups)
    values, planes = {"x": x, "w": w, "dy": dy}, (conv.H, conv.W)
    for direction, gradient in ((DGRAD, dgrad(dy, w, planes, terms)), (WGRAD, wgrad(x, dy, (3, 3), terms))):
        problem, error = conv.toward(direction), MaxError()
        operands = [values[role].astype("f4") for role in (problem.roles.x, problem.roles.w)]
        error.add(gradient, Expected(reference(problem, *operands), *norms(problem, *operands)))
        assert gradient.dtype == row.dtype
        assert error.passes(row.tolerance(problem.products(len(x)))), (direction, error)
    of_bias, exact = bias_gradient(dy, terms), dy.sum((0, 2, 3), np.float64)
    np.testing.assert_allclose(of_bias, exact, rtol=2 * row.u_store)
    empty = wgrad(x[:0], dy[:0], (3, 3), terms)
    assert (empty.shape, empty.any()) == (w.shape, False)


@each_layer
def test_integers_come_out_exactly_and_nan_and_infinity_as_in_float64(torch, layer):
    random = np.random.default_rng(4)
    x, w, bias = leaves(torch, layer, "fp32", lambda size: random.integers(-3, 4, size))
    y = alexconv.conv2d(x, w, bias=bias, **LAYERS[layer])
    dy = torch.tensor(random.integers(-3, 4, y.shape), dtype=torch.float32)
    for special in (False, True):
        if special:
            dy.view(-1)[::29] = torch.tensor([np.inf, -np.inf, np.nan]).repeat(dy.numel())[: len(dy.view(-1)[::29])]
        dx, dw, db = torch.autograd.grad(y, (x, w, bias), dy, retain_graph=True)
        values = {"x": x.detach().numpy(), "w": w.detach().numpy(), "dy": dy.numpy()}
        with np.errstate(invalid="ignore"):
            for direction, gradient in zip((DGRAD, WGRAD), (dx, dw), strict=True):
                conv = problem_of(direction, x, w, LAYERS[layer])
                expected = reference(conv, values[conv.roles.x], values[conv.roles.w])
                np.testing.assert_array_equal(gradient.numpy(), expected)
            np.testing.assert_array_equal(db.numpy(), values["dy"].sum((0, 2, 3), np.float64).astype("f4"))


def test_gradients_are_finite_differences(torch):
    """Of a loss whose second derivatives vanish, in steps that floats hold: the differences are exact."""
    random = np.random.default_rng(5)
    inputs = leaves(torch, "groups and strides", "fp32", lambda size: random.integers(-3, 4, size))

    def total(x, w, bias):
        return alexconv.conv2d(x, w, bias=bias, **LAYERS["groups and strides"]).double().sum()

    total(*inputs).backward()
    for number, leaf in enumerate(inputs):
        for place in random.choice(leaf.numel(), 8, replace=False):
            moved = [values.detach().clone() for values in inputs]
            moved[number].view(-1)[place] += 1
            assert total(*moved) - total(*inputs) == leaf.grad.view(-1)[place]


def test_only_needed_gradients_are_computed(torch, monkeypatch):
    from alexconv.library import torch_operator

    computed = []
    for name in ("dgrad", "wgrad", "bias_gradient"):
        operator = getattr(torch_operator, name)
        monkeypatch.setattr(
            torch_operator,
            name,
            lambda *arguments, name=name, operator=operator: computed.append(name) or operator(*arguments),
        )
    names = {"dgrad": 0, "wgrad": 1, "bias_gradient": 2}
    for needed in product((False, True), repeat=3):
        arrays = [leaf.detach().requires_grad_(needs) for leaf, needs in zip(leaves(torch, "padding", "fp32"), needed,
                                                                            strict=True)]  # fmt: skip
        computed.clear()
        y = alexconv.conv2d(*arrays[:2], bias=arrays[2], **LAYERS["padding"])
        assert y.requires_grad == any(needed)
        if any(needed):
            loss(y).backward()
        assert computed == [name for name, number in names.items() if needed[number]]
        assert [array.grad is not None for array in arrays] == list(needed)


def test_a_gradients_gradient_is_one_clear_error(torch):
    x, w, _ = leaves(torch, "padding", "fp32")
    (dx,) = torch.autograd.grad(loss(alexconv.conv2d(x, w)), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"alexconv.conv2d has no second derivatives: .* torch.nn.functional.conv2d"):
        dx.sum().backward()


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "channels_last"])
def test_torch_computes_gradients_that_no_rung_takes(torch, monkeypatch, last):
    by_rungs, by_torch = [], []
    for layer, gradients in product(LAYERS, (by_rungs, by_torch)):
        if gradients is by_torch:
            monkeypatch.setattr("alexconv.library.gradients.gradient", lambda *arguments: None)
        arrays = leaves(torch, layer, "fp32")
        if last:
            arrays[0] = arrays[0].detach().contiguous(memory_format=torch.channels_last).requires_grad_()
        gradients += torch.autograd.grad(loss(alexconv.conv2d(*arrays[:2], bias=arrays[2], **LAYERS[layer])), arrays)
        monkeypatch.undo()
    for one, other in zip(by_torch, by_rungs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        assert one.is_contiguous() == other.is_contiguous()


def test_relu_masks_gradients_and_passes_no_nan(torch):
    x, w, _ = leaves(torch, "padding", "fp32")
    y = alexconv.conv2d(x, w, activation="relu")
    dy = torch.where(y > 0, 1.0, np.inf)  # 0 times infinity would be NaN
    y.backward(dy)
    assert torch.isfinite(x.grad).all() and torch.isfinite(w.grad).all() and (w.grad != 0).any()


def test_autocast_casts_to_the_class_and_gradients_back(torch):
    x, w, bias = leaves(torch, "padding", "fp32")
    halves = [values.detach().half().requires_grad_() for values in (x, w, bias)]
    loss(alexconv.conv2d(*halves[:2], precision="fp16", bias=halves[2])).backward()
    with torch.autocast("cpu", torch.float16):
        y = alexconv.conv2d(x, w, precision="fp16", bias=bias)
        assert y.dtype == torch.float16 == alexconv.conv2d(x.detach(), w.detach(), precision="fp16").dtype
    loss(y).backward()
    for leaf, half in zip((x, w, bias), halves, strict=True):
        assert leaf.grad.dtype == torch.float32
        torch.testing.assert_close(leaf.grad, half.grad.float(), rtol=0, atol=0)
    with pytest.raises(ValueError, match="filters is float32, but precision fp16 takes float16"):
        alexconv.conv2d(x, w, precision="fp16")


def test_a_patched_model_trains_as_torchs_does(torch):
    nn = torch.nn
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(2, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 3, padding=1))
    batches = [torch.randn(4, 2, 9, 9) for _ in range(3)]
    start = {name: values.clone() for name, values in model.state_dict().items()}

    def trained(step_of=lambda call: call):
        model.load_state_dict(start)
        optimizer, losses = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), []
        step = step_of(lambda batch: (model(batch) ** 2).mean())
        for batch in batches:
            optimizer.zero_grad()
            value = step(batch)
            value.backward()
            optimizer.step()
            losses.append(value.item())
        return losses

    expected = trained()
    assert alexconv.patch(model, say=str).left == ()
    assert trained() == pytest.approx(expected, rel=1e-5)
    first = trained()
    compiled = trained(lambda call: torch.compile(call, fullgraph=True, backend="aot_eager"))
    assert compiled == pytest.approx(first, rel=1e-6)
    assert trained() == first  # the same bits
    masters = nn.Sequential(nn.Conv2d(2, 6, 3))
    assert alexconv.patch(masters, "fp16", say=str).replaced == ()
    assert alexconv.patch(masters, "fp16", autocast=True, say=str).replaced == ("0",)
    with torch.autocast("cpu", torch.float16):
        masters(batches[0]).float().sum().backward()
    assert masters[0].weight.grad.dtype == torch.float32


def test_operators_of_gradients_are_traced(torch):
    from alexconv.library import torch_operator

    x, w, _ = (leaf.detach() for leaf in leaves(torch, "padding", "fp32"))
    dy, terms = torch.randn(3, 8, 12, 9), ([1, 1], [1, 2, 0, 1], [1, 1], 1, "fp32")
    last = dy.contiguous(memory_format=torch.channels_last)
    for operator, arguments in (
        (torch_operator.dgrad, (dy, w, [11, 10], *terms)),
        (torch_operator.dgrad, (last, w, [11, 10], *terms)),
        (torch_operator.wgrad, (x, last, [3, 3], *terms)),
        (torch_operator.bias_gradient, (dy, "fp32")),
        (torch_operator.bias_gradient, (dy[:0], "fp32")),
        (torch_operator.wgrad, (x[:0], dy[:0], [3, 3], *terms)),
    ):
        torch.library.opcheck(operator, arguments)
    with pytest.raises(ValueError, match=r"dy has shape \(3, 8, 12, 8\), the output has \(3, 8, 12, 9\)"):
        torch_operator.dgrad(dy[..., 1:], w, [11, 10], *terms)


def test_a_rung_whose_order_varies_is_no_default():
    """Nor can tuning, or a table of measured times, make it one."""
    varying = [rung for rung in ALL_DIRECTIONS if rung.order_varies]
    assert {rung.direction for rung in varying} == set(DIRECTIONS)
    for direction in DIRECTIONS:
        assert not any(rung.order_varies for rung in auto.repeatable(ALL_DIRECTIONS.of_direction(direction)))
    named = {entry["rung"] for entries in measured.table().values() for entry in entries.values()}
    assert not named & {rung.name for rung in varying}


FASTEST = {  # of a layer of AlexNet, by its class and the layout of its arrays
    ("fp32", "nchw"): ("dgrad-wgmma-split", "wgrad-wgmma-split"),
    ("tf32", "nchw"): ("dgrad-wgmma-scaled", "wgrad-wgmma-scaled"),
    ("fp16", "nhwc"): ("dgrad-wgmma-half", "wgrad-wgmma-half"),
}


@pytest.mark.parametrize(("precision", "layout"), FASTEST)
def test_estimates_choose_the_rungs_of_gradients_that_were_measured_to_be_the_fastest(precision, layout):
    served = (precision, *PRECISIONS[precision].stricter)
    for direction, fastest in zip((DGRAD, WGRAD), FASTEST[precision, layout], strict=True):
        rungs = [
            rung
            for rung in ALL_DIRECTIONS.of_direction(direction)
            if rung.precision in served and rung.layout == layout
        ]
        for layer in (2, 3, 4, 5):
            conv = WORKLOADS["alexnet"].layer(layer).toward(direction)
            (first,) = auto.contenders(H200, conv, 128, rungs, 1)
            assert first.rung.name == fastest, layer


def test_a_gradient_on_the_cpu_is_explained():
    x, w = (np.zeros(size, "f4") for size in SHAPES[:2])
    for direction in (DGRAD, WGRAD):
        call = alexconv.explain(x, w, padding=1, precision="tf32", direction=direction, backend="host")
        assert (call.rung, call.precision) == (f"{direction}-direct", "fp32")
    with pytest.raises(ValueError, match="unknown direction 'backward': choose from forward, dgrad, wgrad"):
        alexconv.explain(x, w, direction="backward")


RUNTIME = HostRuntime()
ORDERS = {"nchw": (0, 1, 2, 3), "nhwc": (0, 2, 3, 1), "rows apart": (0, 1, 3, 2)}


@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(5, 70, 9, 11), (2, 3, 40, 1), (1, 33, 1, 1), (1100, 2, 3, 3)], ids=str)
def test_planes_are_summed_in_any_order_of_axes(shape, order, itemsize):
    entries = {"sum_slices": "slices_at", "sum_partials": "partials_at"}
    source = Path(__file__).with_name("sum_on_host.cu")
    module = RUNTIME.compile(source, {"ELEMENT_BYTES": itemsize}, list(entries.values()))
    dtype, axes = {2: "f2", 4: "f4"}[itemsize], ORDERS[order]
    packed = np.random.default_rng(1).uniform(-1, 1, [shape[axis] for axis in axes]).astype(dtype)
    dy = packed.transpose(np.argsort(axes))
    launches, nbytes = generic.sums(view(dy, "dy").descriptor)
    memory = RUNTIME.allocate(packed.nbytes), RUNTIME.allocate(nbytes), RUNTIME.allocate(shape[1] * itemsize)
    memory[0].bytes[:] = packed.view(np.uint8).reshape(-1)
    for array in memory[1:]:
        array.bytes[:] = 0xFF
    for (entry, grid, words), arrays in zip(launches, (memory[:2], memory[1:]), strict=True):
        numbers = [RUNTIME.allocate(8 * len(group)) for group in words]
        for target, group in zip(numbers, words, strict=True):
            target.bytes[:] = np.array(group, np.int64).view(np.uint8)
        module.launch(entries[entry], grid, (generic.THREADS, 1, 1), 0, [*arrays, *numbers])
    sums, row = memory[2].array(np.dtype(dtype), (shape[1],)).astype("f8"), PRECISIONS[{2: "fp16", 4: "fp32"}[itemsize]]
    values = dy.astype("f8")
    N, M, E, F = shape
    bound = row.bound(N * E * F, ANY, chain=E * F + N)
    norm = np.sqrt((values**2).sum((0, 2, 3)) * N * E * F)
    assert (np.abs(sums - values.sum((0, 2, 3))) <= bound.factor * norm + bound.absolute).all()
    assert len(sums) == M
