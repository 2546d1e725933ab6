"""Pages of layers, rungs, coverage and history: what they say follows from the records and the ladder."""

import re
from pathlib import Path

import pytest
from report_records import GPU, HOST, RUN, kernel_ms, published_report, record, write

from alexconv import compare
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.rung import Rung
from alexconv.records.store import RecordFile, read
from alexconv.reports import alexnet, coverage, history, rung_pages
from alexconv.reports.comparison import gather
from alexconv.reports.elements import LEAD, Code, Table
from alexconv.reports.listing import listing
from alexconv.reports.measurements import Measurements, measurements
from alexconv.reports.page import html
from alexconv.reports.site import Report, compose
from alexconv.reports.why import Reasons, longest_stall

RESULTS = Path(__file__).parents[2] / "results"
METRICS = {
    "duration_ns": 9e4,
    "tensor_pipe": 87.4,
    "l2_throughput": 39.0,
    "dram_throughput": 12.0,
    "stall_barrier": 3.0,
    "registers": 168.0,
}


def measurements_of(path: Path) -> Measurements:
    return measurements(read([path]))


def table(report: Report, key: str) -> list[dict]:
    table = next(table for table in report.tables() if table.key == key)
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """Two tensor-core rungs and cuDNN on layer 3, with counters of the faster one and its parent, and a prediction."""
    names = ("wgmma-scaled", "wgmma-split", "torch-nchw-fp32")
    points = [
        record("alexnet", 3, 128, name, precision=RUNGS[name].precision if name in RUNGS else "fp32") for name in names
    ]
    path = write(tmp_path / "few.jsonl", points, GPU | {"name": "NVIDIA H200"})
    file = RecordFile(path)
    device = next(key for key, header in file.previous.headers.items() if header["type"] == "device")
    for name, busy in (("wgmma-split", 87.4), ("wgmma-scaled", 74.0)):
        axes = next(point["point"] for point in points if point["point"]["rung"] == name)
        file.header(
            "profile",
            {
                "point": axes,
                "entry": "multiply",
                "source": "ncu",
                "device": device,
                "metrics": METRICS | {"tensor_pipe": busy},
            },
        )
    split = points[1]["point"]
    file.header("prediction", {"point": split, "gpu": "h200", "status": "ok", "ms": 0.5, "band_ms": [0.4, 0.6]})
    file.header("ceilings", {"device": device, "flops": {"fp16": 9e14, "fp32": 6e13}, "copy_bytes_per_s": 4e12})
    return path


# Which kernel is best, and why


def test_the_best_rung_stands_beside_cudnn_with_a_reason_from_the_counters(counted: Path) -> None:
    report = compose(measurements_of(counted), gather([counted]))
    (row,) = [row for row in table(report, "layer-alexnet-3-best") if row["class"] == "fp32"]
    assert row["fastest rung"] == "wgmma-split"
    place, peer = list(RUNGS).index("wgmma-split"), len(RUNGS)
    assert row["ms"] == pytest.approx(kernel_ms("alexnet", 3, 128, place))
    assert row["than cuDNN"] == pytest.approx(kernel_ms("alexnet", 3, 128, peer) / row["ms"])
    assert RUNGS["wgmma-split"].idea in row["why"]
    assert "multiply: tensor cores 87 % (wgmma-scaled: 74 %), L2 cache 39 %, device memory 12 %" in row["why"]
    assert "main stall: barriers" in row["why"]
    share = Reasons(measurements_of(counted)).share_of_roof(
        next(p for p in measurements_of(counted).points if p.series.rung == "wgmma-split")
    )
    flops = 2 * 128 * 149.5e6
    assert share == pytest.approx(100 * flops / row["ms"] * 1e3 / 3e14, rel=1e-3)
    assert f"{share:.0f} % of the roofline (tensor cores, fp16 / 3)" in row["why"]


def test_without_counters_the_reason_is_the_idea_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "few.jsonl", [record("alexnet", 3, 128, "igemm")])
    (row,) = table(compose(measurements_of(path), gather([path])), "layer-alexnet-3-best")
    assert row["why"] == RUNGS["igemm"].idea
    assert row["cuDNN, ms"] is None


