"""Parts of hand-written pages that are made from record files: they stand between markers, and can be checked."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from alexconv.errors import UsageError


def markers(name: str) -> tuple[str, str]:
    """The comments around what is generated."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def updated(text: str, parts: Mapping[str, str]) -> str:
    """The text with each part between the markers of its name; raises UsageError when they are missing."""
    for name, content in parts.items():
        begin, end = markers(name)
        before, found_begin, rest = text.partition(begin)
        _, found_end, after = rest.partition(end)
        if not found_begin or not found_end:
            raise UsageError(f"the page has no markers {begin} and {end}")
        text = f"{before}{begin}\n{content}\n{end}{after}"
    return text


def check(old: Sequence[Path], module: str, files: Sequence[Path], page: Path) -> int:
    """Names the files that are not what the records say and the command that writes them; returns the exit status."""
    if old:
        command = f"python -m {module} {' '.join(map(str, files))} {page}"
        print(f"stale: {', '.join(map(str, old))}: run {command}", file=sys.stderr)
    return 1 if old else 0
