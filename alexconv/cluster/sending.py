"""What travels between a command and its workers: records to its record file, and points, whose rungs go by name."""

import copyreg
import json
from collections.abc import Callable, Iterable
from time import sleep, time
from typing import Any

from alexconv.kernels.rung import Rung
from alexconv.own.folders import installed_ladder
from alexconv.records.store import Record, Records, digest

SENT_AFTER = 1.0  # seconds for a worker's last message to leave
HEADER, POINT, STARTED, ARRIVED = "header", "point", "started", "arrived"
CALIBRATION = "calibration"  # type of the header of a worker's first point


def installed_rung(name: str) -> Rung:
    """The rung of that name, of this package or another that is installed here."""
    return installed_ladder().named[name]


def by_name(rung: Rung) -> tuple[Callable[[str], Rung], tuple[str]]:
    """How to recreate a rung on a worker, which has the same packages; raises TypeError for a rung of no package."""
    if installed_ladder().named.get(rung.name) is not rung:
        raise TypeError(f"the rung {rung.name} is on one machine only")
    return installed_rung, (rung.name,)


copyreg.pickle(Rung, by_name)


class Sender:
    """Takes headers and points as a RecordFile does, and immediately sends each, as JSON, to a topic's subscribers.

    ``previous`` are records of points that need not be measured again.
    """

    def __init__(self, topic: str, previous: Iterable[Record] = ()) -> None:
        self.topic = topic
        self.previous = Records(points=list(previous))
        self._began = time()

    def send(self, kind: str, *content: Any) -> None:
        """Sends a message from the worker that runs this task."""
        from distributed import get_worker

        worker = get_worker()
        worker.log_event(self.topic, {"worker": worker.address, "kind": kind, "content": json.dumps(content)})

    def header(self, kind: str, data: Record) -> str:
        """See RecordFile."""
        self.send(HEADER, kind, data)
        return digest([kind, data])

    def point(self, record: Record) -> Record:
        """See RecordFile; also sends the span of time since the last point, or since the task began."""
        ended = time()
        self.send(POINT, record, self._began, ended)
        self._began = ended
        return record

    # Progress, as a run shows it

    def start(self, activity: str) -> None:
        """Sends what runs now."""
        self.send(STARTED, activity)

    def finish(self, record: Record) -> None:
        """Does nothing: the record says it."""

    def say(self, line: str) -> None:
        """Does nothing: the client reports on workers."""

    def stop(self) -> None:
        """Waits until all messages have left."""
        sleep(SENT_AFTER)
