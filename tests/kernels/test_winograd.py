"""Winograd tiles on the host executor: every size of tile and filter, uneven shapes, tiles that blocks share."""

import pytest
from rung_runs import assert_exact, whole

from alexconv.executors import choose_executor
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.wgmma.ladder_winograd import tile_taps
from alexconv.shapes import Conv

RUNG = RUNGS["wgmma-winograd"]


def exact(conv: Conv, N: int, **chosen: int) -> None:
    assert_exact(choose_executor("host", host_build="unoptimized"), whole(RUNG, conv, N, **chosen).bound, N)


# Every size of tile, of filter, and number of points, which is size + S - 1: all pairs with the most, eight.
@pytest.mark.parametrize(
    "size, S", [(2, 2), (2, 3), (3, 3), (3, 4), (4, 4), (6, 2), (2, 7), (3, 6), (4, 5), (5, 4), (6, 3)]
)
def test_every_size_of_tile_is_exact_on_integers(size, S):
    exact(Conv(C=5, H=4, W=S + 10, M=3, R=2, S=S), 2, TILE_OUTPUTS=size)


# Filter rows that are whole segments and not, one tile apart and two.
@pytest.mark.parametrize("S, size", [(32, 4), (11, 4), (9, 2)])
def test_segments_of_a_filter_row_are_exact(S, size):
    exact(Conv(C=24, H=4, W=S + 9, M=3, R=2, S=S), 2, TILE_OUTPUTS=size)


@pytest.mark.parametrize(
    "conv",
    [
        Conv(C=100, H=4, W=8, M=70, R=3, S=3),  # two groups of channels, two of filters
        Conv(C=3, H=3, W=150, M=9, R=2, S=3),  # an input row longer than a block's, outputs in several spans
        Conv(C=8, H=40, W=7, M=130, R=5, S=5),  # more filters than a tile has, several blocks of rows
    ],
    ids=str,
)
def test_partial_tiles_are_exact(conv):
    exact(conv, 2)


@pytest.mark.parametrize("N, blocks", [(2, 1), (2, 2), (2, 3), (2, 5), (2, 7), (5, 3), (5, 5), (5, 7)])
def test_tiles_shared_by_blocks_are_exact(N, blocks):
    """Seven stages per tile, 8 or 12 tiles: blocks begin and end within tiles, some after whole ones.

    With five images and five blocks there are three tiles of rows at a point, in bands of two and of one.
    """
    chosen = {"TILE_OUTPUTS": 2, "TILE_PIXELS": 128, "TILE_FILTERS": 64, "STAGES": 2, "GRID_BLOCKS": blocks}
    exact(Conv(C=112, H=14, W=14, M=64, R=4, S=3), N, **chosen)


@pytest.mark.parametrize("channels, size", [(8, 2), (40, 4), (128, 6)])
def test_the_usual_tile_is_as_large_as_its_errors_allow(channels, size):
    assert RUNG.resolve(Conv(C=channels, H=8, W=26, M=4, R=3, S=3), {})["TILE_OUTPUTS"] == size


@pytest.mark.parametrize("S, outputs, taps", [(5, 4, 5), (8, 4, 4), (9, 3, 3), (32, 4, 4)])
def test_a_long_filter_row_is_cut_into_the_segments_of_fewest_products(S, outputs, taps):
    conv = Conv(C=64, H=40, W=S + 11, M=4, R=S, S=S)
    constants = RUNG.resolve(conv, {})
    assert (constants["TILE_OUTPUTS"], tile_taps(Problem(conv, 1, constants))) == (outputs, taps)


@pytest.mark.parametrize(
    "conv, reason",
    [
        (Conv(C=3, H=19, W=19, M=4, R=3, S=3, U=2), "a stride of 2"),
        (Conv(C=3, H=9, W=9, M=4, R=3, S=1), "filters of 1 columns"),
        (Conv(C=3, H=9, W=9, M=4, R=3, S=3), "for 80 taps or more, not for 27"),
        (Conv(C=96, H=3, W=700, M=4, R=3, S=3), "bytes of shared memory"),
    ],
    ids=str,
)
def test_a_refusal_gives_the_reason(conv, reason):
    assert reason in (RUNG.refuses(Problem(conv, 1, RUNG.resolve(conv, {}))) or "")
