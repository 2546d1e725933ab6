"""How long a job takes on the CPU is said before it begins, and counted down by what is left to do."""

from io import StringIO

import pytest
from points import batch_of
from rich.console import Console

from alexconv.cli.display import Progress
from alexconv.executors import choose_executor
from alexconv.measuring import host_time
from alexconv.planning.points import choose_rungs, choose_transfers, expand
from alexconv.run import main


class Serial:
    ms_per_image = 200.0  # of AlexNet's first layer, 105 million multiply-adds


def points(N: int, rungs: str = "all"):
    batches = [batch_of("alexnet", layer, N) for layer in range(1, 6)]
    return expand(batches, choose_rungs(rungs), choose_transfers("pageable"))


@pytest.fixture
def serial(monkeypatch):
    monkeypatch.setattr(host_time, "serial_time", lambda *_: Serial)


def test_the_main_job_of_a_gpu_takes_hours_on_a_cpu_and_names_shorter_ones(serial):
    expected = host_time.host_time([points(128)], choose_executor("host"))
    first, second = expected.lines()
    assert first.startswith("time on this CPU: about ") and first.endswith(" h")
    assert "--N 1" in second and "make study" in second
    assert expected.seconds > 3600


def test_one_image_takes_minutes_and_times_nothing_before(monkeypatch):
    monkeypatch.setattr(host_time, "serial_time", None)
    expected = host_time.host_time([points(1)], choose_executor("host"))
    (line,) = expected.lines()
    assert 30 < expected.seconds < host_time.LONG
    assert line.startswith("time on this CPU: about ")


def test_points_that_are_skipped_take_no_time(serial):
    wanted = points(128, "direct,tiled-constant,wgmma-window-half")
    expected = host_time.host_time([[point] for point in wanted], choose_executor("host")).jobs
    times = {(point.rung, point.layer): seconds for point, seconds in zip(wanted, expected, strict=True)}
    assert all(times["direct", layer] > 10 for layer in range(1, 6))
    assert times["tiled-constant", 2] == times["wgmma-window-half", 2] == 0
    assert host_time.host_time([], choose_executor("host")).seconds == 0


def test_the_time_left_counts_costs_and_not_points(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("alexconv.cli.display.monotonic", lambda: now[0])
    record = {"status": "ok", "point": {}}
    with Progress(3, costs=[10.0, 10.0, 1000.0]) as progress:
        for took in (20.0, 20.0):  # twice the estimate
            progress.start("a point")
            now[0] += took
            progress.finish(record)
        progress.start("the long one")
    lines = capsys.readouterr().err.splitlines()
    left = int(lines[-1].split("about ")[1].split(" s left")[0])
    assert 1000 < left < 2000, "by points it would be 20 s"


def test_points_that_are_all_skipped_have_a_bar_too(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Console(file=StringIO(), force_terminal=True, legacy_windows=False)
    monkeypatch.setattr("alexconv.cli.display.console", lambda stderr: terminal)
    with Progress(2, costs=[0.0, 0.0]) as progress:
        progress.start("a point")
        progress.finish({"status": "skipped"})
        progress.finish({"status": "skipped"})


def test_a_run_says_it_before_the_first_point(capsys, tmp_path):
    out = str(tmp_path / "r.jsonl")
    assert main(["--backend", "host", "--layers", "3", "--rungs", "direct", "--no-baseline", "--out", out]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("backend host") and lines[1].startswith("time on this CPU: about ")


def test_points_beyond_the_hosts_memory_take_no_time(capsys, tmp_path):
    words = ["--layers", "3", "--rungs", "direct", "--N", "1,1000000000000", "--no-baseline"]
    assert main(["--backend", "host", *words, "--out", str(tmp_path / "r.jsonl")]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("time on this CPU: about ")]
    assert line.split()[6] == "s,"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(40, "40 s"), (720, "12 min"), (12600, "3.5 h"), (7e10, "2.2e+03 years"), (2e22, "6.3e+14 years")],
)
def test_a_time_is_said_in_few_digits(seconds, words):
    assert host_time.in_words(seconds) == words
