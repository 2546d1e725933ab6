"""Reports from record files: what they contain, what they say about what is missing, and that they do not change."""

import _multiprocessing
import csv
import json
import multiprocessing
import os
import re
import signal
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from ladders import ladder_with
from matplotlib.figure import Figure
from report_records import GPU, kernel_ms, published_table, record, whole_report, write

from alexconv.kernels.ladder import ALIASES, LADDER, RUNGS, TRANSFER_ALIASES
from alexconv.records.store import RecordFile, read
from alexconv.reports import families, overview, published, readme
from alexconv.reports.__main__ import main
from alexconv.reports.alexnet import linear_fit
from alexconv.reports.comparison import gather
from alexconv.reports.elements import exact, shown
from alexconv.reports.generated import markers
from alexconv.reports.ladder import family_technique
from alexconv.reports.mapping import plane, sectors_per_store
from alexconv.reports.measurements import Measurements, measurements
from alexconv.reports.orderings import kendall_tau, reversals
from alexconv.reports.page import draw_all
from alexconv.reports.published import Series
from alexconv.reports.rooflines import measured_bytes
from alexconv.reports.style import FAMILIES, styles_once
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).parent.parent.parent
MOST_BYTES, MOST_NODES = 1_000_000, 12_000  # of a page; a rung adds about 130 nodes to that of the ladder


@pytest.fixture(scope="module")
def folder() -> Path:
    """A report of everything."""
    return whole_report()


def measurements_of(tmp_path: Path, *records: dict) -> Measurements:
    return measurements(read([write(tmp_path / "few.jsonl", records)]))


