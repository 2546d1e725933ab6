"""The references of dgrad and wgrad are the derivatives of the forward pass, and are cached as its outputs are."""

from dataclasses import replace

import numpy as np
import pytest

from alexconv import data
from alexconv.cpu_reference import cache as reference_cache
from alexconv.cpu_reference.cache import LayerData, ensure
from alexconv.cpu_reference.reference import norms, reference
from alexconv.planning.checks import exact_batch, exact_integers, largest_sum
from alexconv.precisions import PRECISIONS
from alexconv.shapes import DGRAD, DIRECTIONS, FORWARD, WGRAD, WORKLOADS, Conv

GRADIENTS = (DGRAD, WGRAD)
LAYERS = {
    "padding": Conv(C=3, H=6, W=5, M=4, R=3, S=2, top=1, bottom=2, left=1),
    "border in memory, stride 4 and 3": Conv(C=2, H=13, W=12, M=3, R=5, S=3, U=4, V=3, pad=1),
    "dilation, groups, stride 2": Conv(C=4, H=9, W=8, M=6, R=2, S=3, U=2, left=2, dilation_columns=2, groups=2),
}
each_layer = pytest.mark.parametrize("layer", LAYERS)
each_gradient = pytest.mark.parametrize("direction", GRADIENTS)
N = 5  # images: more than one core sums at a time


def problem(layer, direction):
    """The problem, and x, w and dy, of small integers."""
    conv = LAYERS[layer].toward(direction)
    draw = np.random.default_rng(1)
    arrays = {name: draw.integers(-3, 4, conv.shape_of(name, N)).astype("f4") for name in ("x", "w", "dy")}
    return conv, arrays


def gradient(conv, arrays):
    return reference(conv, arrays[conv.roles.x], arrays[conv.roles.w])


@each_gradient
@each_layer
def test_gradients_are_finite_differences_of_the_forward_pass(layer, direction):
    """The loss, the sum of dy y, is linear in each operand: its differences are exact."""
    conv, arrays = problem(layer, direction)
    forward, varied = replace(conv, direction=FORWARD), {DGRAD: "x", WGRAD: "w"}[direction]

    def loss(values):
        return float((arrays["dy"] * reference(forward, values["x"], values["w"])).sum(dtype=np.float64))

    exact, base = gradient(conv, arrays), loss(arrays)
    draw = np.random.default_rng(2)
    for place in draw.choice(exact.size, 24, replace=False):
        moved = arrays[varied].copy()
        moved.reshape(-1)[place] += 1
        assert loss({**arrays, varied: moved}) - base == exact.reshape(-1)[place]


@each_gradient
@each_layer
def test_gradients_are_torchs(layer, direction):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    conv, arrays = problem(layer, direction)
    top, bottom, left, right = conv.padding
    leaves = {name: torch.tensor(arrays[name], dtype=torch.float64, requires_grad=True) for name in ("x", "w")}
    padded = torch.nn.functional.pad(leaves["x"], (left, right, top, bottom))
    y = torch.nn.functional.conv2d(padded, leaves["w"], stride=conv.strides, dilation=conv.dilation, groups=conv.groups)
    y.backward(torch.tensor(arrays["dy"], dtype=torch.float64))
    np.testing.assert_array_equal(gradient(conv, arrays), leaves[{DGRAD: "x", WGRAD: "w"}[direction]].grad.numpy())


@each_gradient
@each_layer
def test_norms_bound_gradients_and_are_reached(layer, direction):
    """By the inequality of Cauchy and Schwarz; equal operands reach it where all of an output's products are there."""
    conv, arrays = problem(layer, direction)
    of_outputs, ones = norms(conv, arrays[conv.roles.x], arrays[conv.roles.w])
    assert (ones == 1).all()
    assert (np.abs(gradient(conv, arrays)) <= of_outputs * (1 + 1e-12)).all()
    equal = {name: np.ones_like(values) for name, values in arrays.items()}
    of_equal, _ = norms(conv, equal[conv.roles.x], equal[conv.roles.w])
    reached = gradient(conv, equal)
    inner = reached == reached.max()
    np.testing.assert_allclose(reached[inner], of_equal[inner], rtol=1e-6)
    assert reached.max() <= conv.products(N)


