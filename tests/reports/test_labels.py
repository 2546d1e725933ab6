"""The text of the figures is what matplotlib wrote and what the tables hold."""

import html
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
import pytest
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text
from matplotlib.ticker import FixedFormatter, FixedLocator
from report_records import published_report, published_tables
from report_records import published_table as table

from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.records.compressed import contents, files_in
from alexconv.records.statistics import faster
from alexconv.records.store import read
from alexconv.reports import charts, published, readme, roofline, training
from alexconv.reports.comparison import CONTRACTS, gather, peer_title
from alexconv.reports.elements import Plot, shown
from alexconv.reports.measurements import measurements
from alexconv.reports.style import FAMILIES, RC, canvas, family_colour, look, settle, svg_text, texts
from alexconv.reports.timelines import PARTS

ROOT = Path(__file__).parent.parent.parent
REPORT = ROOT / "docs" / "report"
PAGES_LAYERS = [*(f"alexnet-{layer}" for layer in range(1, 6)), "lenet-86-k7-1", "lenet-86-k7-2"]
DRAWN = [
    *sorted((REPORT / "figures").glob("*.svg")),
    *(REPORT / "figures" / f"layer-{layer}-ladder.svg" for layer in PAGES_LAYERS),  # on the site alone
    *sorted((ROOT / "docs" / "figures").glob("*.svg")),
]
SAME_LINE = 2.0  # points
CSV_DIGITS = 1e-5
NEAR = 1e-6  # relative: how far a tick's text may be from its place


@cache
def plots() -> dict[str, Plot]:
    """The figures of the repository's report and README by the path of their file."""
    files = files_in(ROOT / "results")
    of_report = {REPORT / "figures" / f"{plot.key}.svg": plot for plot in published_report().plots()}
    of_readme = readme.plots(measurements(read(files)), gather(files))
    others = (*of_readme, *training.plots(files_in(ROOT / "results", "training/*.jsonl")))
    return of_report | {ROOT / readme.FOLDER / f"{plot.key}.svg": plot for plot in others}


@cache
def drawn(path: Path) -> tuple[Figure, list[str], str]:
    """A freshly drawn figure, the texts that matplotlib was asked to write, and the SVG."""
    written: list[str] = []
    draw_text = RendererSVG.draw_text

    def recorded(self, gc, x, y, s, *others, **options):
        written.append(s)
        draw_text(self, gc, x, y, s, *others, **options)

    with pytest.MonkeyPatch.context() as patch, matplotlib.rc_context(RC):
        patch.setattr(RendererSVG, "draw_text", recorded)
        figure = plots()[path].draw()
        settle(figure)
        return figure, written, svg_text(figure, path.stem)


@cache
def of_each_kind() -> set[Path]:
    """Of the figures that a function draws and whose numbers come from the same place, the last."""
    kinds: dict[tuple[str, str | None], Path] = {}
    for path, plot in plots().items():
        function = getattr(plot.draw, "func", plot.draw)
        numbers = next((pattern for pattern in KINDS if re.fullmatch(pattern, path.stem)), None)
        kinds[function.__qualname__, numbers] = path
    return set(kinds.values())


def labels_of(figure: Figure) -> set[str]:
    """The lines of a figure's texts, without ticks, which depend on its layout."""
    axes = [axis for axes in axes_of(figure) for axis in (axes.xaxis, axes.yaxis)]
    ticks = {tick for axis in axes for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())}
    of_ticks = {label for tick in ticks for label in (tick.label1, tick.label2)}
    names = {
        name
        for axis in axes
        if isinstance(formatter := axis.get_major_formatter(), FixedFormatter)
        for name in formatter.seq
    }
    return names | {line for text in set(figure.findobj(Text)) - of_ticks for line in text.get_text().splitlines()}


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_every_text_of_a_figure_is_what_the_records_say(path: Path) -> None:
    """Of each kind of figure one is laid out, for its ticks; of the others, titles, labels and values count."""
    if path not in of_each_kind():
        with matplotlib.rc_context(RC):
            labels = labels_of(plots()[path].draw())
        assert labels
        assert labels - set(texts(svg_of(path))) == set()
        return
    figure, written, fresh = drawn(path)
    assert texts(fresh) == written
    assert len(written) > 4
    assert faults_of(svg_of(path), path, figure, written) == []


