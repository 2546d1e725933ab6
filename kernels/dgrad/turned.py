"""dgrad by the kernels of the forward direction: a convolution of dy with turned filters.

At stride 1 dx is the forward pass of another layer: its input is dy, with the padding R - 1 - P on each side, and its
filters are those of the layer, rotated by 180 degrees, with channels and filters exchanged.  A first launch turns the
filters, once for all images; then everything is the forward rung's.
"""

from dataclasses import replace
from math import ceil, prod

from alexconv.kernels.preparation import PREPARATION_THREADS, flat_block
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import Array, Dims, Launch, Rung
from alexconv.shapes import CONVOLUTION_FEATURES, DGRAD, FORWARD, Conv

ARRAYS = {"x": "dy", "w": "turned", "y": "dx"}  # of a forward rung's launches, by those of dgrad


def sides(conv: Conv) -> tuple[int, int, int, int]:
    """The padding of dy, top, bottom, left, right; negative where the layer's is wider than its filter reaches."""
    rows, columns = conv.filter_rows - 1, conv.filter_columns - 1
    return rows - conv.top, rows - conv.bottom, columns - conv.left, columns - conv.right


def turned(conv: Conv) -> Conv:
    """The forward problem of a dgrad problem; of one that has none, the layer itself."""
    if untaken(conv):
        return replace(conv, direction=FORWARD)
    top, bottom, left, right = sides(conv)
    return replace(
        conv,
        C=conv.M,
        M=conv.C,
        H=conv.E,
        W=conv.F,
        top=top,
        bottom=bottom,
        left=left,
        right=right,
        direction=FORWARD,
    )


def untaken(conv: Conv) -> str | None:
    """Why a dgrad problem is no forward one, or None."""
    if conv.strides != (1, 1):
        return "takes no strides"
    return "takes no padding wider than a filter reaches" if min(sides(conv)) < 0 else None


def turn_grid(p: Problem) -> Dims:
    """A thread for each tap."""
    return ceil(prod(p.conv.w_shape()) / PREPARATION_THREADS), 1, 1


def of_dgrad(launch: Launch) -> Launch:
    """A forward rung's launch on dgrad's arrays."""
    args, grouped = (tuple(ARRAYS.get(name, name) for name in names) for names in (launch.args, launch.grouped))
    return replace(launch, args=args, grouped=grouped)


def dgrad_rung(forward: Rung, alias: str) -> Rung:
    """The dgrad rung that a forward rung's kernels compute; its file turns the filters."""
    name = f"dgrad-{forward.name}"

    def refuses(p: Problem) -> str | None:
        return untaken(p.conv) or forward.refuses(replace(p, conv=turned(p.conv)))

    return replace(
        forward,
        name=name,
        alias=alias,
        idea=f"{forward.name} on dy, with filters turned and transposed (stride 1)",
        family="dgrad",
        parent="dgrad-direct",
        file=f"dgrad/{name.replace('-', '_')}.cu",
        launches=tuple(map(of_dgrad, forward.launches)),
        prepare=(Launch("turn_filters", ("w", "turned"), turn_grid, flat_block), *map(of_dgrad, forward.prepare)),
        prepared=(
            Array("turned", lambda p: p.conv.w_shape(), 2 if forward.dtype == "float16" else 4),
            *forward.prepared,
        ),
        maps=tuple(replace(each, array=ARRAYS.get(each.array, each.array)) for each in forward.maps),
        takes=tuple(name for name in forward.takes if name in CONVOLUTION_FEATURES and name != "stride pairs"),
        refuses=refuses,
        cpu_order=0,
        direction=DGRAD,
        posed=turned,
    )
