"""Tables of a training step: sums of the faster layouts whose gradients are right, and published tables beside them."""

import json
from dataclasses import asdict

import pytest

from alexconv.records.published import benchmarks
from alexconv.reports import training
from alexconv.shapes import CONVNETS, DIRECTIONS, WORKLOADS

DEVICE = {"schema": 1, "type": "device", "key": "d", "name": "H100", "backend": "cuda"}


def record(workload, layer, N=128, precision="fp32", wrong=(), **more):
    """A layer whose times are 1, 2 and 4 ms by alexconv in nchw, twice as much in nhwc, and three times by cuDNN."""
    conv = WORKLOADS[workload].layer(layer)
    ms = dict(zip(DIRECTIONS, (1.0, 2.0, 4.0), strict=True))
    factors = {"alexconv-nchw": 1, "alexconv-nhwc": 2, "cudnn-nchw": 3, "cudnn-nhwc": 4}
    graph_ms = {name: {way: factor * time for way, time in ms.items()} for name, factor in factors.items()}
    error = {name: {way: 1e-3 if (name, way) in wrong else 1e-8 for way in ("dgrad", "wgrad")} for name in factors}
    rungs = {"nchw": {"forward": "wgmma-split", "dgrad": "dgrad-phases", "wgrad": "wgrad-igemm"}}
    facts = {"workload": workload, "layer": layer, "N": N, "precision": precision, "conv": asdict(conv)}
    return {"schema": 1, "type": "library-training", "key": f"{workload}{layer}{N}{precision}", "device": "d", **facts,
            "graph_ms": graph_ms, "error": error, "rungs": rungs, **more}  # fmt: skip


def parts_of(tmp_path, *records):
    path = tmp_path / "made.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in (DEVICE, *records)))
    return training.parts([path])


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_a_step_is_the_sum_of_the_faster_layouts_that_are_right(tmp_path):
    wrong = {2: [("cudnn-nchw", "wgrad"), ("cudnn-nhwc", "wgrad")], 3: [("cudnn-nchw", "dgrad")]}
    parts = parts_of(tmp_path, *(record("alexnet", layer, wrong=wrong.get(layer, ())) for layer in range(1, 6)))
    ours, peer = rows(parts["training-step"])
    assert ours == ["alexconv", "fp32", "128", "5", "8", "20", "33", "3.8", "none"]
    assert peer == ["cuDNN", "fp32", "128", "15", "26", "60", "101", "–", "wgrad 2"]
    assert parts["training-faster"] == "* fp32, N = 128: 3.06× faster than cuDNN"
    by_layer = rows(parts["training-layers"])
    assert by_layer[1][3:] == ["1", "3", "2", "6", "4", "12 (wrong)", "`dgrad-phases`, `wgrad-igemm`"]
    assert by_layer[2][5:7] == ["2", "8"]
    assert parts["training-where"].startswith("H100; `")
    assert training.parts([])["convnets"] == "Not measured."


def test_a_step_without_all_layers_or_directions_has_no_sum(tmp_path):
    without = record("alexnet", 5)
    del without["graph_ms"]["alexconv-nchw"]["wgrad"], without["graph_ms"]["alexconv-nhwc"]["wgrad"]
    ours, _ = rows(parts_of(tmp_path, *(record("alexnet", layer) for layer in range(1, 5)), without)["training-step"])
    assert ours[3:7] == ["5", "8", "–", "–"]


def test_convnet_benchmarks_tables_have_published_and_measured_rows(tmp_path):
    alexnet = [record("convnet-benchmarks", layer) for layer in range(1, 6)]
    parts = parts_of(tmp_path, *alexnet, *(record("convnet-layers", layer) for layer in range(1, 6)))
    networks = rows(parts["convnets"])
    assert {row[0] for row in networks} == {"AlexNet"}
    assert ["AlexNet", "CuDNN[R4]-fp32 (Torch), Titan X, 2015", "27", "–", "–", "53", "80"] in networks
    assert ["AlexNet", "alexconv, fp32", "5", "10", "20", "30", "35"] in networks
    five = rows(parts["convnet-layers"])
    assert five[0] == ["fbfft, Titan X, 2015", "57 / 76", "27 / 45", "6 / 12", "2 / 4", "9 / 18"]
    assert ["alexconv, fp32", *["1 / 6"] * 5] in five


@pytest.mark.parametrize("network", CONVNETS)
def test_published_networks_have_layers_and_times(network):
    lines = [row for row in benchmarks() if row.benchmark == network]
    assert len(lines) > 8 and len({row.N for row in lines}) == 1
    assert all(row.forward_ms > 0 and row.backward_ms > 0 for row in lines)
    assert set(CONVNETS[network]) <= set(WORKLOADS["convnet-benchmarks"].layers)


def trained(model, precision, losses, ms, **more):
    learnt = {"losses": losses, "accuracy": 0.985} if losses else {}
    by = {
        who: {"step_ms": {"nchw": time, "nhwc": 2 * time}, "same_bits": who != "torch", **learnt}
        for who, time in (("torch", 3 * ms), ("alexconv", ms))
    }
    facts = {"model": model, "precision": precision, "N": 32, "by": by}
    return {"schema": 1, "type": "library-run", "key": f"{model}{precision}", "device": "d", **facts, **more}


def test_trainings_have_a_row_for_each_contender_and_a_figure(tmp_path):
    path = tmp_path / "made.jsonl"
    runs = trained("digits", "fp32", [2.0] * 50 + [0.5] * 50, 0.25), trained("resnet18", "fp16", None, 2.0)
    path.write_text("".join(json.dumps(record) + "\n" for record in (DEVICE, *runs)))
    parts = training.parts([path])
    assert rows(parts["training-digits"]) == [
        ["torch", "fp32", "32", "0.75", "–", "0.5000", "98.5%", "no"],
        ["alexconv", "fp32", "32", "0.25", "3.00× faster", "0.5000", "98.5%", "yes"],
    ]
    assert rows(parts["training-resnet"])[1] == ["alexconv", "fp16", "32", "2", "3.00× faster"]
    (figure,) = training.plots([path])
    assert figure.key == training.FIGURE
    (axes,) = figure.draw().axes
    assert (axes.get_title(loc="left"), axes.get_ylabel()) == ("fp32", "loss")
    assert axes.get_legend_handles_labels()[1] == ["torch", "alexconv"]
    assert training.plots([]) == []
