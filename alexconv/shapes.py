"""Convolution shapes and the workloads (tables of layers) that the studies use.

Letters are the convolution literature's: ``N`` images, ``C`` input channels, ``M`` filters, ``H x W`` input plane
including its zero padding, ``R x S`` filter, ``U`` stride, ``E x F`` output plane.  Arrays are C-ordered:
input ``[N][C][H][W]``, filters ``[M][C][R][S]``, output ``[N][M][E][F]``.
"""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Conv:
    """One convolution layer without its batch size.

    ``H`` and ``W`` include ``pad`` rows and columns of zeros on each side, so a kernel never tests for borders.
    Raises ValueError for sizes below one or a filter larger than the plane.
    """

    C: int
    H: int
    W: int
    M: int
    R: int
    S: int
    U: int = 1
    pad: int = 0

    def __post_init__(self) -> None:
        if min(self.C, self.H, self.W, self.M, self.R, self.S, self.U) < 1 or self.pad < 0:
            raise ValueError(f"every size of a convolution must be at least 1, got {self}")
        if self.R > self.H or self.S > self.W:
            raise ValueError(f"filter {self.R}x{self.S} is larger than the plane {self.H}x{self.W}")
        if 2 * self.pad >= min(self.H, self.W):
            raise ValueError(f"a padding of {self.pad} leaves nothing of the plane {self.H}x{self.W}")

    @property
    def E(self) -> int:
        """Rows of the output plane."""
        return (self.H - self.R) // self.U + 1

    @property
    def F(self) -> int:
        """Columns of the output plane."""
        return (self.W - self.S) // self.U + 1

    @property
    def K(self) -> int:
        """Products summed into one output."""
        return self.C * self.R * self.S

    def macs(self, N: int) -> int:
        """Multiply-accumulates for N images."""
        return N * self.M * self.E * self.F * self.K

    def x_shape(self, N: int) -> tuple[int, int, int, int]:
        """Input array, ``[N][C][H][W]``."""
        return N, self.C, self.H, self.W

    def w_shape(self) -> tuple[int, int, int, int]:
        """Filter array, ``[M][C][R][S]``."""
        return self.M, self.C, self.R, self.S

    def y_shape(self, N: int) -> tuple[int, int, int, int]:
        """Output array, ``[N][M][E][F]``."""
        return N, self.M, self.E, self.F

    def sizes(self) -> dict[str, int]:
        """The sizes that a kernel is compiled for, by letter."""
        letters = asdict(self)
        del letters["pad"]
        return {**letters, "E": self.E, "F": self.F}


@dataclass(frozen=True)
class Workload:
    """A network's convolution layers, numbered from 1, and the batch sizes its study reports."""

    name: str
    layers: tuple[Conv, ...]
    batches: tuple[int, ...]
    source: str

    def layer(self, number: int) -> Conv:
        """Layer by its number from 1; raises KeyError for a number that the workload lacks."""
        if not 1 <= number <= len(self.layers):
            raise KeyError(f"{self.name} has layers 1 to {len(self.layers)}, not {number}")
        return self.layers[number - 1]


def _lenet(size: int, filter_size: int, maps: tuple[int, int], batches: tuple[int, ...], source: str) -> Workload:
    """Two valid convolutions with a 2x2 pooling between them, as the LeNet-style course projects use."""
    first = Conv(C=1, H=size, W=size, M=maps[0], R=filter_size, S=filter_size)
    second = Conv(C=maps[0], H=first.E // 2, W=first.F // 2, M=maps[1], R=filter_size, S=filter_size)
    return Workload(f"lenet-{size}-k{filter_size}", (first, second), batches, source)


_LENET_BATCHES = (100, 1000, 5000, 10000)

WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload(
            "alexnet",
            (
                Conv(C=3, H=227, W=227, M=96, R=11, S=11, U=4),
                Conv(C=96, H=31, W=31, M=256, R=5, S=5, pad=2),
                Conv(C=256, H=15, W=15, M=384, R=3, S=3, pad=1),
                Conv(C=384, H=15, W=15, M=384, R=3, S=3, pad=1),
                Conv(C=384, H=15, W=15, M=256, R=3, S=3, pad=1),
            ),
            (1, 32, 128),
            "AlexNet as one tower, no groups (Purdue ECE 695, 2020)",
        ),
        _lenet(72, 7, (12, 24), _LENET_BATCHES, "LeNet-style (Illinois ECE 408, 2018)"),
        _lenet(70, 5, (12, 24), _LENET_BATCHES, "LeNet-style (Illinois ECE 408, 2019)"),
        _lenet(86, 7, (4, 16), _LENET_BATCHES, "LeNet-style (Illinois ECE 408, 2023 and 2024)"),
        Workload(
            "vgg-resnet",
            (
                Conv(C=64, H=58, W=58, M=128, R=3, S=3, pad=1),
                Conv(C=512, H=16, W=16, M=512, R=3, S=3, pad=1),
                Conv(C=3, H=230, W=230, M=64, R=7, S=7, U=2, pad=3),
                Conv(C=256, H=14, W=14, M=512, R=1, S=1),
            ),
            (8, 32),
            "VGG and ResNet layers: 3x3 on wide and on narrow planes, the 7x7 stem, a 1x1",
        ),
    )
}
