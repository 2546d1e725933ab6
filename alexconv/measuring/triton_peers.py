"""Triton as a peer: an implicit GEMM in its language, with the fastest of a few tile sizes.

``triton-nhwc-PRECISION`` is ``triton_convolution.py``, about what torch's compiler generates for a convolution: a loop
over K whose operands Triton pipelines and feeds to tensor cores by itself.  ``fp32`` multiplies on CUDA cores.  Each of
TILES is compiled and timed; a record names the fastest, how many were tried, and Triton's version.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, NamedTuple

from alexconv.errors import LaunchError
from alexconv.measuring.runner import Layer, Skip
from alexconv.measuring.torch_peers import Operands, TorchRunner, Work, check_of, exact_of, operands_of
from alexconv.planning.points import PeerPoint, PeerSequence
from alexconv.precisions import IEEE, PRECISIONS
from alexconv.records.store import Record

RUNS = 5  # of a tile size, after one


class Tile(NamedTuple):
    """Output pixels, filters and taps of a program's tile, its warps, and stages of its pipeline."""

    pixels: int
    filters: int
    taps: int
    warps: int
    stages: int


FP16_TILES = (
    Tile(128, 256, 64, 8, 3),
    Tile(128, 128, 64, 8, 3),
    Tile(128, 128, 64, 4, 3),
    Tile(64, 128, 64, 4, 4),
    Tile(32, 64, 64, 4, 4),
    Tile(128, 64, 32, 4, 4),
)
TF32_TILES = tuple(tile._replace(taps=tile.taps // 2) for tile in FP16_TILES)
IEEE_TILES = (Tile(64, 64, 32, 4, 3), Tile(128, 64, 16, 8, 3), Tile(32, 32, 32, 4, 3))  # sums of a thread in registers


def tiles_of(precision: str) -> tuple[Tile, ...]:
    """The tile sizes to try."""
    row = PRECISIONS[precision]
    if row.dtype == "float16":
        return FP16_TILES
    return IEEE_TILES if row.torch == IEEE else TF32_TILES


class TritonRunner(TorchRunner):
    """Turns Triton's points into records on a GPU."""

    def __init__(self, modules: tuple[Any, Any], executor: Any, runner: Any) -> None:
        torch, self._triton = modules
        super().__init__(torch, executor, runner)

    def versions(self) -> Record:
        """Torch's, and Triton's."""
        return {**super().versions(), "triton": str(self._triton.__version__)}

    def _paddings(self, point: PeerPoint | PeerSequence, layers: Sequence[Layer]) -> Sequence[bool]:
        """In memory: the kernel reads planes with their border."""
        if any(layer.conv.groups > 1 or any(layer.conv.padding) for layer in layers):
            raise Skip("this peer takes planes with their border, and no groups")
        return (True,)

    def _work(self, point: PeerPoint | PeerSequence, layers: Sequence[Layer], padded: bool) -> Work:
        torch, precision = self._torch, point.precision
        kernels = [
            self._fastest(operands_of(torch, layer, point.N, "nhwc", precision, padded=padded), precision)
            for layer in layers
        ]
        operands = [kernel.operands for kernel in kernels]
        about: Record = {"tiles": [{**kernel.tile._asdict(), "tried": kernel.tried} for kernel in kernels]}
        check, exact = partial(check_of, layers, precision), partial(exact_of, torch, layers, operands, precision)
        return Work(lambda: [kernel.run() for kernel in kernels], check, exact, about)

    def _fastest(self, operands: Operands, precision: str) -> "Kernel":
        """The kernel with the fastest tile size; raises LaunchError where none runs."""
        conv = operands.conv
        shape = operands.x.shape[0], conv.M, conv.E, conv.F
        memory = self._torch.channels_last
        y = self._torch.empty(shape, dtype=operands.x.dtype, device="cuda", memory_format=memory)
        best, least, tried = None, inf, 0
        for tile in tiles_of(precision):
            kernel = Kernel(operands, y, tile, precision)
            try:
                kernel.run()
            except (RuntimeError, self._triton.runtime.errors.OutOfResources):  # too much shared memory, say
                continue
            tried += 1
            if (ms := self._ms(kernel)) < least:
                best, least = tile, ms
        if best is None:
            raise LaunchError("Triton compiles none of the tile sizes for this convolution")
        return Kernel(operands, y, best, precision, tried)

    def _ms(self, kernel: "Kernel") -> float:
        """Milliseconds of a run."""
        gpu = self.executor.gpu
        start = gpu.mark(gpu.stream)
        for _ in range(RUNS):
            kernel.run()
        end = gpu.mark(gpu.stream)
        gpu.stream.synchronize()
        return float(end.time_since(start)) / RUNS


@dataclass(frozen=True)
class Kernel:
    """A convolution with a tile size; of the fastest, ``tried`` says how many were tried."""

    operands: Operands
    y: Any
    tile: Tile
    precision: str
    tried: int = 0

    def run(self) -> Any:
        """Enqueues the convolution; returns its output, which the next run overwrites."""
        from alexconv.measuring.triton_convolution import convolve

        of, conv, tile = self.operands, self.operands.conv, self.tile
        pixels = of.x.shape[0] * conv.E * conv.F
        tiles = -(-pixels // tile.pixels) * -(-conv.M // tile.filters)
        (down, across), (apart_down, apart_across) = conv.strides, conv.dilation
        convolve[(tiles,)](
            *(of.x, of.w, of.w if of.bias is None else of.bias, self.y, pixels),
            *(of.x.shape[2], of.x.shape[3], conv.C, conv.M, conv.E, conv.F, conv.R, conv.S),
            *(down, across, apart_down, apart_across, of.bias is not None, conv.relu),
            *(PRECISIONS[self.precision].torch, tile.pixels, tile.filters, tile.taps),
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
        return self.y
