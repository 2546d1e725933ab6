"""What holds for every test of the report."""

import builtins
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from report_records import published_site


@pytest.fixture(scope="session")
def repository_site() -> Path:
    return published_site()


def sum_without_floats(values: Iterable[Any], start: Any = 0) -> Any:
    parts = list(values)
    assert not any(isinstance(part, float) for part in parts), "floats are added by fsum"
    return builtins.sum(parts, start)


@pytest.fixture(autouse=True)
def pages_do_not_depend_on_the_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on ``sum`` compensates for floats' rounding, and a page's last digits would follow it."""
    for name in [name for name in sys.modules if name.startswith("alexconv.")]:
        monkeypatch.setattr(sys.modules[name], "sum", sum_without_floats, raising=False)
