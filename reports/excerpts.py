"""Excerpts of sources that are whole: they close what they open, and mark what they leave out."""

import re
from collections.abc import Sequence
from pathlib import Path

from alexconv.errors import UsageError


def code_of(path: Path, name: str, pieces: Sequence[tuple[str, ...]]) -> str:
    """Pieces of a file, with what they leave open closed, and ``// ...`` for the rest.

    A piece is the line with a text, up to the next one with a second text if there is one; the first line is the only
    one of the file with its text.  Raises UsageError where a piece is missing, or several lines may begin the first.
    """
    lines = path.read_text().splitlines()
    begins = [number for number, line in enumerate(lines) if pieces[0][0] in line]
    if len(begins) != 1:
        raise UsageError(f"the book: {len(begins)} lines of {name} have {pieces[0][0]!r}, not one")
    chosen: list[str] = []
    at = 0
    for piece in pieces:
        first = line_with(piece[0], lines, at, name)
        if chosen and first > at:
            chosen.append(f"{_indent(lines[first])}// ...")
        at = line_with(piece[-1], lines, first, name) + 1
        chosen += lines[first:at]
    chosen += _closed(chosen, lines[at:])
    width = min(len(_indent(line)) for line in chosen if line.strip() and line[0] != "#")
    return "\n".join(line if line[:1] == "#" else line[width:] for line in chosen)


def line_with(text: str, lines: Sequence[str], start: int, file: str) -> int:
    """The number of the first line with a text, from ``start`` on; raises UsageError if there is none."""
    for number in range(start, len(lines)):
        if text in lines[number]:
            return number
    raise UsageError(f"the book: no line of {file} after line {start} has {text!r}")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _closed(chosen: Sequence[str], following: Sequence[str]) -> list[str]:
    """The lines that close what ``chosen`` leaves open, from those that follow it in the file."""
    opened: list[str] = []  # the indents of the lines with braces that are open
    for line in chosen:
        for mark in re.sub('//.*|"[^"]*"|= {}', "", line):
            if mark == "{":
                opened.append(_indent(line))
            elif mark == "}":
                opened.pop()
    closing, at = [], 0
    while opened:
        indent = opened.pop()
        start = at
        while not following[at].startswith(indent + "}"):
            at += 1
        if any(line.strip() for line in following[start:at]):
            closing.append(f"{indent}    // ...")
        closing.append(following[at])
        at += 1
    return closing
