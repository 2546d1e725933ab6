"""Points of several runs: which run a table takes, what it says of it, and records that allow no figure."""

from pathlib import Path

import pytest
from report_records import GPU, record, whole_text, write

from alexconv.errors import UsageError
from alexconv.kernels.ladder import ALIASES
from alexconv.records.store import RecordFile, read
from alexconv.reports import published
from alexconv.reports.__main__ import main
from alexconv.reports.alexnet import section as alexnet_section
from alexconv.reports.alexnet import theirs_from
from alexconv.reports.comparison import gather
from alexconv.reports.diagnostics import ablations, counter, problems, profiles, sweeps
from alexconv.reports.elements import Table
from alexconv.reports.measurements import Measurements, measurements, stretches
from alexconv.reports.overview import runs_table
from alexconv.reports.overview import section as overview
from alexconv.reports.published import Series
from alexconv.reports.site import compose
from alexconv.reports.why import Reasons

WIDE = ("direct", "direct-register", "channels")
BATCHES = (1, 32, 128)


def timed(layer: int, N: int, rung: str, kernel: float, serial: float | None) -> dict:
    """A point with the same kernel time in every sample, and a serial CPU time per image."""
    measurement = record("alexnet", layer, N, rung)
    measurement["samples"] = {"kernel": [kernel] * 10, "h2d": [1.0] * 10, "d2h": [1.0] * 10, "total": [kernel + 2] * 10}
    return measurement | {"cpu": {"serial_ms": serial * N} if serial else {}}


def run_of(path: Path, card: str, points: list[dict]) -> Path:
    return write(path, points, GPU | {"uuid": f"GPU-{card}-1-2"})


def two_runs(folder: Path) -> Measurements:
    """All layers of three rungs on one card, and later two batches of one of them on another, with a slower host."""
    first = [timed(layer, N, rung, 10.0, 100.0) for layer in range(1, 6) for N in BATCHES for rung in WIDE]
    later = [timed(layer, N, "direct", 20.0, 300.0) for layer in range(1, 6) for N in (128, 256)]
    files = [run_of(folder / "a-wide.jsonl", "aaaa", first), run_of(folder / "b-later.jsonl", "bbbb", later)]
    return measurements(read(files))


def test_a_series_is_of_the_run_that_holds_most_of_it_whichever_file_comes_last(tmp_path: Path) -> None:
    data = two_runs(tmp_path)
    for N in BATCHES:
        point = data.find("alexnet", 1, N, Series("direct"))
        assert point is not None
        assert (point.run.name, point.median("kernel")) == ("a-wide", 10.0)
    beyond = data.find("alexnet", 1, 256, Series("direct"))
    assert beyond is not None
    assert (beyond.run.name, beyond.run.card) == ("b-later", "GPU-bbbb")


def test_a_table_takes_the_run_that_holds_most_of_its_own_rows(tmp_path: Path) -> None:
    def larger(data: Measurements) -> Measurements:
        return data.of_one_run(lambda point: point.series == Series("direct") and point.N >= 128)

    data = larger(two_runs(tmp_path))
    assert {point.run.name for point in data.points} == {"b-later"}
    assert data.footnote() == "Run: b-later (GPU-bbbb, commit abc1234). Host CPU: Test CPU."
    assert data.serial("alexnet", 1, 128) == 300.0 * 128


def test_all_speedups_of_a_table_are_over_one_host(tmp_path: Path) -> None:
    data = two_runs(tmp_path)
    assert data.serial("alexnet", 1, 128) == 100.0 * 128
    assert data.serial("alexnet", 1, 256) == 100.0 * 256, "in proportion, as the records have it per image"
    assert "b-later" not in data.footnote([Series("direct")], "alexnet", 128)
    assert data.footnote([Series("direct")], "alexnet", 256).startswith("Run: b-later")
    speedup = data.speedup("alexnet", 1, 256, Series("direct"))
    assert speedup and speedup.median == pytest.approx(100.0 * 256 / 22)


