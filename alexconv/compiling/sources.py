"""What a compiled kernel depends on: its file and the project headers that it includes, directly or not."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def source_files(path: Path) -> list[Path]:
    """The file, then every file that it includes with quotes, each once, as far as they are there.

    A missing one is the compiler's to tell of, in its error for the line that names it.
    """
    found: list[Path] = []

    def visit(file: Path) -> None:
        if file in found or not file.is_file():
            return
        found.append(file)
        for name in _INCLUDE.findall(file.read_text()):
            visit((file.parent / name).resolve())

    visit(path.resolve())
    return found


def source_digest(path: Path, defines: Mapping[str, int], *more: str) -> str:
    """A key that changes when the file, a header, a macro or one of ``more`` (flags, compiler version) changes."""
    digest = hashlib.sha256()
    for file in source_files(path):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    digest.update(repr((sorted(defines.items()), more)).encode())
    return digest.hexdigest()[:32]
