"""The rungs of a network's stages besides its convolutions, for each type and layout of the arrays.

They are rungs like those of the ladder, and no part of it: what they compute is no convolution.  A stage's shape is
given as a convolution with the same input and output planes (``alexconv.networks.stages``): pooling as one of R x S
filters with as many groups as channels, a linear layer as one of a single pixel.
"""

from collections.abc import Callable, Mapping
from math import ceil
from types import MappingProxyType

from alexconv.kernels.geometry import FLOAT, HALF
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Constant, Dims, Launch, Rung

THREADS = 256
LINEAR_WARPS = THREADS // 32
VECTOR_BYTES = 16
ENOUGH_WARPS = 8192  # that load weights: two of every four that an H200 holds
MOST_IMAGES_AT_ONCE = 8

WINDOW = Constant("WINDOW", "channels whose squares are added", lambda p: 5, choices=(1, 3, 5, 7, 9))
K_BITS = Constant("K_BITS", "k, the bits of a float", lambda p: 0x40000000, least=0)
ALPHA_BITS = Constant("ALPHA_BITS", "alpha, the bits of a float", lambda p: 0x38D1B717, least=0)
NORMALIZING = (WINDOW, K_BITS, ALPHA_BITS)


def chunk_of(itemsize: int) -> Callable[[Problem], int]:
    """Channels of a thread: a vector's."""
    return lambda p: VECTOR_BYTES // itemsize


def parts_grid(itemsize: int) -> Callable[[Problem], Dims]:
    """A thread for each chunk of channels of an output pixel."""
    chunk = VECTOR_BYTES // itemsize
    return lambda p: (ceil(p.N * p.conv.E * p.conv.F * ceil(p.conv.C / chunk) / THREADS), 1, 1)


def outputs_grid(itemsize: int) -> Callable[[Problem], Dims]:
    """A thread for each vector of the batch's outputs; for each output, where images are not whole vectors."""

    def grid(p: Problem) -> Dims:
        image, vector = p.conv.M * p.conv.E * p.conv.F, VECTOR_BYTES // itemsize
        return ceil(p.N * image / (1 if image % vector else vector) / THREADS), 1, 1

    return grid


def block(p: Problem) -> Dims:
    """THREADS threads."""
    return THREADS, 1, 1


def usual_splits(p: Problem) -> int:
    """Warps that share a filter: as many as make ENOUGH_WARPS."""
    return next((splits for splits in (1, 2, 4) if p.conv.M * splits >= ENOUGH_WARPS), LINEAR_WARPS)


def images_at_once(p: Problem) -> int:
    """The power of two that holds the batch, up to MOST_IMAGES_AT_ONCE."""
    return min(1 << (p.N - 1).bit_length(), MOST_IMAGES_AT_ONCE)


SPLITS = Constant("SPLITS", "warps that share a filter", usual_splits, choices=(1, 2, 4, 8))
IMAGES = Constant("IMAGES", "images that a weight is multiplied with at once", images_at_once, choices=(1, 2, 4, 8))


def linear_grid(p: Problem) -> Dims:
    """Blocks of the same filters are neighbours: they find the weights in the L2 cache."""
    return ceil(p.N / p["IMAGES"]), ceil(p.conv.M / (LINEAR_WARPS // p["SPLITS"])), 1


def refuses_planes(p: Problem) -> str | None:
    """Refuses layers of more than one pixel."""
    conv = p.conv
    one = (conv.H, conv.W, conv.R, conv.S) == (1, 1, 1, 1)
    return None if one else "not a linear layer: a plane has more than one pixel"


def _rungs(precision: str, itemsize: int, layout: str, suffix: str) -> dict[str, Rung]:
    """The rungs for a type and a layout, by kind."""
    sizes = (("ELEMENT_BYTES", lambda p: itemsize), ("CHANNELS_LAST", lambda p: int(layout == "nhwc")))
    in_chunks = (*sizes, ("CHUNK", chunk_of(itemsize)))
    common = {"family": "stages", "precision": precision, "layout": layout, "takes": ("groups",)}

    def rung(name: str, idea: str, launch: Launch, **more: object) -> Rung:
        facts = {"sizes": sizes, "parent": None, **common, **more}
        facts = {"file": f"stages/{launch.entry}.cu", **facts}
        return Rung(name + suffix, name + suffix, idea, launches=(launch,), **facts)  # type: ignore[arg-type]

    def planes(name: str, idea: str, entry: str, **more: object) -> Rung:
        launch = Launch(entry, ("x", "y", BATCH), parts_grid(itemsize), block, pdl=True)
        return rung(name, idea, launch, **{"sizes": in_chunks, **more})

    rungs = (
        rung(
            "bias-relu",
            "bias and ReLU in place, after the product",
            Launch("bias_relu", ("y", BATCH), outputs_grid(itemsize), block, pdl=True, stores=True),
            takes=("groups", "bias", "ReLU"),
        ),
        planes(
            "normalize",
            "local response normalization, a thread for the channels of a vector",
            "normalize",
            constants=NORMALIZING,
        ),
        planes("max-pool", "a thread for the channels of a vector at an output pixel", "max_pool"),
        rung(
            "linear",
            "a warp or several for each filter, weights loaded ahead: as fast as memory for few images",
            Launch("linear", ("x", "w", "y", BATCH), linear_grid, block, pdl=True, stores=True),
            constants=(SPLITS, IMAGES),
            takes=("bias", "ReLU"),
            refuses=refuses_planes,
        ),
        rung(
            "softmax",
            "a block for each image",
            Launch("softmax", ("x", "y"), lambda p: (p.N, 1, 1), block, pdl=True),
        ),
    )
    return {rung.name.removesuffix(suffix): rung for rung in rungs}


# By the type and the layout of the arrays, then by kind.
STAGES: Mapping[tuple[str, str], Mapping[str, Rung]] = MappingProxyType(
    {
        ("float32", "nchw"): _rungs("fp32", FLOAT, "nchw", ""),
        ("float32", "nhwc"): _rungs("fp32", FLOAT, "nhwc", "-nhwc"),
        ("float16", "nhwc"): _rungs("fp16", HALF, "nhwc", "-half"),
    }
)
STAGE_RUNGS = tuple(rung for rungs in STAGES.values() for rung in rungs.values())
