"""Made-up record files with everything that a report can show.  Times follow a rule, so that reports can be checked."""

import csv
import shutil
from collections.abc import Iterable
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

from caches import made_once

from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.records.store import RecordFile
from alexconv.reports import book, generated
from alexconv.reports.build import published
from alexconv.reports.markdown import markdown_pages
from alexconv.reports.page import ASSETS, TEMPLATES, csv_text, draw_all, site
from alexconv.reports.page import write as write_report
from alexconv.reports.site import FIGURES, TABLES, Report, report_of
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = 10
GPU = {"backend": "cuda", "name": "NVIDIA Test 9000", "driver": "580.1", "toolkit": "13.0", "clock_khz": 1980000}
HOST = {"cpu": "Test CPU", "cores": 16, "system": "Linux"}
RUN = {"command": "python -m alexconv.run --layers 1-5", "alexconv": "0.1.0", "commit": "abc1234", "dirty": False}


@cache
def published_report() -> Report:
    """The repository's report, made once in each process."""
    return published(ROOT / "results")


@cache
def published_tables() -> dict[str, str]:
    """Its tables with a file, as CSV by their keys."""
    return {table.key: csv_text(table) for table in published_report().tables() if table.csv}


def published_table(key: str) -> list[dict[str, str]]:
    """The rows of one of them."""
    return list(csv.DictReader(StringIO(published_tables()[key])))


def whole_text(report: Report) -> str:
    """Its Markdown pages, one after the other."""
    return "\n".join(markdown_pages(report).values())


def kernel_ms(workload: str, layer: int, N: int, place: int) -> float:
    """Every rung is a tenth faster than the one before it, and the first 0.02 ms of a launch do not depend on N."""
    return 0.02 + WORKLOADS[workload].layer(layer).macs(N) / 1e9 * 0.9**place


def samples(median: float) -> list[float]:
    """Ten values with the given median, within one percent."""
    return [median * (1 + 0.002 * (i - (SAMPLES - 1) / 2)) for i in range(SAMPLES)]


def record(
    workload: str, layer: int, N: int, rung: str, transfer: str = "pageable", precision: str = "fp32", **chosen: int
) -> dict[str, Any]:
    """A finished point without its headers."""
    conv = WORKLOADS[workload].layer(layer)
    names = list(RUNGS)
    place = names.index(rung) if rung in names else len(names)
    constants = RUNGS[rung].resolve(conv, chosen) if rung in RUNGS else {}
    defaults = RUNGS[rung].resolve(conv, {}) if rung in RUNGS else {}
    kernel = kernel_ms(workload, layer, N, place) * 1.25 ** sum(constants[key] != defaults[key] for key in constants)
    copy = conv.macs(N) / 1e9 * (0.1 if transfer == "pinned" else 0.4)
    times = {"kernel": samples(kernel), "total": samples(kernel + 2 * copy)}
    if transfer != "streamed":
        times |= {"h2d": samples(copy), "d2h": samples(copy)}
    axes = {"workload": workload, "layer": layer, "N": N, "rung": rung, "transfer": transfer, "precision": precision}
    launch = {"entry": rung, "grid": [N, conv.M, 1], "block": [28, 28, 1], "registers": 30, "static_shared": 0}
    return {
        "point": {**axes, "constants": constants},
        "key": "k",
        "status": "ok",
        "reason": None,
        "error": {"absolute": 1e-5, "scaled": 1e-7 * (place + 1), "tolerance": 1e-5},
        "pieces": 1,
        "images_per_piece": N,
        "planned_constants": constants,
        "device_bytes": 2**20 * N,
        "launches": [launch | {"dynamic_shared": 0, "local": 0, "occupancy": 0.75}],
        "cpu": {"serial_ms": float(100 * N), "blas_ms": float(N), "serial_scaled_from": 1},
        "samples": times,
        "throttled": False,
    }


def timeline(pieces: int, streams: int) -> list[dict[str, Any]]:
    """Copies and kernels of the pieces in turn."""
    kinds = ("h2d", "kernel", "d2h")
    return [
        {"stream": piece % streams, "piece": piece, "what": what, "start": piece + i, "end": piece + i + 0.9}
        for piece in range(pieces)
        for i, what in enumerate(kinds)
    ]


