"""Processes of this machine, for tests that must leave none."""

from pathlib import Path


def running(mark: str) -> list[str]:
    """Numbers of the processes that have a mark in their command line."""
    found = []
    for process in filter(lambda path: path.name.isdigit(), Path("/proc").iterdir()):
        try:
            found += [process.name] * (mark.encode() in (process / "cmdline").read_bytes())
        except OSError:
            continue  # it has ended
    return found
