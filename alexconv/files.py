"""Atomic file replacement, JSON files with checksums, and folder locks."""

import errno
import json
import os
import secrets
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from time import time
from typing import Any

from filelock import FileLock, Timeout

from alexconv.errors import UsageError
from alexconv.messages import Say
from alexconv.paths import CACHE_VARIABLE

TEMPORARY_SUFFIX = ".tmp"
LEFT_AFTER = 3600.0  # seconds: a temporary file not written to for this long is a killed process's
CHECKSUM = "sha256"  # of a JSON file's other content
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """Makes a folder for the block to fill; a disk that does not take it leaves none.  Raises UsageError then."""
    made = False
    try:
        folder.mkdir(parents=True)
        made = True
        yield
    except OSError as error:
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        raise UsageError(f"cannot create {folder}: {error.strerror}") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to; when the block succeeds its file is flushed to disk and becomes ``path``.

    When the block raises, ``path`` stays as it was.  A killed process leaves a file with TEMPORARY_SUFFIX, which a
    later call in the folder removes.  Raises UsageError when the disk is full or ``path`` is a folder.
    """
    remove_left(path.parent)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        _flush(temporary)
        if path.is_dir():
            raise UsageError(f"{path} is a folder, where a file belongs; remove it")
        temporary.replace(path)
        _flush(path.parent)
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise UsageError(f"cannot write to {path.parent} ({error.strerror}); set {CACHE_VARIABLE}") from None
    finally:
        temporary.unlink(missing_ok=True)


def remove_left(folder: Path, after: float = LEFT_AFTER) -> None:
    """Removes temporary files not written to for ``after`` seconds."""
    for left in folder.glob(f"*{TEMPORARY_SUFFIX}"):
        with suppress(OSError):
            if time() - left.stat().st_mtime >= after:
                remove(left)


def remove(path: Path) -> None:
    """Removes a file, or a folder in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def contents(path: Path) -> bytes | None:
    """The bytes of a file, None if it does not exist; raises ValueError if it is not a regular file or unreadable."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(error.strerror) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("not a regular file")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(error.strerror) from None
    finally:
        os.close(descriptor)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON with its checksum; raises UsageError when the disk is full."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({CHECKSUM: _checksum(content), **content}, indent=1))


def read_json(path: Path) -> dict[str, Any] | None:
    """The value that ``write_json`` wrote; None if there is no such file.  Raises ValueError for a damaged one."""
    text = contents(path)
    if text is None:
        return None
    try:
        content = json.loads(text)
        if content.pop(CHECKSUM, None) != _checksum(content):
            raise ValueError("wrong checksum")
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return dict(content)


def _checksum(content: Mapping[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@contextmanager
def locked(folder: Path, say: Say) -> Iterator[None]:
    """Holds the lock of a folder; ``say`` gets a line if another process has it.

    The system frees a killed process's lock.  Raises UsageError when the folder cannot be locked.
    """
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say(f"waiting for another process working in {folder}")
        lock.acquire()
    except OSError as error:
        raise UsageError(f"cannot lock {folder} ({error.strerror}); set {CACHE_VARIABLE}") from None
    try:
        yield
    finally:
        lock.release()


def _flush(path: Path) -> None:
    """Flushes a file's contents, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpacks an archive into a folder; from Python 3.11.4 on, paths outside it are refused."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    archive.extractall(folder)
