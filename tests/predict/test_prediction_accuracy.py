"""Predicted times of stored machine code against what an H200 measured, and the page that tells how good they are."""

from pathlib import Path
from statistics import fmean

import pytest
import stored_code
from report_records import record, write

from alexconv.errors import MachineFault
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.planning.points import Point
from alexconv.predict import accuracy, gpu, model, native, page
from alexconv.predict.disassembly import UnknownInstruction
from alexconv.predict.predictions import PointPrediction, lines, predict_points
from alexconv.records.store import RecordFile, read

CHECKOUT = Path(__file__).resolve().parent.parent.parent
H200 = gpu.load("h200")


def quick(point) -> bool:
    """Whether the model is done with a point within about a second, and its tile is not between others of a sweep."""
    swept = point["constants"].get("TILE", 0) not in (0, 8, 16, 20, 32)
    return not swept and (
        point["N"] == 1 or RUNGS[point["rung"]].family in ("mma", "gemm") or point["workload"] != "alexnet"
    )


POINTS = [entry for entry in stored_code.stored()["points"] if quick(entry["point"])]


@pytest.fixture(scope="module")
def ratios() -> list[tuple[float, float]]:
    """Predicted and measured milliseconds of the stored points."""
    return [(predicted(entry).milliseconds, entry["ms"]) for entry in POINTS]


def predicted(stored) -> PointPrediction:
    point = Point.from_axes(stored["point"])
    (prediction,) = predict_points([point], H200, lambda bound, _: stored_code.kernels(stored["program"]))
    return prediction


def of(rung: str, N: int) -> PointPrediction:
    points = stored_code.stored()["points"]
    return predicted(next(entry for entry in points if entry["point"]["rung"] == rung and entry["point"]["N"] == N))


def test_at_least_forty_stored_points_are_predicted_well(ratios):
    assert len(ratios) >= 40
    errors = [abs(a / b - 1) for a, b in ratios]
    assert fmean(errors) < 0.15  # points that are quick have few blocks, where the model is at its worst
    assert max(errors) < 0.45
    assert accuracy.spearman([a for a, _ in ratios], [b for _, b in ratios]) > 0.98


def test_a_prediction_says_what_limits_it_and_how_busy_each_unit_is():
    prediction = of("direct-register", 1)
    (launch,) = prediction.launches
    assert launch.limiting == "L1 and shared memory"
    assert all(0 <= share < 1.3 for share in launch.utilisation.values())
    low, high = prediction.band()
    assert low < prediction.milliseconds < high
    metrics = prediction.record()["launches"][0]["metrics"]
    assert metrics["global_load_sectors_per_request"] == pytest.approx(2.95, rel=0.02)  # Nsight Compute's, N = 128
    assert metrics["registers"] > 16


def test_the_cycles_of_all_source_lines_are_all_cycles():
    stored = next(entry for entry in POINTS if entry["point"]["rung"] == "mma-half")
    prediction = predicted(stored)
    kernel = stored_code.kernels(stored["program"])[prediction.launches[0].entry]
    shares = lines(kernel, prediction.launches[0])
    assert sum(line.cycles for line in shares) == pytest.approx(1)
    assert sum(line.issued for line in shares) == pytest.approx(1)
    assert shares[0].cycles >= shares[-1].cycles


def test_a_faster_gpu_takes_less_time():
    stored = next(entry for entry in POINTS if entry["point"]["rung"] == "direct-register")
    point = Point.from_axes(stored["point"])
    bound = BoundRung(RUNGS[point.rung], point.conv, point.constants)
    slow = gpu.Gpu("slow", "slow", (9, 0), False, {**H200.values, "device": {**H200.values["device"], "clock_hz": 1e9}})
    kernels = stored_code.kernels(stored["program"])
    fast, slower = (sum(launch.seconds for launch in model.predict(bound, kernels, point.N, on)) for on in (H200, slow))
    assert slower > 1.5 * fast


def test_what_the_model_cannot_follow_is_refused_with_the_reason(tmp_path):
    point = Point.from_axes(POINTS[0]["point"])

    def unknown(bound, on):
        raise UnknownInstruction("the model does not know the opcode FROBNICATE")

    (refusal,) = predict_points([point], H200, unknown)
    file = RecordFile(tmp_path / "predictions.jsonl")
    file.header("prediction", refusal.record())
    (written,) = accuracy.predictions_in(read([file.path])).values()
    assert (written["status"], written["reason"]) == ("refused", "the model does not know the opcode FROBNICATE")


def test_a_block_whose_bytes_are_too_scattered_is_refused_and_not_without_traffic(monkeypatch):
    monkeypatch.setattr(native, "_MAX_PIECES", 2)
    assert of("direct-register", 1).reason == "a block touches more than 2 separate runs of bytes"


def test_a_simulator_that_does_not_compile_is_no_refusal_of_the_kernel(monkeypatch):
    monkeypatch.setattr(native, "_FLAGS", ("--no-such-option",))
    monkeypatch.setattr(native, "_library", native._library.__wrapped__)
    with pytest.raises(MachineFault, match="the simulator of predictions does not compile"):
        of("direct-register", 1)


def test_the_band_is_that_of_the_points_that_are_not_held_out():
    known = page.known_pairs(CHECKOUT / "results")
    below, above = page.band([pair for pair in known if not pair.held_out])
    assert H200["accuracy.below"] == pytest.approx(below, abs=0.006)
    assert H200["accuracy.above"] == pytest.approx(above, abs=0.006)


def test_only_times_on_uniform_data_stand_beside_predictions(tmp_path):
    uniform, zeros = record("alexnet", 3, 128, "direct"), record("alexnet", 3, 128, "direct")
    zeros["point"]["data"] = "zeros"
    written = read([write(tmp_path / "data.jsonl", [one | {"pieces": 1} for one in (uniform, zeros)])])
    (known,) = accuracy.measured_points(written).values()
    assert "data" not in known["point"]


def test_a_changed_model_is_compared_on_the_points_that_both_have():
    def pair(layer, predicted):
        point = {"workload": "alexnet", "layer": layer, "N": 1, "rung": "direct", "constants": {}}
        return accuracy.Pair(point, "single", predicted, 1.0)

    before, after = [pair(1, 1.5), pair(2, 1.1), pair(3, 3.0)], [pair(1, 1.25), pair(2, 1.0)]
    rows = list(page.improved(before, after))
    assert rows[2:] == ["| single | 2 | 30.0 | 12.5 | 50 | 25 |", "| all | 2 | 30.0 | 12.5 | 50 | 25 |"]
