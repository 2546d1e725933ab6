"""Writes every page of a checkout that shows results, from its record files: README, docs, the report and the book.

python -m alexconv.reports.build [--check | --site FOLDER]
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path

from alexconv.cli import recorded_times
from alexconv.errors import UsageError
from alexconv.options import exits_cleanly
from alexconv.predict import page as prediction
from alexconv.records.compressed import files_in
from alexconv.records.profiles import comparison
from alexconv.records.store import read, reading_once
from alexconv.reports import (
    board,
    book,
    card_matrix,
    cards,
    choices,
    commands,
    course,
    dynamic,
    families,
    frontier,
    gradients,
    hazards,
    laptop,
    library,
    losses,
    memory_bound,
    networks,
    patched,
    precision,
    readme,
    recording,
    revisions,
    scaling,
    searches,
    shared,
    training,
    trust,
    wholes,
)
from alexconv.reports.elements import Plot, Table
from alexconv.reports.generated import stale, superfluous, updated, write
from alexconv.reports.machine_code import with_machine_code
from alexconv.reports.markdown import in_file, items_of, markdown_pages
from alexconv.reports.page import csv_text, draw_all
from alexconv.reports.page import write as write_site
from alexconv.reports.site import FIGURES, TABLES, Report, report_of

GRADIENTS_MORE = "gradients/others/h200.jsonl"  # other batch sizes and constants
GRADIENTS_CLUSTERS = "gradients/others/h200-clusters.jsonl"  # wgrad with clusters and without
GRADIENTS_AGAIN = "gradients/others/h200-bits.jsonl"  # on another card
GRADIENTS_GROUPED = "gradients/others/h200-dgrad.jsonl"  # dgrad of layers with groups
GRADIENTS_COUNTED = "gradients/others/h200-counters-128.jsonl", "gradients/others/h200-counters-1.jsonl"
CHECKOUT = Path(__file__).resolve().parent.parent
RESULTS, REPORT, BOOK, TERMINAL = (Path(name) for name in ("results", "docs/report", "docs/book", "docs/terminal"))
SOURCES = Path("..", "..", "kernels")  # from the report
MORE = ("predicted/h200.jsonl", "book/h200-profile.jsonl")  # predictions and counters for the report
SCREENS = {"run-gpu": "h200-main-job.jsonl", "run-host": "host/main-job.jsonl"}  # terminals after these runs
RACE = Path("host", "race.cast")  # the recording of a race that is found without a GPU
GPUS = Path("alexconv", "predict", "gpus")
TIMES = Path("alexconv", "cli", recorded_times.FILE.name)

Parts = Mapping[str, str]  # what stands between a page's markers, by their names


def of_files(parts: Callable[[Sequence[Path]], Parts], *patterns: str) -> Callable[[Path], Parts]:
    """The parts that record files give, as a function of their folder; it raises UsageError if a file is missing."""

    def parts_of(results: Path) -> Parts:
        files_of = {pattern: files_in(results, pattern) for pattern in patterns}
        if missing := [pattern for pattern, files in files_of.items() if not files]:
            raise UsageError(f"{results} has no {', '.join(missing)}")
        return parts([file for files in files_of.values() for file in files])

    return parts_of


PAGES: Mapping[str, Callable[[Path], Parts]] = {
    "README.md": lambda results: readme.parts(files_in(results, "*.jsonl"), files_in(results / "peers")),
    "docs/board.md": lambda results: board.parts(files_in(results / "board")),
    "docs/cards.md": lambda results: cards.parts(results) | card_matrix.parts(results),
    "docs/cluster.md": of_files(scaling.parts, "cluster/*.jsonl"),
    "docs/commands.md": of_files(commands.parts, SCREENS["run-gpu"]),
    "docs/course.md": of_files(course.parts, "course/submissions.json", "course/h200-scores.csv"),
    "docs/frontier.md": lambda results: {
        **of_files(lambda files: frontier.parts(files) | families.parts(files), "*.jsonl")(results),
        **of_files(
            lambda files: losses.parts(files[0], files[1:-1], files[-1]),
            *("h200-profile-cudnn.jsonl", "h100/overlapped-*.jsonl", "h200-data.jsonl"),
        )(results),
        **searches.goals_parts(files_in(results / "peers")),
        **of_files(revisions.parts, "compare/*.jsonl")(results),
        **of_files(lambda files: losses.scheduled_parts(*files), "h100/stream-k.jsonl")(results),
    },
    "docs/frontier-small-batch.md": lambda results: {
        **of_files(losses.launch_parts, "h100/together-before.jsonl", "h100/together-trial.jsonl")(results),
        "split-k-clusters": gradients.clusters(read(files_in(results, "clusters/*.jsonl")).latest()),
    },
    "docs/gradients.md": lambda results: {
        **gradients.parts(
            files_in(results, "gradients/*.jsonl"),
            files_in(results, "h200-main-job.jsonl"),
            [results / GRADIENTS_MORE],
            [results / GRADIENTS_CLUSTERS],
            [results / GRADIENTS_AGAIN],
            [results / GRADIENTS_GROUPED],
            [results / name for name in GRADIENTS_COUNTED],
        ),
        **training.parts(files_in(results, "training/*.jsonl")),
    },
    "docs/hazards.md": of_files(hazards.parts, "hazard-mutants.json", "hazard-sanitizers.json"),
    "docs/laptop.md": of_files(
        laptop.parts, "predicted/*.jsonl", "h*/first-result.jsonl", SCREENS["run-gpu"], SCREENS["run-host"]
    ),
    "docs/library.md": lambda results: {
        **of_files(library.parts, "library/*.jsonl")(results),
        **of_files(choices.parts, "choices/*.jsonl")(results),
        **choices.outside_parts(files_in(results / "outside")),
        **choices.counters_part(files_in(results / "outside/counters")),
        **dynamic.parts(files_in(results, "library/dynamic/*.jsonl")),
    },
    "docs/memory-bound.md": of_files(memory_bound.parts, "memory-bound/*.jsonl"),
    "docs/networks.md": lambda results: {
        **of_files(networks.parts, "networks/*.jsonl")(results),
        **of_files(networks.grouped, "groups/*.jsonl")(results),
        **patched.parts(files_in(results / "patched")),
    },
    "docs/own-kernels.md": of_files(course.wrapped, "course/h200-wrapped.jsonl"),
    "docs/peers.md": lambda results: searches.parts(files_in(results / "peers")),
    "docs/precision.md": of_files(precision.parts, "*.jsonl"),
    "docs/predict.md": prediction.parts,
    "docs/profile.md": of_files(
        lambda files: {"comparison": "\n".join(comparison(*files))}, "h200-profile.jsonl", "host/profile.jsonl"
    ),
    "docs/trust.md": trust.parts,
    "docs/whole-networks.md": lambda results: of_files(
        partial(wholes.parts, rate=memory_bound.copy_rate(read([results / book.CEILINGS]))), book.WHOLE
    )(results),
    "results/shared/README.md": lambda results: shared.parts(files_in(results / "shared")),
}


def published(results: Path) -> Report:
    """The report of a checkout's record files."""
    return with_machine_code(report_of([*files_in(results), *(results / name for name in MORE)]), results)


