"""The table that a run ends with: it fits the terminal, shows every time once, and says why others are missing."""

import os
import re
import signal
from collections import Counter
from io import StringIO
from math import isnan
from pathlib import Path
from time import sleep

import pytest
from rich.console import Console
from rich.table import Column, Table

from alexconv import run
from alexconv.cli import display, matrix
from alexconv.cli.display import Progress, next_steps
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.records.labels import changed_in
from alexconv.records.statistics import faster, median_of
from alexconv.records.store import Record, read
from alexconv.records.summary import rows
from alexconv.shapes import WORKLOADS

RESULTS = Path(__file__).parents[2] / "results"
WIDTHS = (80, 120)


def shown(records: list[Record], width: int = 120) -> str:
    console = Console(width=width, file=StringIO(), highlight=False)
    matrix.show(console, records)
    return console.file.getvalue()


def of_layers(name: str) -> list[Record]:
    return [record for record in read([RESULTS / name]).latest() if isinstance(record["point"]["layer"], int)]


def made_up(layer: int, rung: str = "direct", ms: float | None = None, **changes) -> Record:
    """A record of AlexNet at N=1: timed if ``ms`` is given, else only checked."""
    conv, own = WORKLOADS["alexnet"].layer(layer), RUNGS.get(rung)
    axes = {"workload": "alexnet", "layer": layer, "N": 1, "rung": rung, "transfer": "pageable"}
    precision = own.precision if own else rung.split("-")[-1]
    point = {**axes, "precision": precision, "constants": own.resolve(conv, {}) if own else {}}
    samples = {"kernel": [ms] * 3, "total": [3 * ms] * 3} if ms else {}
    error = {"absolute": 1e-5, "scaled": layer * 1e-7, "tolerance": 1e-5}
    record = {"point": point, "changed": [], "key": "k", "status": "ok", "reason": None, "error": error}
    return record | {"samples": samples, "cpu": {"serial_ms": 300.0}} | changes


def cells(text: str, label: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f" {label} ")]
    return line.removeprefix(f" {label}").split()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["h200-frontier.jsonl", "h200-alexnet.jsonl", "h200-alexnet-transfers.jsonl"])
def test_measured_records_fit_and_every_time_appears(name, width):
    records = of_layers(name)
    text = shown(records, width)
    assert max(map(len, text.splitlines())) <= width
    words = re.findall(r"[0-9][0-9.]*", text)
    times = [matrix.milliseconds(median_of(record, "kernel")) for record in records if record["status"] == "ok"]
    assert len(times) > 40
    for time in set(times):
        assert words.count(time) >= times.count(time), time


@pytest.mark.parametrize("width", WIDTHS)
def test_a_sum_is_that_of_its_row_and_a_share_that_of_the_peer(width):
    records = [record for record in of_layers("h200-frontier.jsonl") if record["point"]["N"] == 128]
    text = shown(records, width)
    listed = Counter(record["point"]["rung"] for record in records if record["status"] == "ok")
    whole = [rung for rung, layers in listed.items() if layers == 5]
    assert len(whole) > 10
    for rung in whole:
        *layers, total = map(float, re.findall(r"[0-9.]+", " ".join(cells(text, rung)[:6])))
        assert total == pytest.approx(sum(layers), rel=2e-3)
    if width == 120:
        ours, peer = (float(cells(text, rung)[5]) for rung in ("igemm", "torch-nchw-fp32"))
        assert " ".join(cells(text, "igemm")[-3:-1]) == faster(peer / ours)


def test_the_fastest_of_each_precision_and_layer_is_marked_and_summed():
    text = shown([made_up(1, "direct", 4.0), made_up(2, "direct", 2.0), made_up(1, "channels", 3.0)])
    text_of_two = shown([*(made_up(layer, "direct", 4.0 / layer) for layer in (1, 2)), made_up(1, "tiled-half", 5.0)])
    assert cells(text, "direct")[:3] == ["4.000", "2.000*", "6.000"]
    assert cells(text, "channels")[:3] == ["3.000*", "-", "-"]
    assert cells(text, "fp32")[:3] == ["3.000", "2.000", "5.000"]
    assert cells(text_of_two, "tiled-half")[0] == "5.000*", "the fastest of its precision"
    assert cells(text, "direct")[3:5] == ["18.00", "33.3×"]  # host arrays to host arrays; 600 ms of the CPU over 18


