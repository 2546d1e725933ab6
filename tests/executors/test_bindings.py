"""Launches through cuda-bindings, with a stand-in for its driver; no GPU needed."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from alexconv.errors import LaunchError
from alexconv.executors.cuda.bindings import PackedLaunch, pdl_shared
from alexconv.kernels.problem import H200

SERIALIZATION = "programmatic stream serialization"
KB = 1024


class Driver:
    """Records launches, which return ``status``."""

    CUlaunchAttributeID = SimpleNamespace(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=SERIALIZATION)

    def __init__(self, status: int = 0) -> None:
        self.status, self.launched = status, []

    def CUlaunchAttribute(self) -> Any:
        return SimpleNamespace(id=None, value=SimpleNamespace())

    def CUlaunchConfig(self) -> Any:
        return SimpleNamespace()

    def cuLaunchKernel(self, *arguments: Any) -> Any:
        self.launched.append(arguments)
        self.parameters = arguments[9]
        return (Status(self.status),)

    def cuLaunchKernelEx(self, config: Any, *arguments: Any) -> Any:
        self.launched.append(config)
        return (Status(self.status),)


class Status(int):
    """A result code with a name."""

    name = "CUDA_ERROR_MADE_UP"


def launch(driver: Driver, *, pdl: bool) -> Any:
    PackedLaunch(driver, "kernel", (7, 1, 1), (256, 1, 1), 64 * KB, [[1], [2, 3]], pdl=pdl).enqueue(5)
    return driver.launched[-1]


def test_a_programmatic_dependent_launch_says_so():
    config = launch(Driver(), pdl=True)
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes, config.hStream) == (7, 256, 64 * KB, 5)
    (attribute,) = config.attrs
    assert config.numAttrs == 1
    assert attribute.id == SERIALIZATION
    assert attribute.value.programmaticStreamSerializationAllowed == 1


def test_an_ordinary_launch_does_not():
    assert launch(Driver(), pdl=False)[:9] == ("kernel", 7, 1, 1, 256, 1, 1, 64 * KB, 5)


def words(address: int, counts: list[int]) -> list[list[int]]:
    """What a kernel would read: the words of each parameter, through the array of pointers at ``address``."""
    pointers = (ctypes.c_void_p * len(counts)).from_address(address)
    return [
        list((ctypes.c_int64 * count).from_address(pointer)) for pointer, count in zip(pointers, counts, strict=True)
    ]


def test_a_packed_launch_updates_only_the_given_words():
    driver = Driver()
    packed = PackedLaunch(driver, "kernel", (7, 1, 1), (256, 1, 1), 0, [[1], [-2], [3, 4, 5]])
    packed.enqueue(8)
    assert words(driver.parameters, [1, 1, 3]) == [[1], [-2], [3, 4, 5]]
    packed.enqueue(9, (2**47, 11))
    assert words(driver.parameters, [1, 1, 3]) == [[2**47], [11], [3, 4, 5]]
    assert [arguments[8] for arguments in driver.launched] == [8, 9]


@pytest.mark.parametrize("pdl", [False, True])
def test_a_launch_that_fails_is_an_error(pdl: bool):
    with pytest.raises(LaunchError, match="CUDA_ERROR_MADE_UP"):
        launch(Driver(status=1), pdl=pdl)


def test_few_blocks_get_a_multiprocessor_each_and_many_do_not():
    most, reserved = H200.shared_per_multiprocessor, KB  # per multiprocessor; per block, by the driver
    alone = pdl_shared((132, 1, 1), 40 * KB, H200)
    assert 2 * (alone + reserved) > most >= alone + reserved
    assert pdl_shared((132, 1, 1), 200 * KB, H200) == 200 * KB
    assert pdl_shared((133, 1, 1), 40 * KB, H200) == 40 * KB
