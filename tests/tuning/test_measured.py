"""The table of measured rungs that auto goes by."""

from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import H200, Problem
from alexconv.shapes import WORKLOADS
from alexconv.tuning import measured

LAYERS = {
    measured.name_of(conv, N, precision, layout): (conv, N, precision, layout)
    for name in ("alexnet", "resnet50", "vgg16", "convnet-benchmarks")
    for conv in WORKLOADS[name].layers
    for N in (1, 32, 128)
    for precision in ("fp32", "fp32-tile", "tf32", "fp16", "half")
    for layout in ("nchw", "nhwc")
}


def test_every_entry_is_a_rung_that_takes_the_layer():
    entries = measured.table()[H200.name]
    assert set(entries) <= set(LAYERS)
    for name in entries:
        conv, N, precision, layout = LAYERS[name]
        found = measured.fastest(H200, conv, N, precision, layout)
        assert found and found.rung.layout == layout, name
        assert not found.rung.refuses(Problem(conv, N, found.constants, H200))


def test_what_was_not_measured_is_not_in_the_table(monkeypatch):
    conv = WORKLOADS["resnet50"].layer(5)
    name = measured.name_of(conv, 32, "tf32", "nhwc")
    rung = RUNGS["wgmma-floats"]
    constants = rung.resolve(conv, {"TILE_PIXELS": 128}, 32)
    monkeypatch.setattr(measured, "table", lambda: {H200.name: {name: {rung.name: constants}}})
    found = measured.fastest(H200, conv, 32, "tf32", "nhwc")
    assert found and (found.rung, found.constants) == (rung, constants)
    assert measured.fastest(H200, conv, 33, "tf32", "nhwc") is None
    assert measured.fastest(H200, conv, 32, "fp32", "nhwc") is None
    monkeypatch.setattr(measured, "table", lambda: {H200.name: {name: {rung.name: {"TILE": 8}}}})
    assert measured.fastest(H200, conv, 32, "tf32", "nhwc") is None  # of other constants than the rung has today
