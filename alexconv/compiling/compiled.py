"""A cache of compiled files that several processes may share; a damaged file is compiled again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path

from filelock import FileLock

from alexconv.errors import CompileError
from alexconv.files import contents, replacing

_DIGEST_BYTES = sha256().digest_size


def compiled(path: Path, build: Callable[[Path], None], *, waits: bool = False) -> bytes:
    """The content that ``build`` writes to the path it is given; from ``path`` in the cache if that file is intact.

    The file ends with the content's SHA-256, which linkers and loaders of shared libraries ignore.  With ``waits`` one
    process or thread builds it while the others wait: for files that all kernels need first.  Raises CompileError if
    ``build`` writes nothing.
    """
    content = _whole(path)
    if content is not None:
        return content
    with _alone(path) if waits else nullcontext():
        content = _whole(path) if waits else None
        if content is None:
            content = _built(path, build)
    return content


def _built(path: Path, build: Callable[[Path], None]) -> bytes:
    with replacing(path) as target:  # complete or absent, even if another process builds the same
        build(target)
        if not target.is_file():
            raise CompileError(f"{path.name}: the compiler reported no error and wrote no file")
        content = target.read_bytes()
        target.write_bytes(content + sha256(content).digest())
    return content


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process or thread at a time; where the file system has no locks, several may build the same."""
    lock = FileLock(f"{path}.lock")
    try:
        lock.acquire()
    except (OSError, NotImplementedError):
        yield
        return
    try:
        yield
    finally:
        lock.release()


def is_compiled(path: Path) -> bool:
    """Whether the cache has the file, intact."""
    return _whole(path) is not None


def _whole(path: Path) -> bytes | None:
    """The content of a file that ends with its digest, None if there is no such file."""
    try:
        stored = contents(path)
    except ValueError:
        return None
    if stored is None:
        return None
    content, digest = stored[:-_DIGEST_BYTES], stored[-_DIGEST_BYTES:]
    return content if sha256(content).digest() == digest else None
