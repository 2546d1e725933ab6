"""Input images and filters, made from a counter-based generator: image i is the same at every batch size.

Each array comes from a Philox generator (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011)
whose key is a hash of (seed, workload, layer, what, image), so any image can be made alone, in any order.
"""

import hashlib

import numpy as np

from alexconv.shapes import Conv

GENERATOR_VERSION = 1  # part of every cache key: raise it when the values below change


def _uniform(shape: tuple[int, ...], *key: object) -> np.ndarray:
    """float32 values uniform in [-1, 1), from the generator that the key names."""
    digest = hashlib.sha256("/".join(map(str, (GENERATOR_VERSION, *key))).encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    values = generator.random(shape, dtype=np.float32)
    return 2 * values - 1


def images(workload: str, layer: int, conv: Conv, first: int, last: int, seed: int = 0) -> np.ndarray:
    """Images ``first`` to ``last - 1`` of a layer's input: float32 ``[last - first][C][H][W]``, its border zero."""
    x = np.zeros(conv.x_shape(last - first), np.float32)
    inner = slice(conv.pad, conv.H - conv.pad), slice(conv.pad, conv.W - conv.pad)
    shape = (conv.C, conv.H - 2 * conv.pad, conv.W - 2 * conv.pad)
    for i in range(first, last):
        x[i - first, :, *inner] = _uniform(shape, seed, workload, layer, "image", i)
    return x


def filters(workload: str, layer: int, conv: Conv, seed: int = 0) -> np.ndarray:
    """A layer's filters: float32 ``[M][C][R][S]``."""
    return _uniform(conv.w_shape(), seed, workload, layer, "filters")
