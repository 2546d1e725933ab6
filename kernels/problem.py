"""What a function of the ladder is given: a layer, a number of images, a rung's constants and the device."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from alexconv.shapes import Conv

Constants = Mapping[str, int]

TYPICAL_BATCH = 128  # images, where defaults are asked for without a batch


@dataclass(frozen=True)
class Device:
    """What the ladder knows of a GPU; sizes are in bytes.

    ``shared_per_block`` is the most dynamic shared memory that a block may ask for.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_per_block: int
    shared_per_multiprocessor: int
    l2_bytes: int


# The reference device: used where there is no GPU (host executor, reports, --list, tests).
H200 = Device(
    name="NVIDIA H200",
    capability=(9, 0),
    multiprocessors=132,
    shared_per_block=227 * 1024,
    shared_per_multiprocessor=228 * 1024,
    l2_bytes=60 * 2**20,
)


@dataclass(frozen=True)
class Problem:
    """A layer for N images with a rung's constants on a device; ``problem["TILE"]`` is a constant's value.

    A launch sees in ``N`` the images that it is over, a scratch array those that it holds, a constant's default the
    batch.  A default sees the values of the constants before its own.
    """

    conv: Conv
    N: int = 1
    constants: Constants = field(default_factory=dict)
    device: Device = H200

    def __getitem__(self, constant: str) -> int:
        return self.constants[constant]

    def over(self, images: int) -> "Problem":
        """The same for another number of images."""
        return replace(self, N=images)

    def having(self, **constants: int) -> "Problem":
        """The same with other values of some constants."""
        return replace(self, constants={**self.constants, **constants})
