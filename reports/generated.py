"""Generated parts of hand-written pages, between markers, and generated folders."""

import re
from collections.abc import Container, Mapping
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.reports.style import texts

BEGINS = r"<!-- ([\w-]+): begin -->"


def markers(name: str) -> tuple[str, str]:
    """The comments that enclose a generated part."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def updated(text: str, parts: Mapping[str, str]) -> str:
    """The text with each part between the markers of its name; raises UsageError for either without the other."""
    if left := set(re.findall(BEGINS, text)) - set(parts):
        raise UsageError(f"the page has markers of {', '.join(sorted(left))}, which its record files do not give")
    for name, content in parts.items():
        begin, end = markers(name)
        before, opening, rest = text.partition(begin)
        _, closing, after = rest.partition(end)
        if not opening or not closing:
            raise UsageError(f"the page has no markers {begin} and {end}")
        text = f"{before}{begin}\n{content}\n{end}{after}"
    return text


def write(files: Mapping[Path, str]) -> None:
    """Writes files, and the folders that they need."""
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def stale(files: Mapping[Path, str]) -> list[Path]:
    """The files that are missing or differ; of drawings only the texts count, since libraries draw differently."""
    return [path for path, text in files.items() if not path.is_file() or not _same(path, text)]


def superfluous(folder: Path, files: Container[Path]) -> list[Path]:
    """The files in a folder that are not among these."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path not in files)


def _same(path: Path, text: str) -> bool:
    current = path.read_text()
    return texts(current) == texts(text) if path.suffix == ".svg" else current == text