def cells(folder: Path, table: str) -> list[dict[str, str]]:
    with (folder / "tables" / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


# The whole report


def test_every_table_and_figure_of_the_study_is_there(folder: Path) -> None:
    tables = {path.stem for path in (folder / "tables").glob("*.csv")}
    assert {f"table-{number}" for number in range(3, 12)} <= tables
    figures = {path.stem for path in (folder / "figures").glob("*.svg")}
    letters = {**dict.fromkeys(range(3, 8), "ab"), 8: "abc", 12: "abc", 13: "ab", 14: "ab", 15: "ab"}
    expected = {f"fig-{number}{letter}" for number, parts in letters.items() for letter in parts}
    assert expected | {"fig-9", "fig-10", "fig-11", "fig-16"} <= figures
    more = ("waterfall", "roofline", "roofline-dram", "accuracy", "peers-1", "transfers", "per-image", "timeline")
    assert {f"alexnet-{name}" for name in (*more, "ablations", "sweep-channels-vector")} <= figures


def test_tables_hold_ours_beside_the_published_figures(folder: Path) -> None:
    rows = cells(folder, "table-4")
    row = next(row for row in rows if (row["layer"], row["N"]) == ("2", "128"))
    assert float(row["direct-register"]) == pytest.approx(kernel_ms("alexnet", 2, 128, 1), rel=1e-5)
    assert float(row["rla2m"]) == 299
    assert float(row["CPU study (s)"]) == 432
    table_3 = next(row for row in cells(folder, "table-3") if (row["layer"], row["N"]) == ("5", "128"))
    assert [float(table_3[name]) for name in ("memcpy", "memcpy half", "memcpy mk", "memcpy mk half")] == [
        12,
        10,
        14,
        10.3,
    ]
    with (folder / "tables" / "table-8.csv").open(newline="") as file:
        mapped = next(row for row in csv.reader(file) if row[:2] == ["channels-filter-shared", "32"])
    assert mapped[3:6:2] == ["887", "1088"]


def test_the_index_says_where_the_figures_come_from(folder: Path) -> None:
    text = (folder / "index.html").read_text()
    for fact in (
        "NVIDIA Test 9000",
        "580.1",
        "CUDA 13.0",
        "1980 MHz",
        "abc1234",
        "python -m alexconv.run --layers 1-5",
    ):
        assert fact in text
    assert "one core of Test CPU" in text


def test_runs_of_another_device_are_none_of_the_pages_commands(tmp_path: Path) -> None:
    data = measurements_of(tmp_path, record("alexnet", 1, 128, "direct"))
    elsewhere = ({"type": "run", "key": "other"}, {"type": "timeline", "device": "another", "run": "other"})
    assert overview.own_runs(replace(data, headers=(*data.headers, *elsewhere))) == data.of_type("run")


def test_the_table_of_both_mappings_has_the_five_rungs_of_the_studys() -> None:
    rungs = [row["rung"] for row in published_table("table-8")]
    names = ("register", "filter-one-thread", "filter-shared", "sum-shared")
    assert rungs == 3 * [*(f"direct-{name}" for name in names), "channels-filter-shared"]


class Parsed(HTMLParser):
    """Counts a page's nodes, and collects ids and addresses."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.nodes = 0
        self.ids: list[str] = []
        self.addresses: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.nodes += 1
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src"):
                self.addresses.add(value or "")

    def handle_data(self, data: str) -> None:
        self.nodes += 1


@pytest.fixture(scope="module", params=["made up", "published"])
def parsed(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Parsed]]:
    """The pages of a site: of made-up records, and of the repository's."""
    root = request.getfixturevalue("folder" if request.param == "made up" else "repository_site")
    return root, {path.name: Parsed(path.read_text()) for path in root.glob("*.html")}


def test_pages_are_small(parsed: tuple[Path, dict[str, Parsed]]) -> None:
    root, pages = parsed
    assert len(pages) > 10
    assert {name for name in pages if (root / name).stat().st_size > MOST_BYTES} == set()
    assert {name: page.nodes for name, page in pages.items() if page.nodes > MOST_NODES} == {}


def test_links_lead_to_files_and_ids_of_the_site_itself(parsed: tuple[Path, dict[str, Parsed]]) -> None:
    root, pages = parsed
    searched = re.findall(r'^"([\w.-]+\.html[^"]*)",?$', (root / "search.js").read_text(), re.MULTILINE)
    assert len(searched) > 100
    for name, page in [*pages.items(), ("search.js", Parsed(""))]:
        assert len(page.ids) == len(set(page.ids)), name
        for address in page.addresses if name in pages else searched:
            file, _, anchor = address.partition("#")
            if address.startswith("data:"):
                continue
            assert ":" not in address, f"{name} loads {address}"
            assert not file or (root / file).is_file(), f"{name} leads to {address}"
            assert not anchor or anchor in pages[file or name].ids, f"{name} leads to {address}"


def test_pages_run_no_script_but_their_own(parsed: tuple[Path, dict[str, Parsed]]) -> None:
    root, pages = parsed
    for name in pages:
        text = (root / name).read_text()
        assert "script-src 'self' file:" in text
        scripts = ["site.js", *(["charts.js"] if 'class="wide chart"' in text else [])]
        loaded = re.findall(r"<script(?! type=.application/json.)[^>]*>", text)
        assert loaded == [f'<script src="{script}">' for script in scripts], name
        assert " style=" not in text


def test_what_failed_is_listed_with_its_reason_and_has_no_time(folder: Path) -> None:
    rows = cells(folder, "problems")
    assert [(row["status"], row["reason"]) for row in rows] == [
        ("wrong", "error 3.1 exceeds the tolerance"),
        ("skipped", "needs <999> GiB | no room"),
    ]
    assert "needs &lt;999&gt; GiB | no room" in (folder / "correctness.html").read_text()
    assert r"needs &lt;999> GiB \| no room" in (folder / "correctness.md").read_text()
    layers = [row for row in cells(folder, "alexnet-layers") if row["N"] == "64"]
    assert {row["kernel (ms)"] + row["total (ms)"] + row["than serial CPU"] for row in layers} == {""}


def test_a_wrong_point_has_no_time_even_if_its_record_holds_samples(tmp_path: Path) -> None:
    wrong = record("alexnet", 1, 1, "direct") | {"status": "wrong", "reason": "error nan"}
    assert measurements_of(tmp_path, wrong).points[0].time("kernel") is None


def test_the_same_records_give_the_same_files_without_a_fork_and_where_processes_share_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: object) -> None:
        raise PermissionError(13, "Permission denied")  # as where /dev/shm cannot be written

    file = write(tmp_path / "few.jsonl", [record("alexnet", 2, 128, name) for name in ("direct", "channels-half")])
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a fork may copy a lock that another thread holds"))
    assert main([str(file), "-o", str(tmp_path / "processes")]) == 0
    monkeypatch.setattr(_multiprocessing, "SemLock", no_memory)
    assert main([str(file), "-o", str(tmp_path / "alone")]) == 0
    outputs = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.*")}
        for name in ("processes", "alone")
    ]
    assert outputs[0] == outputs[1]
    drawn = {kind: {path.stem for path in outputs[0] if path.suffix == kind} for kind in (".svg", ".png")}
    assert drawn[".svg"] == drawn[".png"] != set()


