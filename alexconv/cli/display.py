"""Progress, the list of rungs, plans and result tables of a run."""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task
from rich.progress import Progress as Bar
from rich.table import Column, Table
from rich.text import Text

from alexconv.cli import matrix
from alexconv.cli.matrix import milliseconds, print_fitted
from alexconv.cli.sharing import SharedFile
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.rung import Rung
from alexconv.measuring.runner import Runner, Skip
from alexconv.messages import plural
from alexconv.planning.planner import MEBIBYTE
from alexconv.planning.points import AnyPoint, LayerSequence, Point
from alexconv.records.labels import changed_in, label_of, rung_label
from alexconv.records.statistics import faster, summarize
from alexconv.records.store import Record, RecordFile, identity
from alexconv.records.summary import Row, rows

PLAIN_WIDTH = 160  # columns
LEAST_WIDTH = 20  # columns
BAR_WIDTH = 20  # columns
TRUSTED = 0.02  # of a job, by which the estimated pace outweighs the first points' own
SECONDS_A_LINE = 10.0  # between lines of progress, without a bar


class Screen(Console):
    """A console that raises BrokenPipeError where its reader has gone."""

    def on_broken_pipe(self) -> None:
        """Lets the error through, for ``exits_cleanly``."""
        raise


def console(*, stderr: bool = False) -> Console:
    """A console as wide as a positive COLUMNS or the terminal, else wide enough that lines stay whole.

    Brackets and colons are text to it: compilers' messages and names of files have them.
    """
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    if "COLUMNS" in os.environ:
        width = max(get_terminal_size((PLAIN_WIDTH, 0)).columns, LEAST_WIDTH)
    return Screen(stderr=stderr, highlight=False, markup=False, emoji=False, width=width)


