"""The figures that the studies published, found by the names this project uses."""

from collections.abc import Callable
from functools import cache
from math import fsum
from typing import NamedTuple

from alexconv.kernels.ladder import RUNGS, TRANSFER_ALIASES
from alexconv.records.published import Figure as Figure
from alexconv.records.published import figures as figures
from alexconv.shapes import WORKLOADS

ALEXNET_STUDY, ALEXNET_GPU = "purdue-2020", "GV100"
STUDY_TRANSFER = "pageable"  # cudaMemcpy from and to ordinary memory
COALESCED = {"noncoalesced": 0, "coalesced": 1}


class Series(NamedTuple):
    """A rung, or a peer, under a transfer: what a study calls a variant."""

    rung: str
    transfer: str = STUDY_TRANSFER

    @property
    def label(self) -> str:
        """The rung's name, and the transfer unless it is the usual one."""
        return self.rung if self.transfer == STUDY_TRANSFER else f"{self.rung} ({self.transfer})"


def variant_of(series: Series) -> str | None:
    """The study's abbreviation for a series, if it has one."""
    if series.transfer == STUDY_TRANSFER:
        return rung.alias if (rung := RUNGS.get(series.rung)) else None
    return next((alias for alias, names in TRANSFER_ALIASES.items() if names == tuple(series)), None)


@cache
def _index() -> dict[tuple[str, int | None, int, str, str], list[Figure]]:
    index: dict[tuple[str, int | None, int, str, str], list[Figure]] = {}
    for figure in figures():
        index.setdefault((figure.workload, figure.layer, figure.N, figure.variant, figure.quantity), []).append(figure)
    return index


def value(
    workload: str, layer: int | None, N: int, variant: str | None, quantity: str, where: str = ""
) -> float | None:
    """A published figure in its own unit; None where the study gives none.

    Where it gives several that differ: the one of the named place, or else the first in the file.
    """
    printed = _index().get((workload, layer, N, variant or "", quantity), [])
    return next((figure.value for figure in sorted(printed, key=lambda figure: figure.where != where)), None)


def kernel_ms(workload: str, layer: int | None, N: int, series: Series, where: str = "") -> float | None:
    """Published time of a variant's kernels in ms; ``layer`` None adds up the layers, if all are there."""
    variant = variant_of(series)
    if layer is None:
        return _over_layers(workload, N, lambda number: kernel_ms(workload, number, N, series, where))
    return value(workload, layer, N, variant, "kernel_time", where)


def copies_ms(workload: str, layer: int | None, N: int, series: Series) -> float | None:
    """Published time of both copies in ms: the study has one for each family and precision."""
    if layer is None:
        return _over_layers(workload, N, lambda number: copies_ms(workload, number, N, series))
    variant = variant_of(series)
    if variant is None or series.transfer != STUDY_TRANSFER:
        return None
    kind = [word for word in ("mk", "half") if word in variant.split("-")]
    return value(workload, layer, N, "-".join(["memcpy", *kind]), "memcpy_time")


def serial_ms(workload: str, layer: int | None, N: int) -> float | None:
    """Published serial CPU time in ms."""
    if layer is None:
        return _over_layers(workload, N, lambda number: serial_ms(workload, number, N))
    seconds = serial_seconds(workload, layer, N)
    return None if seconds is None else 1000 * seconds


def serial_seconds(workload: str, layer: int | None, N: int) -> float | None:
    """The same in the unit that the study prints."""
    return value(workload, layer, N, "cpu-serial", "cpu_time")


def speedup(workload: str, layer: int | None, N: int, series: Series) -> float | None:
    """Published speedup over the study's serial CPU run, copies included; see ``derived``."""
    return printed_speedup(workload, layer, N, series) or _speedup_from_times(workload, layer, N, series)


def printed_speedup(workload: str, layer: int | None, N: int, series: Series) -> float | None:
    """The speedup that the study prints itself."""
    quantity = "total_speedup_with_memcpy" if layer is None else "speedup_vs_cpu_with_memcpy"
    return value(workload, layer, N, variant_of(series), quantity)


def derived(workload: str, layer: int | None, N: int, series: Series) -> bool:
    """Whether ``speedup`` is computed here from the study's times, because the study prints none."""
    known = speedup(workload, layer, N, series) is not None
    return known and printed_speedup(workload, layer, N, series) is None


def _speedup_from_times(workload: str, layer: int | None, N: int, series: Series) -> float | None:
    """Serial CPU over kernels and copies, where the study prints the times but no speedup."""
    times = serial_ms(workload, layer, N), kernel_ms(workload, layer, N, series), copies_ms(workload, layer, N, series)
    serial, kernel, copies = times
    return None if serial is None or kernel is None or copies is None else serial / (kernel + copies)


def _over_layers(workload: str, N: int, of_layer: Callable[[int], float | None]) -> float | None:
    values = [of_layer(number + 1) for number in range(len(WORKLOADS[workload].layers))]
    return None if None in values else fsum(value for value in values if value is not None)
