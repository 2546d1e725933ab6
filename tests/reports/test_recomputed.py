"""Numbers of README, docs and report, recomputed from the raw samples by code that shares nothing with the report's.

Runs are taken from what a page says of its table ("Run: ...", the column "run"), never from the report's own choice.
"""

import copy
import csv
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.records.compressed import contents, files_in
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).parent.parent.parent
RESULTS = files_in(ROOT / "results")
# cuDNN's faster layouts with many images.
FASTER = {"fp32": "torch-nchw-fp32", "tf32": "torch-nhwc-tf32", "fp16": "torch-nhwc-fp16"}
FRONTIER, SCALING, GRAPHS = "h200-frontier", "h200-frontier-scaling", "h200-frontier-together"
CSV_DIGITS = 1e-5  # six significant digits
LEAST = {
    "README.md": 30,
    "docs/frontier.md": 200,
    "docs/report": 3000,
    "pages": 3000,
    "docs/profile.md": 200,
    "docs/accuracy.md": 9,
    "docs/commands.md": 4,
}

Point = dict[str, Any]
Raw = dict[str, list[Point]]  # a file's points by its name without suffix, the last of each


class Claim(NamedTuple):
    """A printed number and what the records give."""

    document: str
    where: str
    printed: str
    value: float
    exact: bool = False  # printed with six digits, as in CSV files


@pytest.fixture(scope="module")
def root(repository_site: Path) -> Path:
    """The folder of the repository's README, docs and site."""
    return repository_site.parent


@pytest.fixture(scope="module")
def raw() -> Raw:
    return {path.stem: points_of(path) for path in RESULTS}


def points_of(path: Path) -> list[Point]:
    lines = [json.loads(line) for line in contents(path).splitlines()]
    found = {json.dumps(line["point"]): line for line in lines if line["type"] == "point"}
    return list(found.values())


def middle(samples: list[float]) -> float:
    ordered, half = sorted(samples), len(samples) // 2
    return ordered[half] if len(samples) % 2 else (ordered[half - 1] + ordered[half]) / 2


def ms(point: Point, figure: str) -> float:
    if figure == "copies":
        return ms(point, "h2d") + ms(point, "d2h")
    return middle(point["samples"][figure])


def ok(point: Point, *figures: str) -> bool:
    return point["status"] == "ok" and all(point["samples"].get(figure) for figure in figures)


def only(points: list[Point], **axes: object) -> Point | None:
    """The point with these axes, if there is just one and it is right."""
    found = [each for each in points if all(each["point"][name] == value for name, value in axes.items())]
    return found[0] if len(found) == 1 and found[0]["status"] == "ok" else None


def cpu(points: list[Point], workload: str, layer: int, N: int, base: str = "serial") -> float | None:
    for each in points:
        point, found = each["point"], (each.get("cpu") or {}).get(f"{base}_ms")
        if (point["workload"], point["layer"]) == (workload, layer) and found:
            return float(found / point["N"] * N)
    return None


# What the pages say


def markdown_tables(text: str) -> Iterator[list[dict[str, str]]]:
    for is_table, lines in groupby(text.splitlines(), key=lambda line: line.startswith("|")):
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines] if is_table else []
        if len(rows) > 2:
            yield [dict(zip(rows[0], row, strict=False)) for row in rows[2:]]