def keep_standard_output() -> None:
    """Reserves standard output for Python: what a kernel prints goes to standard error."""
    if sys.stdout is not sys.__stdout__ or sys.stdout is None:
        return  # closed, or already replaced
    with suppress(OSError):  # without a standard error
        own = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = os.fdopen(own, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


class Position(ProgressColumn):
    """Points done, time left and what runs now, in one column, so that only its end is truncated."""

    def render(self, task: Task) -> Text:
        """The text next to the bar."""
        estimate = task.fields["estimate"]
        seconds = estimate() if estimate else task.time_remaining
        left = "" if seconds is None else f"{timedelta(seconds=round(seconds))} left  "
        text = f"{task.completed:.0f}/{task.total or 0:.0f}  {left}{task.description}"
        return Text(text, no_wrap=True, overflow="ellipsis")

    def get_table_column(self) -> Column:
        """The column of the live line."""
        return Column(no_wrap=True, overflow="ellipsis")


class Progress:
    """One live line with the time left on a terminal; elsewhere a plain line every few seconds.  On standard error.

    On a terminal that moves no cursor (``TERM=dumb``) there are plain lines, too.
    A failed point gets its own line; with ``verbose``, every point does.  With ``costs``, estimated seconds of each
    point in their order, the time left follows from the costs of what is done and of what is not.
    """

    def __init__(self, total: int, *, verbose: bool = False, costs: Sequence[float] = ()) -> None:
        self.console = console(stderr=True)
        columns = (BarColumn(BAR_WIDTH, table_column=Column(min_width=BAR_WIDTH)), Position())
        drawn = self.console.is_terminal and not self.console.is_dumb_terminal
        self._bar = Bar(*columns, console=self.console, transient=True, disable=not drawn)
        self._costs, self._begun = list(costs), monotonic()
        self._task = self._bar.add_task("", total=total, estimate=self._seconds_left if costs else None)
        self.done = 0
        self._total, self._verbose = total, verbose
        self._first: float | None = None  # end of the first point: compiling came before
        self._last_line_at = monotonic()

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def expect(self, total: int) -> None:
        """Sets the number of points once it is known."""
        self._total = total
        self._bar.update(self._task, total=total)

    def stop(self) -> None:
        """Removes the bar; ``say`` still works."""
        self._bar.stop()

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self.console.print(line, soft_wrap=True)

    def start(self, activity: str) -> None:
        """Shows what runs now."""
        self._bar.update(self._task, description=activity)
        if self._bar.disable and not self._verbose and monotonic() - self._last_line_at >= SECONDS_A_LINE:
            self._last_line_at = monotonic()
            self.say(f"[{self.done}/{self._total}] {activity}{self._time_left()}")

    def _time_left(self) -> str:
        left = self._seconds_left()
        return "" if left is None else f" (about {left:.0f} s left)"

    def _seconds_left(self) -> float | None:
        if any(self._costs):  # else all are skipped
            done, left = sum(self._costs[: self.done]), sum(self._costs[self.done :])
            spent = monotonic() - self._begun
            # The estimate is one observation of the pace, as heavy as TRUSTED of the job.
            trusted = TRUSTED * (done + left)
            return left * (spent + trusted) / (done + trusted)
        if self.done < 2 or self._first is None:
            return None
        return (monotonic() - self._first) / (self.done - 1) * (self._total - self.done)

    def reach(self, done: int) -> None:
        """Shows that ``done`` points are done."""
        self.done, self._first = done, self._first or monotonic()
        self._bar.update(self._task, completed=done)

    def finish(self, record: Record) -> None:
        """Counts a finished point, and prints its outcome if it failed."""
        self.reach(self.done + 1)
        if self._verbose or record["status"] not in ("ok", "skipped"):
            label = label_of(record["point"], changed_in(record))
            self.say(f"[{self.done}/{self._total}] {label}: {outcome(record)}")


def outcome(record: Record) -> str:
    """Status of a record with its main figures."""
    if record["status"] != "ok":
        return f"{record['status']}: {record['reason']}"
    samples = record["samples"]
    times = [f"{name} {summarize(samples[name]).median:.3f} ms" for name in ("kernel", "total") if samples.get(name)]
    error = f"error {record['error']['scaled']:.1e} (tolerance {record['error']['tolerance']:.1e})"
    return ", ".join(["ok", *times, error])


def listing(
    console: Console, listed: Iterable[Rung], capability: tuple[int, int] | None = None, *, as_json: bool = False
) -> None:
    """Prints rungs by family or, with ``as_json``, as a JSON array on standard output.

    With a compute capability, also why a GPU of it cannot run a rung.
    """
    unsuited = {rung.name: rung.unsuited(capability) if capability else None for rung in listed}
    if as_json:
        fields = ("name", "alias", "family", "direction", "parent", "precision", "idea", "file", "gpu_only")
        rungs = [{name: getattr(rung, name) for name in fields} for rung in listed]
        for entry, rung in zip(rungs, listed, strict=True):
            entry["constants"] = [constant.name for constant in rung.constants]
            if capability:
                entry["unsuited"] = unsuited[rung.name]
        json.dump(rungs, sys.stdout, indent=1)
        print()
        return
    for family, rungs_of_family in groupby(listed, lambda rung: rung.family):
        console.print(Text(family, "bold cyan"))
        for rung in rungs_of_family:
            constants = ", ".join(constant.name for constant in rung.constants)
            text = f"{rung.name} ({rung.alias}, {rung.precision}): {rung.idea}" + (
                f"; {constants}" if constants else ""
            )
            text += f"; {reason}" if (reason := unsuited[rung.name]) else ""
            for line in wrap(
                text, console.width - 1, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False
            ):
                console.print(line, soft_wrap=True)
    console.print("Each: name (alias, precision class): idea; constants for --set.", soft_wrap=True)


def plan_table(console: Console, runner: Runner, points: Sequence[Point]) -> None:
    """The plan of a run as a table: pieces, device memory, and the launches of the largest piece."""
    table = Table("layer", "N", "rung", "transfer", "pieces", "MiB", "launches")
    for point in points:
        name = rung_label(point.entry, point.constants, point.conv)
        try:
            plan = runner.plan(point)
        except Skip as reason:
            table.add_row(str(point.layer), str(point.N), name, point.transfer, "", "", f"skipped: {reason}")
            continue
        launches = plan.bound.launches(plan.images_per_piece)
        shown = "; ".join(f"{launch.entry} {times(launch.grid)} of {times(launch.block)}" for launch in launches)
        size = f"{plan.device_bytes / MEBIBYTE:.1f}"
        table.add_row(str(point.layer), str(point.N), name, point.transfer, str(len(plan.pieces)), size, shown)
    print_fitted(console, table)


def times(dims: Iterable[int]) -> str:
    """``(4, 96, 1)`` as ``4x96x1``."""
    return "x".join(map(str, dims))


def counted(records: Iterable[Record]) -> str:
    """The number of records of each status, in words."""
    counts = Counter(record["status"] for record in records)
    return ", ".join(f"{n} {status}" for status, n in counts.items()) or "nothing to do"


def next_steps(out: Path, *, ran: bool, measures: bool, verbose: bool) -> Iterator[str]:
    """What the results show, and how to make a report from them; ``ran``: not all points were skipped."""
    if not measures:
        if ran:
            yield "Outputs were verified on the CPU by the host executor: there are no GPU times."
        yield "GPU times: run the same command on a machine with an NVIDIA GPU, its driver and nvcc."
    yield f"Report: python -m alexconv.reports {out} -o {out.parent / 'report'}"
    if not verbose:
        yield "One row per point: --verbose"


def nothing_ran(records: Sequence[Record], *, measures: bool) -> Iterator[str]:
    """Why every point was skipped, and what would help; nothing if one was not."""
    if records and all(record["status"] == "skipped" for record in records):
        reasons = "; ".join(dict.fromkeys(str(record["reason"]) for record in records))
        on_cpu = "; what needs another GPU is verified on the CPU: --backend host" if measures else ""
        yield f"Nothing ran: {reasons}; other rungs: alexconv run --list{on_cpu}"


@dataclass(frozen=True)
class Conclusion:
    """The end of a run: its tables, what to do next, and its exit status.

    ``previous`` are records that the file had; ``measures``: the executor has times.
    """

    say: Console
    options: argparse.Namespace
    ladder: Ladder
    points: Sequence[AnyPoint]
    previous: Mapping[str, Record]
    measures: bool

    def show(self, done: Sequence[Record]) -> int:
        """Shows the results of the points so far, ``previous`` ones and ``done`` now; returns the exit status."""
        say, options = self.say, self.options
        by_name = {**self.previous, **{identity(record["point"]): record for record in done}}
        named = [(point, identity(point.axes())) for point in self.points]
        shown = [(point, by_name[name]) for point, name in named if name in by_name]
        records = [record for point, record in shown if not isinstance(point, LayerSequence)]
        (result_tables if options.verbose else matrix.show)(say, records, self.ladder)
        for point, record in shown:
            if isinstance(point, LayerSequence):
                say.print(f"{point.label()}: {outcome(record)}", soft_wrap=True)
        for line in nothing_ran(records, measures=self.measures):
            say.print(line, soft_wrap=True)
        ran = any(record["status"] != "skipped" for _, record in shown)
        for line in next_steps(options.out, ran=ran, measures=self.measures, verbose=options.verbose):
            say.print(line, soft_wrap=True)
        say.print(f"{plural(len(done), 'point')}: {counted(done)}")
        say.print(f"records: {options.out}", soft_wrap=True)
        if options.json:
            sys.stdout.writelines(json.dumps(record) + "\n" for record in done)
        statuses = {record["status"] for _, record in shown}
        return 0 if len(shown) == len(self.points) and statuses <= {"ok", "skipped"} else 1


def say_tuned(say: Console, known: int | None, points: int) -> None:
    """Says how many points have tuned constants, if asked for."""
    if known is not None:
        say.print(f"{known} of {points} points have constants from alexconv.tune, the others their defaults")


def say_unreadable(say: Console, file: RecordFile) -> None:
    """Says how many lines of a record file are unreadable, if any."""
    if lines := file.previous.unreadable:
        say.print(f"{file.path}: {len(lines)} unreadable line(s), left as they are", soft_wrap=True)


def say_shared(say: Console, shared: SharedFile) -> None:
    """Names the file to send, and what is not in it."""
    left_out = f"; left out, since they are not this project's: {', '.join(shared.left_out)}" if shared.left_out else ""
    text = f"to send: {shared.path}, {plural(shared.points, 'point')}{left_out}. How: docs/send-your-card.md"
    say.print(text, soft_wrap=True)


def result_tables(console: Console, records: Sequence[Record], ladder: Ladder) -> None:
    """One table per workload and batch size: a row per point, and the sums over layers."""
    table_rows, timed = rows(records, ladder), any(record.get("samples") for record in records)
    for workload, N in dict.fromkeys((row.workload, row.N) for row in table_rows):
        chosen = [row for row in table_rows if (row.workload, row.N) == (workload, N)]
        console.print(result_table(f"{workload}, N={N}", chosen, timed=timed))
    errors = "max error: over the norms of patch and filter; of sums: over the sum of |x| |w|"
    if timed:
        console.print(f"kernel, copies, total: medians, ms per batch; than CPU: total against serial C++; {errors}")
    else:
        console.print(errors)


def result_table(title: str, table_rows: Sequence[Row], *, timed: bool) -> Table:
    """Rows as a table; without times where a CPU ran the kernels."""
    figures = ("kernel", "copies", "total", "than CPU") if timed else ()
    table = Table("rung", "transfer", "layer", *figures, "max error", "of sums", "tolerance", "status", title=title)
    for row in table_rows:
        speedup = row.speedup("total")
        cells: list[Any] = [
            milliseconds(row.kernel),
            milliseconds(row.copies),
            milliseconds(row.total),
            faster(speedup) if speedup else "-",
        ]
        table.add_row(
            row.rung,
            row.transfer,
            "all" if row.layer is None else str(row.layer),
            *(cells if timed else []),
            "-" if row.error is None else f"{row.error:.1e}",
            "-" if row.componentwise is None else f"{row.componentwise:.1e}",
            "-" if row.tolerance is None else f"{row.tolerance:.1e}",
            row.status if row.reason is None else f"{row.status}: {row.reason}",
            end_section=row.layer is None,
        )
    return table
