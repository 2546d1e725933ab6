"""Tensor maps: descriptors of arrays for TMA, the tensor memory accelerator of Hopper and later GPUs.

Encoded by the driver through cuda-bindings, since PyCUDA has no call for it, and kept in device memory, where a kernel
takes them by address.  (CUDA driver API, "Tensor Map Object Management".)
"""

from typing import Any, Protocol, SupportsInt

import numpy as np

from alexconv.executors.cuda.bindings import answer, require_bindings
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import TensorMap, bounding_box

MAP_BYTES = 128
MAPS_TOGETHER = 32  # allocated at a time


class MapMemory(Protocol):
    """An allocator for tensor maps."""

    def allocate(self, nbytes: int) -> SupportsInt:
        """Device memory, freed with the returned object; raises OutOfMemory."""
        ...

    def upload(self, address: int, values: np.ndarray, stream: Any) -> None:
        """Copies an array to the device, before later work on the stream."""
        ...


class TensorMaps:
    """Tensor maps on the device, encoded on first use, by map, number of images and address of the array.

    A map of another array gets its own address: kernels may still read the old one, and TMA may have cached it.
    """

    def __init__(self, memory: MapMemory) -> None:
        self._memory = memory
        self._blocks: list[SupportsInt] = []  # of MAPS_TOGETHER maps each
        self._addresses: dict[tuple[str, int, int], int] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def address(self, stream: Any, tensor_map: TensorMap, p: Problem, array: int) -> int:
        """Device address of the map of an array, for later work on the stream."""
        key = tensor_map.name, p.N, array
        if key not in self._addresses:
            if len(self) == MAPS_TOGETHER * len(self._blocks):
                self._blocks.append(self._memory.allocate(MAPS_TOGETHER * MAP_BYTES))
            address = int(self._blocks[-1]) + len(self) % MAPS_TOGETHER * MAP_BYTES
            self._memory.upload(address, encode(tensor_map, p, array), stream)
            self._addresses[key] = address
        return self._addresses[key]


def encode(tensor_map: TensorMap, p: Problem, address: int) -> np.ndarray:
    """The map of an array that lies at ``address``, as ``[MAP_BYTES]`` uint8; raises LaunchError, MissingTool."""
    driver = require_bindings("a rung that uses TMA")
    dims = [driver.cuuint64_t(size) for size in tensor_map.dims(p)]
    strides = [driver.cuuint64_t(size) for size in tensor_map.strides(p)]
    box = tensor_map.box(p)
    steps = [driver.cuuint32_t(1)] * len(dims)
    common: tuple[Any, ...] = (
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    kind = driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    if tensor_map.window is None:
        extents = [driver.cuuint32_t(size) for size in box]
        result = driver.cuTensorMapEncodeTiled(kind, len(dims), address, dims, strides, extents, steps, *common)
    else:
        around = bounding_box(tensor_map.window(p))
        channels, pixels = box
        steps[1:3] = [driver.cuuint32_t(step) for step in around.steps]
        lower, upper = list(around.lower), list(around.upper)
        result = driver.cuTensorMapEncodeIm2col(
            kind, len(dims), address, dims, strides, lower, upper, channels, pixels, steps, *common
        )
    encoded = answer(result, f"tensor map {tensor_map.name}")
    words = [int(word) for word in encoded.opaque]
    return np.array(words, np.uint64).view(np.uint8)