def csv_rows(root: Path, key: str) -> list[dict[str, str]]:
    with (root / "site" / "tables" / f"{key}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def caption(root: Path, title: str) -> str:
    """The text below the heading that begins like this."""
    text = (root / "docs" / "report" / "report.md").read_text()
    return text.partition(f"\n### {title}")[2].partition("\n### ")[0]


def runs_named(text: str) -> list[str]:
    """The runs that a caption names, except those named for CPU times alone."""
    return re.findall(r"(h200-[\w-]+) \(GPU-", text.partition("Serial CPU:")[0])


def base_named(text: str) -> str:
    """The run whose CPU times count: named, or else the only one."""
    return [*runs_named(text), *re.findall(r"(?:Serial CPU:|CPU times: those of) (h200-[\w-]+)", text)][-1]


# Report


def overview_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """Results: sums over the layers, and layer by layer."""
    for workload in ("alexnet", "lenet-72-k7", "lenet-70-k5", "lenet-86-k7"):
        base = raw[base_named(caption(root, f"{workload}: all measured layers together"))]
        for key in (f"{workload}-overview", f"{workload}-layers"):
            for row in csv_rows(root, key):
                layers = [int(number) for number in row.get("layers", row.get("layer", "")).split(",")]
                axes = {"workload": workload, "N": int(row["N"]), "transfer": row["transfer"], "rung": row["rung"]}
                points = [only(raw[row["run"].partition("/")[0]], layer=layer, **axes) for layer in layers]
                known = [point for point in points if point]
                if row["status"] != "ok" or len(known) < len(points):
                    continue  # a label with constants, or more than one choice of them
                yield from row_claims(key, row, known, base)


def row_claims(key: str, row: dict[str, str], points: list[Point], base: list[Point]) -> Iterator[Claim]:
    where = f"{key}: N={row['N']} {row['rung']} {row['transfer']} layers {[p['point']['layer'] for p in points]}"
    for column, figure in (("kernel (ms)", "kernel"), ("copies (ms)", "copies"), ("total (ms)", "total")):
        if row[column]:
            value = sum(ms(point, figure) for point in points)
            yield Claim("docs/report", f"{where}: {column}", row[column], value, True)
    for column, name in (("speedup, serial (×)", "serial"), ("speedup, BLAS (×)", "blas")):
        if row[column]:
            axes = [point["point"] for point in points]
            times = [cpu(base, axis["workload"], axis["layer"], axis["N"], name) or 0.0 for axis in axes]
            value = sum(times) / sum(ms(point, "total") for point in points)
            yield Claim("docs/report", f"{where}: {column}", row[column], value, True)
    errors = [point["error"] for point in points]
    worst = max(errors, key=lambda error: error["scaled"] / error["tolerance"])
    yield Claim("docs/report", f"{where}: max error", row["max error"], worst["scaled"], True)


STUDY_TABLES: dict[str, str] = {
    "table-3": "copies",
    "table-4": "kernel",
    "table-6": "kernel",
    "table-5": "",
    "table-7": "",
}


def study_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """Tables 3 to 7, 10 and 11: a column is of the one run among those named that holds it."""
    for key in (*STUDY_TABLES, "table-10", "table-11"):
        text = caption(root, key.replace("-", " ").capitalize())
        runs, base = runs_named(text), raw[base_named(text)]
        for row in csv_rows(root, key):
            layer, N = int(row["layer"]), int(row["N"])
            serial = cpu(base, "alexnet", layer, N) or 0.0
            if "CPU here (s)" in row:
                yield Claim("docs/report", f"{key}: layer {layer} N={N} CPU", row["CPU here (s)"], serial / 1000, True)
            for column, printed in row.items():
                name, _, transfer = column.removesuffix(" (ms)").partition(" (")
                axes = {"rung": name, "transfer": transfer.strip(")") or "pageable", "layer": layer, "N": N}
                points = [usual(raw[run], workload="alexnet", **axes) for run in runs] if name in RUNGS else []
                held = [point for point in points if point]
                if printed and len(held) == 1:
                    figure = STUDY_TABLES.get(key, "kernel")
                    value = ms(held[0], figure) if figure else serial / ms(held[0], "total")
                    yield Claim("docs/report", f"{key}: layer {layer} N={N} {column}", printed, value, True)


def usual(points: list[Point], **axes: object) -> Point | None:
    """The point with the mapping of threads that the study chose, where both were measured."""
    found = [each for each in points if all(each["point"][name] == value for name, value in axes.items())]
    if len(found) > 1:
        chosen = {"channels-filter-shared": 0}.get(str(axes["rung"]), 1)
        found = [each for each in found if each["point"]["constants"].get("COALESCED") == chosen]
    return found[0] if len(found) == 1 and found[0]["status"] == "ok" else None


def mapping_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """Table 8: layer 1 in both mappings."""
    (run,) = runs_named(caption(root, "Table 8"))
    with (root / "site" / "tables" / "table-8.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    for rung, batch, *cells in rows:
        N = int(batch)
        serial = cpu(raw[run], "alexnet", 1, N) or 0.0
        for value, (speedup, kernel) in enumerate(((cells[0], cells[4]), (cells[2], cells[5]))):
            named = {"workload": "alexnet", "layer": 1, "N": N, "rung": rung, "transfer": "pageable"}
            (point,) = [
                each
                for each in raw[run]
                if named.items() <= each["point"].items() and each["point"]["constants"]["COALESCED"] == value
            ]
            where = f"table-8: {rung} N={N} COALESCED={value}"
            yield Claim("docs/report", where, speedup, serial / ms(point, "total"), True)
            yield Claim("docs/report", f"{where} kernel", kernel, ms(point, "kernel"), True)


def lenet_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """Op times of the studies' variants, and their ratio to what the studies printed."""
    for study, workload in STUDY_WORKLOADS.items():
        runs = runs_named(caption(root, f"{study}: op times of its variants"))
        for row in csv_rows(root, f"{study}-op-times"):
            label, _, constants = row["rung here"].partition(" [")
            name, _, transfer = label.partition(" (")
            wanted = {pair.split("=")[0]: int(pair.split("=")[1]) for pair in constants.strip("]").split() if pair}
            run = next((run for run in runs if run.endswith(row["study"][-4:])), "")
            for column in [column for column in row if column.endswith("here (ms)") and row[column]]:
                N = int(column.partition(",")[0].removeprefix("N="))
                point = with_constants(
                    raw.get(run, []), wanted, workload, int(row["layer"]), N, name, transfer.strip(")")
                )
                if point is None:
                    continue
                value = ms(point, "total" if "copies included" in row["variant"] else "kernel")
                where = f"{study}-op-times: {row['study']} {row['variant']} layer {row['layer']} N={N}"
                yield Claim("docs/report", where, row[column], value, True)
                theirs = float(row[f"N={N}, study (ms)"])
                yield Claim("docs/report", f"{where} ratio", row[f"N={N}, here / study"], value / theirs, True)


def winner_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """The index's table: the fastest rung of each layer and class, against cuDNN."""
    for row in csv_rows(root, "best"):
        layer, N, name = int(row["layer"].split(" ")[-1]), int(row["N"]), row["class"]
        points, tile = raw[SCALING if N > 128 else FRONTIER], name.endswith("-tile")
        short = name.removesuffix("-tile")
        peer = f"torch-{'nhwc' if short == 'fp16' else 'nchw'}-{short}"
        own = fastest(points, layer, N, contract_of(peer, tile=tile))
        theirs = peer_at(points, layer, N, FASTER[short] if N > 128 else peer)
        assert row["fastest rung"].split(" ")[0] == own["point"]["rung"]
        where = f"best: layer {layer} {name} N={N}"
        yield Claim("docs/report", f"{where} ms", row["ms"], ms(own, "kernel"), True)
        yield Claim("docs/report", f"{where} cuDNN", row["cuDNN, ms"], ms(theirs, "kernel"), True)
        speed = ms(theirs, "kernel") / ms(own, "kernel")
        yield Claim("docs/report", f"{where} speed", row["speed, cuDNN = 1"], speed, True)


def predicted_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """The ladder's times without a GPU: predictions on record, next to a run's times of the same points."""
    found = lines_of(ROOT / "results" / "predicted" / "h200.jsonl", "prediction")
    timed: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for point in (point for points in raw.values() for point in points if ok(point, "kernel")):
        timed[tuple(point["point"].get(name) for name in ("workload", "layer", "N", "rung"))].append(
            ms(point, "kernel")
        )
    for row in csv_rows(root, "predicted"):
        axes = {"workload": "alexnet", "layer": int(row["layer"]), "N": int(row["N"]), "rung": row["rung"]}
        if not row["predicted, ms"]:
            continue
        told = [each for each in found if axes.items() <= each["point"].items() and "ms" in each]
        own = min(told, key=lambda each: abs(each["ms"] - float(row["predicted, ms"])))
        where = f"predicted: {axes}"
        for column, value in zip(("predicted, ms", "band from", "to"), (own["ms"], *own["band_ms"]), strict=True):
            yield Claim("docs/report", f"{where} {column}", row[column], value, True)
        if row["measured, ms"]:
            ours = float(row["measured, ms"])
            nearest = min(timed[tuple(axes.values())], key=lambda time: abs(time - ours))
            yield Claim("docs/report", where, row["measured, ms"], nearest, True)
            yield Claim("docs/report", f"{where} ratio", row["predicted / measured"], own["ms"] / ours, True)


class Rows(HTMLParser):
    """The tables of a page by the ids of their articles: texts of cells as they are shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.key = ""
        self.inside = self.json = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        known = dict(attributes)
        self.key = known.get("id") or "" if tag == "article" else self.key
        self.json = tag == "script" and known.get("type") == "application/json"
        rows = self.tables.setdefault(self.key, [])
        if tag == "tr":
            rows.append([])
        if tag in ("td", "th"):
            rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag not in ("td", "th")
        self.json = self.json and tag != "script"

    def handle_data(self, data: str) -> None:
        if self.json:
            rows = json.loads(data)
            self.tables[self.key] += [[cell[0] if isinstance(cell, list) else cell for cell in row] for row in rows]
        elif self.inside:
            self.tables[self.key][-1][-1] += data


@cache
def tables_of(page: str) -> dict[str, list[list[str]]]:
    return Rows(page).tables


def page_rows(path: Path, key: str) -> list[dict[str, str]]:
    """A table of an HTML page."""
    head, *rows = tables_of(path.read_text()).get(key) or [[]]
    return [dict(zip(head, map(str, row), strict=False)) for row in rows]


def page_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """Times and errors on the pages of rungs and layers, where the run holds the rung with one choice of constants."""
    for path in sorted((root / "site").glob("rung-*.html")):
        rung = path.stem.removeprefix("rung-")
        for row in page_rows(path, f"{rung}-times"):
            yield from point_claims(path.stem, raw, row, row["workload"], int(row["layer"]), rung, "pageable")
    for path in sorted((root / "site").glob("layer-*.html")):
        workload, _, layer = path.stem.removeprefix("layer-").rpartition("-")
        for row in page_rows(path, f"{path.stem}-points"):
            yield from point_claims(path.stem, raw, row, workload, int(layer), row["rung"], row["transfer"])


def point_claims(
    page: str, raw: Raw, row: dict[str, str], workload: str, layer: int, rung: str, transfer: str
) -> Iterator[Claim]:
    axes = {"workload": workload, "layer": layer, "N": int(row["N"]), "rung": rung, "transfer": transfer}
    point = only(raw[row["run"].partition("/")[0]], **axes)
    if point is None:
        return
    where = f"{page}: {axes}"
    for column, figure in (("ms", "kernel"), ("with copies, ms", "total")):
        if row[column] != "–":
            yield Claim("pages", f"{where} {column}", row[column], ms(point, figure))
    if row["max error"] != "–":
        yield Claim("pages", f"{where} error", row["max error"], point["error"]["scaled"])
    if row["TFLOP/s"] != "–":
        flops = 2 * WORKLOADS[workload].layer(layer).macs(axes["N"])
        yield Claim("pages", f"{where} TFLOP/s", row["TFLOP/s"], flops / ms(point, "kernel") / 1e9)


def with_constants(
    points: list[Point], wanted: dict[str, int], workload: str, layer: int, N: int, rung: str, transfer: str
) -> Point | None:
    axes = {"workload": workload, "layer": layer, "N": N, "rung": rung, "transfer": transfer or "pageable"}
    found = [
        each
        for each in points
        if axes.items() <= each["point"].items() and wanted.items() <= each["point"]["constants"].items()
    ]
    return found[0] if len(found) == 1 and ok(found[0]) else None


# docs/frontier.md and README


def contract_of(peer: str, *, tile: bool = False) -> Callable[[Point], bool]:
    """Whether a point's rung keeps a peer's promise, or with ``tile`` the same in terms of a tile."""
    layout, precision = peer.removeprefix("torch-").split("-")
    dtype = "float16" if precision == "fp16" else "float32"

    def keeps(point: Point) -> bool:
        rung = RUNGS.get(point["point"]["rung"])
        if rung is None or (rung.layout, rung.dtype) != (layout, dtype):
            return False
        return rung.precision == precision or (tile and rung.precision == f"{precision}-tile")

    return keeps


def at(points: list[Point], layer: int, N: int) -> list[Point]:
    axes = {"workload": "alexnet", "layer": layer, "N": N}
    return [each for each in points if axes.items() <= each["point"].items() and ok(each, "kernel")]


def fastest(points: list[Point], layer: int, N: int, keeps: Callable[[Point], bool]) -> Point:
    return min(filter(keeps, at(points, layer, N)), key=lambda point: ms(point, "kernel"))


def peer_at(points: list[Point], layer: int, N: int, name: str) -> Point:
    return fastest(points, layer, N, lambda point: bool(point["point"]["rung"] == name))


def frontier_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """Classes against cuDNN, the ladder, and the larger batches."""
    for table in markdown_tables((root / "docs" / "frontier.md").read_text()):
        head = list(table[0])
        peer = next((name.removeprefix("over ") for name in head if name.startswith("over torch-")), "")
        if peer and "ms, cold" in head:
            yield from class_claims(table, raw[FRONTIER], peer)
        elif "gain over the parent" in head:
            yield from ladder_claims(table, raw[FRONTIER])
        elif head[0] == "N" and "ratio" in head:
            yield from scaling_claims(table, raw[SCALING])
        elif head[:2] == ["goal", "what"]:
            yield from goal_claims(table, raw)


def class_claims(table: list[dict[str, str]], points: list[Point], peer: str) -> Iterator[Claim]:
    peers = [name.removesuffix(", ms") for name in table[0] if name.startswith("torch-") and name.endswith(", ms")]
    tile = any(row["rung"] in RUNGS and RUNGS[row["rung"]].precision.endswith("-tile") for row in table)
    own = {layer: fastest(points, layer, 128, contract_of(peer, tile=tile)) for layer in range(1, 6)}
    theirs = {name: {layer: peer_at(points, layer, 128, name) for layer in range(1, 6)} for name in peers}
    for row in table:
        layers = list(range(1, 6)) if row["layer"] == "all" else [int(row["layer"])]
        hot = sum(ms(own[layer], "kernel") for layer in layers)
        flops = sum(2 * WORKLOADS["alexnet"].layer(layer).macs(128) for layer in layers)
        values = {
            "ms": hot,
            "ms, cold": sum(ms(own[layer], "kernel_cold") for layer in layers),
            "TFLOP/s": flops / hot / 1e9,
            f"over {peer}": hot / sum(ms(theirs[peer][layer], "kernel") for layer in layers),
            "largest error": max(own[layer]["error"]["scaled"] for layer in layers),
            f"{peer}'s": max(theirs[peer][layer]["error"]["scaled"] for layer in layers),
        }
        values |= {f"{name}, ms": sum(ms(theirs[name][layer], "kernel") for layer in layers) for name in peers}
        for column, value in values.items():
            yield Claim("docs/frontier.md", f"{peer}, layer {row['layer']}: {column}", row[column], value)


def ladder_claims(table: list[dict[str, str]], points: list[Point]) -> Iterator[Claim]:
    for row in table:
        name, where = row["rung"].strip("`"), f"ladder: {row['rung']}"
        times, errors = {}, []
        for layer in range(1, 6):
            if row[f"layer {layer}, ms"] != "–":
                point = peer_at(points, layer, 128, name)
                times[layer] = ms(point, "kernel")
                errors.append(point["error"]["scaled"])
                yield Claim("docs/frontier.md", f"{where} layer {layer}", row[f"layer {layer}, ms"], times[layer])
        if row["sum, ms"] != "–":
            yield Claim("docs/frontier.md", f"{where} sum", row["sum, ms"], sum(times.values()))
        if times:
            yield Claim("docs/frontier.md", f"{where} error", row["largest error"], max(errors))


def scaling_claims(table: list[dict[str, str]], points: list[Point]) -> Iterator[Claim]:
    for row, (short, peer) in product(table, FASTER.items()):
        N, kept = int(row["N"]), contract_of(f"torch-{'nhwc' if short == 'fp16' else 'nchw'}-{short}")
        ours = sum(ms(fastest(points, layer, N, kept), "kernel") for layer in range(1, 6))
        yield Claim("docs/frontier.md", f"N={N} {short}", row[f"{short}, µs"], ours / N * 1000)
        if not any((point["point"]["N"], point["point"]["rung"]) == (N, peer) for point in points):
            assert row[f"cuDNN beside {short}, µs"] == "–", f"no record has {peer} at N={N}"
            continue
        theirs = sum(ms(peer_at(points, layer, N, peer), "kernel") for layer in range(1, 6))
        yield Claim("docs/frontier.md", f"N={N} {peer}", row[f"cuDNN beside {short}, µs"], theirs / N * 1000)


def goal_claims(table: list[dict[str, str]], raw: Raw) -> Iterator[Claim]:
    """The goals of all five layers at N=128, and of one graph."""
    for row in table:
        peer = row["what"].rpartition(" over ")[2]
        if "five layers, over torch-" in row["what"]:
            kept = contract_of(peer, tile="-tile class" in row["what"])
            ours = sum(ms(fastest(raw[FRONTIER], layer, 128, kept), "kernel") for layer in range(1, 6))
            theirs = sum(ms(peer_at(raw[FRONTIER], layer, 128, peer), "kernel") for layer in range(1, 6))
            for column, value in (("ours", ours), ("peer", theirs), ("ratio", ours / theirs)):
                yield Claim("docs/frontier.md", f"goal {row['goal']}: {column}", row[column], value)


def readme_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """The classes against cuDNN in the README's headline."""
    text = (root / "README.md").read_text()
    points = raw[FRONTIER]
    table = next(table for table in markdown_tables(text) if "cuDNN, ms" in table[0])
    for row in table:
        match = re.match(r"\*\*([\w-]+)\*\* \((\w+),", row["class"])
        assert match
        name, layout = match[1], match[2].lower()
        base = name.removesuffix("-tile")  # whose rungs and peers serve a class of tiles too
        peer, swapped = (f"torch-{each}-{base}" for each in (layout, "nchw" if layout == "nhwc" else "nhwc"))
        own = [fastest(points, layer, 128, contract_of(peer, tile=name != base)) for layer in range(1, 6)]
        theirs, others = ([peer_at(points, layer, 128, each) for layer in range(1, 6)] for each in (peer, swapped))
        hot, their_hot, other = (sum(ms(point, "kernel") for point in found) for found in (own, theirs, others))
        ratios = [ms(slow, "kernel") / ms(fast, "kernel") for slow, fast in zip(theirs, own, strict=True)]
        errors = [max(point["error"]["scaled"] for point in found) for found in (own, theirs)]
        cells = {"ours, ms": hot, "cuDNN, ms": their_hot, "its other layout": other, "speed": their_hot / hot}
        found = [(row[column], value) for column, value in cells.items() if row[column] != "–"]
        found += zip(row["by layer"].split(" to "), (min(ratios), max(ratios)), strict=True)
        found += zip(row["error, ours / cuDNN's"].split(" / "), errors, strict=True)
        for printed, value in found:
            yield Claim("README.md", f"{name}: {printed}", printed, value)
        said = re.search(rf"over its other layout, where that is faster, .*?([\d.]+)× in {name}\b", text)
        assert bool(said) == (other < their_hot), f"whether cuDNN's other layout is faster in {name}"
        if said:
            yield Claim("README.md", f"{name}: over the other layout", said[1], other / hot)


def family_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """The README's families: the fastest rung of each layer, in the one run or in those that its note names."""
    text = (root / "README.md").read_text()
    cudnn = sum(ms(peer_at(raw[FRONTIER], layer, 128, "torch-nchw-fp32"), "kernel") for layer in range(1, 6))
    files_of_study = "h200-alexnet-scaling", "h200-alexnet", "h200-main-job"  # a rung's most batch sizes first
    elsewhere = re.findall(r"; ([\w, ]+) from (?:other runs|runs) on", text)
    for table in markdown_tables(text):
        for row in table if table[0].keys() >= {"family", "fastest rungs", "ms"} else ():
            names = re.findall(r"`([\w-]+)`", row["fastest rungs"])
            others = [family for families in elsewhere for family in families.split(", ")]
            files = files_of_study if row["family"] in others else (FRONTIER,)
            if names:
                points = [point for name in names for point in of_rung(raw, files, name)]
                whole = sum(shortest(points, layer) for layer in range(1, 6))
                yield Claim("README.md", f"family {row['family']}", row["ms"], whole)
                (share,) = [cell for name, cell in row.items() if "%" in name]
                value = 100 * cudnn / whole
                yield Claim("README.md", f"family {row['family']}, share", share.removesuffix(" %"), value)
    headline = re.search(r"\*\*([\d.]+) ms\*\* with the naive kernel", text)
    if headline:
        points = of_rung(raw, files_of_study, "direct")
        naive = sum(shortest(points, layer) for layer in range(1, 6))
        yield Claim("README.md", "headline: naive kernel", headline[1], naive)


def of_rung(raw: Raw, files: Iterable[str], rung: str) -> list[Point]:
    """A rung's points in the file, the first of equals, that has most layers at N=128."""
    held = [[point for point in raw[file] if point["point"]["rung"] == rung] for file in files]
    return max(held, key=lambda points: sum(bool(at(points, layer, 128)) for layer in range(1, 6)))


def shortest(points: list[Point], layer: int) -> float:
    """The shortest kernel time of a layer at N=128, each rung in the mapping that the study chose."""
    return min(ms(point, "kernel") for point in at(points, layer, 128) if point is usual(points, **axes_of(point)))


def axes_of(point: Point) -> dict[str, object]:
    return {name: point["point"][name] for name in ("workload", "layer", "N", "rung", "transfer")}


# Profiles and accuracy


def lines_of(path: Path, kind: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in contents(path).splitlines()]
    return [line for line in found if line["type"] == kind]


def profile_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """docs/profile.md: the host's counts next to Nsight Compute's."""
    files = {"ncu": ROOT / "results" / "h200-profile.jsonl", "host": ROOT / "results" / "host" / "profile.jsonl"}
    found = {
        (source, line["point"]["rung"], line["entry"]): line["metrics"]
        for source, path in files.items()
        for line in lines_of(path, "profile")
    }
    page = (root / "docs" / "profile.md").read_text()
    for metric, text in re.findall(r"^\*\*([\w ]+ per request)\*\*\n\n((?:\|.*\n)+)", page, re.MULTILINE):
        name = metric.lower().replace(" ", "_")
        for row in (row for table in markdown_tables(text) for row in table):
            rung, _, entry = row["rung: kernel"].partition(": ")
            host, ncu = (found.get((source, rung, entry), {}).get(name) for source in ("host", "ncu"))
            values = {"host": host, "Nsight Compute": ncu, "ratio": host / ncu if host and ncu else None}
            for column, value in values.items():
                if row[column] != "-":
                    where = f"profile: {rung} {entry} {metric}, {column}"
                    yield Claim("docs/profile.md", where, row[column], float(value))


def accuracy_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """docs/accuracy.md: accuracy and largest change of a score, by precision."""
    made = lines_of(ROOT / "results" / "h200-accuracy.jsonl", "accuracy")
    made = [line for line in made if line["status"] == "ok"]
    for table in markdown_tables((root / "docs" / "accuracy.md").read_text()):
        for row in table if "promise" in table[0] else ():
            *_, told = row.values()
            of_class = [line for line in made if line["precision"] == row["precision"]]
            accuracies = {line["accuracy" if of_class else "reference_accuracy"] for line in of_class or made}
            assert len(accuracies) == 1
            assert ("no prediction changed" in told) == bool(of_class)
            assert not any(line["changed_predictions"] for line in of_class)
            where = f"accuracy: {row['precision']}"
            yield Claim("docs/accuracy.md", where, re.findall(r"accuracy ([\d.]+\d)", told)[0], accuracies.pop())
            for printed in re.findall(r"within ([\d.e-]+)", told):
                value = max(line["score_change"] for line in of_class)
                yield Claim("docs/accuracy.md", f"{where}, scores", printed, value)


def command_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """docs/commands.md: the wall time of the main job, and its points."""
    path = ROOT / "results" / "h200-main-job.jsonl"
    found = re.search(
        r"took \*\*([\d.]+) s\*\*.*?: (\d+) points \((\d+) ok, (\d+)", (root / "docs/commands.md").read_text()
    )
    assert found
    points, (end,) = points_of(path), [line for line in lines_of(path, "end") if line["kept"] == 0]
    ended = [sum(point["status"] == status for point in points) for status in ("ok", "skipped")]
    for printed, value in zip(found.groups(), (end["seconds"], len(points), *ended), strict=True):
        yield Claim("docs/commands.md", "main job", printed, float(value))


def claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """Every number that this file knows how to recompute."""
    pages = (frontier_claims, readme_claims, family_claims, profile_claims, accuracy_claims, command_claims)
    for found in (
        overview_claims,
        study_claims,
        mapping_claims,
        lenet_claims,
        winner_claims,
        predicted_claims,
        page_claims,
        *pages,
    ):
        yield from found(root, raw)


def agrees(claim: Claim) -> bool:
    """Whether a number is the value to the digits that are printed."""
    text = re.sub(r"[^\d.e+-]", "", claim.printed)
    digits, _, exponent = text.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))
    room = CSV_DIGITS * abs(claim.value) if claim.exact else 0.501 * unit
    return abs(float(text) - claim.value) <= room


