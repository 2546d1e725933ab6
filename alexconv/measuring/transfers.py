"""The ways in which arrays reach the device.  A rung never knows which one it is run under."""

from dataclasses import dataclass

DEFAULT_STREAMS = 4


@dataclass(frozen=True)
class Transfer:
    """A way to move the arrays of a point: its name, what it does, and the streams that it keeps busy."""

    name: str
    meaning: str
    streams: int = 1

    @property
    def kind(self) -> str:
        """The name without a number of streams."""
        return self.name.partition(":")[0]

    @property
    def pieces_at_least(self) -> int:
        """Pieces that a batch is cut into even if it fits whole: two a stream, so that copies and kernels overlap."""
        return 1 if self.streams == 1 else 2 * self.streams


TRANSFERS: dict[str, Transfer] = {
    transfer.name: transfer
    for transfer in (
        Transfer("pageable", "copies from and to ordinary host memory"),
        Transfer("pinned", "copies from and to page-locked host memory"),
        Transfer("managed", "unified memory: pages move when the kernel or the host touches them"),
        Transfer("managed-prefetch", "unified memory, its pages prefetched to the device and back"),
        Transfer("streamed", "page-locked memory, pieces of the batch on several streams", DEFAULT_STREAMS),
    )
}


def transfer_named(text: str) -> Transfer:
    """A transfer by name; ``streamed:8`` has eight streams.  Raises ValueError."""
    name, _, streams = text.partition(":")
    if name not in TRANSFERS or (streams and name != "streamed"):
        raise ValueError(f"unknown transfer {text!r}: one of {', '.join(TRANSFERS)} (streamed:8 for eight streams)")
    if not streams:
        return TRANSFERS[name]
    if not streams.isdecimal() or int(streams) < 1:
        raise ValueError(f"{text!r}: the number of streams is 1 or more")
    return Transfer(text, f"{TRANSFERS[name].meaning}, {streams} of them", int(streams))
