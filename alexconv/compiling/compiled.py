"""Compiled files in a cache that several processes may share: whole, or compiled again."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from alexconv.errors import CompileError
from alexconv.files import contents, replacing

_DIGEST_BYTES = sha256().digest_size


def compiled(path: Path, build: Callable[[Path], None]) -> bytes:
    """The content that ``build`` writes to a path that it gets: from the cache's ``path`` if it is there and whole.

    The file ends with the content's SHA-256, which linkers and loaders of shared libraries ignore.  Raises CompileError
    if ``build`` writes nothing.
    """
    content = _whole(path)
    if content is None:
        with replacing(path) as target:  # complete or absent, even if another process builds the same
            build(target)
            if not target.is_file():
                raise CompileError(f"{path.name}: the compiler reported no error and wrote no file")
            content = target.read_bytes()
            target.write_bytes(content + sha256(content).digest())
    return content


def is_compiled(path: Path) -> bool:
    """Whether the cache has the file, whole."""
    return _whole(path) is not None


def _whole(path: Path) -> bytes | None:
    """The content of a file that ends with its digest, None if there is no such file."""
    try:
        found = contents(path)
    except ValueError:
        return None
    if found is None:
        return None
    content, digest = found[:-_DIGEST_BYTES], found[-_DIGEST_BYTES:]
    return content if sha256(content).digest() == digest else None
