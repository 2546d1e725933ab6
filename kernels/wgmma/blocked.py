"""A layer in the form that wgmma takes: NHWC, a multiple of eight channels, and stride 1; ``blocked.cuh``."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil

from alexconv.kernels.geometry import HALF, round_up
from alexconv.kernels.problem import Problem
from alexconv.shapes import Conv

CHUNK = 8  # fp16 values in 16 bytes: the unit of TMA strides
STAGE_TAPS = 64  # a row of 128 bytes
ROW_BYTES = STAGE_TAPS * HALF
WGMMA_ROWS, MMA_K = 64, 16  # M and K of one wgmma

Gathers = Callable[[Conv], bool]  # whether TMA gathers single taps of a layer
LEAST_GATHERED = 16  # least channels for which a stride is gathered, not blocked
SHARED = 64  # channels, or filters, of groups that share a product; ``products.cuh``


@lru_cache(maxsize=1024)  # of many candidates for a layer
def one_product(conv: Conv, most: int = SHARED) -> Conv:
    """The layer of a product: of one group, or of several with at most ``most`` channels and filters together."""
    one = conv.one_group
    divisors = (count for count in range(conv.groups, 1, -1) if conv.groups % count == 0)
    aligned = (count for count in divisors if count == conv.groups or count * one.C % CHUNK == 0)
    fitting = (count for count in aligned if count * max(one.C, one.M) <= most)
    count = next(fitting, 1)
    return replace(one, C=count * one.C, M=count * one.M) if count > 1 else one


def products(conv: Conv, most: int = SHARED) -> int:
    """The products of a layer."""
    return conv.C // one_product(conv, most).C


def unaligned(conv: Conv, most: int = SHARED, unit: int = CHUNK) -> str | None:
    """Why the TMA cannot bring the channels of each product from an unprepared input, or None.

    Its im2col mode begins at a multiple of 16 bytes, ``unit`` channels.
    """
    if conv.C % CHUNK:
        return f"{conv.C} channels: TMA takes multiples of {CHUNK}"
    channels = one_product(conv, most).C
    if channels < conv.C and channels % unit:
        return f"groups of {channels} channels: TMA begins at multiples of {unit}"
    return None


def needs_gather(conv: Conv) -> bool:
    """Whether strides or dilation cannot be blocked as squares of pixels."""
    return conv.V != 0 or conv.dilation != (1, 1)


def never(conv: Conv) -> bool:
    """For rungs that need whole rows: ``GATHER_NEVER``."""
    return False


def as_it_lies(conv: Conv) -> bool:
    """For an unprepared input: ``GATHER_AS_IT_LIES``."""
    return needs_gather(conv) or any(conv.padding) or conv.U > 1 or conv.groups > 1


def where_it_pays(conv: Conv) -> bool:
    """For a prepared input: ``GATHER_WHERE_IT_PAYS``."""
    if pointwise(conv):
        return False
    one = one_product(conv)
    full_stages = any(conv.padding) and one.C % STAGE_TAPS == 0
    strided = one.C >= LEAST_GATHERED or one.C > conv.one_group.C
    return needs_gather(conv) or (strided if conv.U > 1 else full_stages)


def pointwise(conv: Conv) -> bool:
    """Whether filters are 1 x 1: a prepared input then has only the pixels that they use."""
    return conv.R == conv.S == 1


def side(conv: Conv, gathers: Gathers = never) -> int:
    """Rows and columns of the squares of pixels that become one."""
    return 1 if gathers(conv) or (pointwise(conv) and gathers is not as_it_lies) else conv.U


def blocked_c(conv: Conv, gathers: Gathers = never) -> int:
    """Channels of a product of the blocked layer: of all pixels of a square, rounded up to a multiple of eight."""
    return round_up(one_product(conv).C * side(conv, gathers) ** 2, CHUNK)


def blocked_rs(conv: Conv, gathers: Gathers = never) -> tuple[int, int]:
    """Rows and columns of a blocked filter."""
    return ceil(conv.R / side(conv, gathers)), ceil(conv.S / side(conv, gathers))


def blocked_hw(conv: Conv, gathers: Gathers = never) -> tuple[int, int]:
    """Rows and columns of a blocked plane."""
    if gathers(conv):
        return conv.H, conv.W
    R, S = blocked_rs(conv)
    return conv.E + R - 1, conv.F + S - 1


def runs(conv: Conv, gathers: Gathers = never) -> tuple[int, int]:
    """Runs of K, and taps of one: a row of a blocked filter, or a tap's channels where taps are gathered."""
    R, S = blocked_rs(conv, gathers)
    channels = blocked_c(conv, gathers)
    return (R * S, channels) if gathers(conv) else (R, S * channels)


def tiles(p: Problem) -> int:
    """Tiles of the batch's product."""
    return ceil(p.N * p.conv.E * p.conv.F / p["TILE_PIXELS"]) * tiles_of_filters(p.conv, p["TILE_FILTERS"])


def tiles_of_filters(conv: Conv, filters: int) -> int:
    """Tiles of this many filters of one product each."""
    return products(conv) * ceil(one_product(conv).M / filters)
