"""Points one by one: what their records depend on, and rungs that the executor cannot run."""

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from alexconv.cli import display
from alexconv.executors.host.points import HostRungs
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring.ahead import compile_all
from alexconv.measuring.points import Point
from alexconv.measuring.runner import Runner, Settings

DIRECT = RUNGS["direct"]
POINT = Point("lenet-70-k5", 1, 2, DIRECT.name, "pageable", DIRECT.precision, {"OUTPUTS": 3})


@pytest.mark.parametrize(
    "changed, depends",
    [
        ({"seed": 1}, True),
        ({"memory_budget": 1 << 30}, True),
        ({"timed": False}, True),
        ({"seconds": 1.0}, False),
        ({"baseline": False}, False),
    ],
)
def test_a_record_is_stale_when_a_setting_that_its_outcome_depends_on_changes(changed, depends):
    before, after = (
        Runner(HostRungs(), [POINT], settings).key(POINT) for settings in (Settings(), Settings(**changed))
    )
    assert (before != after) == depends


def test_a_rung_without_a_host_twin_is_skipped_and_listed_with_the_reason(monkeypatch, capsys):
    reason = "the copy engine's scatter has no twin"
    made_up = replace(DIRECT, name="made-up", alias="mu", gpu_only=reason)
    monkeypatch.setitem(RUNGS, made_up.name, made_up)
    monkeypatch.setattr(display, "LADDER", (DIRECT, made_up))
    host = HostRungs()
    monkeypatch.setattr(host, "load", lambda *arguments: pytest.fail("a rung that cannot run here was compiled"))
    monkeypatch.setattr(host, "build", lambda *arguments: pytest.fail("a rung that cannot run here was compiled"))
    point = replace(POINT, rung=made_up.name)
    runner = Runner(host, [point], Settings())
    compile_all(runner, [point])
    record = runner.record(point)
    assert (record["status"], record["reason"]) == ("skipped", f"needs a GPU: {reason}")
    console = Console(width=200, file=StringIO())
    display.plan_table(console, runner, [point])
    assert f"skipped: needs a GPU: {reason}" in console.file.getvalue()
    display.listing(console, as_json=True)
    listed = json.loads(capsys.readouterr().out)
    assert [(rung["name"], rung["gpu_only"]) for rung in listed] == [("direct", None), ("made-up", reason)]