class Interrupting:
    """A figure whose drawing interrupts the command once, its processes included, as Ctrl-C does."""

    def __init__(self, key: str, marks: Path) -> None:
        self.key, self.marks = key, marks

    def draw(self) -> Figure:
        (self.marks / f"{self.key} of {os.getpid()}").touch()
        if self.key == "0":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(multiprocessing.parent_process().pid, signal.SIGINT)
            sleep(0.2)
        return Figure()


def test_an_interrupt_ends_the_drawing_and_its_processes_silently(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    figures = [Interrupting(str(number), tmp_path) for number in range(100)]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            draw_all(figures, tmp_path, png=False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert capfd.readouterr().err == ""
    assert (tmp_path / "0.svg").is_file(), "the process that was interrupted has finished its figure"
    assert len(list(tmp_path.glob("*.svg"))) < len(figures)


def test_host_records_make_a_useful_report_without_times(tmp_path: Path) -> None:
    points = [record("alexnet", 3, 1, name) | {"samples": {}, "cpu": {}} for name in RUNGS]
    file = write(tmp_path / "host.jsonl", points, {"backend": "host", "compiler": "g++ 13"})
    assert main([str(file), "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "index.html").read_text()
    assert "nothing in this report is a GPU time" in text
    tables = {path.stem for path in (tmp_path / "out" / "tables").glob("*.csv")}
    assert tables == {"correctness", "launches", "memory", "studies", "table-1", "table-2"}
    assert len(cells(tmp_path / "out", "correctness")) == len(LADDER)
    assert "(ms)" not in text


def test_two_gpus_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = record("alexnet", 1, 1, "direct")
    slow["samples"]["kernel"] = [9.0] * 10
    write(tmp_path / "both.jsonl", [record("alexnet", 1, 1, "direct")])
    file = write(tmp_path / "both.jsonl", [slow], GPU | {"name": "Other GPU"})
    assert main([str(file), "-o", str(tmp_path / "out")]) == 2
    assert "choose one with --device" in capsys.readouterr().err
    chosen = measurements(read([file]), "Other GPU")
    assert [point.median("kernel") for point in chosen.points] == [9.0]


def test_ceilings_count_whatever_machine_the_gpu_was_in(tmp_path: Path) -> None:
    file = write(tmp_path / "few.jsonl", [record("alexnet", 1, 1, "direct")])
    elsewhere = RecordFile(tmp_path / "ceilings.jsonl")
    for name, rate in ((GPU["name"], 3.0e12), ("Other GPU", 1.0e12)):
        device = elsewhere.header("device", GPU | {"name": name, "uuid": "GPU-2"})
        elsewhere.header("ceilings", {"device": device, "copy_bytes_per_s": rate})
    ceilings = measurements(read([file, elsewhere.path])).ceilings
    assert ceilings is not None
    assert ceilings["copy_bytes_per_s"] == 3.0e12


def test_the_device_is_that_of_the_last_record(tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    for layer, driver in enumerate(("580.1", "580.2", "580.3", "580.4", "580.5"), start=1):
        write(file, [record("alexnet", layer, 1, "direct")], GPU | {"driver": driver})
    write(file, [record("alexnet", 1, 32, "direct")], GPU | {"driver": "580.3"})
    assert measurements(read([file])).device["driver"] == "580.3"


A, B = "channels", "reduce_channels"  # the kernels of a rung
PROFILED = {
    "each kernel of a run": ([{"entry": A}, {"entry": B, "bytes": 10.0}], 11.0),
    "profiled again": ([{"run": "1"}, {"entry": B, "run": "1"}, {"bytes": 5.0}, {"entry": B, "bytes": 6.0}], 11.0),
    "the last run has other kernels": ([{"entry": "of-old", "run": "1"}, {"bytes": 5.0}], 5.0),
    "the same command again": ([{}, {"entry": B}, {"bytes": 5.0}, {"entry": B, "bytes": 6.0}], 11.0),
    "a kernel launched twice": ([{"entry": "twice", "bytes": 5.0}, {"entry": "twice", "bytes": 6.0}], 11.0),
    "another GPU": ([{"bytes": 5.0}, {"device": "Other GPU"}], 5.0),
    "no device and no run": ([{"bytes": 5.0, "device": None, "run": None}], 5.0),
    "a piece of the batch": ([{"images": 32}, {"entry": B, "images": 64}], 6.0),
    "another source": ([{"bytes": 5.0}, {"source": "driver", "bytes": None, "run": "3"}], 5.0),
}


@pytest.mark.parametrize(("profiles", "expected"), PROFILED.values(), ids=PROFILED)
def test_measured_bytes_are_those_of_the_last_run_on_the_gpu_for_the_whole_batch(
    tmp_path: Path, profiles: list[dict], expected: float
) -> None:
    rung = RUNGS["channels"]
    twice = [replace(rung.launches[0], entry="twice")] * 2
    ladder = ladder_with(replace(rung, launches=(*rung.launches, *twice)))
    one = record("alexnet", 1, 128, "channels")
    file = RecordFile(write(tmp_path / "few.jsonl", [one]))
    for facts in profiles:
        profile = {"entry": A, "source": "ncu", "run": "2", "bytes": 1.0, "device": GPU["name"]} | facts
        metrics = {"dram_read_bytes": moved} if (moved := profile.pop("bytes")) else {}
        if profile["device"]:
            profile["device"] = file.header("device", GPU | {"name": profile["device"], "uuid": "GPU-2"})
        known = {key: value for key, value in profile.items() if value}
        file.header("profile", {"point": one["point"], "metrics": metrics, **known})
    totals = measured_bytes(measurements(read([file.path]), ladder=ladder))
    assert list(totals.values()) == [expected]


def test_lines_without_their_fields_are_counted_and_the_others_reported(tmp_path: Path) -> None:
    late = record("alexnet", 1, 1, "direct") | {"samples": {}, "status": "timeout", "reason": "not at its end"}
    file = write(tmp_path / "few.jsonl", [record("alexnet", 3, 1, "direct"), late])
    alone = {"schema": 1, "type": "point", **record("alexnet", 2, 1, "direct")}  # of no device, so of no report
    lines = [{"schema": 1, "type": "device"}, {"schema": 1, "type": "ceilings", "key": "k"}, {**alone, "point": {}}]
    with file.open("a") as opened:
        opened.writelines(json.dumps(line) + "\n" for line in [alone, *lines])
    assert main([str(file), "-o", str(tmp_path / "out")]) == 0
    assert "2 lines of the record files could not be read" in (tmp_path / "out" / "correctness.md").read_text()
    assert [(row["layer"], row["status"]) for row in cells(tmp_path / "out", "problems")] == [("1", "timeout")]
    assert [point.layer for source in gather([file]).sources for point in source.points] == [3, 1]


def test_nothing_to_report_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(write(tmp_path / "none.jsonl", [])), "-o", str(tmp_path / "out")]) == 2
    assert "no points" in capsys.readouterr().err


# Numbers behind the figures


def test_medians_speedups_and_sums(tmp_path: Path) -> None:
    layers = [record("alexnet", layer, 128, "direct") for layer in range(1, 6)]
    data = measurements_of(tmp_path, *layers)
    expected = sum(kernel_ms("alexnet", layer, 128, 0) for layer in range(1, 6))
    whole = data.time("alexnet", None, 128, Series("direct"), "kernel")
    assert whole and whole.median == pytest.approx(expected)
    assert whole.low < whole.median < whole.high
    one = data.time("alexnet", 1, 128, Series("direct"), "total")
    speedup = data.speedup("alexnet", 1, 128, Series("direct"))
    assert one and speedup and speedup.median == pytest.approx(12800 / one.median)
    assert speedup.low < speedup.median < speedup.high


@pytest.mark.parametrize(("cpu", "speedup"), [({}, 50), (None, 50), ({"serial_ms": 80.0}, 40)])
def test_a_later_record_without_a_cpu_time_takes_over_the_one_before_it(
    tmp_path: Path, cpu: dict | None, speedup: float
) -> None:
    first, other = record("alexnet", 1, 1, "direct"), record("alexnet", 2, 1, "direct") | {"cpu": {}}
    again = record("alexnet", 1, 1, "direct") | {"cpu": cpu}
    first["cpu"], again["samples"]["total"] = {"serial_ms": 100.0}, [2.0] * 10
    data = measurements_of(tmp_path, first, again, other)
    measured = data.speedup("alexnet", 1, 1, Series("direct"))
    assert measured and measured.median == pytest.approx(speedup)
    assert data.speedup("alexnet", 2, 1, Series("direct")) is None


def test_a_cpu_time_that_is_taken_over_brings_the_name_of_its_host(tmp_path: Path) -> None:
    file = write(tmp_path / "first.jsonl", [record("alexnet", 1, 1, "direct")])
    later = RecordFile(tmp_path / "later.jsonl")
    keys = {kind: later.header(kind, data) for kind, data in (("device", GPU), ("host", {"cpu": "Another CPU"}))}
    later.point(record("alexnet", 1, 1, "direct") | {"cpu": {}} | keys)
    hosts = measurements(read([file, later.path])).of_type("host")
    assert [host["cpu"] for host in hosts] == ["Test CPU"]


def test_a_sum_over_layers_needs_all_of_them(tmp_path: Path) -> None:
    data = measurements_of(tmp_path, *(record("alexnet", layer, 128, "direct") for layer in range(1, 5)))
    assert data.time("alexnet", None, 128, Series("direct"), "kernel") is None


def test_published_figures_are_found_by_the_ladders_names() -> None:
    direct, vector = Series("direct"), Series(ALIASES["mk-sw-mt-si-c-vec"])
    assert published.kernel_ms("alexnet", 1, 128, direct) == 149
    assert published.kernel_ms("alexnet", 1, 128, Series("direct", "managed")) == 183.73
    assert published.kernel_ms("alexnet", 1, 128, Series("direct", "pinned")) is None
    assert published.copies_ms("alexnet", None, 128, vector) == 60 + 42 + 26 + 17 + 14
    assert published.speedup("alexnet", None, 128, vector) == 2490
    assert published.kernel_ms("alexnet", 3, 2048, Series(ALIASES["rswmtla2m"])) == 3028


def test_every_variant_of_the_alexnet_study_is_a_rung_or_a_copy_or_the_cpu() -> None:
    variants = {figure.variant.partition("/")[0] for figure in published.figures() if figure.study == "purdue-2020"}
    assert variants - {*ALIASES, *TRANSFER_ALIASES} == {
        "cpu-serial",
        "memcpy",
        "memcpy-half",
        "memcpy-mk",
        "memcpy-mk-half",
    }


@pytest.mark.parametrize("coalesced", [0, 1])
def test_the_mapping_gives_each_output_to_one_thread(coalesced: int) -> None:
    conv = WORKLOADS["alexnet"].layer(1)
    threads, turns = plane(conv, {"THREAD_OUTPUTS": 2, "COALESCED": coalesced})
    assert threads.min() == 0
    assert threads.max() == 28 * 28 - 1
    assert len({(t, k) for t, k in zip(threads.ravel(), turns.ravel(), strict=True)}) == conv.E * conv.F
    right = 28 if coalesced else 1
    assert threads[0, 0] == threads[0, right] == threads[right, 0] == 0
    assert threads[0, 1] == coalesced


def test_coalesced_stores_touch_fewer_sectors() -> None:
    conv = WORKLOADS["alexnet"].layer(1)
    apart, side_by_side = (sectors_per_store(conv, {"THREAD_OUTPUTS": 2, "COALESCED": value}) for value in (0, 1))
    assert side_by_side < 6 < apart


def test_sectors_of_neighbouring_stores() -> None:
    small = WORKLOADS["alexnet"].layer(3)  # 169 outputs: five full warps of 4 sectors, and 9 threads with 2
    assert sectors_per_store(small, {"THREAD_OUTPUTS": 1, "COALESCED": 1}) == pytest.approx(22 / 6)
    assert sectors_per_store(small, {"THREAD_OUTPUTS": 1, "COALESCED": 1}, itemsize=2) == pytest.approx(11 / 6)


def test_linear_fit_and_its_bend() -> None:
    batches = [1, 32, 128, 512]
    fixed, slope, worst = linear_fit(batches, [0.5 + 0.01 * N for N in batches])
    assert (fixed, slope) == pytest.approx((0.5, 0.01))
    assert worst < 1e-9
    assert linear_fit(batches, [0.5 + 0.01 * N + (N == 32) for N in batches])[2] > 0.1


def test_kendalls_tau_and_reversals() -> None:
    ours = {Series(name): float(cost) for name, cost in zip("abcd", (1, 2, 3, 4), strict=True)}
    assert kendall_tau(ours, ours) == 1
    assert kendall_tau(ours, {series: -cost for series, cost in ours.items()}) == -1
    swapped = ours | {Series("a"): 2.0, Series("b"): 1.0}
    assert reversals(ours, swapped) == [("a", "b")]
    assert kendall_tau(ours, swapped) == pytest.approx(4 / 6)
    tied = ours | {Series("b"): 1.0}
    assert kendall_tau(ours, tied) == pytest.approx(5 / np.sqrt(30))
    assert reversals(ours, tied) == []


def test_two_styles_of_a_page_never_have_one_name() -> None:
    first, second = "stroke-width: 1.47", "stroke-width: 7.67"  # the first 6 hex digits of both digests are the same
    svg = styles_once(f'<svg><path style="{first}"/><path style="{second}"/></svg>')
    assert len(set(re.findall(r'class="(\w+)"', svg))) == 2


@pytest.mark.parametrize(
    ("cell", "text", "program"),
    [
        (None, "–", ""),
        (128, "128", "128"),
        (0.12345678, "0.1235", "0.123457"),
        (12.3456, "12.35", "12.3456"),
        (12345.6, "12,346", "12345.6"),
        (1.234e-7, "1.2e-07", "1.234e-07"),
        (0.0, "0.0000", "0"),
        ("a|b", "a|b", "a|b"),
    ],
)
def test_cells(cell: str | int | float | None, text: str, program: str) -> None:
    assert shown(cell) == text
    assert exact(cell) == program


# What the repository holds


def test_a_phone_shows_the_speed_of_each_class() -> None:
    begin, end = markers(readme.HEADLINE)
    between = (ROOT / "README.md").read_text().partition(begin)[2].partition(end)[0]
    heads = next(line for line in between.splitlines() if line.startswith("|"))
    assert heads.startswith("| class | best of all plans | five layers |")


def test_the_families_say_whether_other_runs_were_on_this_card(tmp_path: Path) -> None:
    compared = [record("alexnet", layer, 128, name) for layer in range(1, 6) for name in ("igemm", "torch-nchw-fp32")]
    files = [write(tmp_path / "compared.jsonl", compared, GPU | {"uuid": "GPU-1"})]
    for name, card in (("direct", "GPU-1"), ("tiled", "GPU-2")):
        points = [record("alexnet", layer, 128, name) for layer in range(1, 6)]
        files.append(write(tmp_path / f"{name}.jsonl", points, GPU | {"uuid": card}))
    text = families.table(measurements(read(files)), gather(files))
    assert "; single from other runs on this card; tiles from runs on other cards of its kind." in text


def test_every_family_has_a_technique() -> None:
    assert all(len(family_technique(family)) > 20 for family in FAMILIES)


def test_the_families_add_up_the_layers_of_the_fastest_rung_of_a_family(tmp_path: Path) -> None:
    names = ("direct", "direct-register")
    points = [record("alexnet", layer, N, name) for layer in range(1, 6) for N in (1, 128) for name in names]
    file = write(tmp_path / "records.jsonl", points)
    total = sum(kernel_ms("alexnet", layer, 128, 1) for layer in range(1, 6))
    table = families.parts([file])[families.PART]
    assert shown(total) in next(line for line in table.splitlines() if line.startswith("| single"))
    assert list(readme.drawings([file])) == [Path("docs", "figures", "families.svg")]