@each_gradient
@each_layer
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_exact_integers_have_sums_within_the_class(layer, direction, precision):
    conv, row = LAYERS[layer].toward(direction), PRECISIONS[precision]
    x, w = exact_integers(conv, N, row, seed=3)
    of_magnitudes = reference(conv, np.abs(x), np.abs(w))
    assert of_magnitudes.max() <= row.exact.sum
    assert of_magnitudes.max() <= largest_sum(conv, np.abs(x)) * np.abs(w).max()
    batch = exact_batch(conv, N, row, 3, reference)
    assert batch.wrong(reference(conv, batch.images(), batch.w)) == 0 or precision != "fp32"
    images = batch.images()[:: 1 if conv.roles.sums_images else -1]
    assert batch.wrong(reference(conv, -images, batch.w), turned=-1) == 0 or precision != "fp32"


def test_an_infinite_tap_makes_nan_beyond_the_planes_of_dy_and_nothing_between_strides():
    conv = Conv(C=1, H=5, W=1, M=1, R=3, S=1, U=2).toward(DGRAD)
    dy, w = np.ones((1, 1, 2, 1), "f4"), np.array([1, np.inf, 2], "f4").reshape(1, 1, 3, 1)
    assert reference(conv, dy, w).ravel().tolist() == [1, np.inf, 3, np.inf, 2]
    w = np.array([np.inf, 1, 2], "f4").reshape(1, 1, 3, 1)
    dx = reference(conv, dy, w).ravel()
    assert dx[1] == dx[3] == 1
    assert np.isnan(dx[4])  # dy's third row would have it under the first tap


def test_dy_is_the_same_in_both_directions_and_in_every_batch():
    conv = WORKLOADS["alexnet"].layer(3)
    of = {direction: LayerData("alexnet", 3, conv.toward(direction), batch=3) for direction in GRADIENTS}
    dy = of[WGRAD].filters()
    assert dy.shape == conv.y_shape(3)
    np.testing.assert_array_equal(of[DGRAD].images(1, 3), dy[1:])
    np.testing.assert_array_equal(of[WGRAD].images(0, 1)[0], data.images("alexnet", 3, conv, 0, 1)[0, :, 1:-1, 1:-1])
    assert np.unique(dy).size > 0.9 * dy.size > 0


@pytest.mark.usefixtures("cache")
def test_gradients_are_cached_apart_by_direction_and_wgrad_by_batch(monkeypatch):
    computed = []

    def counted(conv, *operands):
        computed.append((conv.direction, len(operands[0])))
        return reference(conv, *operands)

    monkeypatch.setattr(reference_cache, "reference", counted)
    conv = LAYERS["padding"]
    for direction, batches in ((FORWARD, (2,)), (DGRAD, (2, 3)), (WGRAD, (2, 3, 2))):
        for images in batches:
            problem = conv.toward(direction)
            of = LayerData("made up", 1, problem, batch=images if problem.roles.sums_images else 0)
            count = of.outputs(images)
            outputs = ensure(of, count).read(0, count)
            np.testing.assert_array_equal(outputs, reference(problem, *of.operands(0, images), of.biases()))
    assert computed == [(FORWARD, 2), (DGRAD, 2), (DGRAD, 1), (WGRAD, 2), (WGRAD, 3)]


def test_a_problem_has_no_border_bias_or_relu():
    layer = Conv(C=3, H=9, W=9, M=4, R=3, S=3, pad=1, bias=True, relu=True)
    assert layer.toward(FORWARD) is layer
    for direction in GRADIENTS:
        problem = layer.toward(direction)
        assert (problem.pad, problem.H, problem.padding, problem.bias, problem.relu) == (
            0,
            7,
            (1, 1, 1, 1),
            False,
            False,
        )
        assert (problem.E, problem.F, problem.macs(2)) == (layer.E, layer.F, layer.macs(2))
        assert problem.toward(direction) is problem
    assert set(DIRECTIONS) == {FORWARD, *GRADIENTS}


def test_sums_of_gradients_are_counted():
    stem = Conv(C=3, H=227, W=227, M=96, R=11, S=11, U=4)
    assert stem.toward(DGRAD).products(7) == 96 * 3 * 3
    assert stem.toward(WGRAD).products(128) == 128 * 55 * 55 == 387_200
    assert stem.toward(WGRAD).chain(128) == 55 * 55 + 128
    assert Conv(C=2, H=9, W=9, M=4, R=3, S=3, U=2, dilation_rows=2, groups=2).toward(DGRAD).products(1) == 2 * 3 * 2