def svg_of(path: Path) -> str:
    """The figure as it is kept, else as it is drawn."""
    return path.read_text() if path.exists() else drawn(path)[2]


def faults_of(svg: str, path: Path, figure: Figure, written: Sequence[str]) -> list[str]:
    """Faults in the texts of an SVG: misplaced ticks, and numbers that no record gives."""
    undrawn = [f"{text}: not what is drawn" for text in (Counter(texts(svg)) - Counter(written))]
    ticks, faults = scales(figure)
    left = Counter(text for text in written if numbers_in(text)) - ticks
    known = Counter(expected(path.stem))
    return undrawn + faults + [f"{text}: no record gives it" for text in left - known]


@pytest.mark.parametrize("path", [path for path in DRAWN if "ladder" in path.stem], ids=lambda path: path.stem)
def test_a_ladder_s_values_hide_no_mark(path: Path) -> None:
    figure, _, _ = drawn(path)
    axes = figure.axes[0]
    marks = [line.get_xydata()[0] for line in axes.lines if line.get_marker() != "None" and len(line.get_xdata()) == 1]
    values = [text for text in axes.texts if isinstance(text, Annotation)]
    assert len(marks) > len(values) > 1
    renderer = RendererAgg(1, 1, figure.dpi)
    for value in values:
        box = value.get_window_extent(renderer)
        hidden = [mark for mark in axes.transData.transform(marks) if box.contains(*mark)]
        assert not hidden, value.get_text()


# Axes


def axes_of(figure: Figure) -> Iterator[Any]:
    for axes in figure.axes:
        yield axes
        yield from axes.child_axes


def scales(figure: Figure) -> tuple[Counter[str], list[str]]:
    """The ticks with numbers, and what is wrong with those that are not at their number's place.

    Other texts along an axis (names, sizes of tiles, levels at a side) are labels and not ticks.
    """
    ticks: Counter[str] = Counter()
    faults: list[str] = []
    for axes in axes_of(figure):
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            pairs = [
                (tick.get_loc(), tick.label1.get_text() or tick.label2.get_text()) for tick in axis.get_major_ticks()
            ]
            visible = [
                (place, text) for place, text in pairs if text and low * (1 - NEAR) <= place <= high * (1 + NEAR)
            ]
            values = [value_of(text) for _, text in visible]
            if isinstance(axis.get_major_locator(), FixedLocator) and values != [place for place, _ in visible]:
                continue
            ticks.update(text for _, text in visible)
            faults += [
                f"{text} stands at {place:g}"
                for (place, text), value in zip(visible, values, strict=True)
                if value is None or abs(value - place) > NEAR * max(abs(place), 1e-12)
            ]
            if values != sorted(set(values), key=lambda value: (value is None, value)):
                faults.append(f"ticks that do not rise: {[text for _, text in visible]}")
    return ticks, faults


def value_of(text: str) -> float | None:
    try:
        return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-").removesuffix("×"))
    except ValueError:
        return None


# Numbers in figures


NAMES = sorted(
    [
        *RUNGS,
        *{figure.variant for figure in published.figures()},
        *(peer_title(name) for contract in CONTRACTS for name in contract.peers),
        *(contract.title for contract in CONTRACTS),
        *("cuBLAS GEMM fp32", "95 % interval", "(GV100)", "fp32", "tf32", "fp16"),
    ],
    key=len,
    reverse=True,
)
PLACES = re.compile(
    r"layer [1-5]\b|N=\d+|streamed:\d+|stream \d+|output \d of a thread|warp 0\b|[A-Z_]{2,}=(?:\d+|\([\d, ]+\))"
)


def numbers_in(text: str) -> bool:
    """Whether a text says a number: names of rungs, variants, layers, batches and constants apart."""
    for name in NAMES:
        text = text.replace(name, "")
    return bool(re.search(r"\d", PLACES.sub("", text)))


def expected(key: str) -> list[str]:
    """The numbers that a figure may show, from tables and records; none for a figure of another kind."""
    for pattern, of_kind in KINDS.items():
        if match := re.fullmatch(pattern, key):
            return of_kind(*match.groups())
    return []


