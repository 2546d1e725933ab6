"""pixels.cu on the host executor, and which arrays it takes."""

from pathlib import Path

import numpy as np
import pytest

from alexconv.executors.host.runtime import HostRuntime
from alexconv.library import pixels
from alexconv.library.arrays import view

RUNTIME = HostRuntime()
SOURCE = Path(__file__).with_name("pixels_on_host.cu")
N, C, H, W, WHOLE, FIRST = 2, 24, 7, 9, 40, 8  # x is some channels of a larger array


@pytest.fixture(scope="module", params=[2, 4], ids=["fp16", "fp32"])
def module(request):
    entries = [f"{entry}_at" for entry in ("affine", "gate", "pool", "means", "pool_planes", "layer_norm")]
    return RUNTIME.compile(SOURCE, {"ELEMENT_BYTES": request.param}, entries), f"f{request.param}"


def nhwc(values):
    """An array ``[N][C][H][W]`` with the channels innermost."""
    return np.ascontiguousarray(values.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)


def slice_of_channels(dtype):
    whole = np.random.default_rng(1).uniform(-4, 4, (N, WHOLE, H, W)).astype(dtype)
    whole[1, FIRST + 3, 2, 3] = np.nan
    return nhwc(whole)[:, FIRST : FIRST + C]


def descriptor(values):
    """As on a GPU, where such a slice begins at 16 bytes."""
    return view(values, "x").descriptor._replace(aligned=True)


def run(module, work, **arrays):
    """The output of a launch, of NumPy arrays by their names in packets; ``y`` is an array like it."""
    kernels, _ = module
    memory = {name: RUNTIME.allocate(values.size * 0 + bytes_of(values).nbytes) for name, values in arrays.items()}
    for name, values in arrays.items():
        memory[name].bytes[:] = bytes_of(values).view(np.uint8).reshape(-1)
    of = RUNTIME.allocate(8 * len(work.words))
    of.bytes[:] = np.array(work.words, np.int64).view(np.uint8)
    grid, block = (work.blocks, 1, 1), (work.threads, 1, 1)
    kernels.launch(f"{work.entry}_at", grid, block, 0, [*(memory[name] for name in work.arrays), of])
    y = arrays["y"]
    stored = memory["y"].array(y.dtype, (N, *y.shape[2:], y.shape[1]))
    return stored.transpose(0, 3, 1, 2).astype(np.float64)


def bytes_of(values):
    """The memory from an array's first element on, in the order in which it lies."""
    if values.ndim < 4 or values.flags.c_contiguous:
        return np.ascontiguousarray(values)
    base = values.base if values.base is not None and values.base.size > values.size else values
    if base.ndim == 4 and base.shape[-1] != WHOLE:
        base = base.transpose(0, 2, 3, 1)
    flat = np.ascontiguousarray(base).reshape(-1)
    return flat[FIRST:] if base.shape[-1] == WHOLE else flat


@pytest.mark.parametrize("activation", [None, "relu", "relu6", "silu"])
def test_affine(module, activation):
    dtype = module[1]
    x, y = slice_of_channels(dtype), nhwc(np.full((N, C, H, W), np.nan, dtype))
    factors, shifts = np.random.default_rng(2).uniform(-2, 2, (2, C)).astype(np.float32)
    work = pixels.affine(descriptor(x), descriptor(y), activation)
    stored = run(module, work, x=x, w=factors, bias=shifts, y=y)
    sums = x.astype("f8") * factors[:, None, None].astype("f8") + shifts[:, None, None].astype("f8")
    due = {
        None: sums,
        "relu": np.maximum(sums, 0),
        "relu6": np.clip(sums, 0, 6),
        "silu": sums / (1 + np.exp(-sums)),
    }[activation]
    np.testing.assert_allclose(stored, due, rtol=1e-3 if dtype == "f2" else 1e-5, atol=1e-5)


def test_gate(module):
    dtype = module[1]
    x, y = slice_of_channels(dtype), nhwc(np.full((N, C, H, W), np.nan, dtype))
    gates = np.random.default_rng(3).uniform(-9, 9, (N, C, 1, 1)).astype(dtype)
    work = pixels.gate(descriptor(x), descriptor(gates))
    stored = run(module, work, x=x, residual=gates.reshape(N, C), y=y)
    due = x.astype("f8") / (1 + np.exp(-gates.astype("f8")))
    np.testing.assert_allclose(stored, due, rtol=2e-3 if dtype == "f2" else 1e-5, atol=1e-7)


