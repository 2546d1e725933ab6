"""A rung's launches for one shape and batch, with CUDA's limits checked before anything runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from alexconv.kernels.problem import H200, Constants, Device, Problem
from alexconv.kernels.rung import MAX_BLOCK, Dims, Launch, Rung, TensorMap, images_at_a_time
from alexconv.shapes import Conv

MAX_GRID: Dims = (2**31 - 1, 65535, 65535)
MAX_BLOCK_AXES: Dims = (1024, 1024, 64)


@dataclass(frozen=True)
class Configured:
    """One launch: entry point, the arrays it takes by name, grid, block, bytes of dynamic shared memory.

    ``pdl`` is Launch's.
    """

    entry: str
    args: tuple[str, ...]
    grid: Dims
    block: Dims
    dynamic_shared: int
    pdl: bool = False


def configure(rung: Rung, conv: Conv, N: int, constants: Constants, device: Device = H200) -> list[Configured]:
    """The rung's launches over N images, in order; where it takes fewer at a time, over the first of them."""
    problem = Problem(conv, images_at_a_time(N, constants), constants, device)
    return [_configured(launch, problem) for launch in rung.launches]


def turns(N: int, constants: Constants) -> list[tuple[int, int]]:
    """First image, and number of images, of each time that a rung's launches follow each other over N images."""
    at_a_time = images_at_a_time(N, constants)
    return [(first, min(at_a_time, N - first)) for first in range(0, N, at_a_time)]


def from_image(first: int, addresses: Mapping[str, int], image_bytes: Mapping[str, int]) -> dict[str, int]:
    """The addresses of arrays by name, those of x and y moved on to an image; ``image_bytes`` are Rung's."""
    return {**addresses, **{name: addresses[name] + first * nbytes for name, nbytes in image_bytes.items()}}


def configure_preparation(rung: Rung, conv: Conv, constants: Constants, device: Device = H200) -> list[Configured]:
    """The launches that prepare the rung's filters, in order."""
    return [_configured(launch, Problem(conv, 1, constants, device)) for launch in rung.prepare]


def _configured(launch: Launch, p: Problem) -> Configured:
    return Configured(
        launch.entry,
        launch.args,
        launch.grid(p),
        launch.block(p),
        launch.dynamic_shared(p),
        launch.pdl,
    )


def launch_facts(rung: Rung, conv: Conv, N: int, constants: Constants, device: Device = H200) -> list[Any]:
    """What the ladder says about how a rung is launched over N images: types, launches, array sizes, tensor maps."""
    problem = Problem(conv, images_at_a_time(N, constants), constants, device)
    launches = configure_preparation(rung, conv, constants, device) + configure(rung, conv, N, constants, device)

    def window(tensor_map: TensorMap) -> tuple[int, int] | None:
        return tensor_map.window(problem) if tensor_map.window else None

    arrays = [[array.name, array.nbytes(problem)] for array in (*rung.scratch, *rung.prepared)]
    maps = [
        [each.name, each.array, each.dims(problem), each.strides(problem), each.box(problem), window(each)]
        for each in rung.maps
    ]
    return [rung.dtype, rung.layout, rung.constant_symbol, [asdict(launch) for launch in launches], arrays, maps]


def outside_limits(launch: Configured) -> str | None:
    """Why CUDA would refuse the launch on any device, or None."""
    for what, dims, limits in (("grid", launch.grid, MAX_GRID), ("block", launch.block, MAX_BLOCK_AXES)):
        if any(size < 1 or size > limit for size, limit in zip(dims, limits, strict=True)):
            return f"{launch.entry}: a {what} of {dims} is outside CUDA's limits {limits}"
    x, y, z = launch.block
    if x * y * z > MAX_BLOCK:
        return f"{launch.entry}: a block of {x} x {y} x {z} threads exceeds {MAX_BLOCK}"
    return None
