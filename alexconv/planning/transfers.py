"""The table of transfers: ways for arrays to reach the device.  A rung never knows its transfer."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from alexconv.errors import UsageError

DEFAULT_STREAMS = 4
COUNT = re.compile(r"[1-9][0-9]{0,5}")  # after a colon: of streams, of candidates

Opener = Callable[..., Any]  # takes executor, program, plan, x, w and transfer; returns executors.interface.Buffers


class Opens(Protocol):
    """The part of an executor that transfers need."""

    name: str

    @property
    def opens(self) -> Mapping[str, Opener]:
        """The transfers that it supports, each with the function that allocates a plan's arrays."""
        ...


@dataclass(frozen=True)
class Transfer:
    """A way to move the arrays of a point."""

    name: str
    meaning: str
    streams: int = 1
    copies: bool = True  # explicit copies between host and device
    page_locked: bool = False  # host memory is page-locked
    prefetches: bool = False  # unified memory, prefetched before use
    pipelined: bool = False  # pieces on several streams; their number may follow the name, as in ``streamed:8``
    # By executor, the function that allocates a plan's arrays, for executors without the transfer itself.
    opens: Mapping[str, Opener] = field(default_factory=dict, hash=False, compare=False)

    @property
    def kind(self) -> str:
        """The name without a number of streams."""
        return self.name.partition(":")[0]

    @property
    def pieces_at_least(self) -> int:
        """Least number of pieces: two per stream, so that copies and kernels overlap."""
        return 1 if self.streams == 1 else 2 * self.streams

    def served_by(self, executor: Opens) -> bool:
        """Whether an executor supports it."""
        return executor.name in self.opens or self.kind in executor.opens

    def opener(self, executor: Opens) -> Opener:
        """The function that allocates a plan's arrays; raises UsageError if the executor does not support it."""
        if not self.served_by(executor):
            raise UsageError(f"the {executor.name} executor has no transfer {self.name}")
        return self.opens.get(executor.name) or executor.opens[self.kind]


TRANSFERS: dict[str, Transfer] = {
    transfer.name: transfer
    for transfer in (
        Transfer("pageable", "copies from and to ordinary host memory"),
        Transfer("pinned", "copies from and to page-locked host memory", page_locked=True),
        Transfer("managed", "unified memory: pages move when the kernel or the host touches them", copies=False),
        Transfer(
            "managed-prefetch",
            "unified memory, its pages prefetched to the device and back",
            copies=False,
            prefetches=True,
        ),
        Transfer(
            "streamed",
            "page-locked memory, pieces of the batch on several streams",
            DEFAULT_STREAMS,
            page_locked=True,
            pipelined=True,
        ),
    )
}


def transfer_named(text: str) -> Transfer:
    """A transfer by name; ``streamed:8`` has eight streams.  Raises ValueError."""
    name, _, streams = text.partition(":")
    if name not in TRANSFERS or (streams and not TRANSFERS[name].pipelined):
        raise ValueError(f"unknown transfer {text!r}: one of {', '.join(TRANSFERS)} (streamed:8 for eight streams)")
    if not streams:
        return TRANSFERS[name]
    if not COUNT.fullmatch(streams):
        raise ValueError(f"{text!r}: the number of streams is 1 to 999999")
    kind = TRANSFERS[name]
    return replace(kind, name=text, meaning=f"{kind.meaning}, {streams} of them", streams=int(streams))
