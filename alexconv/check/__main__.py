"""Checks kernels without a GPU: outputs, addresses, races, async hazards.

alexconv check igemm-async
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from alexconv.check import networks
from alexconv.check.kinds import KINDS, MOST_LINES
from alexconv.cli import display
from alexconv.errors import MissingTool, UsageError
from alexconv.executors.host.runtime import missing_environment
from alexconv.kernels.ladder import Ladder
from alexconv.kernels.rung import Rung
from alexconv.kernels.stages.persistent import NAME as PERSISTENT
from alexconv.machine import cores
from alexconv.options import exits_cleanly, positive, program
from alexconv.own import SIGNATURE
from alexconv.own.folders import KERNEL_OPTION, LADDER_OPTION, Source, add_own, ladder_of
from alexconv.paths import cache_dir
from alexconv.planning.points import choose_rungs

MODULE = "alexconv.check"
SECONDS = 110.0  # for one kind of check of one rung
REPORT_BYTES = 1 << 20  # of a check's messages that are read


@dataclass(frozen=True)
class Verdict:
    """The faults that one kind of check found in a rung; empty if none."""

    rung: str
    kind: str
    problems: tuple[str, ...]


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument(
        "rungs",
        nargs="+",
        metavar="RUNG|FOLDER|FILE",
        help="rungs by name, a folder with a ladder.py, a CUDA file (docs/own-kernels.md), or "
        f"{PERSISTENT}, a whole network's kernel",
    )
    options.add_argument("--kinds", default=",".join(KINDS), help=f"which checks: {', '.join(KINDS)} (default: all)")
    options.add_argument(
        "--seconds", type=positive, default=SECONDS, help=f"time limit of each check (default: {SECONDS:g})"
    )
    options.add_argument("--json", action="store_true", help="verdicts as JSON on standard output")
    add_own(options)
    return options


def chosen_rungs(words: Sequence[str], ladder: Ladder) -> tuple[list[Rung], list[str]]:
    """The rungs that ``words`` name, and the options by which another process finds those of folders and files.

    Raises UsageError.
    """
    rungs: list[Rung] = []
    own: list[str] = []
    for word in words:
        option = LADDER_OPTION if Path(word).is_dir() else KERNEL_OPTION if Path(word).suffix == ".cu" else None
        if option:
            rungs_of_word = Source(option, word, SIGNATURE).rungs()
            ladder = ladder.with_rungs(rungs_of_word, word)
            own += [option, word]
        else:
            rungs_of_word = [rung for rung, _ in choose_rungs(word, ladder)]
        rungs += rungs_of_word
    return list({rung.name: rung for rung in rungs}.values()), own


def judge(name: str, kind: str, own: Sequence[str], seconds: float) -> Verdict:
    """Runs one check in a separate process group, killed at the end."""
    try:
        needed = missing_environment(KINDS[kind].build)
    except MissingTool as error:
        return Verdict(name, kind, (str(error),))
    with tempfile.TemporaryDirectory() as folder:
        answer, messages = Path(folder) / "answer", Path(folder) / "messages"
        words = [sys.executable, "-m", "alexconv.check.kinds", kind, name, str(answer)]
        words += own
        with messages.open("wb") as stream:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                start_new_session=True,
                env={**os.environ, **needed},
            )
            try:
                status = child.wait(seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)  # with everything that it started
                child.wait()
        with messages.open("rb") as stream:
            text = stream.read(REPORT_BYTES).decode(errors="replace")
        if status is None:
            return Verdict(
                name, kind, (f"no answer after {seconds:g} s: does a loop end? does a thread wait for memory?",)
            )
        problems: list[str] = []
        if status == 0 and not answer.exists():
            problems.append("the kernel ends the check's process")
        elif status == 0:
            problems = json.loads(answer.read_text())
        elif status < 0:
            hint = "" if kind == "addresses" else ": a bad access? --kinds addresses names it"
            problems.append(f"the check's process ends with {signal.Signals(-status).name}{hint}")
        else:
            problems.append((text.strip().splitlines() or [f"exit status {status}"])[-1][:300])
    return Verdict(name, kind, tuple(dict.fromkeys(problems)))


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Checks and prints a verdict for each kind; the exit status is 1 if anything is wrong."""
    options = parser().parse_args(arguments)
    say = display.console(stderr=options.json)
    kinds = options.kinds.split(",")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise UsageError(f"unknown check {', '.join(unknown)}: choose from {', '.join(KINDS)}")
    if PERSISTENT in options.rungs and networks.KINDS.keys().isdisjoint(kinds):
        raise UsageError(f"{PERSISTENT} has no check {', '.join(kinds)}: choose from {', '.join(networks.KINDS)}")
    rungs, own = chosen_rungs([word for word in options.rungs if word != PERSISTENT], ladder_of(options))
    own = [word for source in options.own for word in (source.option, source.value)] + own
    if none := [rung for rung in rungs if rung.gpu_only]:
        raise UsageError(f"{', '.join(rung.name for rung in none)}: {none[0].gpu_only}; a check runs on the CPU")
    cache_dir("code")  # a fault of it is no verdict
    checks = [(rung.name, kind) for rung in rungs for kind in kinds]
    checks += [(PERSISTENT, kind) for kind in kinds if PERSISTENT in options.rungs and kind in networks.KINDS]
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(cores()) as pool:
        for verdict in pool.map(lambda check: judge(check[0], check[1], own, options.seconds), checks):
            if not verdicts or verdicts[-1].rung != verdict.rung:
                say.print(verdict.rung)
            verdicts.append(verdict)
            state = f"{len(verdict.problems)} found" if verdict.problems else "ok"
            say.print(f"  {verdict.kind:<10} {state:<10} {KINDS[verdict.kind].meaning}", highlight=False)
            for line in verdict.problems[:MOST_LINES]:
                say.print(f"    {line}", soft_wrap=True, highlight=False)
            if len(verdict.problems) > MOST_LINES:
                say.print(f"    and {len(verdict.problems) - MOST_LINES} more", highlight=False)
    if options.json:
        print(json.dumps([vars(verdict) for verdict in verdicts]))
    return 1 if any(verdict.problems for verdict in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