def of_ladder(workload: str) -> list[str]:
    """The shortest time of each family, and for AlexNet also of mixes and cuDNN."""
    labels = lines(f"{workload}-waterfall")
    families: dict[str, list[str]] = {}
    for rung in LADDER:
        if rung.name in labels:
            families.setdefault(rung.family, []).append(labels[rung.name].split(" ")[0])
    numbers = [min(times, key=lambda time: value_of(time) or 0.0) for times in families.values()]
    summary = {row["class"]: row for row in table("cudnn-summary")}
    for contract in CONTRACTS if workload == "alexnet" else ():
        row = summary[contract.title]
        numbers += [csv_shown(row["N=128, ms"]), f"{peer_title(contract.peer)}, {csv_shown(row['cuDNN, ms'])}"]
    return numbers


def of_families() -> list[str]:
    """The times of docs/frontier.md's families, and cuDNN's."""
    page = (ROOT / "docs" / "frontier.md").read_text()
    rows = re.findall(r"^\| (\w+) \| .* \| ([\d.]+) \| [^|]* \|$", page.partition("families: begin")[2], re.MULTILINE)
    times = dict(rows[: len(FAMILIES) + 1])
    drawn = [times[family] for family in FAMILIES if family in times]  # none of others was timed on AlexNet
    return [*drawn, f"cuDNN {times['cuDNN']}", "Only wgmma beats cuDNN in fp32", UNIT]


UNIT = "ms for AlexNet's five layers, 128 images (log)"


def of_layer(workload: str, number: str) -> list[str]:
    """The shortest time of each family on a layer, and cuDNN's, from the table of layers and the classes'."""
    N = re.search(r"N=(\d+)", plot_of(f"layer-{workload}-{number}-ladder").title)
    assert N
    families: dict[str, list[float]] = {}
    for row in table(f"{workload}-layers"):
        if (row["layer"], row["N"], row["transfer"]) == (number, N[1], "pageable") and row["rung"] in RUNGS:
            families.setdefault(RUNGS[row["rung"]].family, []).append(float(row["kernel (ms)"] or "inf"))
    edges = (1 - CSV_DIGITS, 1, 1 + CSV_DIGITS)  # of six digits in a table
    numbers = [
        text for times in families.values() for text in dict.fromkeys(shown(min(times) * edge) for edge in edges)
    ]
    for contract in CONTRACTS if workload == "alexnet" else ():
        row = table(f"cudnn-{contract.name}")[int(number) - 1]
        numbers.append(f"{peer_title(contract.peer)}, {csv_shown(row[f'{contract.peer}, ms'])}")
    return numbers


def of_waterfall(workload: str) -> list[str]:
    """The numbers at the right, which the tests below compare with the tables."""
    return [
        text for text in lines(f"{workload}-waterfall").values() if text.endswith(("ms", "faster", "slower", "as fast"))
    ]


SIX_DIGITS = 5e-6  # relative error of a number of six digits


def of_study(study: str) -> list[str]:
    """A study's variants: sums of its table's six digits for both layers, rounded either way, and their gains."""
    numbers: list[str] = []
    times: dict[str, float] = {}
    N = re.search(r"N=(\d+)", plot_of(f"{study}-waterfall").title)
    assert N
    for row in table(f"{study}-op-times"):
        own = row[f"N={N[1]}, here (ms)"]
        if row["study"] == study and own and "copies included" not in row["variant"]:
            times[row["variant"]] = times.get(row["variant"], 0.0) + float(own)
    base = next(times[name] for name in ("tiled-grid-baseline", "baseline") if name in times)
    for ms in times.values():
        gain = "" if ms == base else f", {faster(base / ms)}"
        numbers += [f"{text} ms{gain}" for text in {shown(ms * (1 - SIX_DIGITS)), shown(ms * (1 + SIX_DIGITS))}]
    return numbers


def of_cudnn() -> list[str]:
    rows = [(contract, row) for contract in CONTRACTS for row in table(f"cudnn-{contract.name}")]
    return [f"{csv_shown(row['ms'])} ms, {faster(float(row[f'than {contract.peer}']))}" for contract, row in rows]


def of_roofline() -> list[str]:
    """The measured rates, with close ones in one label."""
    path = ROOT / "results" / "h200-ceilings.jsonl"
    flops = [json.loads(line)["flops"] for line in path.read_text().splitlines() if '"type":"ceilings"' in line][-1]
    cuda = f"fp32 {flops['fp32'] / 1e12:.0f}, half {flops['half'] / 1e12:.0f}"
    return [cuda, *(f"{name} {flops[kind] / n / 1e12:.0f}" for name, kind, n in TENSOR_ROOFS)]


