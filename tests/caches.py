"""Folders that tests of a run share: compiled run-times, and what the first that wants it makes."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from alexconv.executors.host.runtime import HostRuntime
from alexconv.paths import CACHE_VARIABLE

RUN_VARIABLE = "ALEXCONV_TEST_RUN"  # names the folder of this run, which the workers of xdist share


def with_runtime(cache: Path, shared: Path) -> Path:
    """A new cache folder with the run-time of the host executor, compiled in the shared one."""
    (cache / "host").mkdir(mode=0o700, parents=True)
    cache.chmod(0o700)
    (source := cache / "nothing.cu").write_text('extern "C" __global__ void nothing() {}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(shared))
        HostRuntime().compile(source, {}, ["nothing"])
    source.unlink()
    (cache / "host-headers").symlink_to(shared / "host-headers")
    for file in [*shared.glob("host/runtime-*.o"), *shared.glob("host/launcher-*")]:
        (cache / "host" / file.name).hardlink_to(file)
    return cache


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """A file or folder that the first of the workers that want it makes."""
    folder = Path(os.environ[RUN_VARIABLE])
    path, done = folder / name, folder / f"{name}-is-made"
    with FileLock(folder / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(path, ignore_errors=True)
            make(path)
            done.touch()
    return path