def test_a_rung_of_a_stricter_class_counts_in_a_class_sum():
    """As in the README's headline: wgmma-winograd, fp32-tile, does not take AlexNet's first layer."""
    times = {"direct": (4.0, 2.0), "wgmma-winograd": (None, 1.0), "mma-tf32": (5.0, 0.5), "mma-half": (0.25, None)}
    records = [
        made_up(layer, rung, ms, **({} if ms else {"status": "skipped", "reason": "filters of 11 x 11"}))
        for rung, of_layers in times.items()
        for layer, ms in enumerate(of_layers, 1)
    ]
    text = shown(records)
    sums = {name: cells(text, name)[:3] for name in ("fp32", "fp32-tile", "tf32", "fp16")}
    assert sums == {
        "fp32": ["4.000", "2.000", "6.000"],
        "fp32-tile": ["4.000", "1.000", "5.000"],
        "tf32": ["4.000", "0.500", "4.500"],
        "fp16": ["0.250", "-", "-"],
    }
    assert cells(text, "direct")[0] == "4.000*" and cells(text, "mma-tf32")[0] == "5.000*", "each of its own class"


def test_the_main_jobs_table_has_the_sums_of_the_readmes_headline():
    text = shown([record for record in of_layers("h200-frontier.jsonl") if record["point"]["N"] == 128])
    headline = (RESULTS.parent / "README.md").read_text().split("headline: begin")[1].split("headline: end")[0]
    rows = re.findall(r"^\| \*\*(\w+)\*\* \|.*\| ([0-9.]+) \| [0-9.]+ \|$", headline, re.MULTILINE)
    assert [name for name, _ in rows] == ["fp32", "tf32", "fp16"]
    for name, ms in rows:
        assert float(cells(text, name)[5]) == pytest.approx(float(ms), rel=1e-3), name


@pytest.mark.parametrize(
    ("status", "word"),
    [("wrong", "wrong"), ("compile-error", "compile"), ("out-of-memory", "memory"), ("timeout", "timeout")],
)
def test_a_failed_point_is_named_in_its_place_and_its_reason_below(status, word):
    failed = made_up(2, "direct", 1.0, status=status, reason="it broke")
    text = shown([made_up(1, "direct", 1.0), failed, made_up(2, "channels", 1.0)])
    assert cells(text, "direct")[:3] == ["1.000*", word, "-"]
    assert f"{status}: it broke (layer 2: direct)" in text


def test_a_reason_is_given_once_with_all_rungs_and_layers():
    rungs, reason = ("tiled-constant", "unroll-matmul-constant"), "too many filters"
    skipped = [made_up(layer, rung, status="skipped", reason=reason) for rung in rungs for layer in (1, 2, 3)]
    text = shown([made_up(1, "direct", 1.0), *skipped])
    assert f"skipped: {reason} (layers 1-3: {', '.join(rungs)})" in text
    assert text.count(reason) == 1
    assert cells(text, rungs[0])[:3] == ["skipped"] * 3


def test_many_rungs_that_take_no_layer_are_one_line():
    rungs = [rung.name for rung in LADDER if rung.name != "direct"]
    skipped = {rung: made_up(1, rung, status="skipped", reason=f"not {rung}") for rung in rungs}
    few, many = rungs[: matrix.MOST_EXPLAINED], rungs[: matrix.MOST_EXPLAINED + 1]
    text = shown([made_up(1, "direct", 1.0), *(skipped[rung] for rung in few)])
    assert all(cells(text, rung)[0] == "skipped" and f"skipped: not {rung} (layer 1: {rung})" in text for rung in few)
    text = shown([made_up(1, "direct", 1.0), *(skipped[rung] for rung in many)])
    assert f"skipped on all layers (--dry-run says why): {', '.join(many)}" in " ".join(text.split())
    assert "not " not in text and text.count("skipped") == 1
    assert all(f"not {rung}" in shown([skipped[rung] for rung in many]) for rung in many), (
        "all of them, where nothing ran"
    )


def test_without_times_the_cells_are_marks_and_the_error_is_the_worst():
    text = shown([made_up(1), made_up(2), made_up(1, "channels", status="wrong", reason="far off")])
    assert cells(text, "direct")[:4] == ["ok", "ok", "2.0e-07", "1.0e-05"]
    assert cells(text, "channels")[:2] == ["wrong", "-"]
    assert "kernel ms" not in text
    assert "far off" in text


def test_an_error_of_zero_is_shown_and_a_missing_one_is_not():
    exact = {"absolute": 0.0, "scaled": 0.0, "tolerance": 1e-5}
    skipped = made_up(1, "tiled", status="skipped", reason="why", error=None)
    text = shown([made_up(1, error=exact), skipped])
    assert cells(text, "direct")[:3] == ["ok", "0.0e+00", "1.0e-05"]
    assert cells(text, "tiled")[:3] == ["skipped", "-", "-"]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_that_is_nan_is_the_worst(place):
    error = {"absolute": "nan", "scaled": "nan", "componentwise": "nan", "tolerance": 1e-5}
    records = [made_up(layer, error={"scaled": 1e-7, "componentwise": 1e-7, "tolerance": 1e-5}) for layer in (1, 2, 3)]
    records[place] |= {"status": "wrong", "error": error}
    *_, every = rows(records)
    assert every.layer is None and isnan(every.error) and isnan(every.componentwise)


