"""The ladder: every rung in reading order.  This table and the ``.cu`` files are all there is to add for a rung."""

from math import ceil

from alexconv.kernels.rung import MAX_BLOCK, Array, Constant, Constants, Dims, Launch, Rung
from alexconv.shapes import Conv


def outputs_per_thread(conv: Conv) -> int:
    """Smallest k such that a block of ceil(F/k) x ceil(E/k) threads, each with k x k outputs, covers the plane."""
    k = 1
    while ceil(conv.F / k) * ceil(conv.E / k) > MAX_BLOCK:
        k += 1
    return k


def plane_block(conv: Conv, constants: Constants) -> Dims:
    """One block covers an output plane: E x F threads, or fewer with several outputs each."""
    return ceil(conv.F / constants["OUTPUTS"]), ceil(conv.E / constants["OUTPUTS"]), 1


def grid_nm(conv: Conv, N: int, constants: Constants) -> Dims:
    """One block per output plane."""
    return N, conv.M, 1


def parts(conv: Conv, constants: Constants) -> int:
    """Partial planes that the multi-kernel rungs write per output plane."""
    return ceil(conv.C / constants["CHANNELS"])


def grid_nmc(conv: Conv, N: int, constants: Constants) -> Dims:
    """One block per partial plane."""
    return N, conv.M, parts(conv, constants)


def block_too_large(conv: Conv, constants: Constants) -> str | None:
    """Refuses a choice of OUTPUTS that leaves more threads than a block may have."""
    x, y, _ = plane_block(conv, constants)
    return None if x * y <= MAX_BLOCK else f"a block of {x} x {y} threads exceeds {MAX_BLOCK}"


OUTPUTS = Constant("OUTPUTS", "outputs of one thread, along each axis of the plane", outputs_per_thread)


def mapping(default: int) -> Constant:
    """Which outputs a thread takes when it takes several; the default is what the study used for the rung."""
    return Constant(
        "COALESCED",
        "1: a thread's outputs lie a block apart, a warp's side by side; 0: a thread's lie side by side",
        lambda conv: default,
        choices=(0, 1),
        matters=lambda conv: outputs_per_thread(conv) > 1,
    )


CHANNELS = Constant(
    "CHANNELS",
    "input channels that one block sums before it writes a partial plane",
    lambda conv: 1,
    ceiling=lambda conv: conv.C,
)

PARTIAL = Array("partial", lambda conv, N, constants: (N, conv.M, parts(conv, constants), conv.E, conv.F))

REDUCE_CHANNELS = Launch("reduce_channels", ("partial", "y"), grid_nm, plane_block)

LADDER: tuple[Rung, ...] = (
    Rung(
        "direct",
        alias="mcpy",
        idea="one thread per output, every product added in global memory",
        family="single",
        parent=None,
        file="direct.cu",
        launches=(Launch("direct", ("x", "w", "y"), grid_nm, plane_block),),
        constants=(OUTPUTS, mapping(1)),
        refuses=block_too_large,
    ),
    Rung(
        "direct-register",
        alias="rla2m",
        idea="sums in a register, one store per output",
        family="single",
        parent="direct",
        file="direct_register.cu",
        launches=(Launch("direct_register", ("x", "w", "y"), grid_nm, plane_block),),
        constants=(OUTPUTS, mapping(1)),
        refuses=block_too_large,
    ),
    Rung(
        "channels",
        alias="mk",
        idea="input channels in parallel too: partial planes, then a kernel that adds them",
        family="multi",
        parent="direct-register",
        file="channels.cu",
        launches=(Launch("channels", ("x", "w", "partial"), grid_nmc, plane_block), REDUCE_CHANNELS),
        constants=(OUTPUTS, mapping(0), CHANNELS),
        scratch=(PARTIAL,),
        refuses=block_too_large,
    ),
)

RUNGS: dict[str, Rung] = {rung.name: rung for rung in LADDER}
ALIASES: dict[str, str] = {rung.alias: rung.name for rung in LADDER}
