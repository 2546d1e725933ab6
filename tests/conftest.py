"""Fixtures and marks that every test file shares."""

import fcntl
import gc
import os
import sys
from collections.abc import Iterator
from functools import cache as once
from pathlib import Path

# Nothing relies on BLAS's threads.  OpenBLAS ends them before each launch, which starts a process, and recreates them
# afterwards; they then spin for a while.  NumPy reads this when it is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests start hundreds of commands: without cached bytecode, each would compile the whole package.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import pytest
from caches import RUN_VARIABLE, with_runtime
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from alexconv.executors.cuda import timing
from alexconv.paths import CACHE_VARIABLE

sys.dont_write_bytecode = False
gc.disable()  # until tests are collected: what they consist of stays, and each pass would visit all of it

# Settings of the terminal count only where a test sets them.
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)

# Examples depend on the test alone: not on chance, earlier runs, their duration, or constants in modules that earlier
# tests have imported.
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
    """Freezes the collected tests, so that garbage collection does not copy their pages after each fork."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not gpu_present():
        pytest.skip("no NVIDIA GPU")


@pytest.fixture(scope="session", autouse=True)
def shared_cache(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache separate from the user's, which keeps references and compiled kernels from one run to the next.

    With pytest's cache off (``-p no:cacheprovider``) it is this run's, and the workers of xdist share it.
    """
    temporary = tmp_path_factory.getbasetemp()
    of_run = temporary.parent if "PYTEST_XDIST_WORKER" in os.environ else temporary
    if cache := getattr(pytestconfig, "cache", None):
        folder = cache.mkdir("alexconv")
    else:
        folder = of_run / "alexconv"
        folder.mkdir(exist_ok=True)
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder))
        patch.setenv(RUN_VARIABLE, str(of_run))
        yield folder


@pytest.fixture(autouse=True)
def gpu_alone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests marked ``alone`` have the GPU to themselves; the workers' other GPU tests share it, in time slices.

    The host's clock counts the slices of others, which events do not: of so many workers it may count so many times as
    much.  The first lock is held while the second is waited for, so that a test that wants the GPU alone waits only for
    those that have begun.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ or not request.node.get_closest_marker("gpu"):
        yield
        return
    folder, alone = tmp_path_factory.getbasetemp().parent, request.node.get_closest_marker("alone") is not None
    slices = 1 if alone else int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    with (
        (folder / "gpu-next").open("w") as waiting,
        (folder / "gpu-in-use").open("w") as use,
        pytest.MonkeyPatch.context() as patch,
    ):
        fcntl.flock(waiting, fcntl.LOCK_EX)
        fcntl.flock(use, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(waiting, fcntl.LOCK_UN)
        patch.setattr(timing, "CLOCKS_DIFFER", slices * timing.CLOCKS_DIFFER)
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for one test."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def fresh_cache(shared_cache: Path, cache: Path) -> Path:
    """An empty cache folder but for the host executor's run-time, whose compilation takes seconds."""
    return with_runtime(cache, shared_cache)


@pytest.fixture
def cache_of_tuning(cache: Path, shared_cache: Path) -> Path:
    """An empty cache folder, except for compiled kernels and references, which all tests share."""
    cache.mkdir(mode=0o700)
    for part in ("host", "host-headers", "reference"):
        (shared_cache / part).mkdir(mode=0o700, exist_ok=True)
        (cache / part).symlink_to(shared_cache / part)
    return cache
