"""dgrad by the kernels of the forward direction: a convolution of dy with turned filters.

At stride 1 dx is the forward pass of another layer: its input is dy, with the padding R - 1 - P on each side, and its
filters are those of the layer, rotated by 180 degrees, with channels and filters exchanged.  The launches that prepare
filters read them turned; then everything is the forward rung's.

With a stride U a row of dx meets every U-th tap only, from its number modulo U on, its *phase*.  So dx is a convolution
at stride 1 too, with U * U filters for each channel; a last launch puts the phases in their places.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil, prod
from typing import Any

from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Array, Dims, Launch, Rung
from alexconv.shapes import CONVOLUTION_FEATURES, DGRAD, FORWARD, Conv

ARRAYS = {"x": "dy", "y": "dx"}  # of a forward rung's launches, by those of dgrad


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


def renamed(launch: Launch, arrays: Mapping[str, str]) -> Launch:
    """A forward rung's launch on other arrays."""
    args, grouped = (tuple(arrays.get(name, name) for name in names) for names in (launch.args, launch.grouped))
    return replace(launch, args=args, grouped=grouped)


def by_forward(forward: Rung, alias: str, name: str, arrays: Mapping[str, str], **more: Any) -> Rung:
    """A dgrad rung that a forward rung's kernels compute, on dy and filters that their preparation turns."""
    return replace(
        forward,
        name=name,
        alias=alias,
        family="dgrad",
        file=f"dgrad/{name.replace('-', '_')}.cu",
        prepare=tuple(renamed(launch, arrays) for launch in forward.prepare),
        maps=tuple(
            replace(tensor_map, array=arrays.get(tensor_map.array, tensor_map.array)) for tensor_map in forward.maps
        ),
        cpu_order=0,
        direction=DGRAD,
        **more,
    )


def itemsize(rung: Rung) -> int:
    """Bytes of a value of the rung's arrays."""
    return 2 if rung.dtype == "float16" else 4


def dgrad_rung(forward: Rung, alias: str) -> Rung:
    """The dgrad rung that a forward rung's kernels compute, on turned filters."""
    name = f"dgrad-{forward.name}"

    def refuses(p: Problem) -> str | None:
        return untaken(p.conv) or forward.refuses(replace(p, conv=turned(p.conv)))

    return by_forward(
        forward,
        alias,
        name,
        ARRAYS,
        idea=f"{forward.name} on dy, with filters turned and transposed (stride 1)",
        parent="dgrad-direct",
        launches=tuple(renamed(launch, ARRAYS) for launch in forward.launches),
        takes=tuple(name for name in forward.takes if name in CONVOLUTION_FEATURES and name != "stride pairs"),
        refuses=refuses,
        posed=turned,
    )


# ---- Strides above 1 -------------------------------------------------------------------------------------------------

INTERLEAVE_THREADS, MOST_INTERLEAVE_BLOCKS, WIDEST_ACCESS = 256, 1 << 16, 16


def of_phases(conv: Conv) -> Conv:
    """The convolution of dy, at stride 1, whose outputs are the gradients phase by phase; of one without, the layer."""
    if without_phases(conv):
        return replace(conv, direction=FORWARD)
    R, S = ceil(conv.R / conv.U), ceil(conv.S / conv.U)
    return Conv(
        C=conv.M,
        H=conv.E,
        W=conv.F,
        M=conv.C * conv.U**2,
        R=R,
        S=S,
        U=1,
        top=R - 1,
        bottom=R - 1,
        left=S - 1,
        right=S - 1,
    )


def without_phases(conv: Conv) -> str | None:
    """Why a dgrad problem has no phases, or None."""
    if conv.U == 1 or conv.strides != (conv.U, conv.U) or conv.dilation != (1, 1):
        return "takes equal strides above 1, without dilation"
    return None


def phased_rung(forward: Rung, alias: str) -> Rung:
    """The dgrad rung of strided layers that a forward rung's kernels compute, all phases together."""
    arrays = {**ARRAYS, "y": "phases"}

    def interleave_grid(p: Problem) -> Dims:
        values = prod(p.conv.y_shape(p.N)) // (WIDEST_ACCESS // itemsize(forward) if forward.layout == "nhwc" else 1)
        return min(ceil(values / INTERLEAVE_THREADS), MOST_INTERLEAVE_BLOCKS), 1, 1

    def refuses(p: Problem) -> str | None:
        return without_phases(p.conv) or forward.refuses(replace(p, conv=of_phases(p.conv)))

    return by_forward(
        forward,
        alias,
        f"dgrad-phases-{forward.name}",
        arrays,
        idea=f"{forward.name} on dy: the phases of a stride as channels of one convolution",
        parent="dgrad-phases",
        launches=(
            *(renamed(launch, arrays) for launch in forward.launches),
            Launch(
                "interleave",
                ("phases", "dy", "w", "dx", BATCH),
                interleave_grid,
                lambda p: (INTERLEAVE_THREADS, 1, 1),
            ),
        ),
        scratch=(*forward.scratch, Array("phases", lambda p: p.conv.y_shape(p.N), itemsize(forward))),
        takes=("padding",),
        refuses=refuses,
        prepares_nhwc=lambda p: False,
        posed=of_phases,
    )