def test_transfers_constants_and_batches_have_their_own_rows_and_tables():
    pinned = made_up(1, "direct", 2.0)
    pinned["point"] = pinned["point"] | {"transfer": "pinned"}
    other = made_up(1, "direct", 3.0, changed=["COALESCED"])
    other["point"] = other["point"] | {"constants": other["point"]["constants"] | {"COALESCED": 0}}
    large = made_up(1, "direct", 4.0)
    large["point"] = large["point"] | {"N": 32}
    text = shown([made_up(1, "direct", 1.0), pinned, other, large])
    assert cells(text, "direct pageable")[0] == "1.000*"
    assert cells(text, "direct pinned")[0] == "2.000"
    assert cells(text, "direct [COALESCED=0] pageable")[0] == "3.000"
    assert [line for line in text.splitlines() if "kernel ms" in line][:2] == [
        "alexnet, N=1: kernel ms",
        "alexnet, N=32, pageable: kernel ms",
    ]
    by_layer = made_up(2, "direct", 3.0, changed=["THREAD_OUTPUTS"])
    by_layer["point"] = by_layer["point"] | {"constants": by_layer["point"]["constants"] | {"THREAD_OUTPUTS": 2}}
    assert cells(shown([made_up(1, "direct", 1.0), by_layer]), "direct [by layer]")[:2] == ["1.000*", "3.000*"]


def test_a_rung_has_its_family_above_it_in_the_order_of_the_ladder():
    lines = shown([made_up(1, rung.name) for rung in reversed(LADDER)]).splitlines()
    listed = [line.split()[0] for line in lines if line.split()[0] in {*RUNGS, *(rung.family for rung in LADDER)}]
    expected = [word for rung in LADDER for word in (rung.family, rung.name)]
    assert listed == [word for i, word in enumerate(expected) if i % 2 or word not in expected[:i:2]]


def test_more_layers_than_fit_are_shown_in_several_tables():
    many = [made_up(1, "direct", 100.0 + layer) for layer in range(1, 31)]
    for layer, record in enumerate(many, 1):
        record["point"] = record["point"] | {"layer": layer}
    text = shown(many, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert all(f"{100.0 + layer:.1f}*" in text for layer in range(1, 31))
    assert matrix.milliseconds(sum(100.0 + layer for layer in range(1, 31))) in text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.00734, "0.00734"),
        (0.0567, "0.0567"),
        (0.4392, "0.439"),
        (2.139, "2.139"),
        (27.289, "27.29"),
        (1234.5, "1234"),
    ],
)
def test_times_have_three_or_four_significant_digits(ms, text):
    assert matrix.milliseconds(ms) == text


def test_what_to_do_next_names_the_report_and_on_the_cpu_a_gpu():
    here, there = (
        "\n".join(next_steps(Path("study/r.jsonl"), ran=True, measures=measures, verbose=measures))
        for measures in (False, True)
    )
    assert "NVIDIA GPU" in here
    assert "NVIDIA GPU" not in there
    for text in (here, there):
        assert "python -m alexconv.reports study/r.jsonl -o study/report" in text
    assert "--verbose" in here
    assert "--verbose" not in there, "already given"


def test_nothing_is_called_checked_where_nothing_ran():
    assert "verified" not in "".join(next_steps(Path("r.jsonl"), ran=False, measures=False, verbose=False))
    text = shown([made_up(1, status="skipped", reason="too large", error=None)])
    assert text.startswith("alexnet, N=1, pageable: skipped\n")
    assert "checked" not in text