def study() -> Iterable[dict[str, Any]]:
    """The main job, scaling, both mappings, transfers, peers, a sweep, LeNet layers, and points that went wrong."""
    for layer in range(1, 6):
        for N in (1, 32, 128):
            yield from (record("alexnet", layer, N, rung.name, precision=rung.precision) for rung in LADDER)
        for N in (256, 512, 1024, 2048):
            yield from (record("alexnet", layer, N, name) for name in ("direct-filter-shared", "channels-atomic"))
        for name in ("pinned", "managed", "streamed"):
            for rung in ("direct", "channels-vector"):
                measurement = record("alexnet", layer, 128, rung, name)
                yield measurement | ({"timeline": timeline(8, 4)} if name == "streamed" else {})
        for peer, precision in (("torch-nchw-fp32", "fp32"), ("torch-nhwc-fp16", "fp16")):
            yield record("alexnet", layer, 128, peer, precision=precision)
    for N in (1, 32, 128):
        for rung in LADDER:
            value = 1 - rung.resolve(WORKLOADS["alexnet"].layer(1), {}).get("COALESCED", 1)
            if any(constant.name == "COALESCED" for constant in rung.constants):
                yield record("alexnet", 1, N, rung.name, precision=rung.precision, COALESCED=value)
    for layer in (2, 3):
        for channels in (1, 2, 4, 8):
            for shared in (0, 1):
                yield record("alexnet", layer, 128, "channels-vector", CHANNELS=channels, PLANE_SHARED=shared)
    for name in ("lenet-72-k7", "lenet-70-k5", "lenet-86-k7"):
        for layer, N in ((1, 100), (2, 100), (1, 10000), (2, 10000)):
            yield from (record(name, layer, N, rung.name, precision=rung.precision) for rung in LADDER[:4])
    lost = {"samples": {}, "launches": []}
    yield record("alexnet", 1, 64, "direct") | lost | {"status": "wrong", "reason": "error 3.1 exceeds the tolerance"}
    yield record("alexnet", 2, 64, "direct") | lost | {"status": "skipped", "reason": "needs <999> GiB | no room"}


def write(path: Path, records: Iterable[dict[str, Any]], device: dict[str, Any] = GPU) -> Path:
    """A record file with headers."""
    file = RecordFile(path)
    keys = {kind: file.header(kind, data) for kind, data in (("device", device), ("host", HOST), ("run", RUN))}
    for point in records:
        file.point(point | keys)
    return path


def write_study(path: Path) -> Path:
    """Everything at once, with ceilings and profiles."""
    write(path, study())
    file = RecordFile(path)
    device = next(key for key, header in file.previous.headers.items() if header["type"] == "device")
    flops = {"fp32": 6.0e13, "half": 1.2e14, "fp16": 8.0e14}
    rates = {"copy_bytes_per_s": 4.0e12, "h2d_bytes_per_s": 5.0e10, "d2h_bytes_per_s": 5.0e10}
    file.header("ceilings", {"device": device, "flops": flops, **rates})
    for layer in range(1, 6):
        axes = record("alexnet", layer, 128, "direct")["point"]
        metrics = {"dram__bytes_read.sum": 3.0e9, "dram__bytes_write.sum": 1.0e9, "sm__throughput.pct": 61.5}
        file.header("profile", {"point": axes, "entry": "direct", "source": "ncu", "metrics": metrics})
    return path


def whole_report() -> Path:
    """The folder of a report of everything."""

    def make(folder: Path) -> None:
        write_report(report_of([write_study(folder.with_name("study.jsonl"))]), folder, png=False)

    return made_once("whole-report", make)


def published_site() -> Path:
    """The folder of the repository's site, with the book, next to its docs, examples and kernels.

    Figures are those of docs; those of pages that docs has not are drawn.
    """

    def make(root: Path) -> None:
        folder = root / "site"
        folder.mkdir(parents=True)
        for name in ("README.md", "docs", "examples", "kernels"):
            (root / name).symlink_to(ROOT / name)
        report = published_report()
        pages = dict(book.site(dict(book.pages(ROOT / "results"))))
        generated.write({folder / "book" / name: text for name, text in pages.items()})
        generated.write({folder / TABLES / f"{key}.csv": text for key, text in published_tables().items()})
        shutil.copytree(ROOT / "docs" / "report" / FIGURES, folder / FIGURES)
        missing = [plot for plot in report.plots() if not (folder / FIGURES / f"{plot.key}.svg").exists()]
        draw_all(missing, folder / FIGURES, png=False)
        for name, text in site(report, folder).items():
            (folder / name).write_text(text)
        for name in ASSETS:
            shutil.copy(TEMPLATES / name, folder)

    return made_once("published", make) / "site"
