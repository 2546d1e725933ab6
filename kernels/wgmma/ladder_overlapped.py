"""The wgmma rung whose epilogue overlaps with the next tile; ``lent_stages.cuh``."""

from math import ceil

from alexconv.kernels.geometry import HALF, HOPPER
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Rung
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
)
from alexconv.kernels.wgmma.times import tiled
from alexconv.shapes import FEATURES

WARP_ROWS = 16  # pixels of a warp in an accumulator tile
TAKES_ONE_GROUP = tuple(feature for feature in FEATURES if feature != "groups")


def lent_stages(p: Problem) -> int:
    """Stages of the pipeline that hold a tile's outputs, in rows padded by a chunk, whole warps' rows in each."""
    filters = p["TILE_FILTERS"]
    stage, row = (p["TILE_PIXELS"] + filters) * ROW_BYTES, (filters + CHUNK) * HALF
    return ceil(p["TILE_PIXELS"] / (stage // (WARP_ROWS * row) * WARP_ROWS))


def refuses_overlapped(p: Problem) -> str | None:
    """The reason why wgmma-half-overlapped does not take a problem."""
    if p.conv.M % CHUNK:
        return f"{p.conv.M} filters: the copy engine stores multiples of {CHUNK}"
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
        launches=(multiply(NATIVE, "pixel_map", "filter_map", "y", "N"),),
        constants=tile_constants(NATIVE),
        precision="fp16",
        layout="nhwc",
        prepare=(prepare_native("order_filters", as_it_lies),),
        prepared=(filters(gathers=as_it_lies),),
        maps=(pixel_map("pixel_map", "x", as_it_lies), filter_map("filter_map", "filters", as_it_lies)),
        refuses=refuses_overlapped,
        min_capability=HOPPER,
        exact_capability=True,
        tensor_factors="fp16",
        takes=TAKES_ONE_GROUP,
        time=tiled(as_it_lies, value=2, prepares=False),
    ),
)