def test_progress_off_a_terminal_has_occasional_lines_and_one_per_failure(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("alexconv.cli.display.monotonic", lambda: now[0])
    with Progress(40) as progress:
        for number in range(40):
            progress.start(f"point {number}")
            now[0] += 1.0
            broken = number == 7
            progress.finish(made_up(1, **({"status": "wrong", "reason": "far off"} if broken else {})))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "[8/40] alexnet layer 1 N=1 direct pageable: wrong: far off"
    assert lines[1] == "[10/40] point 10 (about 30 s left)"
    assert len(lines) == 4


def test_progress_on_a_terminal_that_moves_no_cursor_has_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    now, plain = [0.0], Console(width=80, file=StringIO(), force_terminal=True, legacy_windows=False)
    monkeypatch.setattr("alexconv.cli.display.monotonic", lambda: now[0])
    monkeypatch.setattr("alexconv.cli.display.console", lambda stderr: plain)
    with Progress(2) as progress:
        now[0] += 100.0
        progress.start("point 0")
    assert "[0/2] point 0" in plain.file.getvalue()


def test_verbose_progress_has_a_line_for_each_point(capsys):
    with Progress(2, verbose=True) as progress:
        progress.finish(made_up(1))
        progress.finish(made_up(2, ms=1.0))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "[1/2] alexnet layer 1 N=1 direct pageable: ok, error 1.0e-07 (tolerance 1.0e-05)"
    assert "kernel 1.000 ms" in second


def test_progress_on_a_terminal_is_one_line_with_the_time_left(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    wide = Console(width=80, file=StringIO(), force_terminal=True, legacy_windows=False)
    monkeypatch.setattr("alexconv.cli.display.console", lambda stderr: wide)
    with Progress(2) as progress:
        progress.start("alexnet layer 2 N=128 direct-filter-one-thread [COALESCED=0] managed-prefetch")
        for _ in range(3000):  # the line is drawn ten times a second
            if "alexnet layer 2" in wide.file.getvalue():
                break
            sleep(0.01)
        progress.finish(made_up(1))
        progress.finish(made_up(2, status="wrong", reason="far off"))
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", wide.file.getvalue())
    live = [line for line in re.split(r"[\r\n]+", text) if " left " in line]
    assert live and max(map(len, live)) <= 80
    assert any(re.search(r"\b[0-2]/2  [-0-9:]{7} left  alexnet layer 2", line) for line in live)
    assert "[2/2] alexnet layer 2 N=1 direct pageable: wrong: far off" in text


def test_without_a_gpu_the_times_on_record_stand_beside_the_checks():
    recorded = read([RESULTS / "h200-main-job.jsonl"]).latest()
    expected = sum(median_of(r, "kernel") for r in recorded if r["point"]["rung"] == "igemm" and not changed_in(r))
    records = [made_up(layer, rung) for layer in range(1, 6) for rung in ("igemm", "direct")]
    text = shown(records)
    assert float(cells(text, "igemm")[-2]) == pytest.approx(expected, rel=2e-3)
    assert "H200 ms: not measured here but on record" in text
    assert "H200" not in shown([record | {"samples": {"kernel": [1.0] * 3}} for record in records])


@pytest.mark.parametrize("changes", [{"data": "relu"}, {"workload": "lenet-86-k7"}, {"changed": ["TILE"]}])
def test_other_points_than_those_on_record_have_no_time_on_record(changes):
    record = made_up(1, "tiled")
    record["changed"] = changes.pop("changed", [])
    record["point"] |= changes
    assert "H200" not in shown([record])


@pytest.mark.parametrize("columns", ["", "0", "1", "-5", "x"])
def test_a_width_that_no_line_fits_is_not_taken(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    console = display.console()
    console.file = StringIO()
    display.listing(console, LADDER)
    matrix.show(console, [made_up(1), made_up(2)])
    assert console.width == (display.LEAST_WIDTH if columns == "1" else display.PLAIN_WIDTH)


def test_brackets_and_colons_of_messages_and_names_are_text(tmp_path, capsys):
    console, reason = display.console(), "invalid types 'float[int]' at [/x]:zap:"
    failed = made_up(1, status="compile-error", reason=reason)
    display.result_tables(console, [failed], LADDER)
    table = Table("rung")
    table.add_row(reason)
    matrix.print_fitted(console, table)
    assert capsys.readouterr().out.count(reason) == 2
    out = tmp_path / "[a]:zap:" / "[" / "b].jsonl"
    words = ["--workload", "lenet-86-k7", "--layers", "2", "--rungs", "direct", "--backend", "host", "--no-baseline"]
    assert run.main([*words, "--resume", "--out", str(out)]) == 0
    assert capsys.readouterr().out.count(str(out)) == 3


@pytest.mark.parametrize("width", [20, 30, 40, 60, 100])
def test_a_narrow_table_has_whole_words_and_names_the_columns_that_do_not_fit(width):
    cells = {
        "kernel": "direct",
        "ms": "30.86",
        "limits of it": "l2 41.25, lsu 34.5",
        "waves": "37.24",
        "registers": "128",
    }
    table = Table(Column(next(iter(cells)), no_wrap=True), *list(cells)[1:])
    table.add_row(*cells.values())
    console = Console(width=width, file=StringIO(), highlight=False)
    matrix.print_fitted(console, table)
    lines = console.file.getvalue().splitlines()
    text, _, left_out = "\n".join(lines).partition("left out at")
    assert max(map(len, text.splitlines())) <= width
    for heading, words in cells.items():
        assert all(word in text for word in f"{heading} {words}".split()) == (heading not in left_out)
    assert bool(left_out) == (width < 60)


def test_a_reader_that_has_gone_ends_a_command_as_a_signal_does(monkeypatch):
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        assert run.main(["--list"]) == 128 + signal.SIGPIPE
