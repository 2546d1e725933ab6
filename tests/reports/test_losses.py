"""What the fp16 product loses, from made-up counters."""

from math import ceil

import pytest

from alexconv.records.store import Record
from alexconv.reports import losses

ONCE, EPILOGUES, LAUNCH = 6200.0, {(256, 128): 4400.0, (192, 256): 9200.0}, 2000.0  # cycles
TILES = {2: (192, 256), 3: (256, 128), 4: (256, 128), 5: (192, 256)}  # by layer
CLOCK, BLOCKS = 1.65e9, 132


def timeline(layer: int) -> Record:
    """A product that loses just these cycles."""
    pixels, filters = TILES[layer]
    constants = {"TILE_PIXELS": pixels, "TILE_FILTERS": filters, "GRID_BLOCKS": BLOCKS}
    point = {"workload": losses.WORKLOAD, "layer": layer, "N": 128, "rung": losses.RUNG, "constants": constants}
    product = losses.Product({"point": point})
    of_tile = product.cycles + EPILOGUES[product.tile]
    active, whole = (ONCE + tiles * of_tile for tiles in (product.tiles_of_block, ceil(product.tiles_of_block)))
    metrics = {"sm_active_cycles": active, "clock_hz": CLOCK, "tensor_pipe": 84.0, "l2_throughput": 57.0}
    kernel = {"entry": losses.PRODUCT, "us": (whole + LAUNCH) / CLOCK * 1e6, "metrics": metrics}
    return {"point": point, "kernels": [kernel]}


def test_a_schedule_stands_beside_its_parent_and_its_prediction():
    records = [
        {"status": "ok", "point": {"rung": rung, "layer": 2}, "samples": {"kernel": [ms] * 10}}
        for rung, ms in (("wgmma-split", 0.5), ("wgmma-split-stream-k", 1.0), ("wgmma-scaled", 0.5))
    ]
    assert list(losses.scheduled_rows(records)) == [("`wgmma-split`", 2, 0.519, 0.5, 1.0, 0.5)]


def test_cycles_besides_the_wgmmas_are_the_least_squares_of_all_layers():
    once, of_tile = losses.cycles_besides([losses.Product(timeline(layer)) for layer in TILES])
    assert once == pytest.approx(ONCE)
    assert of_tile == pytest.approx(EPILOGUES)


def test_the_parts_of_a_kernels_time_are_all_of_it():
    for row in losses.rows([timeline(layer) for layer in TILES]):
        us, parts, by_clock = row[2], row[4:9], row[9]
        assert sum(parts) == pytest.approx(us)
        assert parts[-1] == pytest.approx(LAUNCH / CLOCK * 1e6)
        assert by_clock == pytest.approx(us / 6)
