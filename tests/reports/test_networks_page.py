"""The networks page's tables, on records made up here."""

from pathlib import Path
from types import SimpleNamespace

from alexconv.reports import networks

ROOT = Path(__file__).resolve().parent.parent.parent


def point(rung, precision, us, layer=5, N=32, status="ok", constants=None, workload="resnet50"):
    launches = [{"entry": entry} for entry in ("find_filter_exponents", "prepare_filters", "prepare_input", "multiply")]
    return {
        "point": {
            "workload": workload,
            "layer": layer,
            "N": N,
            "rung": rung,
            "precision": precision,
            "constants": constants or {},
        },
        "device": "d",
        "status": status,
        "samples": {"kernel": [us / 1e3] * 6},
        "launches": launches,
    }


def beside(*points):
    return networks.pairs(SimpleNamespace(points=points))


def test_the_fastest_of_each_side_are_compared_and_stricter_rungs_serve():
    pairs = beside(
        point("wgmma-scaled", "tf32", 80),
        point("wgmma-floats-split", "fp32", 50),
        point("wgmma-floats", "tf32", 10, status="wrong"),
        point("torch-nchw-tf32", "tf32", 100),
        point("torch-nhwc-tf32", "tf32", 40),
        point("torch-gemm-fp32", "fp32", 200),
        point("torch-nhwc-fp16", "fp16", 5),
    )
    assert [(pair.precision, round(pair.ratio, 6)) for pair in pairs] == [("fp32", 0.25), ("tf32", 1.25)]
    rows = networks.summary_part(pairs).splitlines()[2:]
    assert rows[0] == "| resnet50 | 32 | fp32 | 1 of 23 | 4.00× faster | 100% | 100% | 100% | 4.00× faster |"
    assert rows[1] == "| resnet50 | 32 | tf32 | 1 of 23 | 1.25× slower | 0% | 0% | 0% | 1.25× slower |"


def test_layers_with_groups_have_a_row_for_each_class_of_the_largest_batch():
    of_layers = [
        point(rung, "fp16", us, layer, N, workload="alexnet-2012")
        for layer, N in ((2, 128), (2, 1), (3, 128))
        for rung, us in (("wgmma-half", 50), ("torch-nhwc-fp16", 100))
    ]
    (row,) = networks.layers_part(beside(*of_layers)).splitlines()[2:]
    shape = "96 x 27 x 27, 256 of 5 x 5, 2 groups"
    assert row == f"| alexnet-2012 | 2 | 128 | fp16 | {shape} | 50.0 | 100.0 | 2.00× faster | `wgmma-half` |"
    assert networks.layers_part(beside(*of_layers[2:])) == networks.NOT_MEASURED


def test_a_file_that_was_cut_short_before_cudnns_usual_layout_gives_no_pair():
    points = [point("wgmma-half", "fp16", 50), point("torch-nchw-fp16", "fp16", 100)]
    assert networks.with_usual_peer(SimpleNamespace(points=points)) == []
    nhwc = point("torch-nhwc-fp16", "fp16", 60)
    (pair,) = networks.with_usual_peer(SimpleNamespace(points=[*points, nhwc]))
    assert pair.peer is nhwc


def test_slower_layers_are_shown_with_what_their_launches_say():
    tile = {"TILE_PIXELS": 128, "TILE_FILTERS": 64, "SPLITS": 2}
    pairs = beside(
        point("wgmma-scaled", "tf32", 106, constants=tile),
        point("torch-nhwc-tf32", "tf32", 100),
        point("wgmma-half", "fp16", 104, constants=tile),
        point("torch-nhwc-fp16", "fp16", 100),
    )
    (row,) = networks.slower_part(pairs).splitlines()[2:]
    assert "256 x 56 x 56, 64 of 1 x 1" in row and "| 1.06× slower |" in row
    assert row.endswith("2 launches, a pass over the input; 1568 blocks' work, tiles 100% full |")
    assert networks.slower_part([]) == networks.NOT_MEASURED
    assert networks.slower_part(pairs[1:]) == "None more than 1.05× slower."
