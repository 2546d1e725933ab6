"""The time and memory that a command and all processes it has started take, read from /proc."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

_STATE, _OWN_TICKS, _WAITED_TICKS, _START, _RESIDENT = (
    0,
    slice(11, 13),
    slice(13, 15),
    19,
    21,
)  # of stat, after the name
_RUNNABLE = ("R", "D")
_INODE_BYTES = 1 << 10  # of the system's memory, for an empty file


class Watch:
    """The times that the processes below some roots have taken."""

    def __init__(self) -> None:
        self.cpu_seconds = 0.0  # of all, those that have ended included
        self.asleep_seconds = 0.0  # since one of them last could run
        self._own: dict[tuple[int, str], int] = {}  # ticks by process and its start
        self._last = monotonic()

    def look(self, roots: Iterable[int]) -> list[int]:
        """Updates the times; returns the processes.

        A process that ends adds its time to its parent's, unless the parent ignores it: so each one's own time is
        remembered, too.
        """
        processes, in_tree, awake = list(descendants(roots)), 0, False
        for process in processes:
            if fields := _stat(f"/proc/{process}"):
                own = sum(map(int, fields[_OWN_TICKS]))
                self._own[process, fields[_START]] = own
                in_tree += own + sum(map(int, fields[_WAITED_TICKS]))
                awake |= any(fields[_STATE] in _RUNNABLE for fields in _threads(process))
        seconds = max(in_tree, sum(self._own.values())) / os.sysconf("SC_CLK_TCK")
        now = monotonic()
        awake |= seconds > self.cpu_seconds
        self.asleep_seconds = 0.0 if awake else self.asleep_seconds + now - self._last
        self.cpu_seconds, self._last = max(self.cpu_seconds, seconds), now
        return processes


def memory_of(processes: Iterable[int], files: int, limit: int) -> int:
    """Bytes that processes take, with ``files`` bytes of files in memory.

    First each process's resident pages; only if these exceed the limit, which pages shared with a parent do quickly,
    each page once, and those of files not again.
    """
    processes = list(processes)
    resident = sum(int(fields[_RESIDENT]) for process in processes if (fields := _stat(f"/proc/{process}")))
    total = resident * os.sysconf("SC_PAGE_SIZE") + files
    return total if total <= limit else files + sum(map(_proportional, processes))


def _proportional(process: int) -> int:
    """A process's bytes without those of shared memory, a page that several have in parts; 0 once it has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {name: int(size.split()[0]) << 10 for name, _, size in (line.partition(":") for line in lines)}
        return sizes["Pss"] - sizes.get("Pss_Shmem", 0)
    return 0


def memory_of_files(process: int, folder: str, most: int) -> int:
    """Bytes of the files of a file system in memory that a process sees, of ``most`` bytes in all; else 0."""
    with suppress(OSError):
        facts = os.statvfs(f"/proc/{process}/root{folder}")
        if facts.f_blocks * facts.f_frsize >> 20 == most >> 20:
            inodes = facts.f_files - facts.f_ffree
            return (facts.f_blocks - facts.f_bfree) * facts.f_frsize + inodes * _INODE_BYTES
    return 0


def descendants(roots: Iterable[int]) -> Iterator[int]:
    """Processes, their children, and theirs."""
    remaining = list(roots)
    while remaining:
        process = remaining.pop()
        yield process
        with suppress(OSError):
            for task in Path(f"/proc/{process}/task").iterdir():
                with suppress(OSError):
                    remaining += map(int, (task / "children").read_text().split())


def children_of_this_process() -> set[int]:
    """Its children, adopted ones included."""
    return {int(word) for task in Path("/proc/self/task").iterdir() for word in _text(task / "children").split()}


def threads_of(user: int) -> int:
    """The user's threads: RLIMIT_NPROC counts them all."""
    count = 0
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and process.stat().st_uid == user:
                count += len(list((process / "task").iterdir()))
    return count


def _threads(process: int) -> Iterator[list[str]]:
    with suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            if fields := _stat(str(task)):
                yield fields


def _stat(folder: str) -> list[str]:
    """The fields after the name in a process's or thread's ``stat``; none once it has ended."""
    return _text(Path(folder, "stat")).rpartition(")")[2].split()


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""
