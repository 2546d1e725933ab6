"""Generated parts of hand-written pages: between markers, made from record files, checkable."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.options import exits_cleanly


def markers(name: str) -> tuple[str, str]:
    """The comments that enclose a generated part."""
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
    """Prints stale files and the command that updates them; returns the exit status."""
    if old:
        command = f"python -m {module} {' '.join(map(str, files))} {page}"
        print(f"stale: {', '.join(map(str, old))}: run {command}", file=sys.stderr)
    return 1 if old else 0


@exits_cleanly
def update_page(
    module: str,
    description: str | None,
    parts: Callable[[Sequence[Path]], Mapping[str, str]],
    arguments: Sequence[str] | None,
    files: str | int = "+",
) -> int:
    """The command of a module that writes a page's parts, or with --check says whether they are up to date.

    ``parts`` makes them from the record files, whose number on the command line is ``files``; the description's first
    line is the help's.  Returns the exit status.
    """
    summary = (description or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=summary)
    parser.add_argument("files", nargs=files, type=Path, metavar="FILE", help="record files")
    parser.add_argument("page", type=Path, metavar="PAGE", help="the page with the parts' markers")
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 if the page is stale")
    options = parser.parse_args(arguments)
    found = parts(options.files)
    try:
        text = options.page.read_text()
        fresh = updated(text, found)
        if not options.check:
            options.page.write_text(fresh)
    except OSError as error:
        raise UsageError(f"cannot update {options.page}: {error.strerror}") from None
    old = [options.page] if text != fresh else []
    return check(old, module, options.files, options.page) if options.check else 0
