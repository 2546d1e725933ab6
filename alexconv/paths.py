"""The cache folders, and the folder of the kernels."""

import os
import stat
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import platformdirs

from alexconv.errors import UsageError

CACHE_VARIABLE = "ALEXCONV_CACHE_DIR"
PACKAGES = ("alexconv", "alexconv.kernels", "alexconv.cpu_reference")  # each a folder of its own in a checkout
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def package_folder(name: str) -> Path:
    """The folder of one of PACKAGES: in a checkout, what the link in the package leads to."""
    spec = find_spec(name)
    assert spec and spec.origin
    return Path(spec.origin).resolve().parent


@cache
def kernels_folder() -> Path:
    """The folder of the ladder's kernels and headers."""
    return package_folder("alexconv.kernels")


def cache_dir(part: str) -> Path:
    """The folder of one part of the cache, private to this user, under ``ALEXCONV_CACHE_DIR`` or the user's cache.

    Code from it is loaded and run, so a folder that another user owns or can write to is refused.  Raises UsageError
    then, and when the folder cannot be written.
    """
    root = Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("alexconv", appauthor=False))
    folder = root / part
    try:
        str(folder).encode()
    except UnicodeEncodeError:  # libraries that list loaded files expect UTF-8
        raise UsageError(f"the cache folder {folder!r} has a name that is not UTF-8; set {CACHE_VARIABLE}") from None
    try:
        for path in (root, folder):
            if not path.is_dir():
                path.mkdir(mode=stat.S_IRWXU, parents=True, exist_ok=True)  # never open, not even briefly
                path.chmod(stat.S_IRWXU)
        reason = exposed(root, shared=True) or exposed(folder)
    except OSError as error:
        raise UsageError(f"cannot create the cache folder {folder} ({error.strerror}); set {CACHE_VARIABLE}") from None
    if reason:
        raise UsageError(f"{reason}: code in it could be someone else's; take ownership of it or set {CACHE_VARIABLE}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write to the cache folder {folder}; set {CACHE_VARIABLE}")
    return folder


def exposed(folder: Path, *, shared: bool = False) -> str | None:
    """Which other user may change a folder's contents, in words, or None.

    A ``shared`` folder may be root's, or have the sticky bit, as /tmp.
    """
    facts = folder.stat()
    owners = {os.geteuid(), 0} if shared else {os.geteuid()}
    if facts.st_uid not in owners:
        return f"the cache folder {folder} belongs to user {facts.st_uid}"
    if facts.st_mode & _OTHERS_WRITE and not (shared and facts.st_mode & stat.S_ISVTX):
        return f"other users may write to the cache folder {folder}"
    return None
