"""The README's tables and figures: made from the record files, between markers, and checked to be up to date.

python -m alexconv.reports.readme results/FILE.jsonl... README.md [--check]
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import matplotlib

from alexconv.cli.options import exits_cleanly
from alexconv.errors import UsageError
from alexconv.records.store import digest, read
from alexconv.reports import charts
from alexconv.reports.alexnet import WORKLOAD, breakdown_plot
from alexconv.reports.comparison import gather
from alexconv.reports.elements import Cell, Plot, shown
from alexconv.reports.frontier import summary_part
from alexconv.reports.generated import check, updated
from alexconv.reports.ladder_sections import steps
from alexconv.reports.measurements import Measurements, measurements
from alexconv.reports.overview import device_line
from alexconv.reports.page import markdown_table
from alexconv.reports.style import RC, settle, svg_text
from alexconv.shapes import WORKLOADS

RESULTS, FIGURES, FRONTIER = "results", "figures", "frontier"  # names of the markers
FOLDER = Path("docs", "figures")  # beside the README


def table(found: Measurements) -> str:
    """Rungs by batch: kernels and total of all five layers in ms, speedup of the total; the largest error."""
    batches = [N for N in WORKLOADS[WORKLOAD].batches if N in found.batches(WORKLOAD)]
    columns = [
        "rung",
        *(f"N={N} {what}" for N in batches for what in ("kernel ms", "total ms", "speedup")),
        "max error",
    ]
    rows: list[tuple[Cell, ...]] = []
    partly: list[str] = []
    for series in (series for series in found.series(WORKLOAD) if series.transfer == found.transfer):
        cells: list[Cell] = []
        for N in batches:
            times = [found.time(WORKLOAD, None, N, series, figure) for figure in ("kernel", "total")]
            speedup = found.speedup(WORKLOAD, None, N, series)
            cells += [
                *(time.median if time else None for time in times),
                f"{shown(speedup.median)}×" if speedup else None,
            ]
        errors = [point.error for point in found.of(WORKLOAD) if point.series == series and point.error is not None]
        if any(cell is not None for cell in cells):
            rows.append((series.rung, *cells, max(errors, default=None)))
        else:
            partly.append(series.rung)
    return "\n".join([*markdown_table(columns, rows), "", caption(found, partly)])


def caption(found: Measurements, partly: Sequence[str]) -> str:
    """Where the figures come from and what the columns mean; ``partly`` are rungs that have not all layers."""
    device, host = found.device, found.of_type("host")
    scaled = any("serial_scaled_from" in (point.record.get("cpu") or {}) for point in found.points)
    absent = f" Of some layers only, and so not here: {', '.join(partly)}." if partly else ""
    return (
        f"All five layers, {found.transfer} memory, {device_line(device)}, driver {device.get('driver', '?')}, CUDA "
        f"{device.get('toolkit', '?')}. Kernel: all kernels of the rung; total: host arrays to host arrays; medians of "
        f"ms per batch. Speedup: serial C++ on one core of {host[0].get('cpu', '?') if host else '?'} over the total"
        f"{', for larger batches scaled up from fewer images' if scaled else ''}. Max error: over the norms of patch "
        "and filter; fp16 rungs round what goes in and comes out, half ones each sum as well. –: not measured."
        f"{absent} The commands are in the record files, and together in `results/measure.sh`."
    )


def plots(found: Measurements) -> list[Plot]:
    """The waterfall and the breakdown of all five layers at the study's largest batch."""
    N = found.main_batch(WORKLOAD)
    fall = steps(found, WORKLOAD, None, N)
    if not fall:
        return []
    draw = partial(charts.waterfall, fall, "kernel time (ms per batch)")
    title = f"Kernel time of each rung beside its parent's, all five layers, N={N}"
    waterfall = Plot("waterfall", title, "", draw)
    return [waterfall, breakdown_plot(found, "breakdown", f"Kernels and copies, all five layers, N={N}", None, N)]


def drawn_from(found: Measurements) -> str:
    """A digest of what the figures show: it does not change with the version of the drawing library."""
    N = found.main_batch(WORKLOAD)
    figures = ("kernel", "h2d", "d2h")
    return digest(
        [
            [series.label, figure, shown(time.median if time else None)]
            for series in found.series(WORKLOAD, N)
            for figure in figures
            for time in [found.time(WORKLOAD, None, N, series, figure)]
        ]
    )


def stale(readme: Path, fresh: str, drawings: Sequence[Plot], mark: str) -> list[Path]:
    """The files that are not what the records say."""
    files = [readme.parent / FOLDER / f"{plot.key}.svg" for plot in drawings]
    old = [file for file in files if not file.is_file() or mark not in file.read_text()]
    return [*([readme] if readme.read_text() != fresh else []), *old]


def write(readme: Path, fresh: str, drawings: Sequence[Plot], mark: str) -> None:
    """Writes the README and its figures."""
    (readme.parent / FOLDER).mkdir(parents=True, exist_ok=True)
    for plot in drawings:
        with matplotlib.rc_context(RC):
            figure = plot.draw()
            settle(figure)
            (readme.parent / FOLDER / f"{plot.key}.svg").write_text(svg_text(figure, plot.key, mark))
    readme.write_text(fresh)


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Writes tables and figures, or with --check says whether they are up to date."""
    description = __doc__.splitlines()[0] if __doc__ else ""
    parser = argparse.ArgumentParser(prog="python -m alexconv.reports.readme", description=description)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="record files")
    parser.add_argument("readme", type=Path, metavar="README")
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 if something is stale")
    options = parser.parse_args(arguments)
    found = measurements(read(options.files))
    drawings, mark = plots(found), drawn_from(found)
    links = "\n\n".join(f"![{plot.title}]({(FOLDER / plot.key).as_posix()}.svg)" for plot in drawings)
    try:
        parts = {RESULTS: table(found), FIGURES: links, FRONTIER: summary_part(gather(options.files))}
        text = updated(options.readme.read_text(), parts)
        old = stale(options.readme, text, drawings, mark)
        if not options.check:
            write(options.readme, text, drawings, mark)
    except OSError as error:
        raise UsageError(f"cannot update {options.readme}: {error.strerror}") from None
    return check(old, "alexconv.reports.readme", options.files, options.readme) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
