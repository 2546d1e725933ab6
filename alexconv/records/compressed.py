"""Compressed record files (``.jsonl.gz``, ``.jsonl.xz``): read like others, under either name, and never written.

``r.jsonl`` names ``r.jsonl.xz`` where only that is there, so what names a file need not know how it is stored.
"""

import gzip
import lzma
import zlib
from pathlib import Path

from alexconv.errors import UsageError

SUFFIXES = (".gz", ".xz")
UNPACK = {b"\x1f\x8b": gzip.decompress, b"\xfd7zXZ\0": lzma.decompress}  # by a file's first bytes


def plain(path: Path) -> Path:
    """A record file's name without the suffix of its compression."""
    return path.with_suffix("") if path.suffix in SUFFIXES else path


def stored(path: Path) -> Path:
    """The file of this name: itself, else its compressed one if there is one."""
    packed = (path.with_name(path.name + suffix) for suffix in SUFFIXES)
    return path if path.exists() else next((file for file in packed if file.is_file()), path)


def files_in(folder: Path, pattern: str = "*.jsonl") -> list[Path]:
    """The record files of a folder by their plain names, in order."""
    return sorted({plain(path) for suffix in ("", *SUFFIXES) for path in folder.glob(pattern + suffix)})


def contents(path: Path) -> bytes:
    """A record file's bytes, unpacked; raises OSError, and UsageError for damaged compressed ones."""
    data = stored(path).read_bytes()
    for start, unpack in UNPACK.items():
        if data.startswith(start):
            try:
                return unpack(data)
            except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile):
                raise UsageError(f"cannot read the record file {path}: its compressed data are damaged") from None
    return data


def refuse_to_write(path: Path) -> None:
    """Raises UsageError if a compressed file has this name, or would get it; OSError for one that cannot be read."""
    file = stored(path)
    if file.suffix in SUFFIXES or (file.is_file() and _starts_compressed(file)):
        instead = f"unpack {file} first, with gunzip or unxz" if file.exists() else f"name it {plain(file)}"
        raise UsageError(f"cannot write the record file {path}: compressed ones are only read; {instead}")


def _starts_compressed(file: Path) -> bool:
    with file.open("rb") as opened:
        return opened.read(max(map(len, UNPACK))).startswith(tuple(UNPACK))
