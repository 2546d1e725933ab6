"""The table of measured rungs that auto goes by."""

import json
from dataclasses import asdict, replace
from types import SimpleNamespace

import auto_table

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER, RUNGS
from alexconv.kernels.problem import H200, Problem
from alexconv.records.store import RecordFile
from alexconv.shapes import WORKLOADS, Conv
from alexconv.tune import auto, cache, measured
from alexconv.tune.auto import contenders
from alexconv.tune.measured import Request


def test_every_entry_is_a_rung_that_takes_the_layer():
    layers = {
        measured.name_of(request): request
        for name in ("alexnet", "alexnet-2012", "resnet50", "vgg16", "convnet-benchmarks")
        for conv in WORKLOADS[name].layers
        for N in (1, 32, 128)
        for precision in ("fp32", "fp32-tile", "tf32", "fp16", "half")
        for layout in ("nchw", "nhwc")
        for request in [Request(conv, N, precision, layout)]
    }
    entries = measured.table()[H200.name]
    assert set(entries) <= set(layers)
    for name in entries:
        request = layers[name]
        best = measured.fastest(H200, request)
        assert best and best.rung.layout == request.layout, name
        assert not best.rung.refuses(Problem(request.conv, request.N, best.constants, H200))


def test_what_was_not_measured_is_not_in_the_table(monkeypatch):
    conv = WORKLOADS["resnet50"].layer(5)
    request = Request(conv, 32, "tf32", "nhwc")
    name = measured.name_of(request)
    rung = RUNGS["wgmma-floats"]
    constants = rung.resolve(conv, {"TILE_PIXELS": 128}, 32)
    entry = {"rung": rung.name, "constants": constants, "us": 12.5}
    monkeypatch.setattr(measured, "table", lambda: {H200.name: {name: entry}})
    assert measured.fastest(H200, request) == measured.Fastest(rung, constants, 12.5)
    assert measured.fastest(H200, replace(request, N=33)) is None
    assert measured.fastest(H200, replace(request, precision="fp32")) is None
    monkeypatch.setattr(measured, "table", lambda: {H200.name: {name: {**entry, "constants": {"TILE": 8}}}})
    assert measured.fastest(H200, request) is None  # of other constants than the rung has today


def test_padding_in_place_is_as_fast_as_a_border_in_memory(monkeypatch):
    padded = Conv(96, 27, 27, 256, 5, 5, 1, top=2, bottom=2, left=2, right=2)
    request, rung = Request(padded, 128, "fp16", "nhwc"), RUNGS["wgmma-half"]
    constants = rung.resolve(padded, {"TILE_PIXELS": 192, "TILE_FILTERS": 256}, 128)
    name = measured.name_of(replace(request, conv=padded.with_border()))
    gpu = SimpleNamespace(device=H200, measures=True, unsuited=lambda rung: None)
    monkeypatch.setattr(cache, "load_best", lambda *_: None)
    monkeypatch.setattr(cache, "load", lambda *_: None)

    def first(us):
        entry = {"rung": rung.name, "constants": constants, "us": us}
        monkeypatch.setattr(measured, "table", lambda: {H200.name: {name: entry}})
        return next(auto.choices(gpu, request, print, ALL_DIRECTIONS))

    assert measured.fastest(H200, request) is None
    assert first(100.0) == auto.Choice(rung, constants, True, 100.0)
    assert not first(900.0).measured  # an estimate is less
    unpadded = replace(request, conv=padded.with_border())
    assert measured.with_border(H200, unpadded) is None


def choices_record(conv, ms, **more):
    """A record of type library-choices, of rungs' times by name and constants."""
    times = {json.dumps([rung, list(constants.items())]): took for (rung, constants), took in ms}
    facts = {"conv": asdict(conv), "N": 32, "precision": "fp16", "graph_ms": {"cudnn-nhwc": 0.01, **times}}
    return {**facts, **more}


def test_times_of_calls_replace_those_of_points(tmp_path):
    conv, rung = WORKLOADS["resnet50"].layer(22), RUNGS["wgmma-half-split-k"]
    (least,) = contenders(H200, conv, 32, [r for r in LADDER if (r.precision, r.layout) == ("fp16", "nhwc")], 1)
    large = rung.resolve(conv, {"TILE_PIXELS": 128, "TILE_FILTERS": 64}, 32)
    file = RecordFile(tmp_path / "choices.jsonl")
    file.header(
        "library-choices",
        choices_record(conv, [((least.rung.name, least.constants), 0.012), ((rung.name, large), 0.009)]),
    )
    half, floats = (
        BoundRung(RUNGS[name], conv, RUNGS[name].resolve(conv, {}, 32)) for name in ("wgmma-half", "wgmma-floats")
    )
    measured = {"half": (0.001, half), "floats": (0.02, floats)}
    (record,) = auto_table.read([tmp_path / "choices.jsonl"]).headers.values()
    auto_table.take(measured, record)
    assert "half" not in measured and measured["floats"] == (0.02, floats)
    assert sorted(ms for ms, _ in measured.values()) == [0.009, 0.012, 0.02]
    entries = auto_table.entries(conv, 32, auto_table.times([tmp_path / "choices.jsonl"])[conv, 32])
    ((ms, best),) = [entry for name, *entry in entries if name == auto_table.name_of(Request(conv, 32, "fp16", "nhwc"))]
    assert (ms, best.rung, dict(best.constants)) == (0.009, rung, large)
