"""Record files with any value in any field: commands name the line, report the others, and run or follow nothing."""

import copy
import json
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from attack_size import FACTOR, keep, shares
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from report_records import GPU, HOST, RUN, record, timeline, whole_text

from alexconv import compare
from alexconv.errors import UsageError
from alexconv.records.faults import fault_of, fault_of_header
from alexconv.records.store import LATER_AXES, RecordFile, read
from alexconv.reports.comparison import gather
from alexconv.reports.measurements import measurements
from alexconv.reports.overview import clocks
from alexconv.reports.page import html
from alexconv.reports.site import compose

SCRIPT = "<script>alert(1)</script>![x](http://example.invalid/x.png)"
DEEP: Any = 1
for _ in range(300):
    DEEP = [DEEP]

HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**63, 10**400, 1e308, -1e308, 5e-324, 0.0, -0.0]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=20),
    st.sampled_from(["", "vgg", "../../../etc/passwd", "/etc/passwd", "NaN", "1-5", "\x00", "a" * 5000, SCRIPT]),
    st.sampled_from([[], {}, [1], {"a": 1}, [[]], [None], {"": None}, DEEP, "\ud800", ["\udfff"]]),
)


def base_lines() -> list[dict[str, Any]]:
    """A line of every kind that commands read."""
    points = [record("alexnet", layer, N, "direct") for layer in range(1, 6) for N in (1, 128)]
    points += [record("alexnet", 1, 128, "channels-vector", CHANNELS=c, PLANE_SHARED=p) for c in (1, 2) for p in (0, 1)]
    points += [record("alexnet", 1, 128, "torch-nchw-fp32"), record("alexnet", 1, 128, "wgmma-split")]
    points += [record("alexnet", 1, 128, "direct", "streamed") | {"timeline": timeline(4, 2)}]
    points += [record("lenet-70-k5", layer, 100, "tiled") for layer in (1, 2)]
    together = copy.deepcopy(record("alexnet", 1, 128, "direct"))
    together["point"] |= {"layer": "1-5", "rung": "direct-together", "constants": {}}
    together |= {"changed": [], "layers": [points[0]["point"]]}
    lines = [{"type": kind, "key": kind, **data} for kind, data in (("device", GPU), ("host", HOST), ("run", RUN))]
    named = {"device": "device", "host": "host", "run": "run"}
    lines += [{"type": "point", **point, **named} for point in (*points, together)]
    lines.append({"type": "keys", "key": "keys", "keys": {"a": "b"}})
    metrics = {"dram__bytes_read.sum": 3.0e9, "sm__throughput.pct": 61.5}
    profile = {"point": points[1]["point"], "entry": "direct", "source": "ncu", "metrics": metrics, "images": 128}
    lines.append({"type": "profile", "key": "profile", **profile, **named})
    ceilings = {"flops": {"fp32": 6.0e13}, "copy_bytes_per_s": 4e12, "h2d_bytes_per_s": 5e10, "d2h_bytes_per_s": 5e10}
    lines.append({"type": "ceilings", "key": "ceilings", "device": "device", **ceilings})
    return json.loads(json.dumps([{"schema": 1, **line} for line in lines]))


BASE = base_lines()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all nested values."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    paths = [path] if path else []
    for key, item in inner:
        paths += places(item, (*path, key))
    return paths


ACTIONS = ("replace", "replace", "replace", "remove", "add")
Change = tuple[int, int, str, str, Any]  # line, place in it, action, name of an added field, new value
CHANGES = st.tuples(st.integers(0, 999), st.integers(0, 999), st.sampled_from(ACTIONS), st.text(max_size=8), HOSTILE)


def changed(changes: list[Change]) -> list[dict[str, Any]]:
    """The lines with values replaced, fields removed, fields added."""
    lines = copy.deepcopy(BASE)
    for which, where, action, name, value in changes:
        line = lines[which % len(lines)]
        paths = [path for path in places(line) if path != ("schema",)]
        *path, last = paths[where % len(paths)]
        inside: Any = line
        for key in path:
            inside = inside[key]
        if action == "replace":
            inside[last] = copy.deepcopy(value)
        elif action == "remove":
            del inside[last]
        elif isinstance(inside, dict):
            inside[name] = copy.deepcopy(value)
    return lines