TENSOR_ROOFS = (("fp16", "fp16", 1), ("tf32", "tf32", 1), ("fp16 / 3", "fp16", 3), ("tf32 / 3", "tf32", 3))


def points_in(run: str, workload: str) -> list[dict[str, Any]]:
    """The last record of each point of a workload in a record file."""
    records = [json.loads(line) for line in contents(ROOT / "results" / f"{run}.jsonl").splitlines()]
    latest = {json.dumps(line["point"]): line for line in records if line["type"] == "point"}
    return [line for line in latest.values() if line["point"]["workload"] == workload and line["status"] == "ok"]


def plot_of(key: str) -> Plot:
    return next(plot for plot in plots().values() if plot.key == key)


def of_sweep(workload: str, rung: str) -> list[str]:
    """The shortest times by the two constants with the most values, of the run in the caption, and these values."""
    plot = plot_of(f"{workload}-sweep-{rung}")
    run, N = re.search(r"Run: ([\w-]+) ", plot.caption), re.search(r"N=(\d+)", plot.title)
    assert run and N
    wanted = {"rung": rung, "N": int(N[1]), "transfer": "pageable"}
    measured = [record for record in points_in(run[1], workload) if wanted.items() <= record["point"].items()]
    numbers: list[str] = []
    for layer in {record["point"]["layer"] for record in measured}:
        own = [(record["point"]["constants"], record) for record in measured if record["point"]["layer"] == layer]
        values = {name: sorted({constants[name] for constants, _ in own}) for name in own[0][0]}
        axes = sorted((name for name in values if len(values[name]) > 1), key=lambda name: (-len(values[name]), name))[
            :2
        ]
        cells: dict[tuple[int, ...], float] = {}
        for constants, record in own:
            place, ms = tuple(constants[name] for name in axes), median(record["samples"]["kernel"])
            cells[place] = min(ms, cells.get(place, ms))
        best = min(cells.values())
        numbers += [f"[{shown(ms)}]" if ms == best else shown(ms) for ms in cells.values()]
        numbers += [str(value) for name in axes for value in values[name]]
    return numbers


def of_timeline(workload: str) -> list[str]:
    """Numbers of the pieces, once per layer."""
    runs = re.findall(r"([\w-]+) \(GPU-", plot_of(f"{workload}-timeline").caption)
    measured = [record for run in runs for record in points_in(run, workload) if record.get("timeline")]
    pieces = {event["piece"] for record in measured for event in record["timeline"]}
    return [str(piece) for _ in {record["point"]["layer"] for record in measured} for piece in pieces]


