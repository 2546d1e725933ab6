"""Machine code of measured points, as nvdisasm shows it, for tests without nvcc and nvdisasm.

``prediction/machine_code.json.xz`` is written by ``scripts/measure/store_code.py``.
"""

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

from alexconv.predict import model
from alexconv.predict.cubins import Needs

FILE = Path(__file__).parent / "predict" / "machine_code.json.xz"


@cache
def stored() -> dict[str, Any]:
    return json.loads(lzma.decompress(FILE.read_bytes()))


@cache
def kernels(program: str) -> dict[str, model.Kernel]:
    held = stored()["programs"][program]
    needs = {entry: Needs(*numbers) for entry, numbers in held["needs"].items()}
    return model.read_kernels(held["text"], needs, list(needs))


def text_of(rung: str) -> str:
    """The disassembly of a rung."""
    program = next(entry["program"] for entry in stored()["points"] if entry["point"]["rung"] == rung)
    return stored()["programs"][program]["text"]