def test_a_rung_that_does_not_split_its_tiles_is_explained_as_the_rung_that_it_then_is(tmp_path: Path) -> None:
    for splits, reason in ((2, RUNGS["wgmma-half-split-k"].idea), (1, "(SPLITS=1: as wgmma-half)")):
        split = record("alexnet", 3, 128, "wgmma-half-split-k", precision="fp16", SPLITS=splits)
        data = measurements_of(write(tmp_path / f"{splits}.jsonl", [split]))
        assert Reasons(data).sentence(data.points[0]).endswith(reason)


def test_short_stalls_are_not_given_as_the_reason() -> None:
    assert longest_stall({"stall_barrier": 0.4, "stall_wait": 9.0}) == ""
    assert longest_stall({"stall_barrier": 1.4, "stall_long_scoreboard": 2.0}) == "loads from memory"


# Rungs


def test_a_rung_s_page_has_its_gain_prediction_and_cudnn(counted: Path) -> None:
    report = compose(measurements_of(counted), gather([counted]))
    (row,) = table(report, "wgmma-split-times")
    assert row["than its parent"] == pytest.approx(
        kernel_ms("alexnet", 3, 128, list(RUNGS).index("wgmma-scaled")) / row["ms"]
    )
    assert row["predicted, ms"] == 0.5
    assert row["predicted / measured"] == pytest.approx(0.5 / row["ms"])
    assert row["cuDNN, ms"] == pytest.approx(kernel_ms("alexnet", 3, 128, len(RUNGS)))
    (counters,) = table(report, "wgmma-split-counters")
    assert (counters["µs"], counters["tensor cores, %"]) == (pytest.approx(90.0), 87.4)
    assert repr(counters["registers"]) == "168"  # a count, not a mean


def test_a_rung_s_page_says_which_layers_it_does_not_take_and_why(counted: Path) -> None:
    report = compose(measurements_of(counted), gather([counted]))
    rows = {row["layer"]: row["why"] for row in table(report, "wgmma-window-in-place-refused")}
    assert list(rows) == [1, 2, 3, 4, 5]
    assert rows[1] == "3 channels: TMA takes multiples of 8"
    assert not any(table.key == "direct-refused" for table in report.tables())


def test_a_rung_s_page_says_what_its_constants_mean_and_their_defaults(counted: Path) -> None:
    report = compose(measurements_of(counted), gather([counted]))
    rows = {row["constant"]: row for row in table(report, "igemm-async-constants")}
    assert list(rows) == [constant.name for constant in RUNGS["igemm-async"].constants]
    assert (rows["STAGES"]["meaning"], rows["STAGES"]["values"]) == ("stages of the cp.async pipeline", "2, 3, 4")
    assert [rows["STAGES"][f"layer {layer}"] for layer in range(1, 6)] == [3] * 5
    assert table(report, "wgmma-half-constants")[0]["layer 1"] is None  # which it does not take
    assert {table(report, "wgmma-window-in-place-constants")[0][f"layer {layer}"] for layer in range(1, 6)} == {None}
    assert not any(table.key == "direct-any-constants" for table in report.tables())  # it has none


@pytest.mark.parametrize("rung", [rung for rung in LADDER if rung.constants], ids=lambda rung: rung.name)
def test_the_defaults_on_a_rung_s_page_are_those_that_ran(rung: Rung) -> None:
    records = measurements_of(RESULTS / "h200-main-job.jsonl")
    if not any(point.series.rung == rung.name for point in records.points):
        pytest.skip("a rung that was not on the ladder when the main job ran")
    (shown,) = rung_pages.constants(records, rung)
    defaults = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]
    own = [point for point in records.points if point.series.rung == rung.name and point.median("kernel")]
    ran = {point.layer: rung.recorded(point.record["point"]["constants"]) for point in own}
    assert bool(ran) == any(row[f"layer {layer}"] is not None for row in defaults for layer in range(1, 6))
    for row in defaults:
        assert {layer: row[f"layer {layer}"] for layer in ran} == {layer: ran[layer][row["constant"]] for layer in ran}


