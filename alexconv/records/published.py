"""The figures that the studies published, as printed: ``data/published.csv``."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "data" / "published.csv"


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