def test_tables_and_figures_name_the_runs_they_are_of(tmp_path: Path) -> None:
    data = two_runs(tmp_path)
    expected = "Runs: a-wide (GPU-aaaa, commit abc1234): direct, direct-register; b-later"
    assert data.footnote([Series("direct"), Series("direct-register")]).startswith(expected)
    assert "Serial CPU: a-wide (GPU-aaaa, commit abc1234)." in data.footnote()
    items = alexnet_section(data).items
    captions = {item.key: item.caption for item in items}
    for key in ("table-3", "table-4", "table-5", "fig-3a", "fig-7b", "fig-8c"):
        assert "Run: a-wide (GPU-aaaa" in captions[key], key
    runs = runs_table(data)
    assert [(row[0], row[1]) for row in runs.rows] == [("a-wide", "GPU-aaaa"), ("b-later", "GPU-bbbb")]


def test_the_rows_of_the_overview_are_each_of_one_run_and_say_which(tmp_path: Path) -> None:
    items = overview(two_runs(tmp_path), "alexnet").items
    table = next(item for item in items if isinstance(item, Table) and item.key == "alexnet-overview")
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows if row[1] == "direct"]
    assert [(row["N"], row["run"]) for row in rows] == [
        (1, "a-wide"),
        (32, "a-wide"),
        (128, "a-wide"),
        (256, "b-later"),
    ]
    assert rows[-1]["than serial CPU"] == pytest.approx(5 * 100 * 256 / (5 * 22))


def test_runs_in_one_file_are_told_apart(tmp_path: Path) -> None:
    run_of(tmp_path / "both.jsonl", "aaaa", [timed(1, 1, "direct", 1.0, None)])
    file = run_of(tmp_path / "both.jsonl", "bbbb", [timed(1, 1, "direct", 2.0, None)])
    data = measurements(read([file]))
    assert [(point.run.name, point.median("kernel")) for point in data.every] == [("both/1", 1.0), ("both/2", 2.0)]
    assert [point.median("kernel") for point in data.points] == [2.0], "the last, where runs hold the same"


def test_a_pair_is_of_one_run_if_one_holds_both(tmp_path: Path) -> None:
    first = [timed(1, 128, rung, ms, None) for rung, ms in (("direct", 9.0), ("channels", 8.0), ("channels-half", 7.0))]
    second = [timed(1, 128, rung, ms, None) for rung, ms in (("channels", 4.0), ("channels-atomic", 2.0))]
    files = [run_of(tmp_path / "a.jsonl", "aaaa", first), run_of(tmp_path / "b.jsonl", "bbbb", second)]
    data = measurements(read(files))

    def pair(*names: str) -> tuple[float | None, float | None, bool]:
        slow, fast, same = data.pair("alexnet", 1, 128, *map(Series, names))
        return slow and slow.median, fast and fast.median, same

    assert pair("direct", "channels") == (9.0, 8.0, True)
    assert pair("channels", "channels-atomic") == (4.0, 2.0, True)
    assert pair("direct", "channels-atomic") == (9.0, 2.0, False)
    assert pair("direct", "tiled") == (9.0, None, False)


def test_a_series_whose_defaults_have_changed_is_of_one_run(tmp_path: Path) -> None:
    wide = [record("alexnet", layer, 128, "tiled") | {"changed": []} for layer in range(1, 6)]
    other = record("alexnet", 1, 128, "tiled", TILE=8) | {"changed": []}
    files = [write(tmp_path / "a.jsonl", wide), write(tmp_path / "b.jsonl", [other])]
    for given in (files, files[::-1]):
        data = measurements(read(given))
        assert [point.run.name for point in data.of("alexnet")] == ["a"] * 5


def test_copies_are_the_sum_of_the_medians(tmp_path: Path) -> None:
    measurement = record("alexnet", 1, 1, "direct")
    measurement["samples"] |= {"h2d": [1.0, 2.0, 9.0], "d2h": [9.0, 2.0, 1.0]}
    data = measurements(read([write(tmp_path / "few.jsonl", [measurement])]))
    assert data.points[0].median("copies") == 4.0


@pytest.mark.parametrize(
    ("wanted", "text"),
    [("abc", "a to c"), ("ab", "a, b"), ("acde", "a, c to e"), ("e", "e"), ("abde", "a, b, d, e")],
)
def test_names_of_consecutive_series(wanted: str, text: str) -> None:
    assert stretches([Series(name) for name in "abcde"], {Series(name) for name in wanted}) == text


