"""Kernel times on record of an H200, which the table of a run without a GPU shows beside its checks."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alexconv.data import UNIFORM
from alexconv.records.labels import changed_in, data_of
from alexconv.records.statistics import median_of, summed
from alexconv.records.store import Record, Records

FILE = Path(__file__).with_name("recorded_times.toml")  # written by python -m alexconv.reports.build


@dataclass(frozen=True)
class RecordedTimes:
    """Medians in ms on a device, by rung and layer, of one workload and batch size."""

    device: str
    workload: str
    N: int
    source: str
    ms: Mapping[str, Mapping[str, float]]

    def sum_of(self, records: Iterable[Record]) -> float | None:
        """Times of a rung's records, summed; None if one is not ok or not on record."""
        return summed([self._time(record) for record in records])

    def _time(self, record: Record) -> float | None:
        point = record["point"]
        if (
            record["status"] != "ok"
            or point["workload"] != self.workload
            or data_of(record) != UNIFORM
            or changed_in(record)
        ):
            return None
        return self.ms.get(point["rung"], {}).get(str(point["layer"]))


@cache
def recorded_times() -> RecordedTimes:
    """What the package brings."""
    return RecordedTimes(**tomllib.loads(FILE.read_text()))


def text_of(records: Records, source: str) -> str:
    """The file for the record file of a main job: its points with default constants."""
    points = [record for record in records.latest() if record["status"] == "ok" and not changed_in(record)]
    device = next(header for header in records.headers.values() if header["type"] == "device")
    times: dict[str, list[str]] = {}
    for record in points:
        point = record["point"]
        times.setdefault(point["rung"], []).append(f"{point['layer']} = {median_of(record, 'kernel'):.4g}")
    first = points[0]["point"]
    facts = {"device": device["name"], "workload": first["workload"], "source": source}
    lines = ["# Written by python -m alexconv.reports.build: milliseconds by layer.", f"N = {first['N']}"]
    lines += [f'{name} = "{value}"' for name, value in facts.items()]
    return "\n".join([*lines, "", "[ms]", *(f"{rung} = {{ {', '.join(ms)} }}" for rung, ms in times.items()), ""])
