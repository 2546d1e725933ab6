"""The argument of the ladder's functions: a layer, a number of images, a rung's constants and the device."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from alexconv.shapes import Conv

Constants = Mapping[str, int]

TYPICAL_BATCH = 128  # images, for defaults without a batch


@dataclass(frozen=True)
class Device:
    """The properties of a GPU that the ladder uses."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_per_block: int  # bytes of dynamic shared memory, opt-in maximum
    shared_per_multiprocessor: int  # bytes
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

    ``N`` is the micro-batch of a launch, the images in a scratch array, and the whole batch for a constant's default.
    A default sees the values of the constants before its own.
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
        """The same with some constants replaced."""
        return replace(self, constants={**self.constants, **constants})