def test_ablations_and_sweeps_compare_points_of_one_run(tmp_path: Path) -> None:
    base, changed = timed(1, 128, "direct-register", 10.0, None), record("alexnet", 1, 128, "direct-register")
    value = 1 - changed["point"]["constants"]["COALESCED"]
    changed = record("alexnet", 1, 128, "direct-register", COALESCED=value)
    apart = [run_of(tmp_path / "a.jsonl", "aaaa", [base]), run_of(tmp_path / "b.jsonl", "bbbb", [changed])]
    assert ablations(measurements(read(apart))) == []
    both = run_of(tmp_path / "b.jsonl", "bbbb", [timed(1, 128, "direct-register", 5.0, None)])
    table = ablations(measurements(read([*apart[:1], both])))[-1]
    assert isinstance(table, Table)
    assert [(row[4], row[6]) for row in table.rows] == [("b", 5.0)]


def test_ablations_and_sweeps_name_their_transfer(tmp_path: Path) -> None:
    points = [
        record("alexnet", 1, 128, "tiled", transfer, TILE=tile, UNROLL=unroll)
        for transfer in ("pageable", "pinned")
        for tile in (8, 16)
        for unroll in (0, 2)
    ]
    data = measurements(read([write(tmp_path / "few.jsonl", points)]))
    table = ablations(data)[-1]
    assert isinstance(table, Table)
    assert len({row[:-3] for row in table.rows}) == len(table.rows) == 4
    assert {row[3] for row in table.rows} == {"tiled", "tiled (pinned)"}
    (sweep,) = sweeps(data)
    assert sweep.title == "alexnet: sweep of tiled, N=128"
    (panels,) = sweep.draw.args
    assert len(panels) == 1


def test_profiles_name_changed_constants_and_defaults_explain_defaults(tmp_path: Path) -> None:
    one, other = (record("alexnet", 1, 128, "tiled", TILE=tile) for tile in (16, 8))
    file = RecordFile(write(tmp_path / "few.jsonl", [one, other]))
    for point, duration in ((one, 1.0), (other, 9.0)):
        metrics = {"duration_ns": duration, "fma_pipe": 10 * duration}
        file.header("profile", {"point": point["point"], "entry": "tiled", "source": "ncu", "metrics": metrics})
    data = measurements(read([file.path]))
    for table in profiles(data):
        assert isinstance(table, Table)
        assert [row[4] for row in table.rows] == ["tiled", "tiled [TILE=8]"]
    point = next(point for point in data.points if not point.changed)
    assert "FMA units 10 %" in Reasons(data).sentence(point)


# The studies' own figures


def test_a_table_shows_what_the_study_prints_in_that_table(tmp_path: Path) -> None:
    points = [record("alexnet", 1, N, "direct-filter-shared") for N in (1, 128, 256)]
    items = alexnet_section(measurements(read([write(tmp_path / "few.jsonl", points)]))).items
    shown = {item.key: item for item in items if isinstance(item, Table)}
    assert [row[-1] for row in shown["table-10"].rows if row[1] == 128] == [53.3]
    table_4 = shown["table-4"]
    assert [row[table_4.columns.index("rswmtla2m")] for row in table_4.rows if row[1] == 128] == [49.0]


def test_what_is_computed_from_the_studys_times_is_not_called_published() -> None:
    vector, atomic = Series(ALIASES["mk-sw-mt-si-c-vec"]), Series(ALIASES["exp-mk-sw-mt-si-c-vec"])
    assert not published.derived("alexnet", None, 128, vector)
    assert published.derived("alexnet", None, 1, vector)
    assert published.derived("alexnet", 3, 128, atomic)
    assert not published.derived("alexnet", 3, 256, atomic), "neither printed nor computed"
    assert theirs_from([(None, 1, vector), (None, 1, atomic)]) == "derived from the study's times (GV100)"
    assert theirs_from([(3, 128, vector)]) == "published (GV100)"
    assert theirs_from([(3, 128, vector), (3, 128, atomic)]) == "published (GV100); derived for channels-atomic"


def test_a_kernel_without_branches_has_no_branch_efficiency() -> None:
    assert counter("branch_efficiency", {"branch_efficiency": 0.0}) == "n/a"
    assert counter("branch_efficiency", {"branch_efficiency": 98.5}) == 98.5
    assert counter("stall_drain", {"stall_drain": 0.0}) == 0.0
    assert counter("stall_drain", {}) is None