def wrong(root: Path, raw: Raw) -> Iterator[Claim]:
    return (claim for claim in claims(root, raw) if not agrees(claim))


# Tests


def test_at_least_300_printed_numbers_follow_from_the_raw_samples(root: Path, raw: Raw) -> None:
    found = list(claims(root, raw))
    bad = [f"{claim.where}: {claim.printed}, not {claim.value:.6g}" for claim in found if not agrees(claim)]
    counts = {name: sum(claim.document == name for claim in found) for name in LEAST}
    print(f"{len(found)} numbers recomputed from raw samples: {counts}")
    assert not bad, "\n".join(bad[:20])
    assert all(counts[name] >= least for name, least in LEAST.items()), counts


def longer(point: Point, figure: str) -> None:
    point["samples"][figure] = [1.02 * sample for sample in point["samples"][figure]]


CHANGES: dict[str, tuple[str, dict[str, object], Callable[[Point], None], str]] = {
    "kernel": ("h200-alexnet", {"rung": "direct", "N": 32}, lambda point: longer(point, "kernel"), "table-4"),
    "a copy": ("h200-alexnet", {"rung": "direct-half", "N": 1}, lambda point: longer(point, "h2d"), "table-3"),
    "total": ("h200-alexnet-um", {"rung": "direct", "N": 128}, lambda point: longer(point, "total"), "table-5"),
    "CPU": (
        "h200-alexnet",
        {},
        lambda point: point["cpu"].update(serial_ms=1.02 * point["cpu"]["serial_ms"]),
        "table-7",
    ),
    "scaling": ("h200-alexnet-scaling", {"N": 2048}, lambda point: longer(point, "kernel"), "table-10"),
    "LeNet": ("h200-lenet-2018", {"N": 100}, lambda point: longer(point, "kernel"), "ece408-2018-op-times"),
    "frontier": (FRONTIER, {"rung": "wgmma-winograd"}, lambda point: longer(point, "kernel"), "torch-nchw-fp32"),
    "cuDNN": (FRONTIER, {"rung": "torch-nhwc-fp16"}, lambda point: longer(point, "kernel"), "fp16: "),
    "error": (
        FRONTIER,
        {"rung": "wgmma-scaled"},
        lambda point: point["error"].update(scaled=9e-5),
        "ladder: `wgmma-scaled`",
    ),
}


