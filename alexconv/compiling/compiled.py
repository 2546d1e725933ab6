"""Compiled files in a cache that several processes may share: whole, or compiled again."""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from alexconv.files import replacing

_DIGEST_BYTES = sha256().digest_size


def compiled(path: Path, build: Callable[[Path], None]) -> bytes:
    """The content that ``build`` writes to a path that it gets: from the cache's ``path`` if it is there and whole.

    Behind the content the file holds its digest, which linkers and loaders of shared libraries pass over.
    """
    content = _whole(path)
    if content is None:
        with replacing(path) as target:  # complete or absent, whoever else builds the same
            build(target)
            content = target.read_bytes()
            target.write_bytes(content + sha256(content).digest())
    return content


def _whole(path: Path) -> bytes | None:
    """The content of a file that ends with its digest, None if there is no such file."""
    try:
        found = path.read_bytes()
    except OSError:
        return None
    content, digest = found[:-_DIGEST_BYTES], found[-_DIGEST_BYTES:]
    return content if sha256(content).digest() == digest else None
