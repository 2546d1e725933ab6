"""What the model derives from blocks and from a GPU's description: lines, shared copies, tried blocks, the clock."""

from dataclasses import replace

import numpy as np
import pytest
import stored_code

from alexconv.planning.points import Point
from alexconv.predict import gpu, model, traffic
from alexconv.predict.native import Outcome
from alexconv.predict.predictions import predict_points

H200 = gpu.load("h200")
LINE = 128


def outcome(*pieces, written=()):
    """A block that touches these runs of bytes: array, first byte, bytes."""
    table = np.array([(array + 1, first, size) for array, first, size in pieces], np.int64)
    return Outcome({}, np.zeros(1), np.zeros(1), np.zeros((1, 1)), table, frozenset(written))


def test_blocks_that_run_together_add_to_the_lines_of_their_own_planes():
    planes = 4

    def block(number):  # of 8 along x, which share a plane, and `planes` along y
        return outcome((2, number // 8 * 4 * LINE, 3 * LINE + 1), (0, number % 8 * LINE, LINE), written=(2,))

    grid = 8, planes, 1
    assert traffic.lines_added_to(grid, block(20), block, running=32) == planes * 4
    assert traffic.lines_added_to(grid, block(20), block, running=8) == 4


def test_fewer_lines_get_a_smaller_share_of_l2_s_additions():
    shares = [H200.slices_share(lines) for lines in (16, 64, 200, 512, 4096, 1 << 20)]
    assert shares == sorted(shares)
    assert shares[0] < 0.3
    assert shares[-1] == 1


def test_what_a_neighbour_copies_too_is_known_by_array():
    one, other = outcome((0, 0, 1024), (1, 0, 512)), outcome((0, 512, 1024), (1, 0, 512), (2, 0, 32))
    assert traffic.shared_with(one, other) == {0: 0.5, 1: 1.0}


@pytest.mark.parametrize(("blocks", "of_a_tile"), [(48, 8), (132, 11), (96, 2), (64, 16), (120, 8)])
def test_the_blocks_that_are_tried_have_the_last_one_of_a_tile(blocks, of_a_tile):
    tried = model.few(blocks, 132)
    assert len(tried) <= model.TRIED + 4
    assert any(block % of_a_tile == of_a_tile - 1 for block in tried)


def test_products_of_warpgroups_lower_the_clock():
    clocks = [H200.clock_under(busy) for busy in (0, 0.5, 1, 1.2)]
    assert clocks[0] == H200.clock_hz
    assert clocks[0] > clocks[1] > clocks[2] == clocks[3] == H200["device.clock_of_products_hz"]


def test_a_block_that_no_multiprocessor_can_hold_is_refused():
    stored = next(entry for entry in stored_code.stored()["points"] if entry["point"]["rung"] == "direct-register")

    def kernels(bound, on):
        fitting = stored_code.kernels(stored["program"])
        return {
            entry: replace(kernel, needs=replace(kernel.needs, static_shared=1 << 20))
            for entry, kernel in fitting.items()
        }

    (prediction,) = predict_points([Point.from_axes(stored["point"])], H200, kernels)
    assert prediction.reason == "direct_register: a multiprocessor cannot hold one block"
    assert prediction.record()["status"] == "refused"
