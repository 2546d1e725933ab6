"""A network as one persistent kernel: its stages, its weights as that kernel reads them, and where its outputs lie."""

from collections.abc import Sequence
from math import ceil

import numpy as np

from alexconv.kernels.bound import BoundRung
from alexconv.kernels.problem import Device
from alexconv.kernels.stages.persistent import (
    LANES_OF_PIXEL,
    QUAD,
    ROWS,
    Layer,
    Packing,
    packings,
    persistent_rung,
    refusal,
    segments,
)
from alexconv.networks.stages import Parameters, PooledProduct, Product, Stage, Values
from alexconv.planning.planner import DoesNotFit
from alexconv.shapes import Conv

PRECISION, LAYOUT = "fp16", "nhwc"


def layer_of(stage: Stage) -> Layer:
    """A stage of the persistent kernel as the kernel knows it."""
    if isinstance(stage, PooledProduct) and stage.pooling:
        return Layer(stage.shape, stage.pooling.shape.R, stage.pooling.shape.U)
    return Layer(stage.shape)


def misfit(stages: Sequence[Stage], N: int) -> str | None:
    """Why one persistent kernel cannot be these stages, each a product, for N images; or None."""
    if N > 1:
        return f"the schedule persistent takes one image, not {N}"
    if other := next((stage for stage in stages if not isinstance(stage, Product)), None):
        return f"the schedule persistent takes convolutions, poolings after them and linear layers, not {other.name}"
    reason = refusal([layer_of(stage) for stage in stages])
    return reason and f"the schedule persistent does not take this network: {reason}"


def persistent(stages: Sequence[Stage], precision: str, N: int, device: Device) -> BoundRung:
    """The kernel of all stages, on the shape of a convolution with the network's input and output; or DoesNotFit."""
    if precision != PRECISION:
        raise DoesNotFit(f"the schedule persistent has the class {PRECISION}, not {precision}")
    if reason := misfit(stages, N):
        raise DoesNotFit(reason)
    rung = persistent_rung([layer_of(stage) for stage in stages], device.multiprocessors)
    if reason := rung.unsuited(device.capability):
        raise DoesNotFit(f"the schedule persistent {reason}")
    first, (M, E, F) = stages[0].shape, stages[-1].planes_out
    whole = Conv(first.C, first.H, first.W, M, first.H + 1 - E, first.W + 1 - F)
    bound = BoundRung(rung, whole, rung.resolve(whole, {}, N, device), device)
    if (shared := bound.launches(1)[0].dynamic_shared) > device.shared_per_block:
        raise DoesNotFit(
            f"the schedule persistent needs {shared} bytes of shared memory, a block has {device.shared_per_block}"
        )
    return bound


def places(stages: Sequence[Stage], device: Device) -> list[int]:
    """Where the outputs of each stage but the last begin in ``activations``, in bytes."""
    return [packing.output * 2 for packing in _packings(stages, device)[:-1]]


def _packings(stages: Sequence[Stage], device: Device) -> list[Packing]:
    return packings([layer_of(stage) for stage in stages], device.multiprocessors)


def packed(stages: Sequence[Stage], parameters: Sequence[Parameters], device: Device) -> dict[str, Values]:
    """The kernel's ``weights`` and ``biases``, in fp16, and its ``segments``."""
    layers = _packings(stages, device)
    of_stages = zip(stages, parameters, layers, strict=True)
    weights = [_fragments(stage, arrays.w.astype(np.float16), packing) for stage, arrays, packing in of_stages]
    biases = [arrays.bias for arrays in parameters if arrays.bias is not None]
    return {
        "weights": np.concatenate(weights),
        "biases": np.concatenate(biases).astype(np.float16),
        "segments": np.array(segments(layers, device.multiprocessors), np.uint32),
    }


def _fragments(stage: Stage, w: Values, packing: Packing) -> Values:
    """A stage's filters in the order of the kernel's products (``kernels/arch/ampere.cuh``), flat.

    A lane (g, t) of a product has filters g and g + 8; of DEPTH channels in a tap the 8 from 8 t on, of which a half's
    product takes 4.  With few channels a filter's rows are cut into quads instead, and a product takes 4 of them.
    """
    conv, rows, steps = stage.shape, packing.tile.rows, packing.layer.steps
    planes = getattr(stage, "planes", None)
    taps = (len(w), *planes, 1, 1) if planes else (len(w), conv.C, 1, 1, conv.R, conv.S)
    in_rows = w.reshape(taps).transpose(0, 4, 5, 2, 3, 1).reshape(len(w), conv.R, -1)  # taps, pixels, channels
    halves = 2
    if packing.layer.few_channels:
        in_rows = np.pad(in_rows, ((0, 0), (0, 0), (0, -in_rows.shape[2] % QUAD)))
        halves = 1
    flat = in_rows.reshape(len(w), -1)
    tiles, width = ceil(len(w) / (rows * ROWS)), steps * LANES_OF_PIXEL * halves * QUAD
    flat = np.pad(flat, ((0, tiles * rows * ROWS - len(w)), (0, width - flat.shape[1])))
    split = flat.reshape(tiles, rows, 2, ROWS // 2, steps, LANES_OF_PIXEL, halves, 2, 2)
    #             0: tile 1: row 2: upper 3: g    4: step 5: t           6: half 7: k 8: of a word
    return np.ascontiguousarray(split.transpose(0, 4, 1, 6, 3, 5, 7, 2, 8)).reshape(-1)
