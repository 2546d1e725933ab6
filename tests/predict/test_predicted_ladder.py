"""The predicted ladder as data: one entry for each rung and layer, with what was measured."""

from pathlib import Path

import pytest

from alexconv.predict.ladder import PredictedTime, predicted_ladder
from alexconv.records.compressed import files_in
from alexconv.records.store import Records, read

RESULTS = Path(__file__).parents[2] / "results"


def prediction(rung: str, layer: int, N: int, ms: float | None, **constants: int) -> dict:
    point = {"workload": "alexnet", "layer": layer, "N": N, "rung": rung, "constants": constants}
    launches = [{"entry": "a", "ms": 0.1 * (ms or 0), "limit": "L2"}, {"entry": "b", "ms": ms, "limit": "FMA pipe"}]
    header = {"type": "prediction", "point": point, "status": "ok", "ms": ms, "band_ms": [0.9 * (ms or 0), ms]}
    refused = {"type": "prediction", "point": point, "status": "refused", "reason": "no"}
    return refused if ms is None else header | {"launches": launches}


def test_each_rung_and_layer_has_its_fastest_constants_in_ladder_order():
    headers = [
        prediction("tiled", 3, 128, 3.0, TILE=8),
        prediction("tiled", 3, 128, 2.0, TILE=16),
        prediction("direct", 3, 128, None),
        prediction("direct", 1, 128, 5.0),
        prediction("direct", 1, 1, 0.5),
    ]
    ladder = predicted_ladder(Records({str(number): header for number, header in enumerate(headers)}, []))
    assert [(pair.rung, pair.layer, pair.predicted) for pair in ladder] == [
        ("direct", 1, 5.0),
        ("direct", 3, None),
        ("tiled", 3, 2.0),
    ]
    assert ladder[1].reason == "no" and ladder[1].band is None
    first = PredictedTime("direct", 1, {}, 5.0, (4.5, 5.0), "FMA pipe", (("a", 0.5), ("b", 5.0)), None, None)
    assert ladder[0] == first


def test_the_records_have_predictions_of_all_layers_beside_measured_times():
    ladder = predicted_ladder(read([RESULTS / "predicted" / "h200.jsonl"]), read(files_in(RESULTS, "h200-*.jsonl")))
    of_direct = [pair for pair in ladder if pair.rung == "direct-register"]
    assert [pair.layer for pair in of_direct] == [1, 2, 3, 4, 5]
    for pair in of_direct:
        assert pair.measured == pytest.approx(pair.predicted, rel=0.5) and pair.band and pair.limit