@pytest.mark.parametrize("rung", LADDER, ids=lambda rung: rung.name)
def test_every_rung_s_source_names_its_technique_and_shows_what_changed(rung) -> None:
    text = rung_pages.source_of(rung)
    assert len(rung_pages.technique(text)) > 10
    codes = {code.key: code for code in rung_pages.code(rung, LADDER, text)}
    assert codes[f"{rung.name}-source"].text == rung.path.read_text()
    parent = RUNGS.get(rung.parent or "")
    assert (f"{rung.name}-diff" in codes) == bool(parent and parent.file != rung.file)
    if f"{rung.name}-diff" in codes:
        assert any(line.startswith("<b>+ ") for line in listing(codes[f"{rung.name}-diff"]))


def test_code_is_escaped(tmp_path: Path) -> None:
    path = write(tmp_path / "few.jsonl", [record("alexnet", 1, 1, "direct")])
    report = compose(measurements_of(path))
    page = next(page for page in report.pages if page.key == "rung-direct")
    text = "</pre><script>alert(1)</script>"
    page.sections[-1].code[:] = [Code("a", "a", "", text), Code("b", "b", "", f"{text};", text)]
    written = html(report, {})[page.file]
    assert text not in written
    assert written.count("alert") == 3


def words(line: str) -> str:
    """A line of a listing without its elements."""
    return re.sub("<[^>]+>", "", line)


def test_a_listing_has_its_file_s_lines_with_comments_and_keywords_marked() -> None:
    text = "// a\n\n/* b\n   c */\nconst int D = 3;\n#define E 1\n"
    lines = listing(Code("a", "a", "", text))
    assert "".join(map(words, lines)).rstrip("\n") == text.rstrip("\n")
    assert lines[0] == '<span class="c">// a</span>\n'
    assert [line.count('class="c"') for line in lines[2:4]] == [1, 1]
    assert lines[4] == '<span class="k">const</span> <span class="k">int</span> D = <span class="m">3</span>;\n'
    assert 'class="cp"' in lines[5]


def test_a_difference_has_both_files_lines() -> None:
    before, after = "int a;\nint b;\nint c;\n", "int a;\nint d;\nint c;\n"
    marked = [words(line) for line in listing(Code("a", "a", "", after, before))]
    assert [line.rstrip("\n") for line in marked][:5] == [
        "@@ -1,3 +1,3 @@",
        "  int a;",
        "- int b;",
        "+ int d;",
        "  int c;",
    ]


def test_a_rung_s_page_begins_with_its_time_beside_its_parent_s_and_the_best(counted: Path) -> None:
    report = compose(measurements_of(counted), gather([counted]))
    page = next(page for page in report.pages if page.key == "rung-wgmma-scaled")
    (figure,) = page.sections[0].items
    assert page.sections[0].key == LEAD
    assert figure.title == "wgmma-scaled, alexnet, N=128: the fastest tf32 rung on every layer that it takes"
    (row,) = figure.draw.args[0]
    place = list(RUNGS).index("wgmma-split")
    split = next(page for page in report.pages if page.key == "rung-wgmma-split").sections[0].items[0].draw.args[0]
    assert split[0].own.median == split[0].best == pytest.approx(kernel_ms("alexnet", 3, 128, place))
    assert split[0].parent == pytest.approx(row.own.median)
    assert split[0].peer == pytest.approx(kernel_ms("alexnet", 3, 128, len(RUNGS)))


# Coverage


def test_every_item_of_the_studies_is_here_or_has_a_reason() -> None:
    for item in coverage.items():
        assert item.ours or item.note, item
    numbers = {item.name for item in coverage.items() if item.study == "purdue-2020"}
    assert {f"Table {number}" for number in range(1, 12)} <= numbers
    assert {
        f"Fig. {number}" for number in ("9", "10", "11", "16", *(f"{n}{x}" for n in range(3, 8) for x in "ab"))
    } <= numbers
    figures = {
        int(n)
        for item in coverage.items()
        if item.study == "ece408-2018"
        for n in re.findall(r"\d+", item.name)
        if item.name.startswith("Fig.")
    }
    assert figures == set(range(1, 15))


def test_what_the_coverage_names_is_in_the_published_report() -> None:
    report = published_report()
    known = {item.key for page in report.pages for section in page.sections for item in section.items}
    assert {key for item in coverage.items() for key in item.ours} - known == set()
    rows = table(report, "studies")
    assert {row["state"] for row in rows if row["ours"]} == {"here"}
    assert all(row["note"] for row in rows if not row["ours"])