@pytest.mark.parametrize("mean", [False, True], ids=["largest", "mean"])
def test_pool(module, mean):
    dtype, (R, S, U, V) = module[1], (3, 2, 2, 1)
    top, left = (0, 0) if mean else (1, 1)
    E, F = (H + top - R) // U + 1, (W + left - S) // V + 1
    x, y = slice_of_channels(dtype), nhwc(np.full((N, C, E, F), np.nan, dtype))
    work = pixels.pool(descriptor(x), descriptor(y), (R, S, U, V, top, left), mean=mean)
    stored = run(module, work, x=x, y=y)
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (top, 0), (left, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (R, S), (2, 3))[:, :, ::U, ::V]
    due = windows.mean((4, 5)) if mean else windows.max((4, 5))
    assert np.isnan(due).any()
    np.testing.assert_allclose(stored, due, rtol=1e-3 if mean else 0, atol=1e-6)


def test_pool_planes(module):
    dtype, window = module[1], (3, 2, 2, 1, 1, 0)
    x = np.ascontiguousarray(slice_of_channels(dtype))
    y = nhwc(np.full((N, C, (H + 1 - 3) // 2 + 1, W - 1), np.nan, dtype))
    work = pixels.pool_planes(descriptor(x), descriptor(y), window)
    stored = run(module, work, x=x, y=y)
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=-np.inf)
    due = np.lib.stride_tricks.sliding_window_view(padded, (3, 2), (2, 3))[:, :, ::2].max((4, 5))
    np.testing.assert_array_equal(stored, due)
    assert pixels.pool_planes(descriptor(slice_of_channels(dtype)), descriptor(y), window) is None


@pytest.mark.parametrize("images", [N, 200], ids=["few blocks", "many blocks"])
def test_means(module, images, monkeypatch):
    monkeypatch.setattr(pixels, "WANTED_BLOCKS", pixels.WANTED_BLOCKS * N / images)
    dtype = module[1]
    x, y = slice_of_channels(dtype), nhwc(np.full((N, C, 1, 1), np.nan, dtype))
    work = pixels.means(descriptor(x))
    stored = run(module, work, x=x, y=y)
    due = x.astype("f8").mean((2, 3), keepdims=True)
    assert np.isnan(due).sum() == 1
    np.testing.assert_allclose(stored, due, rtol=1e-3 if dtype == "f2" else 1e-5, atol=1e-3 if dtype == "f2" else 1e-6)


def test_layer_norm(module):
    dtype = module[1]
    x, y = slice_of_channels(dtype), nhwc(np.full((N, C, H, W), np.nan, dtype))
    factors, shifts = np.random.default_rng(2).uniform(-2, 2, (2, C)).astype(dtype)
    work = pixels.layer_norm(descriptor(x), descriptor(y), 0.5)
    stored = run(module, work, x=x, w=factors, bias=shifts, y=y)
    wide = x.astype("f8")
    mean, variance = wide.mean(1, keepdims=True), wide.var(1, keepdims=True)
    due = (wide - mean) / np.sqrt(variance + 0.5) * factors[:, None, None].astype("f8") + shifts[:, None, None]
    np.testing.assert_allclose(stored, due, rtol=2e-3 if dtype == "f2" else 1e-5, atol=2e-3 if dtype == "f2" else 1e-5)


def test_arrays_that_are_not_taken():
    x = slice_of_channels("f4")
    taken = descriptor(x)
    odd = descriptor(nhwc(np.zeros((N, 30, H, W), "f4")))  # 120 bytes for a pixel
    planes = descriptor(np.zeros((N, C, H, W), "f4"))
    for other in (planes, odd, taken._replace(aligned=False)):
        assert pixels.affine(other, taken, None) is None
        assert pixels.pool(taken, other, (1, 1, 1, 1, 0, 0), mean=False) is None
    assert pixels.gate(taken, planes) is None
