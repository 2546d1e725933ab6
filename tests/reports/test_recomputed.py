"""Numbers of README, docs and report, recomputed from the raw samples by code that shares nothing with the report's.

Runs are taken from what a page says of its table ("Run: ...", the column "run"), never from the report's own choice.
How a page is made of such numbers is tested elsewhere, on made-up records.
"""

import copy
import csv
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from alexconv.kernels.ladder import RUNGS
from alexconv.records.compressed import contents, files_in
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).parent.parent.parent
FILES = {
    f"{folder}{path.name.partition('.')[0]}": path
    for folder in ("", "peers/")
    for path in files_in(ROOT / "results" / folder)
}
FRONTIER = "h200-frontier"
CSV_DIGITS = 1e-5  # six significant digits
LEAST = {"README.md": 30, "docs/frontier.md": 100, "docs/report": 3000}

Point = dict[str, Any]


class Raw(dict[str, list[Point]]):
    """Each file's points by its name without suffix, the last of each, once they are asked for."""

    def __missing__(self, name: str) -> list[Point]:
        lines = [json.loads(line) for line in contents(FILES[name]).splitlines()]
        points = {json.dumps(line["point"]): line for line in lines if line["type"] == "point"}
        self[name] = list(points.values())
        return self[name]


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
    return Raw()


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
    matches = [record for record in points if all(record["point"][name] == value for name, value in axes.items())]
    return matches[0] if len(matches) == 1 and matches[0]["status"] == "ok" else None


def cpu(points: list[Point], workload: str, layer: int, N: int, base: str = "serial") -> float | None:
    for record in points:
        point, ms = record["point"], (record.get("cpu") or {}).get(f"{base}_ms")
        if (point["workload"], point["layer"]) == (workload, layer) and ms:
            return float(ms / point["N"] * N)
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
    """The runs of the table or figure whose title begins like this."""
    lines = [line for page in (root / "docs" / "report").glob("*.md") for line in page.read_text().splitlines()]
    return next(line for line in lines if re.search(rf"(?:Of:|;) {re.escape(title)}\b", line))


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
    for column, name in (("than serial CPU", "serial"), ("than BLAS", "blas")):
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
    matches = [record for record in points if all(record["point"][name] == value for name, value in axes.items())]
    if len(matches) > 1:
        chosen = {"channels-filter-shared": 0}.get(str(axes["rung"]), 1)
        matches = [record for record in matches if record["point"]["constants"].get("COALESCED") == chosen]
    return matches[0] if len(matches) == 1 and matches[0]["status"] == "ok" else None


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
    return [record for record in points if axes.items() <= record["point"].items() and ok(record, "kernel")]


def fastest(points: list[Point], layer: int, N: int, keeps: Callable[[Point], bool]) -> Point:
    return min(filter(keeps, at(points, layer, N)), key=lambda point: ms(point, "kernel"))


def peer_at(points: list[Point], layer: int, N: int, name: str) -> Point:
    return fastest(points, layer, N, lambda point: bool(point["point"]["rung"] == name))


def class_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """The classes against cuDNN in docs/frontier.md."""
    for table in markdown_tables((root / "docs" / "frontier.md").read_text()):
        peer = next((name.removeprefix("than ") for name in table[0] if name.startswith("than torch-")), "")
        if peer and "ms, cold" in table[0]:
            yield from claims_of_class(table, raw[FRONTIER], peer)


def claims_of_class(table: list[dict[str, str]], points: list[Point], peer: str) -> Iterator[Claim]:
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
            "largest error": max(own[layer]["error"]["scaled"] for layer in layers),
            f"{peer}'s": max(theirs[peer][layer]["error"]["scaled"] for layer in layers),
        }
        values |= {f"{name}, ms": sum(ms(theirs[name][layer], "kernel") for layer in layers) for name in peers}
        for column, value in values.items():
            yield Claim("docs/frontier.md", f"{peer}, layer {row['layer']}: {column}", row[column], value)
        ratio = sum(ms(theirs[peer][layer], "kernel") for layer in layers) / hot
        where = f"{peer}, layer {row['layer']}: times faster"
        yield Claim("docs/frontier.md", where, *as_printed(row[f"than {peer}"], ratio))


