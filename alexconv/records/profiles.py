"""Profiles in record files: the last of each kernel, and two files side by side."""

from collections.abc import Iterator
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.records.store import Record, read

COMPARED = (
    *("global_load_sectors_per_request", "global_store_sectors_per_request"),
    *("shared_load_wavefronts_per_request", "shared_store_wavefronts_per_request"),
)


def latest_profiles(path: Path, source: str) -> dict[tuple[object, ...], Record]:
    """The last profile of each kernel in a record file, whatever its batch size; raises UsageError."""
    profiles = [header for header in read([path]).headers.values() if header["type"] == "profile"]
    latest: dict[tuple[object, ...], Record] = {}
    for profile in profiles:
        if profile["source"] == source:
            point = profile["point"]
            constants = tuple(sorted(point["constants"].items()))
            latest[point["workload"], point["layer"], point["rung"], constants, profile["entry"]] = profile
    if not latest:
        raise UsageError(f"{path} has no profiles from {source}")
    return latest


def comparison(gpu: Path, host: Path) -> Iterator[str]:
    """Markdown tables, one per metric: every kernel in both record files, traced on the host and counted on a GPU."""
    counted, traced = latest_profiles(gpu, "ncu"), latest_profiles(host, "host")
    both = [(profile, counted[key]) for key, profile in traced.items() if key in counted]
    for number, name in enumerate(COMPARED):
        yield from [""] * (number > 0)
        yield from (f"**{name.replace('_', ' ').capitalize()}**", "")
        yield "| workload, layer | rung: kernel | host | Nsight Compute | ratio |"
        yield "|---|---|---:|---:|---:|"
        for profile, other in both:
            ours, theirs = profile["metrics"].get(name), other["metrics"].get(name)
            if ours is None and theirs is None:
                continue
            point, ratio = profile["point"], figure(ours / theirs) if ours and theirs else "-"
            place = f"{point['workload']}, {point['layer']}"
            yield f"| {place} | {point['rung']}: {profile['entry']} | {figure(ours)} | {figure(theirs)} | {ratio} |"


def figure(value: float | None) -> str:
    """A whole number as it is, others with two decimals; a dash for none."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"
