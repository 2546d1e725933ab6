"""Where the project keeps what it can make again: reference outputs, compiled kernels, baseline times."""

import os
from pathlib import Path

import platformdirs

from alexconv.errors import UsageError

CACHE_VARIABLE = "ALEXCONV_CACHE_DIR"


def cache_dir(part: str) -> Path:
    """The folder of one part of the cache, created; ``ALEXCONV_CACHE_DIR`` overrides the user's cache folder.

    Raises UsageError when the folder cannot be written.
    """
    root = os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("alexconv", appauthor=False)
    folder = Path(root) / part
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create the cache folder {folder} ({error.strerror}); set {CACHE_VARIABLE}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"cannot write to the cache folder {folder}; set {CACHE_VARIABLE}")
    return folder