def readme_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """The classes against cuDNN, each layer in its faster layout, in the README's headline and notes."""
    text = (root / "README.md").read_text()
    points = raw[FRONTIER]
    table = next(table for table in markdown_tables(text) if "cuDNN, ms" in table[0])
    parts = {"five layers": range(1, 6), "layer 1": (1,), "layers 2 to 5": range(2, 6)}
    for row in table:
        name = row["class"].strip("*")
        keeps = contract_of(f"torch-{'nhwc' if name == 'fp16' else 'nchw'}-{name}")
        own = {layer: fastest(points, layer, 128, keeps) for layer in range(1, 6)}
        theirs = {layer: at_best(points, layer, name) for layer in range(1, 6)}
        yield Claim("README.md", f"{name}: ours, ms", row["ours, ms"], kernels(own.values()))
        yield Claim("README.md", f"{name}: cuDNN, ms", row["cuDNN, ms"], kernels(theirs.values()))
        for column, layers in parts.items():
            ratio = kernels(theirs[layer] for layer in layers) / kernels(own[layer] for layer in layers)
            yield Claim("README.md", f"{name}: {column}", *as_printed(row[column], ratio))
        sentence = re.search(rf"\*\*{name}\*\*: .*largest error ([\d.e-]+), cuDNN's ([\d.e-]+)\.", text)
        assert sentence
        for printed, records in zip(sentence.groups(), (own, theirs), strict=True):
            error = max(record["error"]["scaled"] for record in records.values())
            yield Claim("README.md", f"{name}: error", printed, error)
        yield from loaded_claims(text, raw, name, keeps, {n: record["point"]["rung"] for n, record in theirs.items()})
    yield from notes_claims(text, raw)


def loaded_claims(
    text: str, raw: Raw, name: str, keeps: Callable[[Point], bool], peers: dict[int, str]
) -> Iterator[Claim]:
    """Ratios without rests, and with preparation; of a class whose peers the file lacks there must be none."""
    points = raw["h200-frontier-sustained"]
    ways = {
        "Back to back, without rests": ("kernel_sustained",),
        "Filters prepared in each call": ("kernel", "prepare"),
    }
    for way, figures in ways.items():
        sentence = re.search(rf"\*\*{way}\*\*[^:]*:.*?\b{name} ([\d.]+× \w+|not measured)", text)
        assert sentence, f"{way}, {name}"
        both = [
            (fastest(points, n, 128, keeps), [record for record in at(points, n, 128) if named(record, peers[n])])
            for n in peers
        ]
        assert all(peer for _, peer in both) == ("not measured" not in sentence[1])
        if all(peer for _, peer in both):
            ours = sum(ms(own, figure) for own, _ in both for figure in figures)
            ratio = sum(ms(peer[0], figures[0]) for _, peer in both) / ours
            yield Claim("README.md", f"{way}, {name}", *as_printed(sentence[1], ratio))


def notes_claims(text: str, raw: Raw) -> Iterator[Claim]:
    """Where cuDNN is faster, engines of the same bound, CUDA cores alone, clocks."""
    points, layers, rest = raw[FRONTIER], range(1, 6), range(2, 6)
    cudnn = {layer: at_best(points, layer, "fp32") for layer in layers}
    sentence = re.search(r"layer 2 in fp32, ours ([^ ]+ slower) than an FFT .* the two, is ([^ ]+ faster)", text)
    assert sentence and any("fft2d" in name for name in cudnn[2]["peer"]["kernels"])
    for printed, tile in zip(sentence.groups(), (False, True), strict=True):
        own = fastest(points, 2, 128, contract_of("torch-nchw-fp32", tile=tile))
        yield Claim(
            "README.md", f"layer 2, tile: {tile}", *as_printed(printed, ms(cudnn[2], "kernel") / ms(own, "kernel"))
        )
    sentence = re.search(r"\*\*Engines that keep the same bound\*\*.*: (.*? faster)", text)
    plans = raw["peers/h200"]
    strict = kernels(peer_at(plans, layer, 128, "cudnn-nchw-fp32-strict") for layer in layers)
    ours = kernels(fastest(plans, layer, 128, contract_of("torch-nchw-fp32")) for layer in layers)
    assert sentence
    yield Claim("README.md", "engines of the same bound", *as_printed(sentence[1], strict / ours))
    sentence = re.search(r"\*\*CUDA cores alone\*\*, fp32: (.*) than cuDNN, (.*) than cuBLAS", text)
    floats = {layer: fastest(points, layer, 128, on_cuda_cores) for layer in layers}
    gemm = kernels(peer_at(points, layer, 128, "torch-gemm-fp32") for layer in rest)
    ratios = kernels(cudnn.values()) / kernels(floats.values()), gemm / kernels(floats[layer] for layer in rest)
    assert sentence
    for printed, ratio in zip(sentence.groups(), ratios, strict=True):
        yield Claim("README.md", "CUDA cores alone", *as_printed(printed, ratio))


def named(point: Point, name: str) -> bool:
    return bool(point["point"]["rung"] == name)


def on_cuda_cores(point: Point) -> bool:
    rung = RUNGS.get(point["point"]["rung"])
    return bool(rung and not rung.tensor_factors) and contract_of("torch-nchw-fp32")(point)


