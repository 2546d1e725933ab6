"""The tables of layers bound by memory, on records made up here."""

from types import SimpleNamespace

from alexconv.reports import memory_bound, networks

MB = 128 * 32 * 112 * 112 * 2 * 4 / 1e6  # of the first layer's input and output, 128 images of floats


def point(rung, precision, us, N=128, status="ok"):
    names = {"workload": "depthwise", "layer": 1, "N": N, "rung": rung, "precision": precision, "constants": {}}
    return {"point": names, "device": "d", "status": status, "samples": {"kernel": [us / 1e3] * 6}, "launches": []}


def records(*points, rate=3e12):
    return SimpleNamespace(points=points, headers={"c": {"type": "ceilings", "copy_bytes_per_s": rate}})


def test_a_layer_is_compared_with_its_bytes_and_with_cudnn():
    rows = records(
        point("depthwise-window", "fp32", 160),
        point("depthwise-channels", "fp32", 150),
        point("depthwise-planes", "fp32", 10, status="wrong"),
        point("torch-nhwc-fp32", "fp32", 180),
        point("torch-nchw-fp32", "fp32", 400),
    )
    layers = [memory_bound.Layer(pair, rows) for pair in networks.pairs(rows)]
    ((layer, shape, precision, moved, predicted, *times, share, peer, ratio, rung),) = memory_bound.layer_rows(layers)
    assert (layer, shape, precision) == (1, "32 x 112 x 112, 32 of 3 x 3, 32 groups", "fp32")
    assert (moved, predicted) == (f"{MB:.0f}", f"{MB / 0.85 / 3:.1f}")
    assert (times, peer, rung) == (["160.0", "150.0"], "180.0", "`depthwise-channels`")
    assert share == f"{MB / 150 / 3:.0%}"
    assert round(ratio, 6) == 1.2


def test_ratios_are_of_each_batch_and_class():
    data = records(
        *(point("depthwise-window", "fp32", us, N) for N, us in ((1, 5), (128, 100))),
        *(point("torch-nchw-fp32", "fp32", us, N) for N, us in ((1, 4), (128, 150))),
    )
    rows = memory_bound.summary_part(networks.pairs(data)).splitlines()[2:]
    assert rows == [
        "| depthwise | 1 | fp32 | 1 | 1.25× slower | 0% | 1.25× slower |",
        "| depthwise | 128 | fp32 | 1 | 1.50× faster | 100% | 1.50× faster |",
    ]
    assert memory_bound.summary_part([]) == networks.NOT_MEASURED
