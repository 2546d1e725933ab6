"""Facts about the machine and the software that records carry."""

import os
import platform
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from alexconv import __version__
from alexconv.machine import cores, cpu_model, process_age
from alexconv.records.store import Record, RecordWriter

COMMIT_VARIABLE = "ALEXCONV_COMMIT"
PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
# By the names in /proc/self/cgroup: the folder, the limit, what is used, and what of that holds files.
GROUP_FILES = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
PACKAGES = ("numpy", "h5py", "matplotlib", "pycuda", "cuda-bindings", "torch")


def write_headers(file: RecordWriter, device: Record, command: str, **method: object) -> Record:
    """Writes the headers that all records of a run share, unless the file has them; returns their digests by name.

    ``device`` is the executor's own description, ``command`` what was typed, ``method`` how it was measured.
    """
    return {
        "device": file.header("device", device),
        "host": file.header("host", host_facts()),
        "run": file.header("run", {"command": command, **method, **software_facts()}),
    }


def write_end(file: RecordWriter, headers: Record, done: Sequence[Record], previous: int, **more: object) -> None:
    """Writes what a run took: seconds since its process began, its points by status, and how many ``file`` had."""
    points = dict(sorted(Counter(record["status"] for record in done).items()))
    ended = datetime.now(UTC).isoformat(timespec="seconds")
    file.header(
        "end",
        {
            "run": headers["run"],
            "ended": ended,
            "seconds": round(process_age(), 2),
            "points": points,
            "kept": previous,
            **more,
        },
    )


def available_memory() -> int:
    """Bytes of memory that are available without swapping, within the limits of this process's control groups."""
    for line in (PROC / "meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return min([int(line.split()[1]) * 1024, *_left_in_groups()])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _left_in_groups() -> Iterator[int]:
    """What the memory limit of each control group leaves, of version 2 or 1; files in memory can be dropped.

    Files: Linux kernel documentation, admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
    """
    groups = PROC / "self/cgroup"
    for line in groups.read_text().splitlines() if groups.is_file() else ():
        _, controllers, group = line.split(":", 2)
        if controllers not in GROUP_FILES:
            continue
        top, limit, usage, droppable = GROUP_FILES[controllers]
        folder = CGROUPS / top / group.lstrip("/")
        for within in (folder, *folder.parents):  # a container sees its own group as the top
            with suppress(OSError, ValueError, KeyError):  # none there, or no limit: max
                facts = dict(fact.split() for fact in (within / "memory.stat").read_text().splitlines())
                left = int((within / limit).read_text()) - int((within / usage).read_text())
                yield max(0, left + int(facts[droppable]))


def host_facts() -> Record:
    """The host: CPU, cores, system."""
    return {"cpu": cpu_model(), "cores": cores(), "system": f"{platform.system()} {platform.release()}"}


def packages() -> Record:
    """Versions of the packages that this project depends on, as far as they are there."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def software_facts() -> Record:
    """Versions of this project and of the packages it depends on, and the git commit in a checkout."""
    return {"alexconv": __version__, "python": platform.python_version(), "packages": packages(), **git_facts()}


def git_facts() -> Record:
    """Commit of the checkout this runs from, and whether a tracked file had been changed; nothing outside a checkout.

    ``ALEXCONV_COMMIT`` names the commit for a copy of a checkout that came without its history.
    """
    folder = Path(__file__).resolve().parent.parent.parent
    if not (folder / "pyproject.toml").is_file():
        return {}
    if commit := os.environ.get(COMMIT_VARIABLE):
        return {"commit": commit, "dirty": False}

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no")
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(changed)}
    except (OSError, subprocess.CalledProcessError):
        return {}