def at_best(points: list[Point], layer: int, precision: str) -> Point:
    """cuDNN's point in its faster layout."""
    return min(
        (peer_at(points, layer, 128, f"torch-{layout}-{precision}") for layout in ("nchw", "nhwc")),
        key=lambda point: ms(point, "kernel"),
    )


def kernels(points: Iterable[Point]) -> float:
    return sum(ms(point, "kernel") for point in points)


def as_printed(text: str, ratio: float) -> tuple[str, float]:
    """A number of "2× faster" or "2× slower", and the ratio as it stands there."""
    number, word = text.strip("*").split("× ")
    return number, ratio if word == "faster" else 1 / ratio


def family_claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """The families: the fastest rung of each layer, in the one run or in those that the note names."""
    text = (root / "docs" / "frontier.md").read_text()
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
                yield Claim("docs/frontier.md", f"family {row['family']}", row["ms"], whole)
                where = f"family {row['family']}, beside cuDNN"
                yield Claim("docs/frontier.md", where, *as_printed(row["than cuDNN"], cudnn / whole))
                drawn = re.search(rf"alt=\".*\b{row['family']} ([\d.]+)", (root / "README.md").read_text())
                assert drawn
                yield Claim("README.md", f"figure: {row['family']}", drawn[1], whole)
    headline = re.search(r"the naive kernel takes ([\d.]+) ms", (root / "README.md").read_text())
    assert headline
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


def claims(root: Path, raw: Raw) -> Iterator[Claim]:
    """Every number that this file knows how to recompute."""
    for claims_of in (overview_claims, study_claims, class_claims, readme_claims, family_claims):
        yield from claims_of(root, raw)


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
    all_claims = list(claims(root, raw))
    bad = [f"{claim.where}: {claim.printed}, not {claim.value:.6g}" for claim in all_claims if not agrees(claim)]
    counts = {name: sum(claim.document == name for claim in all_claims) for name in LEAST}
    print(f"{len(all_claims)} numbers recomputed from raw samples: {counts}")
    assert not bad, "\n".join(bad[:20])
    assert all(counts[name] >= least for name, least in LEAST.items()), counts


def longer(point: Point, figure: str) -> None:
    point["samples"][figure] = [1.02 * sample for sample in point["samples"][figure]]


CHANGES: dict[str, tuple[str, dict[str, object], Callable[[Point], None], str]] = {
    "kernel": ("h200-alexnet", {"rung": "direct", "N": 32}, lambda point: longer(point, "kernel"), "table-4"),
    "a copy": ("h200-alexnet", {"rung": "direct-half", "N": 1}, lambda point: longer(point, "h2d"), "table-3"),
    "total": ("h200-alexnet-um", {"rung": "direct", "N": 128}, lambda point: longer(point, "total"), "table-5"),
    "scaling": ("h200-alexnet-scaling", {"N": 2048}, lambda point: longer(point, "kernel"), "table-10"),
    "cuDNN": (FRONTIER, {"rung": "torch-nhwc-fp16"}, lambda point: longer(point, "kernel"), "fp16: "),
    "error": (
        FRONTIER,
        {"rung": "wgmma-window-half"},
        lambda point: point["error"].update(scaled=9e-4),
        "torch-nhwc-fp16",
    ),
}


@pytest.mark.parametrize(("file", "axes", "change", "where"), CHANGES.values(), ids=CHANGES)
def test_a_changed_record_is_noticed(
    root: Path, raw: Raw, file: str, axes: dict[str, object], change: Callable[[Point], None], where: str
) -> None:
    changed = Raw(raw | {file: copy.deepcopy(raw[file])})
    touched = [point for point in changed[file] if axes.items() <= point["point"].items() and point["status"] == "ok"]
    for point in touched:
        change(point)
    assert touched
    assert any(claim.where.startswith(where) for claim in wrong(root, changed))


def test_a_changed_digit_is_noticed(root: Path, raw: Raw, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "report", tmp_path / "docs" / "report")
    for name in ("README.md", "docs/frontier.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    shutil.copytree(root / "site" / "tables", tmp_path / "site" / "tables")
    page = tmp_path / "docs" / "frontier.md"
    text = page.read_text()
    printed = max((claim.printed for claim in class_claims(tmp_path, raw)), key=len)
    assert printed in text
    page.write_text(text.replace(printed, with_another_digit(printed)))
    assert {claim.document for claim in wrong(tmp_path, raw)} == {"docs/frontier.md"}


def with_another_digit(printed: str) -> str:
    """The number with the last digit before an exponent two more or less."""
    digit_place = re.search(r"\d(?=e|\D*$)", printed)
    assert digit_place
    digit = int(digit_place[0])
    return f"{printed[: digit_place.start()]}{digit + 2 if digit < 8 else digit - 2}{printed[digit_place.end() :]}"
