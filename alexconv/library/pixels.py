"""What networks compute between convolutions on a GPU, by pixels.cu: batch norms, gates, pooling.

Arrays have the channels innermost, whole vectors of 16 bytes for each pixel; they may be slices of channels of larger
ones.
"""

import struct
from collections.abc import Sequence
from math import ceil, prod
from typing import Any, NamedTuple

from alexconv.kernels.rung import SLICE_BYTES
from alexconv.library import devices
from alexconv.library.arrays import Descriptor, View
from alexconv.library.calls import y_channels
from alexconv.library.generic import PIXELS_SOURCE, THREADS, activation_words
from alexconv.library.packets import Packet, Symbol
from alexconv.library.terms import ACTIVATIONS
from alexconv.shapes import Conv

MOST_PACKETS = 4096
LANES = 32
MOST_CHUNKS = 4  # vectors of a pixel that a lane of layer_norm has
TOGETHER = 4  # pixels of a thread of affine
SUMMING_THREADS = 1024  # of a block of means, as in pixels.cu
MOST_COLUMNS, LEAST_COLUMNS = 32, 4  # vectors of a pixel that such a block sums
WANTED_BLOCKS = 132  # about a GPU's multiprocessors
MOST_VALUES = 2**31 - 1  # of an array: kernels count pixels and channels of an image in 32-bit integers


class Work(NamedTuple):
    """A launch of pixels.cu: its entry point, its arrays by packets' names, its struct, blocks, threads of a block."""

    entry: str
    arrays: tuple[str, ...]
    words: tuple[int, ...]
    blocks: int
    threads: int = THREADS


def pitch(array: Descriptor) -> int | None:
    """Elements from a pixel to the next of an array that pixels.cu takes; None if it does not."""
    vector = SLICE_BYTES // array.itemsize
    lies = array.lies("nhwc")
    elements = array.shape[1] if lies else y_channels(array)
    innermost = lies or array.strides[1] == 1
    taken = array.aligned and innermost and 0 < prod(array.shape) <= MOST_VALUES
    return elements if taken and elements and not elements % vector and not array.shape[1] % vector else None


def affine(x: Descriptor, y: Descriptor, activation: str | None) -> Work | None:
    """The activation of x times ``w``, plus ``bias``: floats ``[C]``; None for arrays that are not taken."""
    pitches = pitch(x), pitch(y)
    if None in pitches:
        return None
    conv = Conv(1, 1, 1, 1, 1, 1, **ACTIVATIONS[activation])
    N, C, H, W = x.shape
    words = N * H * W, C, *map(int, filter(None, pitches)), *activation_words(conv)
    return Work("affine", ("x", "w", "bias", "y"), words, blocks_of(x, ceil(N * H * W / TOGETHER)))


def gate(x: Descriptor, gates: Descriptor) -> Work | None:
    """x times the sigmoid of ``gates``, ``[N][C][1][1]``, into a packed y; None for arrays that are not taken."""
    N, C, H, W = x.shape
    step = pitch(x)
    if step is None or gates.shape != (N, C, 1, 1) or not (gates.lies("nhwc") and gates.aligned):
        return None
    return Work("gate", ("x", "residual", "y"), (N * H * W, H * W, C, step), blocks_of(x, N * H * W))


def pool(x: Descriptor, y: Descriptor, window: Sequence[int], *, mean: bool) -> Work | None:
    """The largest value, or the mean, of windows (R, S, U, V, top, left); None for arrays that are not taken."""
    x_pitch, y_pitch = pitch(x), pitch(y)
    if x_pitch is None or y_pitch is None:
        return None
    (N, C, H, W), (E, F) = x.shape, y.shape[2:]
    words = N, H, W, C, E, F, *window, x_pitch, y_pitch, int(mean)
    return Work("pool", ("x", "y"), words, blocks_of(x, N * E * F))


def pool_planes(x: Descriptor, y: Descriptor, window: Sequence[int]) -> Work | None:
    """The largest value of windows (R, S, U, V, top, left) of x in nchw; None for arrays that are not taken."""
    y_pitch = pitch(y)
    if y_pitch is None or not x.lies("nchw") or prod(x.shape) > MOST_VALUES:
        return None
    (N, C, H, W), (E, F) = x.shape, y.shape[2:]
    return Work("pool_planes", ("x", "y"), (N, H, W, C, E, F, *window, C, y_pitch, 0), N * E * ceil(F / LANES))


def layer_norm(x: Descriptor, y: Descriptor, eps: float) -> Work | None:
    """x normalized over its channels, times ``w``, plus ``bias``, into a packed y; None if an array is not taken."""
    step = pitch(x)
    if step is None or pitch(y) != x.shape[1] or x.shape[1] > LANES * MOST_CHUNKS * vector_of(x):
        return None
    N, C, H, W = x.shape
    (bits,) = struct.unpack("<i", struct.pack("<f", eps))
    return Work("layer_norm", ("x", "w", "bias", "y"), (N * H * W, C, step, bits), ceil(N * H * W * LANES / THREADS))


def means(x: Descriptor) -> Work | None:
    """The mean of each plane, into ``[N][C][1][1]``, packed; None for arrays that are not taken."""
    step = pitch(x)
    if step is None:
        return None
    N, C, H, W = x.shape
    chunks, columns = C // vector_of(x), MOST_COLUMNS
    while columns > LEAST_COLUMNS and N * ceil(chunks / columns) < WANTED_BLOCKS:
        columns //= 2
    blocks = N * ceil(chunks / columns)
    return Work("means", ("x", "y"), (N, H * W, C, step, columns), blocks, SUMMING_THREADS)


def vector_of(array: Descriptor) -> int:
    """Elements of a vector."""
    return SLICE_BYTES // array.itemsize


def blocks_of(x: Descriptor, pixels: int) -> int:
    """Blocks with a thread for each vector of so many pixels of x's channels."""
    return ceil(pixels * x.shape[1] // vector_of(x) / THREADS)


packets: dict[Any, Packet] = {}


def enqueue(work: Work, x: View, addresses: Sequence[int]) -> None:
    """Enqueues a launch on the stream of x; addresses of x, y, residual, w and bias, 0 for those that it lacks."""
    device = devices.gpu(x.descriptor.device or 0)
    with device.lock, device.current():
        numbers = device.lane(x.stream)
        key = device.number, numbers, work, x.descriptor.itemsize
        packet = packets.get(key)
        if packet is None or not packet.usable():
            lane = device.lane_of(numbers, x.stream)
            recipe = device.recipe(lane)
            function = device.of_any_shape(PIXELS_SOURCE, x.descriptor, work.entry)
            parameters: list[Any] = [*map(Symbol, work.arrays), list(work.words)]
            recipe.add(function, (work.blocks, 1, 1), (work.threads, 1, 1), 0, parameters)
            packet = Packet(recipe, lane, ())
            if lane.life is None:
                if len(packets) >= MOST_PACKETS:
                    packets.clear()
                packets[key] = packet
        packet.enqueue(addresses)
