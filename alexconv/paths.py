"""Where the project keeps what it can make again, such as compiled kernels, and where its kernels lie."""

import os
import stat
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import platformdirs

from alexconv.errors import UsageError

CACHE_VARIABLE = "ALEXCONV_CACHE_DIR"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@cache
def kernels_folder() -> Path:
    """The folder of the ladder's kernels, in which those of other folders find headers, too."""
    spec = find_spec("alexconv.kernels")
    assert spec and spec.origin
    return Path(spec.origin).resolve().parent


def cache_dir(part: str) -> Path:
    """The folder of one part of the cache, created for this user alone; ``ALEXCONV_CACHE_DIR`` says where.

    Code from it is loaded and run.  So it is refused if another user owns it or can write to it.  Raises UsageError
    then, and when the folder cannot be written.
    """
    root = Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("alexconv", appauthor=False))
    folder = root / part
    try:
        str(folder).encode()
    except UnicodeEncodeError:  # libraries that list what is loaded expect it
        raise UsageError(f"the cache folder {folder!r} has a name that is not UTF-8; set {CACHE_VARIABLE}") from None
    try:
        for each in (root, folder):
            if not each.is_dir():
                each.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)  # never open, for another process may look
                each.chmod(stat.S_IRWXU)
        reason = exposed(root, shared=True) or exposed(folder)
    except OSError as error:
        raise UsageError(f"cannot create the cache folder {folder} ({error.strerror}); set {CACHE_VARIABLE}") from None
    if reason:
        raise UsageError(f"{reason}: what lies there may be a stranger's code; make it yours or set {CACHE_VARIABLE}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write to the cache folder {folder}; set {CACHE_VARIABLE}")
    return folder


def exposed(folder: Path, *, shared: bool = False) -> str | None:
    """Who but this user may change what is in a folder, in words, or None.

    A ``shared`` one may be root's, and one where users cannot remove each other's files, as /tmp.
    """
    facts = folder.stat()
    owners = {os.geteuid(), 0} if shared else {os.geteuid()}
    if facts.st_uid not in owners:
        return f"the cache folder {folder} belongs to user {facts.st_uid}"
    if facts.st_mode & _OTHERS_WRITE and not (shared and facts.st_mode & stat.S_ISVTX):
        return f"other users may write to the cache folder {folder}"
    return None
