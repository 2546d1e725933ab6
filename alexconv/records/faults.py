"""Finds values in records from which no figure can be made."""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from alexconv.errors import AlexconvError
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.records.labels import changed_in
from alexconv.records.store import AXES, DATA, DIRECTION, LATER_AXES, MIX, Record
from alexconv.shapes import WORKLOADS

SHORTEST_MS, LONGEST_MS = 1e-6, 1e12  # beyond them a time is a fault of its record
MOST_IMAGES = 10**9
MOST = 1e18  # bytes, rates and counts
MOST_CONSTANT = 1 << 20
_ERRORS = (AlexconvError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
_RANGE = re.compile(r"[0-9]{1,3}([,-][0-9]{1,3})*")  # layers as text
_NAME = re.compile(r"[\w:.+-]{1,100}")  # of rungs, transfers, precisions, constants, data, directions
_MIX = re.compile(r"[\w:.+=,-]*")


def fault_of(record: Record, ladder: Ladder = LADDER) -> str | None:
    """Why a point is invalid, or None."""
    return first_fault(record, partial(of_point, ladder=ladder))


def fault_of_header(header: Record) -> str | None:
    """Why a header that holds figures is invalid, or None; other headers are texts."""
    return first_fault(header, OF_HEADERS.get(header["type"], lambda header: {}))


def first_fault(record: Record, checks: Callable[[Record], Mapping[str, bool]]) -> str | None:
    """The name of the first check that fails; an exception counts as a failure."""
    try:
        return next((name for name, passed in checks(record).items() if not passed), None)
    except _ERRORS as error:
        return f"{type(error).__name__}: {str(error)[:80]}"


def of_point(record: Record, ladder: Ladder) -> dict[str, bool]:
    """Every check of a point, by the message for its failure."""
    point, cpu = record["point"], record.get("cpu") or {}
    ok, launches = record["status"] == "ok", record.get("launches") or []
    times = [time for samples in (record.get("samples") or {}).values() for time in samples]
    times += [time for name, time in cpu.items() if name.endswith("_ms") and time is not None]
    several = isinstance(point["layer"], str)  # layers, each with its own constants
    named = [*point["constants"], *(record.get("planned_constants") or {})]
    later = LATER_AXES | point
    constants = [*point["constants"].values(), *(record.get("planned_constants") or {}).values()]
    errors = [value for value in (record.get("error") or {}).values() if value is not None]
    counts = [record.get(name) for name in ("device_bytes", "images_per_piece", "pieces", "spread")]
    counts += [launch.get(name) for launch in launches for name in ("registers", "static_shared", "local", "occupancy")]
    return {
        "this version does not know the layer": known(point["workload"], point["layer"]),
        "N is not a number of images": whole(point["N"]) and 1 <= point["N"] <= MOST_IMAGES,
        "a name is malformed": all(map(name, [*(point[axis] for axis in ("rung", "transfer", "precision")), *named])),
        "its data or direction is malformed": name(later[DATA]) and name(later[DIRECTION]),
        "its mix is malformed": isinstance(later[MIX], str) and _MIX.fullmatch(later[MIX]) is not None,
        "its status is not text": isinstance(record["status"], str),
        "its reason is not text": isinstance(record["reason"], str | None),
        "a constant is not an integer": all(map(whole, constants)),
        "a constant is larger than any": all(value <= MOST_CONSTANT for value in constants),
        "a constant is smaller than its rung takes": several or large_enough(point["rung"], record, ladder),
        "it has more changed constants than constants": several or len(changed_in(record)) <= len(constants),
        "a time is impossible": not ok or all(SHORTEST_MS <= time <= LONGEST_MS for time in times),
        "it has an error without a tolerance": tolerated(record.get("error") or {}),
        "its error is not a number": all(isinstance(float(error), float) for error in errors),
        "its error is not finite": not ok or all(math.isfinite(float(error)) for error in errors),
        "a count is impossible": all(map(possible, counts)),
        "a launch has no name": all(isinstance(launch["entry"], str) for launch in launches),
        "its timeline is malformed": timeline(record.get("timeline") or []),
    }


def large_enough(rung: str, record: Record, ladder: Ladder) -> bool:
    """Whether no constant of a rung that this version knows is below the least value that it takes."""
    known = ladder.named.get(rung)
    least = {
        constant.name: min(constant.choices, default=constant.least) for constant in (known.constants if known else ())
    }
    constant_sets = [record["point"]["constants"], record.get("planned_constants") or {}]
    return all(value >= least.get(name, value) for constants in constant_sets for name, value in constants.items())


def tolerated(error: Record) -> bool:
    """Whether an error over norms comes with its tolerance."""
    return error.get("scaled") is None or error.get("tolerance") is not None


def of_profile(profile: Record) -> dict[str, bool]:
    """Every check of a profile."""
    point = profile["point"]
    return {
        "its point lacks an axis": set(AXES) <= point.keys(),
        "this version does not know the layer": known(point["workload"], point["layer"]),
        "N is not a number of images": whole(point["N"]) and 1 <= point["N"] <= MOST_IMAGES,
        "a piece has no images": 1 <= profile.get("images", point["N"]) <= MOST_IMAGES,
        "a name is malformed": all(map(name, (point["rung"], profile["entry"], profile["source"]))),
        "a counter is impossible": all(value is not None and possible(value) for value in profile["metrics"].values()),
    }


def of_timeline(header: Record) -> dict[str, bool]:
    """Every check of a point's kernels on a time axis."""
    point, kernels = header["point"], header["kernels"]
    times = [kernel[name] for kernel in kernels for name in ("start_us", "us")]
    counters = [value for kernel in kernels for value in kernel.get("metrics", {}).values()]
    return {
        "its point lacks an axis": set(AXES) <= point.keys(),
        "this version does not know the layer": known(point["workload"], point["layer"]),
        "N is not a number of images": whole(point["N"]) and 1 <= point["N"] <= MOST_IMAGES,
        "a piece has no images": 1 <= header["images"] <= MOST_IMAGES,
        "a name is malformed": name(point["rung"]) and all(isinstance(kernel["entry"], str) for kernel in kernels),
        "it has no kernels": bool(kernels),
        "its kernels take no time": any(kernel["us"] > 0 for kernel in kernels),
        "it has no kernel time": bool(header["samples"]["kernel"]),
        "a time is impossible": all(0 <= us <= LONGEST_MS for us in times)
        and all(SHORTEST_MS <= ms <= LONGEST_MS for ms in header["samples"]["kernel"]),
        "its clock is impossible": possible(header["clock_mhz"]),
        "a counter is impossible": all(value is not None and possible(value) for value in counters),
    }


def of_prediction(header: Record) -> dict[str, bool]:
    """Every check of a point's predicted time, or of why there is none."""
    point, ok, launches = header["point"], header["status"] == "ok", header.get("launches") or []
    times = [header["ms"], *header["band_ms"], *(launch["ms"] for launch in launches)] if ok else []
    return {
        "its point lacks an axis": set(AXES) <= point.keys(),
        "this version does not know the layer": whole(point["layer"]) and known(point["workload"], point["layer"]),
        "N is not a number of images": whole(point["N"]) and 1 <= point["N"] <= MOST_IMAGES,
        "a name is malformed": all(map(name, [*(point[axis] for axis in ("rung", "transfer")), *point["constants"]])),
        "a constant is not an integer": all(map(whole, point["constants"].values())),
        "its GPU is not text": isinstance(header["gpu"], str),
        "its reason is not text": isinstance(header.get("reason"), str | None),
        "its band has no two ends": not ok or len(header["band_ms"]) == 2,
        "a time is impossible": all(SHORTEST_MS <= time <= LONGEST_MS for time in times),
        "a launch has no name": all(
            isinstance(launch[text], str) for launch in launches for text in ("entry", "limit")
        ),
    }


def of_ceilings(ceilings: Record) -> dict[str, bool]:
    """Every check of ceilings."""
    rates = [rate for name, rate in ceilings.items() if name.endswith("_per_s")]
    return {
        "it has no copy rate": "copy_bytes_per_s" in ceilings,
        "a rate is impossible": all(rate is None or 1 <= rate <= MOST for rate in [*rates, *flops_of(ceilings)]),
    }


WORK = ("h2d", "kernel", "d2h")  # of a stream
MEMORY = ("blocks", "block_bytes", "peak_bytes")  # of a shard


def of_shards(header: Record) -> dict[str, bool]:
    """Every check of a batch in shards."""
    point, parts = header["point"], header["parts"]
    times = [*header["slowest_ms"].values(), *(time for part in parts for time in times_of(part))]
    return {
        "its point lacks an axis": set(AXES) <= point.keys(),
        "this version does not know the layer": whole(point["layer"]) and known(point["workload"], point["layer"]),
        "N is not a number of images": whole(point["N"]) and 1 <= point["N"] <= MOST_IMAGES,
        "a name is malformed": all(map(name, (point["rung"], point["transfer"]))),
        "its number of shards is wrong": whole(header["shards"]) and header["shards"] == len(parts) > 0,
        "a shard's memory is invalid": all(
            whole(part.get(name, 1)) and part.get(name, 1) > 0 for part in parts for name in MEMORY
        ),
        "a shard's images are invalid": all(0 <= first < last <= point["N"] for first, last in images_of(parts)),
        "it does not say whether they were together": isinstance(header["together"], bool),
        "its status is not text": isinstance(header["status"], str),
        "a time is impossible": all(SHORTEST_MS <= time <= LONGEST_MS for time in times),
    }


def images_of(parts: Iterable[Record]) -> list[tuple[int, int]]:
    """The first image of each shard, and the one after the last."""
    return [(first, last) for first, last in (part["images"] for part in parts)]


def times_of(part: Record) -> Iterable[float]:
    """The samples of a shard, or of a calibration."""
    return [time for samples in (part.get("samples") or {}).values() for time in samples]


def of_calibration(header: Record) -> dict[str, bool]:
    """Every check of a worker's first point."""
    point = header["point"]
    return {
        "its point lacks an axis": set(AXES) <= point.keys(),
        "a name is malformed": name(point["rung"]),
        "it has no kernel time": not header.get("samples") or bool(header["samples"]["kernel"]),
        "a time is impossible": all(SHORTEST_MS <= time <= LONGEST_MS for time in times_of(header)),
        "its run is not text": isinstance(header["run"], str) and isinstance(header["device"], str),
    }


def of_end(header: Record) -> dict[str, bool]:
    """Every check of what a run took."""
    phases = header.get("phases_s") or {}
    return {
        "a time is impossible": all(0 <= seconds <= LONGEST_MS for seconds in [header["seconds"], *phases.values()]),
        "its points are not counts": all(map(possible, header["points"].values())),
        "its workers are not a number": not phases or (whole(header["workers"]) and header["workers"] > 0),
    }


OF_HEADERS: dict[str, Callable[[Record], Mapping[str, bool]]] = {
    "profile": of_profile,
    "timeline": of_timeline,
    "prediction": of_prediction,
    "ceilings": of_ceilings,
    "shards": of_shards,
    "calibration": of_calibration,
    "end": of_end,
}


def flops_of(ceilings: Record) -> Iterable[float | None]:
    """Arithmetic rates, those that were measured."""
    return (ceilings.get("flops") or {}).values()


def known(workload: str, layer: int | str) -> bool:
    """Whether this version has a layer, or all layers of a range as text."""
    if workload not in WORKLOADS:
        return False
    if isinstance(layer, str):
        return _RANGE.fullmatch(layer) is not None and all(known(workload, int(n)) for n in re.split("[,-]", layer))
    return whole(layer) and 1 <= layer <= len(WORKLOADS[workload].layers)


def name(value: object) -> bool:
    """Whether a value can be the name of something."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def whole(value: object) -> bool:
    """Whether a value is an integer; booleans are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def possible(value: float | None) -> bool:
    """Whether a value can be a size, a rate or a count; a missing one is fine."""
    return value is None or 0 <= value <= MOST


def timeline(events: list[Record]) -> bool:
    """Whether events have streams and pieces, and increasing times; no events are fine."""
    placed = all(whole(event[name]) for event in events for name in ("stream", "piece"))
    timed = all(0 <= event["start"] <= event["end"] <= LONGEST_MS for event in events)
    named = all(event["what"] in WORK for event in events)
    return placed and timed and named and (not events or any(event["end"] > event["start"] for event in events))
