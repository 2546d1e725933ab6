"""The ways in which arrays reach the device, as a table.  A rung never knows which one it is run under."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from alexconv.errors import UsageError

DEFAULT_STREAMS = 4

Opener = Callable[..., Any]  # of executor, program, plan, x, w and transfer; gives executors.interface.Buffers


@dataclass(frozen=True)
class Transfer:
    """A way to move the arrays of a point: its name, what it does, and the streams that it keeps busy.

    ``opens`` has, by executor, what makes the arrays of a plan.  ``copies``: by copies between host and device;
    ``page_locked``: from and to page-locked host memory; ``prefetches``: pages are moved before they are used;
    ``pipelined``: pieces on several streams, whose number may follow the name, as in ``streamed:8``.
    """

    name: str
    meaning: str
    opens: Mapping[str, Opener] = field(hash=False, compare=False)
    streams: int = 1
    copies: bool = True
    page_locked: bool = False
    prefetches: bool = False
    pipelined: bool = False

    @property
    def kind(self) -> str:
        """The name without a number of streams."""
        return self.name.partition(":")[0]

    @property
    def pieces_at_least(self) -> int:
        """Pieces that a batch is cut into even if it fits whole: two a stream, so that copies and kernels overlap."""
        return 1 if self.streams == 1 else 2 * self.streams

    def opener(self, backend: str) -> Opener:
        """What makes the arrays of a plan on an executor; raises UsageError where it has no such transfer."""
        if backend not in self.opens:
            raise UsageError(f"the {backend} executor has no transfer {self.name}")
        return self.opens[backend]


def lazily(module: str, name: str) -> Opener:
    """A class of an executor, imported when it is used."""

    def opened(*arguments: Any) -> Any:
        return getattr(import_module(f"alexconv.executors.{module}"), name)(*arguments)

    return opened


COPIED, MANAGED = lazily("cuda.buffers", "CopiedBuffers"), lazily("cuda.buffers", "ManagedBuffers")
STREAMED = lazily("cuda.buffers", "StreamedBuffers")
ON_HOST = lazily("host.buffers", "HostBuffers")

TRANSFERS: dict[str, Transfer] = {
    transfer.name: transfer
    for transfer in (
        Transfer("pageable", "copies from and to ordinary host memory", {"cuda": COPIED, "host": ON_HOST}),
        Transfer("pinned", "copies from and to page-locked host memory", {"cuda": COPIED}, page_locked=True),
        Transfer(
            "managed",
            "unified memory: pages move when the kernel or the host touches them",
            {"cuda": MANAGED},
            copies=False,
        ),
        Transfer(
            "managed-prefetch",
            "unified memory, its pages prefetched to the device and back",
            {"cuda": MANAGED},
            copies=False,
            prefetches=True,
        ),
        Transfer(
            "streamed",
            "page-locked memory, pieces of the batch on several streams",
            {"cuda": STREAMED},
            DEFAULT_STREAMS,
            page_locked=True,
            pipelined=True,
        ),
    )
}


def transfers_of(backend: str) -> tuple[str, ...]:
    """The names of the transfers that an executor has."""
    return tuple(name for name, transfer in TRANSFERS.items() if backend in transfer.opens)


def transfer_named(text: str) -> Transfer:
    """A transfer by name; ``streamed:8`` has eight streams.  Raises ValueError."""
    name, _, streams = text.partition(":")
    if name not in TRANSFERS or (streams and not TRANSFERS[name].pipelined):
        raise ValueError(f"unknown transfer {text!r}: one of {', '.join(TRANSFERS)} (streamed:8 for eight streams)")
    if not streams:
        return TRANSFERS[name]
    if not streams.isdecimal() or int(streams) < 1:
        raise ValueError(f"{text!r}: the number of streams is 1 or more")
    kind = TRANSFERS[name]
    return replace(kind, name=text, meaning=f"{kind.meaning}, {streams} of them", streams=int(streams))