def of_mapping() -> list[str]:
    """Threads 0 to 27 x 27 in the corner, by the rule of plane.cuh; the plane's size."""
    titles = ["plane of 55×55 outputs, block of 28×28"]
    coalesced = [str(y * 28 + x) for y in range(14) for x in range(14)]
    apart = [str(y // 2 * 28 + x // 2) for y in range(14) for x in range(14)]
    return [*titles, *(Counter(coalesced) | Counter(apart)).elements()]


def of_parts(layer: str) -> list[str]:
    """The shares of the parts of each run's time."""
    numbers = []
    for row in table(f"layer-alexnet-{layer}-parts-table"):
        parts = [float(row[name]) for name in PARTS]
        numbers += [f"{100 * part / sum(parts):.0f} %" for part in parts]
    return numbers


def of_kernels(layer: str) -> list[str]:
    """What the kernels do."""
    return [row["kernel"] for row in table(f"layer-alexnet-{layer}-kernel-counters")]


KINDS: dict[str, Callable[..., list[str]]] = {
    r"layer-alexnet-(\d)-parts": of_parts,
    r"layer-alexnet-(\d)-kernels": of_kernels,
    r"layer-(.*)-(\d)-ladder": of_layer,
    r"(.*)-ladder": of_ladder,
    r"families": of_families,
    r"(ece408-\d+)-waterfall": of_study,
    r"(.*)-waterfall": of_waterfall,
    r"alexnet-cudnn": of_cudnn,
    r".*-roofline(?:-dram)?": of_roofline,
    r"(lenet-\d+-k\d)-sweep-(.*)": of_sweep,
    r"(.*)-timeline": of_timeline,
    r"fig-(?:9|10)": of_mapping,
}


FAULTS: dict[str, tuple[str, str]] = {  # a figure, and the start of a text before the digit that is changed
    "a digit of a time": ("alexnet-cudnn", r">0\.\d{3}(?=\d ms)"),
    "a tick": ("alexnet-per-image", r">0\.00(?=\d<)"),
    "a digit of a heat map": ("lenet-70-k5-sweep-tiled", r">\d+\.\d(?=\d<)"),
    "a family's time on a layer": ("layer-alexnet-3-ladder", r">0\.0\d\d(?=\d<)"),
    "a gain": ("ece408-2018-waterfall", r"\d\.\d(?=\d×)"),
    "a part's share": ("layer-alexnet-3-parts", r">5(?=\d %<)"),
    "a thread": ("fig-9", r">37(?=7<)"),
}


@pytest.mark.parametrize(("key", "before"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_of_a_figure_is_noticed(key: str, before: str) -> None:
    path = REPORT / "figures" / f"{key}.svg"
    figure, written, _ = drawn(path)
    svg = svg_of(path)
    match = re.search(before, svg)
    assert match
    digit = (int(svg[match.end()]) + 1) % 10
    assert faults_of(f"{svg[: match.end()]}{digit}{svg[match.end() + 1 :]}", path, figure, written)


def test_a_tick_cut_to_two_decimals_is_noticed() -> None:
    path = REPORT / "figures" / "alexnet-per-image.svg"
    figure, written, _ = drawn(path)
    svg = path.read_text()
    assert ">0.003<" in svg
    assert faults_of(svg.replace(">0.003<", ">0.00<", 1), path, figure, written)


def drawn_with(key: str, patch: pytest.MonkeyPatch, name: str, wrong: Callable[[float], str]) -> list[str]:
    """The faults found in a figure that a faulty drawing function made."""
    patch.setattr(charts, name, wrong)
    drawn.cache_clear()
    path = REPORT / "figures" / f"{key}.svg"
    figure, written, svg = drawn(path)
    drawn.cache_clear()
    return faults_of(svg, path, figure, written)


def test_faults_of_the_drawing_itself_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        assert drawn_with("alexnet-per-image", patch, "tick_text", lambda value: f"{value:.2f}")
    with monkeypatch.context() as patch:
        assert drawn_with("lenet-70-k5-sweep-tiled", patch, "shown", lambda value: shown(1.01 * value))
    with monkeypatch.context() as patch:
        assert drawn_with("ece408-2018-waterfall", patch, "shown", lambda value: shown(1.01 * value))


def test_coordinates_are_rounded_and_text_is_not() -> None:
    with matplotlib.rc_context(RC):
        figure, grid = canvas(2)
        grid[0][0].plot([0, 1 / 3, 1], [0.00091234, 0.0052, 0.00333333])
        grid[0][0].set_title("0.00091234 to 2.13987")
        settle(figure)
        svg = svg_text(figure, "key")
    assert "0.00091234 to 2.13987" in texts(svg)
    assert any(re.fullmatch(r"0\.00\d+", text) for text in texts(svg))
    coordinates = re.findall(r' (?:d|x|y|points)="([^"]+)"', svg)
    assert coordinates
    assert not re.search(r"\.\d{3}", " ".join(coordinates))


# Labels and tables


def lines(figure: str) -> dict[str, str]:
    """The text at the left of a figure's lines, and the one at the right."""
    svg = (REPORT / "figures" / f"{figure}.svg").read_text()
    labels = [
        (float(y), float(x), html.unescape(text))
        for x, y, text in re.findall(r'<text[^>]* x="([\d.-]+)" y="([\d.-]+)"[^>]*>([^<]+)</text>', svg)
    ]
    together: dict[str, str] = {}
    for y, x, text in labels:
        right = [(other_x, other) for other_y, other_x, other in labels if abs(y - other_y) < SAME_LINE and other_x > x]
        if right:
            together[text] = max(right)[1]
    return together


def csv_shown(cell: str) -> str:
    return shown(float(cell))


def waterfall_workloads() -> list[str]:
    workloads = (path.stem.removesuffix("-waterfall") for path in REPORT.glob("figures/*-waterfall.svg"))
    return sorted(name for name in workloads if name not in STUDY_WORKLOADS)


@pytest.mark.parametrize("workload", waterfall_workloads())
def test_the_waterfalls_labels_are_the_gains_table_s(workload: str) -> None:
    there = f"{workload}-gains" in published_tables()
    labels = lines(f"{workload}-waterfall")
    gains = {row["rung"]: row for row in table(f"{workload}-gains")} if there else {}
    assert there or not any("×" in text for text in labels.values()), "gains that no table has"
    totals = {rung: row["all layers"] for rung, row in gains.items() if row["all layers"]}
    assert {rung: labels[rung].split(", ")[1] for rung in totals} == {
        rung: faster(float(gain)) for rung, gain in totals.items()
    }
    assert len(totals) > 25 or workload != "alexnet"


def test_the_waterfall_has_every_rung_and_cudnn_with_the_tables_times() -> None:
    labels = lines("alexnet-waterfall")
    measured = {row["rung"] for row in table("alexnet-layers") if row["N"] == "128" and row["status"] == "ok"}
    wgmma = {rung.name for rung in LADDER if rung.family == "wgmma"} & measured
    assert len(wgmma) > 7
    assert wgmma <= set(labels)
    summary = {row["class"]: row for row in table("cudnn-summary")}
    for contract in CONTRACTS:
        row = summary[contract.title]
        assert labels[peer_title(contract.peer)] == f"{csv_shown(row['cuDNN, ms'])} ms"
        assert labels[f"best of each layer, {contract.name}"] == f"{csv_shown(row['N=128, ms'])} ms"


def test_the_waterfall_s_times_are_those_of_the_layers_table() -> None:
    labels = lines("alexnet-waterfall")
    times = {
        (row["rung"], row["layer"]): float(row["kernel (ms)"])
        for row in table("alexnet-layers")
        if (row["N"], row["transfer"]) == ("128", "pageable") and row["kernel (ms)"]
    }

    def time(rung: str | None, layer: str) -> float:
        while rung and (rung, layer) not in times:
            rung = RUNGS[rung].parent
        return times[rung or "", layer]

    compared = [rung.name for rung in LADDER if rung.name in labels]
    assert len(compared) > 35
    for rung in compared:
        own = sum(time(rung, layer) for layer in "12345")
        assert float(labels[rung].split(" ")[0].replace(",", "")) == pytest.approx(own, rel=1e-3)


def test_the_cudnn_figure_matches_the_class_tables() -> None:
    svg = (REPORT / "figures" / "alexnet-cudnn.svg").read_text()
    for contract in CONTRACTS:
        rows = [row for row in table(f"cudnn-{contract.name}") if row["layer"] != "all"]
        labels = [f"layer {row['layer']}, {row['rung']}" for row in rows]
        values = [f"{csv_shown(row['ms'])} ms, {faster(float(row[f'than {contract.peer}']))}" for row in rows]
        assert len(rows) == 5
        assert set(labels + values) <= set(texts(svg))


# Looks


def test_families_have_different_colours_and_peers_are_told_apart() -> None:
    assert len({family_colour(family) for family in FAMILIES}) == len(FAMILIES)
    assert len({look(rung.name) for rung in LADDER}) == len({(rung.family, rung.precision) for rung in LADDER})
    peers = {name for contract in CONTRACTS for name in contract.peers} | {"torch-gemm-fp32"}
    assert len({look(name) for name in peers}) == len({peer_title(name) for name in peers}) == len(peers) == 7


def test_a_figure_is_drawn_the_same_each_time() -> None:
    plot = plots()[REPORT / "figures" / "lenet-70-k5-roofline.svg"]
    drawn = []
    for _ in range(2):
        with matplotlib.rc_context(RC):
            figure = plot.draw()
            settle(figure)
            drawn.append(svg_text(figure, plot.key))
            figure.savefig(io.BytesIO(), format="png")
    assert drawn[0] == drawn[1]


def test_a_rung_s_roof_follows_from_its_ladder_entry() -> None:
    kinds = {rung.name: roofline.kind_of(rung) for rung in LADDER}
    assert kinds["direct-half"] == (roofline.CUDA, "half", 1)
    assert kinds["direct-any-half"] == (roofline.CUDA, "fp32", 1)
    assert kinds["mma-tf32"] == (roofline.TENSOR, "tf32", 1)
    assert kinds["wgmma-scaled"] == (roofline.TENSOR, "fp16", 1)
    assert kinds["mma-split"] == kinds["wgmma-split-resident"] == (roofline.TENSOR, "fp16", 3)
    assert [name for name, kind in kinds.items() if kind is None] == ["wgmma-winograd"]
    assert {rung.family for rung in LADDER if rung.tensor_factors} == {"single", "mma", "wgmma"}
