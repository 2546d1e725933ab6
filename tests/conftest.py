"""Fixtures and marks that every test file shares."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache as once
from pathlib import Path

# Nothing relies on BLAS's own threads.  They end before each launch, which is a process of its own, begin again after
# it, and then turn in circles for a while.  NumPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests start hundreds of commands: where bytecode is not kept, each compiles the whole package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from ladders import ladder_with

from alexconv.paths import CACHE_VARIABLE

sys.dont_write_bytecode = False

# What a terminal is like counts only where a test says so.
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)

# Examples follow from the test alone: not from chance, from earlier runs, from how long they take, or from constants in
# the modules that tests before have imported.
settings.register_profile(
    "suite", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")
providers._get_local_constants = lambda: providers._local_constants


@once
def gpu_present() -> bool:
    """Whether PyCUDA is installed and finds a device."""
    try:
        from pycuda import driver
    except ImportError:  # not installed, or there is no driver library to load
        return False
    try:
        driver.init()
    except driver.Error:
        return False
    return bool(driver.Device.count())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests come first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Collected tests stay to the end: left alone by the garbage collector, they are not copied after each fork."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not gpu_present():
        pytest.skip("no NVIDIA GPU")


@pytest.fixture(scope="session", autouse=True)
def shared_cache(pytestconfig: pytest.Config) -> Iterator[Path]:
    """Keeps the user's own cache out of the tests, yet references and compiled kernels from one run to the next."""
    folder = pytestconfig.cache.mkdir("alexconv")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder))
        yield folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of the test's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def cache_of_tuning(cache: Path, shared_cache: Path) -> Path:
    """An empty cache folder, but for what compiles and computes alike in all tests, which they share."""
    cache.mkdir(mode=0o700)
    for part in ("host", "host-headers", "reference"):
        (shared_cache / part).mkdir(mode=0o700, exist_ok=True)
        (cache / part).symlink_to(shared_cache / part)
    return cache


@pytest.fixture
def change_ladder() -> Iterator[Callable[..., None]]:
    """Changes the ladder as ``ladder_with`` does, until the test ends."""
    with ExitStack() as stack:
        yield lambda *rungs, **changes: stack.enter_context(ladder_with(*rungs, **changes))
