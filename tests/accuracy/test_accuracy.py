"""The trained network, and that its accuracy tells right kernels from wrong ones."""

import re
import subprocess
import sys

import numpy as np
import pytest

from alexconv.accuracy import __main__ as accuracy
from alexconv.accuracy.__main__ import Trial
from alexconv.accuracy.network import HELD_OUT, WORKLOAD, digits, framed, held_out, on_cpu, pooled, trained
from alexconv.data import WEIGHTS
from alexconv.errors import MissingTool, UsageError
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.measuring.runner import Runner, Settings
from alexconv.records.store import read

IMAGES = 40
FEW = 4
TAKING = {
    (rung.family, rung.precision): rung.name
    for rung in LADDER
    if not rung.gpu_only
    and not any(BoundRung(rung, conv, rung.resolve(conv, {})).refusal() for conv in WORKLOAD.layers)
}


class Spoiled(HostExecutor):
    """The host executor, with a fault planted in the filters before the kernels see them."""

    def __init__(self, plant):
        super().__init__()
        self.plant = plant

    def open(self, program, plan, x, w, transfer, bias=None):
        return super().open(program, plan, x, np.ascontiguousarray(self.plant(w)), transfer, bias)


@pytest.fixture(scope="module")
def trial():
    return Trial(trained(), *held_out(IMAGES))


@pytest.fixture(scope="module")
def short_trial():
    return Trial(trained(), *held_out(FEW))


def outcome(trial, rung, executor=None):
    return trial.run(Runner(executor or HostExecutor(), [], Settings()), RUNGS[rung])


def command(*arguments):
    words = [sys.executable, "-m", "alexconv.accuracy", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_weights_fit_the_workload_and_the_repository():
    network = trained()
    assert [w.shape for w in network.filters] == [conv.w_shape() for conv in WORKLOAD.layers]
    assert all(array.dtype == np.float32 for array in (*network.filters, network.weights, network.bias))
    assert WEIGHTS.stat().st_size < 300_000


def test_the_network_reads_digits_it_has_not_learnt():
    images, labels = held_out(HELD_OUT)
    right = trained().scores(images, on_cpu).argmax(axis=1) == labels
    assert right.mean() > 0.9


def test_the_images_are_whole_pixels_in_a_zero_border():
    images, labels = digits()
    assert images.shape == (1797, *WORKLOAD.layer(1).x_shape(1)[1:])
    assert set(labels) == set(range(10))
    assert not images[:, :, [0, 1, 2, -3, -2, -1]].any()
    assert not images[:, :, :, [0, 1, 2, -3, -2, -1]].any()
    blocks = images[:, 0, 3:-3, 3:-3].reshape(-1, 8, 8, 8, 8)
    assert (blocks == blocks[:, :, :1, :, :1]).all()
    assert (images.astype(np.float16) == images).all()
    assert images.max() == 1


def test_the_held_out_images_are_the_last():
    images, labels = digits()
    last, last_labels = held_out(HELD_OUT)
    assert (last == images[-HELD_OUT:]).all()
    assert (last_labels == labels[-HELD_OUT:]).all()
    assert (held_out(7)[0] == last[:7]).all()


def test_pooling_takes_maxima_and_leaves_an_odd_edge_out():
    y = np.arange(2 * 5 * 4, dtype=np.float32).reshape(1, 2, 5, 4)
    assert pooled(y).tolist() == [[[[5, 7], [13, 15]], [[25, 27], [33, 35]]]]


def test_images_of_the_layers_own_size_are_left_alone():
    conv = WORKLOAD.layer(1)
    x = np.ones(conv.x_shape(1), np.float32)
    assert (framed(x, conv) == x).all()


@pytest.mark.parametrize("rung", ["direct-register", "channels", "tiled-constant", "fused-unroll-matmul"])
def test_fp32_rungs_predict_what_the_reference_predicts(trial, rung):
    result = outcome(trial, rung)
    assert (result.status, result.changed_predictions) == ("ok", ())
    assert result.accuracy == result.reference_accuracy > 0.9
    assert result.score_change < 1e-5
    assert result.right


@pytest.mark.parametrize("rung", TAKING.values())
def test_rungs_of_every_family_and_precision_read_the_digits(short_trial, rung):
    result = outcome(short_trial, rung)
    assert (result.status, result.changed_predictions) == ("ok", ()), result.reason
    assert result.score_change < (1e-6 if result.precision == "fp32" else 1e-3)


def test_half_precision_changes_the_scores_and_says_by_how_much(trial):
    result = outcome(trial, "tiled-half")
    assert result.precision == "half"
    assert 1e-5 < result.score_change < 1e-2
    assert result.right


@pytest.mark.parametrize(
    "plant",
    [
        lambda w: w[..., ::-1, ::-1],  # a convolution in place of a correlation
        lambda w: np.roll(w, 1, axis=0),  # each filter in its neighbour's place
        lambda w: np.where(np.arange(w.shape[3]) > 0, w, 0),  # a dropped tap in every row
    ],
)
def test_wrong_filters_change_predictions_and_lower_the_accuracy(trial, plant):
    result = outcome(trial, "direct-register", Spoiled(plant))
    assert result.changed_predictions
    assert result.accuracy < result.reference_accuracy
    assert not result.right


@pytest.mark.parametrize("rung", ("direct-register", "tiled-half"))
def test_nan_outputs_count_as_wrong_predictions(trial, rung):
    result = outcome(trial, rung, Spoiled(lambda w: w * w.dtype.type("nan")))
    assert (result.accuracy, len(result.changed_predictions), result.score_change) == (0.0, IMAGES, None)
    assert not result.right


def test_the_command_prints_and_records_each_rung(tmp_path):
    done = command("--rungs", "direct-register,half", "--images", 8, "--backend", "host", "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert "8 images, CPU reference" in done.stdout
    records = read([tmp_path / "r"])
    accuracies = [header for header in records.headers.values() if header["type"] == "accuracy"]
    assert [(r["rung"], r["precision"], r["images"]) for r in accuracies] == [
        ("direct-register", "fp32", 8),
        ("direct-half", "half", 8),
    ]
    for record in accuracies:
        assert record["accuracy"] == record["reference_accuracy"]
        assert record["changed_predictions"] == []
        assert [records.headers[record[kind]]["type"] for kind in ("device", "host", "run")] == [
            "device",
            "host",
            "run",
        ]


@pytest.mark.parametrize("images", [0, HELD_OUT + 1])
def test_more_images_than_were_held_out_are_refused(tmp_path, images):
    options = accuracy.parser().parse_args(["--images", str(images), "--out", str(tmp_path / "r")])
    with pytest.raises(UsageError, match=f"1 to {HELD_OUT}"):
        accuracy.run(options, LADDER, HostExecutor(), "the command")


def test_without_scikit_learn_there_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingTool, match=re.escape("pip install 'alexconv[accuracy]'")):
        digits()
