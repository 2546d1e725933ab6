"""Kernel launches, with a stand-in for the driver library; no GPU needed."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from alexconv.errors import LaunchError
from alexconv.executors.cuda import native
from alexconv.executors.cuda.bindings import pdl_shared
from alexconv.executors.cuda.kernels import Step
from alexconv.kernels.bound import LaunchConfig
from alexconv.kernels.problem import H200

KB = 1024
LAUNCH = LaunchConfig("kernel", ("x", "y", "N"), (7, 1, 1), (256, 1, 1), 64 * KB)
VALUES = {"y": -2, "N": 3, "x": 2**47}


class Driver:
    """Records launches, which return ``status``: function, configuration and the parameters that the kernel reads."""

    def __init__(self, status: int = 0) -> None:
        self.status, self.launched = status, []

    def cuLaunchKernelEx(self, config: Any, function: Any, places: Any, more: None) -> int:
        words = [ctypes.c_int64.from_address(place).value for place in places]
        fields = {name: getattr(config._obj, name) for name, _ in native.Config._fields_}
        self.launched.append(SimpleNamespace(function=function.value, words=words, **fields))
        return self.status

    def cuGetErrorName(self, status: int, name: Any) -> int:
        name._obj.value = b"CUDA_ERROR_MADE_UP"
        return 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    stand_in = Driver()
    monkeypatch.setattr(native, "library", lambda: stand_in)
    return stand_in


def test_a_programmatic_dependent_launch_says_so(driver):
    Step(99, LAUNCH, 64 * KB, pdl=True).enqueue(VALUES, 5)
    (launch,) = driver.launched
    assert (tuple(launch.grid), tuple(launch.block), launch.shared) == ((7, 1, 1), (256, 1, 1), 64 * KB)
    assert (launch.function, launch.stream, launch.count) == (99, 5, 1)
    attribute = launch.attributes.contents
    assert (attribute.id, attribute.value[0]) == (native.SERIALIZATION, 1)


def test_an_ordinary_launch_does_not(driver):
    Step(99, LAUNCH, 0, pdl=False).enqueue(VALUES, 5)
    assert (driver.launched[0].count, bool(driver.launched[0].attributes)) == (0, False)


def test_each_launch_has_its_own_values_and_stream(driver):
    step = Step(99, LAUNCH, 0, pdl=False)
    step.enqueue(VALUES, 8)
    step.enqueue({**VALUES, "N": 11}, 9)
    assert [launch.words for launch in driver.launched] == [[2**47, -2, 3], [2**47, -2, 11]]
    assert [launch.stream for launch in driver.launched] == [8, 9]


@pytest.mark.parametrize("pdl", [False, True])
def test_a_launch_that_fails_is_an_error(driver, pdl: bool):
    driver.status = 1
    with pytest.raises(LaunchError, match="CUDA_ERROR_MADE_UP"):
        Step(99, LAUNCH, 0, pdl=pdl).enqueue(VALUES, 5)


def test_few_blocks_get_a_multiprocessor_each_and_many_do_not():
    most, reserved = H200.shared_per_multiprocessor, KB  # per multiprocessor; per block, by the driver
    alone = pdl_shared((132, 1, 1), 40 * KB, H200)
    assert 2 * (alone + reserved) > most >= alone + reserved
    assert pdl_shared((132, 1, 1), 200 * KB, H200) == 200 * KB
    assert pdl_shared((133, 1, 1), 40 * KB, H200) == 40 * KB
