"""The wgmma rung whose epilogue overlaps with the next tile; ``lent_stages.cuh``."""

from math import ceil

from alexconv.kernels.geometry import HALF, HOPPER
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung, TensorMap
from alexconv.kernels.wgmma.blocked import CHUNK, ROW_BYTES, as_it_lies
from alexconv.kernels.wgmma.ladder import (
    NATIVE,
    filter_map,
    filters,
    multiply,
    pixel_map,
    prepare_native,
    refuses_unblocked,
    tile_constants,
    too_many_accumulators,
)
from alexconv.kernels.wgmma.times import tiled
from alexconv.shapes import FEATURES

WARP_ROWS = 16  # pixels of a warp in an accumulator tile
BOX_FILTERS = ROW_BYTES // HALF  # of a store
FILTER_TILES = (64, 128, 192, 256)
TAKES_ONE_GROUP = tuple(feature for feature in FEATURES if feature != "groups")


def output_map() -> TensorMap:
    """The map through which TMA stores outputs [N E F][M], 16 pixels of 64 filters at a time."""

    def strides(p: Problem) -> tuple[int, ...]:
        pixel = (p.conv.y_channels or p.conv.M) * HALF
        return pixel, p.conv.E * p.conv.F * pixel

    return TensorMap(
        "output_map",
        "y",
        dims=lambda p: (p.conv.M, p.N * p.conv.E * p.conv.F, 1),
        strides=strides,
        box=lambda p: (BOX_FILTERS, WARP_ROWS, 1),
    )


def lent_stages(p: Problem) -> int:
    """Stages of the pipeline that hold a tile's outputs, whole warps' rows in each."""
    stage, rows = (p["TILE_PIXELS"] + p["TILE_FILTERS"]) * ROW_BYTES, WARP_ROWS * p["TILE_FILTERS"] * HALF
    return ceil(p["TILE_PIXELS"] / (stage // rows * WARP_ROWS))


def refuses_tile(p: Problem) -> str | None:
    """Why a tile size is not suitable, or None."""
    if p["TILE_FILTERS"] % BOX_FILTERS:
        return f"tiles of {p['TILE_FILTERS']} filters: the copy engine stores {BOX_FILTERS} at a time"
    return too_many_accumulators(NATIVE, p)


def refuses_overlapped(p: Problem) -> str | None:
    """The reason why wgmma-half-overlapped does not take a problem."""
    if p.conv.M % CHUNK:
        return f"{p.conv.M} filters: the copy engine stores multiples of {CHUNK}"
    if reason := refuses_tile(p):
        return reason
    if (lent := lent_stages(p)) >= p["STAGES"]:
        return f"the epilogue borrows {lent} stages of {p['STAGES']}: none is left for the next tile"
    return refuses_unblocked(p)


OVERLAPPED_RUNGS: tuple[Rung, ...] = (
    Rung(
        "wgmma-half-overlapped",
        alias="wgmma-fp16-o",
        idea="outputs leave through stages of the pipeline, by TMA stores, while the next tile is multiplied",
        family="wgmma",
        parent="wgmma-half",
        file="wgmma/wgmma_half_overlapped.cu",
        launches=(multiply(NATIVE, "pixel_map", "filter_map", "output_map", "y", "N"),),
        constants=tile_constants(NATIVE, filters=FILTER_TILES, refuses_tile=refuses_tile),
        precision="fp16",
        layout="nhwc",
        prepare=(prepare_native("order_filters", as_it_lies),),
        prepared=(filters(gathers=as_it_lies),),
        maps=(pixel_map("pixel_map", "x", as_it_lies), filter_map("filter_map", "filters", as_it_lies), output_map()),
        refuses=refuses_overlapped,
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=TAKES_ONE_GROUP,
        time=tiled(as_it_lies, value=2, prepares=False),
    ),
)