def test_the_ladder_s_predicted_times_stand_beside_measured_ones(counted: Path) -> None:
    (row,) = table(compose(measurements_of(counted)), "predicted")
    assert (row["rung"], row["layer"], row["N"]) == ("wgmma-split", 3, 128)
    assert (row["predicted, ms"], row["band from"], row["to"]) == (0.5, 0.4, 0.6)
    times = [point for point in measurements_of(counted).points if point.series.rung == "wgmma-split"]
    assert row["measured, ms"] == times[0].median("kernel")
    assert row["predicted / measured"] == pytest.approx(0.5 / row["measured, ms"])


def test_a_report_without_predictions_has_no_page_of_them(tmp_path: Path) -> None:
    data = measurements_of(write(tmp_path / "few.jsonl", [record("alexnet", 3, 128, "direct")]))
    assert "predicted.html" not in [page.file for page in compose(data).pages]


def test_the_study_s_variants_are_named_in_its_order() -> None:
    names = [name for name, *_ in alexnet.named_variants()]
    assert len(names) == 13
    assert names[:3] == ["mcpy", "um", "rla2m"]
    assert names[-1] == "exp-mk-sw-mt-si-c-vec"
    rows = {row[0]: row for row in alexnet.blocks().rows}
    assert rows[1][2:4] == ("28×28", "28×28")
    assert all(row[2] == row[3] for row in rows.values())


# History, and two files


def test_history_has_points_that_several_runs_share_in_their_order(tmp_path: Path) -> None:
    for commit, day, factor in (("bbbbbbb", "2026-01-02", 2.0), ("aaaaaaa", "2026-01-01", 1.0)):
        file = RecordFile(tmp_path / f"{commit}.jsonl")
        keys = {
            kind: file.header(kind, data)
            for kind, data in (("device", GPU), ("host", HOST), ("run", RUN | {"commit": commit}))
        }
        for layer in range(1, 6):
            measurement = record("alexnet", layer, 128, "direct") | keys | {"time": f"{day}T00:00:00"}
            measurement["samples"]["kernel"] = [factor * layer] * 6
            file.point(measurement)
    data = measurements(read(sorted(tmp_path.glob("*.jsonl"))))
    (shown,) = [item for item in history.section(data, None).items if isinstance(item, Table)]
    rows = [dict(zip(shown.columns, row, strict=True)) for row in shown.rows]
    assert [(row["commit"], row["all layers, ms"], row["over its first run"]) for row in rows] == [
        ("aaaaaaa", 15.0, 1.0),
        ("bbbbbbb", 30.0, 2.0),
    ]


def test_a_mix_beside_another_leaves_room_for_bars(tmp_path: Path) -> None:
    point = record("alexnet", 1, 128, "mixed-together")
    mix = ",".join(f"{layer}=mma-split:TILE_FILTERS=64:CHANNELS=96:STAGES=2" for layer in range(1, 6))
    point["point"] |= {"layer": "1-5", "constants": {}, "mix": mix}
    file = write(tmp_path / "a.jsonl", [point])
    assert compare.main([str(file), str(file), "-o", str(tmp_path / "out")]) == 0
    assert " mixed-together pageable 1=mma-split:…<" in (tmp_path / "out" / "figures" / "ratios.svg").read_text()
    assert mix in (tmp_path / "out" / "tables" / "points.csv").read_text()


def test_two_files_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = record("alexnet", 1, 128, "direct")
    slow["samples"]["kernel"] = [2 * value for value in slow["samples"]["kernel"]]
    files = [
        write(tmp_path / f"{name}.jsonl", [point])
        for name, point in (("a", slow), ("b", record("alexnet", 1, 128, "direct")))
    ]
    assert compare.main([*map(str, files), "-o", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.rstrip().endswith("index.html")
    text = (tmp_path / "out" / "index.html").read_text()
    assert "kernel time of B over A in 1 points of both: 1 FASTER." in text
    written = (tmp_path / "out" / "tables" / "points.csv").read_text().splitlines()[1].split(",")
    assert written[-1] == "FASTER"
    assert float(written[-3]) == pytest.approx(2.0)
    assert text.count("<td data-s=") == 1
