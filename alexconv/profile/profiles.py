"""Profiles: what one kernel of a point did, as record files hold it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from alexconv.errors import CompileError, LaunchError, OutOfMemory, Untrusted
from alexconv.measuring.runner import Skip
from alexconv.messages import print_to_stderr
from alexconv.planning.points import PeerPoint, Point
from alexconv.profile import ncu
from alexconv.profile.trace import Trace
from alexconv.records.store import Record


@dataclass(frozen=True)
class Profile:
    """Counters of one kernel of a point."""

    point: Point | PeerPoint
    entry: str
    source: str
    images: int
    metrics: ncu.Metrics
    trace: Trace | None = None

    def record(self) -> Record:
        """The profile as a record file holds it."""
        record: Record = {
            "point": self.point.axes(),
            "changed": self.point.changed(),
            "entry": self.entry,
            "source": self.source,
            "images": self.images,
            "metrics": self.metrics,
        }
        if self.trace:
            record["races"] = [str(race) for race in self.trace.races]
            record["lines"] = [asdict(line) for line in self.trace.lines]
        return record


@contextmanager
def reporting_failures(point: Point | PeerPoint, say: Callable[[str], None] = print_to_stderr) -> Iterator[None]:
    """Says why a point has no profile, and continues."""
    try:
        yield
    except (Skip, CompileError, LaunchError, OutOfMemory, Untrusted) as reason:
        say(f"{point.label()}: {reason}")
