"""Files that appear whole or not at all, and folders that one process at a time changes."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from alexconv.errors import UsageError
from alexconv.messages import Say
from alexconv.paths import CACHE_VARIABLE

TEMPORARY_SUFFIX = ".tmp"
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; when the block ends well its file is flushed to disk and becomes ``path``.

    When the block raises, ``path`` stays as it was.  A killed process leaves a file with TEMPORARY_SUFFIX.  Raises
    UsageError when the disk takes no more.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
        _flush(path.parent)
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise UsageError(f"cannot write to {path.parent} ({error.strerror}); set {CACHE_VARIABLE}") from None
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def locked(folder: Path, say: Say) -> Iterator[None]:
    """Hold the lock of a folder; ``say`` hears of it when another process must be waited for.

    The system frees a killed process's lock.  Raises UsageError when the folder cannot be locked.
    """
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say(f"waiting for another process that is at work in {folder}")
        lock.acquire()
    except OSError as error:
        raise UsageError(f"cannot lock {folder} ({error.strerror}); set {CACHE_VARIABLE}") from None
    try:
        yield
    finally:
        lock.release()


def _flush(path: Path) -> None:
    """Have the system write a file's contents, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
