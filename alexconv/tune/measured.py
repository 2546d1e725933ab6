"""The fastest rungs that were measured for networks' layers, where the estimates of ``auto`` choose another.

``measured.json`` is made from record files by ``scripts/measure/auto_table.py``: for a GPU's name, the rung with its
constants and its time by layer, N, precision and layout.  Bias and ReLU are not part of a layer here: they cost almost
no time.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.kernels.problem import Device, Problem
from alexconv.kernels.rung import Rung
from alexconv.shapes import Conv

TABLE = Path(__file__).parent / "measured.json"


@dataclass(frozen=True)
class Request:
    """What ``auto`` chooses a rung for: N images of a layer, of a precision and with arrays of a layout."""

    conv: Conv
    N: int
    precision: str
    layout: str


@dataclass(frozen=True)
class Fastest:
    """A rung, its constants, and its time in microseconds."""

    rung: Rung
    constants: Mapping[str, int]
    us: float


def name_of(request: Request) -> str:
    """A layer's name in the table."""
    facts = replace(request.conv.alone(), pad=0).facts()
    sizes = " ".join(f"{name}={value}" for name, value in facts.items() if name != "pad")
    return f"{sizes} N={request.N} {request.precision} {request.layout}"


@cache
def table() -> dict[str, dict[str, Any]]:
    """Entries by GPU and layer: ``rung``, ``constants``, ``us``."""
    entries: dict[str, dict[str, Any]] = json.loads(TABLE.read_text())
    return entries


def fastest(device: Device, request: Request) -> Fastest | None:
    """The table's entry for the device's name, if present rungs can use it, else None."""
    return usable(device, request, name_of(request))


def with_border(device: Device, request: Request) -> Fastest | None:
    """The same of the layer with its padding in memory: a rung that reads padding as zeros takes as long."""
    if not any(request.conv.padding):
        return None
    return usable(device, request, name_of(replace(request, conv=request.conv.with_border())))


def usable(device: Device, request: Request, name: str) -> Fastest | None:
    """An entry of the table, if present rungs can use it for a request, else None.

    Constants that it lacks, added since, have their defaults.
    """
    conv, N = request.conv, request.N
    entry = table().get(device.name, {}).get(name)
    rung = ALL_DIRECTIONS.named.get(entry["rung"]) if entry else None
    if entry is None or rung is None or rung.unsuited(device.capability):
        return None
    constants = rung.recorded(entry["constants"])
    if constants.keys() != {constant.name for constant in rung.constants}:
        return None
    values = rung.resolve(conv, constants, N, device)
    return None if rung.refuses(Problem(conv, N, values, device)) else Fastest(rung, values, entry["us"])
