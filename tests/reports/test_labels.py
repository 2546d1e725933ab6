"""What the figures say in text is what matplotlib wrote and what the tables hold."""

import csv
import html
import io
import re
from collections import Counter
from functools import cache
from pathlib import Path

import matplotlib
import pytest
from matplotlib.backends.backend_svg import RendererSVG

from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.records.store import read
from alexconv.reports import readme, roofline
from alexconv.reports.comparison import CONTRACTS, gather, peer_title
from alexconv.reports.elements import Plot, shown
from alexconv.reports.measurements import measurements
from alexconv.reports.page import compose
from alexconv.reports.style import FAMILIES, RC, canvas, family_colour, look, settle, svg_text, texts

ROOT = Path(__file__).parent.parent.parent
REPORT = ROOT / "docs" / "report"
DRAWN = [*sorted((REPORT / "figures").glob("*.svg")), *sorted((ROOT / "docs" / "figures").glob("*.svg"))]
SAME_LINE = 2.0  # points


@cache
def plots() -> dict[str, Plot]:
    """The figures of the repository's report and README by the path of their file."""
    files = sorted((ROOT / "results").glob("*.jsonl"))
    found, frontier = measurements(read(files)), gather(files)
    of_report = {REPORT / "figures" / f"{plot.key}.svg": plot for plot in compose(found, frontier).plots()}
    of_readme = {ROOT / readme.FOLDER / f"{plot.key}.svg": plot for plot in readme.plots(found, frontier)}
    return of_report | of_readme


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.stem)
def test_every_text_of_a_figure_is_the_one_that_matplotlib_wrote(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    draw_text = RendererSVG.draw_text

    def recorded(self, gc, x, y, s, *others, **options):
        written.append(s)
        draw_text(self, gc, x, y, s, *others, **options)

    monkeypatch.setattr(RendererSVG, "draw_text", recorded)
    with matplotlib.rc_context(RC):
        figure = plots()[path].draw()
        settle(figure)
        fresh = svg_text(figure, path.stem)
    assert texts(fresh) == written
    assert len(written) > 4
    assert Counter(texts(path.read_text())) == Counter(written), "make report draws it anew"


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


def table(key: str) -> list[dict[str, str]]:
    with (REPORT / "tables" / f"{key}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def lines(figure: str) -> dict[str, str]:
    """The text at the left of a figure's lines, and the one at the right."""
    svg = (REPORT / "figures" / f"{figure}.svg").read_text()
    found = [
        (float(y), float(x), html.unescape(text))
        for x, y, text in re.findall(r'<text[^>]* x="([\d.-]+)" y="([\d.-]+)"[^>]*>([^<]+)</text>', svg)
    ]
    together: dict[str, str] = {}
    for y, x, text in found:
        right = [(other_x, other) for other_y, other_x, other in found if abs(y - other_y) < SAME_LINE and other_x > x]
        if right:
            together[text] = max(right)[1]
    return together


def csv_shown(cell: str) -> str:
    return shown(float(cell))


def waterfall_workloads() -> list[str]:
    return sorted(path.stem.removesuffix("-waterfall") for path in REPORT.glob("figures/*-waterfall.svg"))


@pytest.mark.parametrize("workload", waterfall_workloads())
def test_the_waterfalls_labels_are_the_gains_table_s(workload: str) -> None:
    there = (REPORT / "tables" / f"{workload}-gains.csv").exists()
    found = lines(f"{workload}-waterfall")
    gains = {row["rung"]: row for row in table(f"{workload}-gains")} if there else {}
    assert there or not any("×" in text for text in found.values()), "gains that no table has"
    told = {rung: row["all layers"] for rung, row in gains.items() if row["all layers"]}
    assert {rung: found[rung].split(", ")[1] for rung in told} == {
        rung: f"{float(gain):.2f}×" for rung, gain in told.items()
    }
    assert len(told) > 25 or workload != "alexnet"


def test_the_waterfall_has_every_rung_and_cudnn_with_the_tables_times() -> None:
    found = lines("alexnet-waterfall")
    assert {rung.name for rung in LADDER if rung.family == "wgmma"} <= set(found)
    summary = {row["class"]: row for row in table("cudnn-summary")}
    for contract in CONTRACTS:
        row = summary[contract.title]
        assert found[peer_title(contract.peer)] == f"{csv_shown(row['cuDNN, ms'])} ms"
        assert found[f"best of each layer, {contract.name}"] == f"{csv_shown(row['N=128, ms'])} ms"


def test_the_waterfall_s_times_are_those_of_the_layers_table() -> None:
    found = lines("alexnet-waterfall")
    times = {
        (row["rung"], row["layer"]): float(row["kernel (ms)"])
        for row in table("alexnet-layers")
        if (row["N"], row["transfer"]) == ("128", "pageable") and row["kernel (ms)"]
    }

    def time(rung: str | None, layer: str) -> float:
        while rung and (rung, layer) not in times:
            rung = RUNGS[rung].parent
        return times[rung or "", layer]

    compared = [rung.name for rung in LADDER if rung.name in found]
    assert len(compared) > 35
    for rung in compared:
        own = sum(time(rung, layer) for layer in "12345")
        assert float(found[rung].split(" ")[0].replace(",", "")) == pytest.approx(own, rel=1e-3)


def test_ours_beside_cudnn_are_the_class_tables() -> None:
    svg = (REPORT / "figures" / "alexnet-cudnn.svg").read_text()
    for contract in CONTRACTS:
        rows = [row for row in table(f"cudnn-{contract.name}") if row["layer"] != "all"]
        labels = [f"layer {row['layer']}, {row['rung']}" for row in rows]
        values = [f"{csv_shown(row['ms'])} ms, {float(row[f'over {contract.peer}']):.2f}×" for row in rows]
        assert len(rows) == 5
        assert set(labels + values) <= set(texts(svg))


# Looks


def test_families_have_different_colours_and_peers_are_told_apart() -> None:
    assert len({family_colour(family) for family in FAMILIES}) == len(FAMILIES)
    assert len({look(rung.name) for rung in LADDER}) == len({(rung.family, rung.precision) for rung in LADDER})
    peers = {name for contract in CONTRACTS for name in contract.peers} | {"torch-gemm-fp32"}
    assert len({look(name) for name in peers}) == len({peer_title(name) for name in peers}) == len(peers) == 7


def test_a_figure_is_drawn_the_same_each_time() -> None:
    plot = plots()[REPORT / "figures" / "alexnet-roofline.svg"]
    drawn = []
    for _ in range(2):
        with matplotlib.rc_context(RC):
            figure = plot.draw()
            settle(figure)
            drawn.append(svg_text(figure, plot.key))
            figure.savefig(io.BytesIO(), format="png")
    assert drawn[0] == drawn[1]


def test_the_roofline_names_rungs_of_the_ladder() -> None:
    assert {*roofline.TF32_RUNGS, *roofline.TRANSFORMED} <= set(RUNGS)
    assert set(roofline.TENSOR_FAMILIES) <= set(FAMILIES)
