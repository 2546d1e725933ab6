"""Published figures, as printed: the studies' (``data/published.csv``) and convnet-benchmarks'."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA, CONVNETS = (Path(__file__).parent / "data" / name for name in ("published.csv", "convnet_benchmarks.csv"))


class Printed(float):
    """A number with the digits that a study printed."""


@dataclass(frozen=True)
class Figure:
    """One published figure; ``layer`` None is all layers."""

    study: str
    gpu: str
    workload: str
    layer: int | None
    N: int
    variant: str
    quantity: str
    unit: str
    value: Printed
    where: str
    note: str


@cache
def figures() -> tuple[Figure, ...]:
    """Every published figure, in the order of the file."""
    with DATA.open(newline="") as file:
        return tuple(map(figure, csv.DictReader(file)))


def figure(row: dict[str, str]) -> Figure:
    """One line of the file."""
    return Figure(
        study=row["study"],
        gpu=row["gpu"],
        workload=row["workload"],
        layer=None if row["layer"] == "all" else int(row["layer"]),
        N=int(row["N"]),
        variant=row["variant"],
        quantity=row["quantity"],
        unit=row["unit"],
        value=Printed(row["value"]),
        where=row["where"],
        note=row["note"],
    )


@dataclass(frozen=True)
class Benchmark:
    """A line of convnet-benchmarks' tables: ms of a batch on a Titan X; ``layer`` 0 is a whole network."""

    benchmark: str
    N: int
    library: str
    layer: int
    forward_ms: float
    backward_ms: float


@cache
def benchmarks() -> tuple[Benchmark, ...]:
    """Every line of ``data/convnet_benchmarks.csv``, in its order."""
    with CONVNETS.open(newline="") as file:
        return tuple(
            Benchmark(
                row["benchmark"],
                int(row["N"]),
                row["library"],
                int(row["layer"] or 0),
                float(row["forward_ms"]),
                float(row["backward_ms"]),
            )
            for row in csv.DictReader(file)
        )