# Records that allow no figure


ODD = {
    "NaN": {"samples": {"kernel": [float("nan")]}},
    "infinite": {"samples": {"total": [float("inf")]}},
    "no time": {"samples": {"total": [0]}},
    "huge": {"samples": {"kernel": [1e308] * 3}},
    "no images": {"point": {"N": 0}},
    "too many images": {"point": {"N": 10**400}},
    "N as text": {"point": {"N": "128"}},
    "unknown workload": {"point": {"workload": "vgg"}},
    "unknown layer": {"point": {"layer": 9}},
    "constants as text": {"point": {"constants": {"THREAD_OUTPUTS": "2"}}},
    "transfer a list": {"point": {"transfer": ["pinned"]}},
    "status a list": {"status": ["ok"]},
    "error as text": {"error": {"scaled": "small"}},
    "error without a tolerance": {"error": {"tolerance": None}},
    "CPU time of 0": {"cpu": {"serial_ms": 0}},
    "CPU time as text": {"cpu": {"serial_ms": "1"}},
    "launches as text": {"launches": ["direct"]},
    "a launch without a name": {"launches": [{"grid": [1, 1, 1]}]},
    "memory as text": {"device_bytes": "much"},
    "negative memory": {"device_bytes": -1},
    "planned constants as text": {"planned_constants": {"OUTPUTS": "2"}},
    "changed constants that it lacks": {"changed": ["WIDTH"]},
    "spread as a list": {"spread": [1]},
    "a timeline without times": {"timeline": [{"stream": 0, "piece": 0, "what": "kernel"}]},
    "a timeline that stands still": {"timeline": [{"stream": 0, "piece": 0, "what": "kernel", "start": 1, "end": 1}]},
}


@pytest.mark.parametrize("changes", ODD.values(), ids=ODD)
def test_an_unusable_record_is_named_and_the_others_reported(tmp_path: Path, changes: dict) -> None:
    odd = record("alexnet", 2, 32, "channels")
    for name, value in changes.items():
        odd[name] = odd[name] | value if isinstance(value, dict) and name != "samples" else value
    file = write(tmp_path / "few.jsonl", [record("alexnet", 1, 1, "direct"), odd])
    text = whole_text(compose(measurements(read([file]))))
    assert "Left out: few: the record of " in text
    assert "channels cannot be used" in text
    assert "1 points: 1 ok" in text


HEADERS = {
    "counters as text": ("profile", {"metrics": {"share": "much"}}),
    "infinite counters": ("profile", {"metrics": {"dram_read_bytes": float("inf")}}),
    "no images profiled": ("profile", {"images": 0}),
    "a profile of an unknown layer": ("profile", {"point": {"layer": 9}}),
    "a timeline without kernels": ("timeline", {"kernels": []}),
    "a kernel without a time": ("timeline", {"kernels": [{"entry": "direct", "start_us": 0.0}]}),
    "kernels that take no time": ("timeline", {"kernels": [{"entry": "direct", "start_us": 0.0, "us": 0.0}]}),
    "a timeline without samples": ("timeline", {"samples": {}}),
    "a timeline with no sample": ("timeline", {"samples": {"kernel": []}}),
    "a prediction of an unknown layer": ("prediction", {"point": {"layer": 9}}),
    "a prediction without a time": ("prediction", {"status": "ok", "band_ms": [1.0, 2.0]}),
    "a prediction whose band has one end": ("prediction", {"status": "ok", "ms": 1.0, "band_ms": [1.0]}),
    "a launch as text": ("prediction", {"status": "ok", "ms": 1.0, "band_ms": [1.0, 2.0], "launches": ["direct"]}),
    "ceilings of 0": ("ceilings", {"copy_bytes_per_s": 0}),
    "ceilings as text": ("ceilings", {"copy_bytes_per_s": 1e12, "flops": {"fp32": "many"}}),
}