@pytest.mark.parametrize(("file", "axes", "change", "where"), CHANGES.values(), ids=CHANGES)
def test_a_changed_record_is_noticed(
    root: Path, raw: Raw, file: str, axes: dict[str, object], change: Callable[[Point], None], where: str
) -> None:
    changed = raw | {file: copy.deepcopy(raw[file])}
    touched = [point for point in changed[file] if axes.items() <= point["point"].items() and point["status"] == "ok"]
    for point in touched:
        change(point)
    assert touched
    assert any(claim.where.startswith(where) for claim in wrong(root, changed))


def test_a_changed_digit_is_noticed(root: Path, raw: Raw, tmp_path: Path) -> None:
    pages = ("frontier", "profile", "accuracy", "commands", "report/report")
    for name in ("README.md", *(f"docs/{page}.md" for page in pages)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    shutil.copytree(root / "site" / "tables", tmp_path / "site" / "tables")
    shutil.copy(root / "site" / "rung-wgmma-half.html", tmp_path / "site")
    found = list(claims(tmp_path, raw))
    assert all(map(agrees, found))
    files = {"pages": "site/rung-wgmma-half.html"}
    for document in ("docs/frontier.md", "docs/profile.md", "docs/accuracy.md", "docs/commands.md", "pages"):
        page = tmp_path / files.get(document, document)
        text = page.read_text()
        printed = max((claim.printed for claim in found if claim.document == document), key=len)
        assert printed in text
        page.write_text(text.replace(printed, with_another_digit(printed)))
        assert {claim.document for claim in wrong(tmp_path, raw)} == {document}
        page.write_text(text)


def with_another_digit(printed: str) -> str:
    """The number with the last digit before an exponent two more or less."""
    found = re.search(r"\d(?=e|\D*$)", printed)
    assert found
    digit = int(found[0])
    return f"{printed[: found.start()]}{digit + 2 if digit < 8 else digit - 2}{printed[found.end() :]}"