def texts(report: Report) -> dict[Path, str]:
    """Every generated file of the checkout that is the current folder, except the report's figures."""
    files = {Path(page): updated(Path(page).read_text(), parts(RESULTS)) for page, parts in PAGES.items()}
    files |= readme.drawings(files_in(RESULTS), training.plots(files_in(RESULTS, "training/*.jsonl")))
    files |= {TERMINAL / f"{name}.svg": commands.picture(RESULTS / run) for name, run in SCREENS.items()}
    files[TERMINAL / "race.svg"] = recording.picture(RESULTS / RACE)
    files |= {BOOK / name: text for name, text in book.pages(RESULTS)}
    for name, known in (("h200", prediction.known_pairs), ("h100", prediction.h100_pairs)):
        gpu = GPUS / f"{name}.toml"
        files[gpu] = prediction.with_band(gpu.read_text(), known(RESULTS))
    (main_job,) = files_in(RESULTS, SCREENS["run-gpu"])
    files[TIMES] = recorded_times.text_of(read([main_job]), main_job.as_posix())
    files |= {REPORT / name: text for name, text in markdown_pages(report, SOURCES).items()}
    tables = (item for item in items_of(report) if isinstance(item, Table) and in_file(item))
    return files | {REPORT / TABLES / f"{table.key}.csv": csv_text(table) for table in tables}


def build(*, check: bool) -> list[Path]:
    """Writes all files into the current folder; with ``check`` returns the stale ones instead."""
    report = published(RESULTS)
    files, plots = texts(report), [item for item in items_of(report) if isinstance(item, Plot)]
    figures = {plot: REPORT / FIGURES / f"{plot.key}.svg" for plot in plots}
    every = {*files, *figures.values()}
    extra = [path for folder in (REPORT, BOOK) for path in superfluous(folder, every)]
    if check:
        return [*stale(files), *(path for path in figures.values() if not path.is_file()), *extra]
    write(files)
    (REPORT / FIGURES).mkdir(parents=True, exist_ok=True)
    draw_all(plots, REPORT / FIGURES, png=False)
    for path in extra:
        path.unlink()
    return []


def build_site(folder: Path) -> None:
    """Writes the site into a folder: the book, and the report's pages."""
    pages = dict(book.site(dict(book.pages(RESULTS))))
    write({folder / "book" / name: text for name, text in pages.items()})
    write_site(published(RESULTS), folder)


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the pages or the site; with --check the exit status is 1 if a page is stale."""
    summary = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m alexconv.reports.build", description=summary)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true", help="change nothing; exit status 1 if a page is stale")
    mode.add_argument("--site", type=Path, metavar="FOLDER", help="write the site instead, into this folder")
    options = parser.parse_args(arguments)
    if not (CHECKOUT / RESULTS).is_dir():
        raise UsageError(f"{CHECKOUT} is no checkout: it has no record files")
    site = options.site and options.site.resolve()
    with chdir(CHECKOUT), reading_once():
        if site:
            build_site(site)
            return 0
        old = build(check=options.check)
    if old:
        print(f"stale: {', '.join(map(str, old))}: run make report", file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