@pytest.mark.parametrize(("kind", "changes"), HEADERS.values(), ids=HEADERS)
def test_an_unusable_header_is_named_and_the_rest_reported(tmp_path: Path, kind: str, changes: dict) -> None:
    one = record("alexnet", 1, 128, "direct")
    file = RecordFile(write(tmp_path / "few.jsonl", [one]))
    axis = {"images": 128, "samples": {"kernel": [1.0]}, "clock_mhz": 1980.0}
    wholes = {
        "prediction": {"point": one["point"], "gpu": "a100", "status": "refused", "reason": "none"},
        "profile": {"point": one["point"], "entry": "direct", "source": "ncu", "metrics": {}},
        "timeline": {"point": one["point"], "kernels": [{"entry": "direct", "start_us": 0.0, "us": 1.0}], **axis},
    }
    whole = wholes.get(kind, {})
    point = {"point": one["point"] | changes["point"]} if "point" in changes else {}
    file.header(kind, {**whole, **changes, **point, "device": device_key(file)})
    text = whole_text(compose(measurements(read([file.path]))))
    assert f"Left out: a header of type {kind}: " in text
    assert "1 points: 1 ok" in text


def device_key(file: RecordFile) -> str:
    return next(key for key, header in read([file.path]).headers.items() if header["type"] == "device")


@pytest.mark.parametrize("changes", [{"constants": [1]}, {"rung": ["channels"]}])
def test_an_invalid_point_is_counted_as_unreadable(tmp_path: Path, changes: dict) -> None:
    odd = record("alexnet", 2, 32, "channels")
    odd["point"] |= changes
    data = measurements(read([write(tmp_path / "few.jsonl", [record("alexnet", 1, 1, "direct"), odd])]))
    assert (len(data.every), data.unreadable) == (1, 1)


def test_a_record_without_an_error_figure_or_a_constant_of_today_is_reported(tmp_path: Path) -> None:
    points = [record("alexnet", 2, 128, "channels-vector", CHANNELS=n, PLANE_SHARED=s) for n in (1, 2) for s in (0, 1)]
    points[0]["error"] = {"absolute": None, "scaled": None, "tolerance": None}
    del points[1]["point"]["constants"]["COALESCED"]
    points[1]["changed"] = {"CHANNELS": 1}
    text = whole_text(compose(measurements(read([write(tmp_path / "few.jsonl", points)]))))
    assert "4 points: 4 ok" in text


@pytest.mark.parametrize("content", ["", "torn\n{}\n"])
def test_files_without_points_are_a_usage_error_that_counts_unreadable_lines(tmp_path: Path, content: str) -> None:
    file = tmp_path / "r.jsonl.gz"
    file.write_text(content)
    damaged = ", but 2 unreadable lines" if content else ""
    with pytest.raises(UsageError, match=f"the record files hold no points{damaged}: run"):
        measurements(read([file]))


def test_sequences_of_layers_are_counted_where_tables_leave_them_out(tmp_path: Path) -> None:
    layer, mixed = record("alexnet", 1, 128, "direct"), record("alexnet", 1, 128, "mixed-together")
    points = [mixed | {"point": mixed["point"] | {"layer": "1-2", "mix": f"1=direct,2={rung}"}} for rung in ("a", "b")]
    with pytest.raises(UsageError, match="the record files hold only sequences of layers"):
        measurements(read([write(tmp_path / "sequences.jsonl", points)]))
    data = measurements(read([write(tmp_path / "both.jsonl", [*points, layer, points[0]])]))
    assert problems(data).text.endswith("Left out: 2 sequences of layers.")


def test_only_unusable_records_are_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = record("alexnet", 1, 1, "direct")
    odd["samples"]["kernel"] = [float("nan")]
    assert main([str(write(tmp_path / "few.jsonl", [odd])), "-o", str(tmp_path / "out")]) == 2
    assert "no usable points" in capsys.readouterr().err


def test_points_of_other_data_are_left_out_and_counted(tmp_path: Path) -> None:
    plain = record("alexnet", 1, 128, "direct")
    hard = record("alexnet", 1, 128, "direct-register")
    hard["point"]["data"] = "wide"
    data = measurements(read([write(tmp_path / "r.jsonl", [plain, hard])]))
    assert [point.series.rung for point in data.every] == ["direct"]
    assert "1 point on data other than uniform, or of gradients" in problems(data).text
    assert [len(source.points) for source in gather([tmp_path / "r.jsonl"]).sources] == [1]
