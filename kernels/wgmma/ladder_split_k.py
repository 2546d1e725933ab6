"""The wgmma rungs with split-K over blocks, and their common parts; ``split_tiles.cuh``."""

from collections.abc import Callable
from dataclasses import replace
from math import ceil

from alexconv.kernels.dynamic import Number
from alexconv.kernels.geometry import FLOAT, HOPPER, Refusal
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Array, Constant, Dims, Launch, Rung
from alexconv.kernels.wgmma.blocked import STAGE_TAPS, as_it_lies, runs, tiles
from alexconv.kernels.wgmma.ladder import (
    FILTER_TILES,
    GRID_BLOCKS,
    NATIVE,
    OWN_CHANNELS,
    PIXEL_TILES,
    SMALLEST_TILE,
    WARPGROUP,
    consumers,
    dynamic,
    filter_map,
    filters,
    of_one_group,
    pipeline_bytes,
    pixel_map,
    prepare_native,
    refuses_unblocked,
    tile_constants,
    tiles_block,
    tiles_grid,
)
from alexconv.kernels.wgmma.times import tiled
from alexconv.shapes import NETWORK_FEATURES

WORD = 4  # bytes
LEAST_STAGES = 3  # of a slice, by default
SPLITS = tuple(range(1, 33))
MORE_FILTER_TILES = tuple(sorted((*FILTER_TILES, 32, 160)))
MOST_SPLITS = 8  # by default: the last block adds all of them
Stages = Callable[[Problem], int]  # those of a tile


def half_stages(p: Problem) -> int:
    """Stages of a tile of fp16 values."""
    count, taps = runs(p.conv, as_it_lies)
    return count * ceil(taps / STAGE_TAPS)


def split_constants(stages: Stages) -> tuple[Constant, Constant]:
    """The slices of a tile: as many as there are multiprocessors for, but of some stages each; and the grid."""

    def splits(p: Problem) -> int:
        wanted = p.device.multiprocessors // tiles(p)
        most = max(1, min(wanted, stages(p) // LEAST_STAGES, MOST_SPLITS))
        return max(number for number in SPLITS if number <= most)

    return (
        Constant("SPLITS", "split-K slices of a tile, a block each", splits, choices=SPLITS),
        replace(GRID_BLOCKS, matters=lambda p: p["SPLITS"] == 1),
    )


SPLITS_NUMBER: Number = ("SPLITS", lambda p: p["SPLITS"])


def some_splits(stages: Stages) -> Callable[[Problem], list[dict[str, int]]]:
    """Numbers of slices up to the default, which builds for every shape leave open."""

    def some(p: Problem) -> list[dict[str, int]]:
        most = split_constants(stages)[0].default(p)
        return [{"SPLITS": number} for number in SPLITS if number <= most]

    return some


def too_many_splits(stages: Stages) -> Refusal:
    """Why a tile cannot have that many slices, or None."""

    def reason(p: Problem) -> str | None:
        if p["SPLITS"] <= stages(p):
            return None
        return f"{p['SPLITS']} slices of a tile that has {stages(p)} stages"

    return reason


def slices_grid(p: Problem) -> Dims:
    """One block per slice; without slices a persistent kernel."""
    return (tiles(p) * p["SPLITS"], 1, 1) if p["SPLITS"] > 1 else tiles_grid(p)


def sums_of_slices() -> tuple[Array, Array]:
    """The slices' sums, and arrival counters of a tile's warps; one element where a tile has one slice."""

    def partial(p: Problem) -> tuple[int, ...]:
        return (tiles(p), p["SPLITS"], p["TILE_PIXELS"] * p["TILE_FILTERS"]) if p["SPLITS"] > 1 else (1,)

    def arrived(p: Problem) -> tuple[int, ...]:
        return (tiles(p), consumers(p) * WARPGROUP // 32) if p["SPLITS"] > 1 else (1,)

    return Array("partial", partial, FLOAT), Array("arrived", arrived, WORD, lasting=True)


def refuses_split_k(p: Problem) -> str | None:
    """The reason why wgmma-half-split-k does not take a problem."""
    return too_many_splits(half_stages)(p) or refuses_unblocked(p)


def shared_bytes(p: Problem) -> int:
    """Shared memory of wgmma-half's multiplication."""
    return pipeline_bytes(NATIVE, p)


def split_k(
    name: str, alias: str, idea: str, parent: str, filter_tiles: tuple[int, ...], *, whole: bool = False
) -> Rung:
    """A rung whose tiles several blocks may share; ``whole``: every stage has all steps."""
    tiles_of_builds = ((64, 32), (64, 64), (64, 128), (192, 96), (192, 128))
    by_splits = dynamic(
        shared_bytes,
        as_it_lies,
        tiles_of_builds,
        some_splits(half_stages),
        SPLITS_NUMBER,
        slower=1.15,
        besides=0.5,
    )
    return Rung(
        name,
        alias=alias,
        idea=idea,
        family="wgmma",
        parent=parent,
        file=f"wgmma/{name.replace('-', '_')}.cu",
        launches=(
            Launch(
                "multiply",
                ("pixel_map", "filter_map", "partial", "arrived", "y", BATCH),
                slices_grid,
                tiles_block,
                shared_bytes,
                pdl=True,
                stores=True,
                grouped=OWN_CHANNELS,
            ),
        ),
        constants=(
            *tile_constants(NATIVE, (SMALLEST_TILE, *PIXEL_TILES), filter_tiles)[:3],
            *split_constants(half_stages),
        ),
        scratch=sums_of_slices(),
        precision="fp16",
        layout="nhwc",
        prepare=(prepare_native("order_filters", as_it_lies),),
        prepared=(filters(gathers=as_it_lies),),
        prepares_nhwc=of_one_group,
        maps=(pixel_map("pixel_map", "x", as_it_lies), filter_map("filter_map", "filters", as_it_lies)),
        refuses=refuses_split_k,
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=NETWORK_FEATURES,
        time=tiled(as_it_lies, value=2, prepares=False, whole=whole),
        dynamic=by_splits if whole else None,
    )


SPLIT_K_RUNGS: tuple[Rung, ...] = (
    split_k(
        "wgmma-half-split-k",
        "wgmma-fp16-k",
        "several blocks per tile where tiles are few, each with some of the taps",
        "wgmma-half",
        FILTER_TILES,
    ),
    split_k(
        "wgmma-half-whole",
        "wgmma-fp16-w",
        "whole stages only, partial ones padded with zeros; tiles of 32 and 160 filters",
        "wgmma-half-split-k",
        MORE_FILTER_TILES,
        whole=True,
    ),
)
