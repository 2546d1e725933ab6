"""Which measured points the model may be developed against, and which are held out.

The choice was drawn from ``SEED`` before any work on this package and is kept in ``held_out.json``: all points of some
families, layers of AlexNet and LeNet-style workloads.  The model is developed against the others only.
"""

import json
from functools import cache
from pathlib import Path
from random import Random

from alexconv.shapes import WORKLOADS

SEED = 18
STUDY_FAMILIES = ("single", "multi", "tiles", "shared", "gemm")
_FILE = Path(__file__).with_name("held_out.json")

Split = dict[str, list[str] | list[int]]


def draw(seed: int) -> Split:
    """One of the study's families, two of AlexNet's layers, one of the LeNet-style workloads."""
    random = Random(seed)
    lenet = sorted(name for name in WORKLOADS if name.startswith("lenet"))
    return {
        "families": random.sample(sorted(STUDY_FAMILIES), 1),
        "alexnet_layers": sorted(random.sample(range(1, 6), 2)),
        "workloads": random.sample(lenet, 1),
    }


@cache
def split() -> Split:
    """The recorded choice."""
    choice: Split = json.loads(_FILE.read_text())["held_out"]
    return choice


def held_out(workload: str, layer: int, family: str) -> bool:
    """Whether a point of this layer and family of rungs was kept from the development of the model."""
    chosen = split()
    return (
        family in chosen["families"]
        or workload in chosen["workloads"]
        or (workload == "alexnet" and layer in chosen["alexnet_layers"])
    )
