"""The dgrad rungs: gradients of the input."""

from math import ceil, prod

from alexconv.kernels.dgrad.turned import dgrad_rung, phased_rung
from alexconv.kernels.igemm.ladder import BLOCKS_PER_SM, block, least_padded, tile_columns, tile_rows
from alexconv.kernels.mma.ladder import MMA_RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Constant, Dims, Launch, Rung
from alexconv.kernels.times import multiplying, on_cuda_cores
from alexconv.kernels.wgmma.ladder import WGMMA_RUNGS
from alexconv.kernels.wgmma.ladder_split_k import SPLIT_K_RUNGS
from alexconv.shapes import CONVOLUTION_FEATURES, DGRAD

THREADS = 256  # of a block whose threads have a value each


def values_grid(p: Problem) -> Dims:
    """A thread for each value of the batch's dx."""
    return ceil(prod(p.conv.x_shape(p.N)) / THREADS), 1, 1


def values_block(p: Problem) -> Dims:
    """THREADS threads."""
    return THREADS, 1, 1


def phases_grid(p: Problem) -> Dims:
    """A thread for each value of the batch's dx, phase by phase."""
    down, across = p.conv.strides
    values = p.N * p.conv.C * ceil(p.conv.H / down) * ceil(p.conv.W / across)
    return ceil(values / THREADS), down * across, 1


def windows_grid(p: Problem) -> Dims:
    """A thread for each channel at each output pixel of the batch."""
    return ceil(p.N * p.conv.C * p.conv.E * p.conv.F / THREADS), 1, 1


def additions(p: Problem) -> int:
    """Additions to a value, one for each tap that may lie on it."""
    return p.conv.products(1) // (p.conv.M // p.conv.groups)


# ---- Implicit GEMM ---------------------------------------------------------------------------------------------------

IGEMM_RATE = 60.0  # multiply-adds per cycle of a multiprocessor
TILES = ((2, 8, 2, 8), (2, 4, 2, 8), (1, 4, 4, 8))  # of channels and pixels, the largest first


def phase_pixels(p: Problem) -> int:
    """Values of a channel in a phase, at most."""
    down, across = p.conv.strides
    return ceil(p.conv.H / down) * ceil(p.conv.W / across)


def channel_tiles(p: Problem) -> int:
    """Tiles that cover the channels of all groups."""
    return p.conv.groups * ceil(p.conv.C // p.conv.groups / tile_rows(p))


def igemm_grid(p: Problem) -> Dims:
    """A block per tile of channels and pixels, in each phase."""
    return ceil(p.N * phase_pixels(p) / tile_columns(p)) * channel_tiles(p), prod(p.conv.strides), 1


def igemm_products(p: Problem) -> float:
    """Products of whole tiles, over the taps of all phases."""
    blocks, taps = igemm_grid(p)[0], p.conv.R * p.conv.S * p.conv.M // p.conv.groups
    return blocks * tile_rows(p) * tile_columns(p) * taps


tile_of_channels = least_padded(TILES, lambda p: p.conv.C // p.conv.groups)

IGEMM_CONSTANTS = (
    Constant("WARPS_DOWN", "warps of a block that divide its channels", tile_of_channels(0), choices=(1, 2, 4)),
    Constant("THREAD_ROWS", "channels of a thread", tile_of_channels(1), choices=(4, 8, 12)),
    Constant("WARPS_ACROSS", "warps of a block that divide its pixels", tile_of_channels(2), choices=(1, 2, 4)),
    Constant("THREAD_COLUMNS", "pixels of a thread", tile_of_channels(3), choices=(4, 8)),
    Constant("DEPTH", "filters of a K tile, one iteration of the mainloop", lambda p: 8, choices=(4, 8)),
    BLOCKS_PER_SM,
)


FORWARD_RUNGS = {rung.name: rung for rung in (*MMA_RUNGS, *WGMMA_RUNGS, *SPLIT_K_RUNGS)}

DGRAD_RUNGS: tuple[Rung, ...] = (
    Rung(
        "dgrad-direct",
        alias="dg-d",
        idea="a thread per value, gathered from the outputs that it takes part in",
        family="dgrad",
        parent=None,
        file="dgrad/dgrad_direct.cu",
        launches=(Launch("dgrad_direct", ("dy", "w", "dx", BATCH), values_grid, values_block),),
        takes=CONVOLUTION_FEATURES,
        cpu_order=1,
        direction=DGRAD,
    ),
    Rung(
        "dgrad-phases",
        alias="dg-p",
        idea="a strided layer as interleaved problems: no taps without an output",
        family="dgrad",
        parent="dgrad-direct",
        file="dgrad/dgrad_phases.cu",
        launches=(Launch("dgrad_phases", ("dy", "w", "dx", BATCH), phases_grid, values_block),),
        time=on_cuda_cores(rate=12.0),
        takes=CONVOLUTION_FEATURES,
        direction=DGRAD,
    ),
    Rung(
        "dgrad-scatter",
        alias="dg-s",
        idea="each output's products added to dx by atomics, where their taps lie",
        family="dgrad",
        parent="dgrad-direct",
        file="dgrad/dgrad_scatter.cu",
        launches=(
            Launch("clear", ("w", "dx", BATCH), values_grid, values_block),
            Launch("dgrad_scatter", ("dy", "w", "dx", BATCH), windows_grid, values_block),
        ),
        order_varies=True,
        atomic_additions=additions,
        takes=CONVOLUTION_FEATURES,
        direction=DGRAD,
    ),
    Rung(
        "dgrad-igemm",
        alias="dg-ig",
        idea="implicit GEMM: register tiles, a product for each phase of the stride",
        family="dgrad",
        parent="dgrad-phases",
        file="dgrad/dgrad_igemm.cu",
        launches=(Launch("dgrad_igemm", ("dy", "w", "dx", BATCH), igemm_grid, block),),
        constants=IGEMM_CONSTANTS,
        time=multiplying(IGEMM_RATE, igemm_products),
        takes=CONVOLUTION_FEATURES,
        direction=DGRAD,
    ),
    dgrad_rung(FORWARD_RUNGS["mma-split"], "dg-mma-2"),
    dgrad_rung(FORWARD_RUNGS["mma-scaled"], "dg-mma-s"),
    dgrad_rung(FORWARD_RUNGS["mma-half"], "dg-mma-h"),
    dgrad_rung(FORWARD_RUNGS["wgmma-split"], "dg-wgmma-2"),
    dgrad_rung(FORWARD_RUNGS["wgmma-scaled"], "dg-wgmma-s"),
    dgrad_rung(FORWARD_RUNGS["wgmma-half"], "dg-wgmma-fp16"),
    dgrad_rung(FORWARD_RUNGS["wgmma-half-whole"], "dg-wgmma-w"),
    phased_rung(FORWARD_RUNGS["wgmma-split"], "dg-p-wgmma-2"),
    phased_rung(FORWARD_RUNGS["wgmma-scaled"], "dg-p-wgmma-s"),
    phased_rung(FORWARD_RUNGS["wgmma-half"], "dg-p-wgmma-fp16"),
)
