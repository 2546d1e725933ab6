"""torch for the tests of the library on a GPU, whose references cuDNN computes in fp32."""

from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def torch() -> ModuleType:
    module: ModuleType = pytest.importorskip("torch", reason="torch is not installed")
    module.backends.cudnn.conv.fp32_precision = "ieee"
    return module