def written(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile")


def compared_and_reported(folder: Path, lines: list[dict[str, Any]]) -> None:
    """Compares a file of these lines with an intact one, which must not fail, and reports on it."""
    whole, odd = written(folder / "whole.jsonl", BASE), written(folder / "odd.jsonl", lines)
    RecordFile(odd)
    for files in ([whole, odd], [odd, whole]):
        try:
            assert compare.main([*map(str, files), "--figure", "total"]) == 0
        except UsageError as error:
            pytest.fail(f"comparing must not need more than one readable line: {error}")
    try:
        report = compose(measurements(read([odd])), gather([odd], None))
    except UsageError:
        return
    keys = [item.key for page in report.pages for section in page.sections for item in section.items]
    assert all(key == Path(key).name and not key.startswith(".") for key in keys)
    for plot in report.plots() if FACTOR > 1 else ():
        plt.close(plot.draw())
    for text in (whole_text(report), *html(report, {}).values()):
        assert "<script>alert" not in text
        text.encode()
    assert "](http://example.invalid" not in whole_text(report)


FOUND = {  # by earlier attacks: each caused a traceback
    "no reason": lambda point: point.pop("reason"),
    "a number as reason": lambda point: point.update(reason=1),
    "no outputs for a thread": lambda point: point["point"]["constants"].update(THREAD_OUTPUTS=0),
    "more outputs than there are": lambda point: point.get("planned_constants", {}).update(THREAD_OUTPUTS=2**63),
    "less than none": lambda point: point["point"]["constants"].update(THREAD_OUTPUTS=-1),
    "a constant that was not planned": lambda point: point.get("planned_constants", {}).pop("CHANNELS", None),
    "no number of images": lambda point: point["point"].update(N=None),
    "an unknown transfer": lambda point: point["point"].update(transfer="0"),
    "a number of streams that is none": lambda point: point["point"].update(transfer="streamed:none"),
}


RUNGS_BY_TURNS = cycle([("direct", "channels-vector"), ("wgmma-split", "direct-together")])


@pytest.mark.parametrize(("what", "rungs"), list(zip(FOUND, RUNGS_BY_TURNS, strict=False)))
def test_records_that_broke_reports_before_are_left_out(folder: Path, what: str, rungs: tuple[str, str]) -> None:
    lines = copy.deepcopy(BASE)
    for line in lines:
        if line["type"] == "point" and line["point"]["rung"] in rungs:
            FOUND[what](line)
    compared_and_reported(folder, lines)


def test_figures_that_broke_reports_before_are_faults() -> None:
    streamed = copy.deepcopy(next(line for line in BASE if line.get("timeline")))
    assert fault_of(streamed) is None
    streamed["timeline"][0]["what"] = ""
    assert fault_of(streamed) == "its timeline is malformed"
    ceilings = copy.deepcopy(next(line for line in BASE if line["type"] == "ceilings"))
    assert fault_of_header(ceilings) is None
    ceilings["flops"]["fp32"] = 5e-324
    assert fault_of_header(ceilings) == "a rate is impossible"


@pytest.mark.parametrize("value", [None, 1, ["direct"], {"a": 1}, "\x1b[2J", SCRIPT])
@pytest.mark.parametrize("axis", LATER_AXES)
def test_axes_that_older_records_lack_are_checked(axis: str, value: Any) -> None:
    point = copy.deepcopy(next(line for line in BASE if line.get("layers")))
    point["point"]["mix"] = "1=direct:THREAD_OUTPUTS=2,2=torch-nchw-fp32"
    assert fault_of(point) is None
    point["point"][axis] = value
    assert fault_of(point) in ("its data or direction is malformed", "its mix is malformed")


def test_an_impossible_clock_is_not_shown() -> None:
    assert clocks({"clock_khz": 10**400}) == "? MHz"
    assert clocks({"clock_khz": 1980000}) == "1980 MHz"


@shares()
@given(changes=st.lists(CHANGES, min_size=1, max_size=3))
@settings(max_examples=10, deadline=None, derandomize=FACTOR <= 1, suppress_health_check=list(HealthCheck))
def test_hostile_records_are_named_and_the_others_compared_and_reported(
    share: int, folder: Path, changes: list[Change]
) -> None:
    keep("record files with anything in any place", 1, "tracebacks")
    compared_and_reported(folder, changed(changes))
