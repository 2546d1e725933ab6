"""How long the host executor takes for points, estimated before they run and corrected while they do.

A kernel on the CPU takes about as long as serial C++ for the same products: multiply-adds times the pace of the serial
baseline, which the user's cache keeps.  Rungs differ from that, and each point also compiles its kernel unless that is
cached, so the sum is right within a factor of SPREAD.
"""

from collections.abc import Iterator, Sequence
from math import fsum
from typing import NamedTuple

from alexconv.cpu_reference.baseline import serial_time
from alexconv.executors.interface import Executor
from alexconv.planning.points import Kind, PeerPoint, Point

TYPICAL = 1e-9  # seconds of serial C++ for a multiply-add, for jobs too short to time it
COMPILING = 0.3  # seconds of a point that do not depend on its batch: the compiler, on two cores, and the exact check
SPREAD = 2.5  # the whole job takes from 1 / SPREAD of the estimate to SPREAD times it
HOUR, YEAR = 3600.0, 365 * 86400.0  # seconds
LONG = 300.0  # seconds from which a job needs a hint at shorter ones


class HostTime(NamedTuple):
    """Estimated seconds of each job, in their order."""

    jobs: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The sum."""
        return fsum(self.jobs)

    def lines(self) -> Iterator[str]:
        """What to expect, and what to run instead of a long job."""
        low, high = self.seconds / SPREAD, self.seconds * SPREAD
        yield f"time on this CPU: about {in_words(self.seconds)}, {in_words(low)} to {in_words(high)}"
        if self.seconds > LONG:
            yield "a minute or two: the same command with --N 1, as in make study; less with --rungs or --layers"


def host_time(jobs: Sequence[Sequence[Point | PeerPoint]], executor: Executor) -> HostTime:
    """The estimate for jobs of a point or more each; raises MissingTool and AlexconvError as timing serial C++ does."""
    run = [point for points in jobs for point in points if not skipped(point, executor)]
    macs = {point: point.conv.macs(point.N) for point in run}
    per_mac = TYPICAL
    if run and sum(macs.values()) * TYPICAL > LONG:  # worth the second or two that a first timing takes
        first = run[0]
        per_mac = serial_time(first.workload, first.layer, first.conv).ms_per_image / 1e3 / first.conv.macs(1)
    costs = {point: COMPILING + count * per_mac for point, count in macs.items()}
    return HostTime(tuple(fsum(costs.get(point, 0.0) for point in points) for points in jobs))


def skipped(point: Point | PeerPoint, executor: Executor) -> bool:
    """Whether the executor or the rung refuses the point; peers refuse none."""
    if point.kind is Kind.PEER:
        return False
    return bool(executor.unsuited(point.entry) or point.bound(executor.device).refusal())


def in_words(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h`` or ``2e+03 years``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR:.1f} h" if seconds < YEAR else f"{seconds / YEAR:.2g} years"
