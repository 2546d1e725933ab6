"""Mutants of every rung: which of them does anything notice, and what?

python scripts/mutants.py results/mutants.jsonl [--per-rung 10] [--rungs NAME,NAME] [--seed 0] [--forget] [--again]

A mutant is a kernel with one change: another operator, bound, index or number, a missing barrier.  It is compiled for
the CPU and runs on a small, odd, non-square shape with three images; where nothing notices it there, on further shapes
and with other constants, and its line says on how many.  One whose machine code is the original's is no mutant.  What
may notice it: ``compiler``; ``fault``, its process ends or its threads wait in vain; ``crash``, what calls it fails;
``endless``, it runs for a minute; ``error``, the max error on uniform inputs; ``integers``, sums of integers that must
be exact; ``again``, a second run over what the first left in its scratch arrays; ``order``, the same integers with the
threads of a block in other orders; where none of these does, ``race``, the host trace.  A line of FILE per mutant;
rungs of which FILE has as many already are left out.  ``--forget`` drops lines whose source is another now.  With
``--again`` those that nothing noticed are tried once more, and by the further kinds of ``alexconv check`` on its own
shapes: ``data``, ``addresses``, ``races`` and ``async``.
"""

import argparse
import json
import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from alexconv.checking.kinds import KINDS
from alexconv.compiling.sources import source_files
from alexconv.cpu_reference.reference import filter_norms, patch_norms, reference
from alexconv.errors import AlexconvError, CompileError, LaunchError
from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.host.memory import HostBuffer
from alexconv.executors.host.runtime import missing_environment
from alexconv.executors.interface import open_rung
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import FOLDER, Rung
from alexconv.planning.checks import PRECISIONS, MaxError, exact_inputs
from alexconv.planning.planner import plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.profiling.trace import spread_blocks, trace_launch
from alexconv.shapes import Conv

SHAPES = (
    Conv(C=5, H=13, W=11, M=6, R=3, S=2),
    Conv(C=8, H=13, W=11, M=6, R=3, S=2),
    Conv(C=8, H=14, W=11, M=16, R=3, S=3),
    Conv(C=64, H=9, W=8, M=64, R=3, S=3),
)
N, ORDERS, MEMORY = 3, (1, 7), 1 << 32
ENDLESS = 60.0  # seconds
TRACED_BLOCKS = 4
CHECKED = ("data", "addresses", "races", "async")  # kinds of alexconv check that ask for more than what comes before
CHECK_SECONDS = 240.0  # for a kind
CHECK = """
import sys
from dataclasses import replace
from alexconv.checking import kinds
from alexconv.kernels import ladder
file, _, name, _ = sys.argv[1:]
ladder._rungs[name] = replace(ladder.RUNGS[name], file=file)
sys.exit(kinds.run_one(sys.argv[2:]))
"""
MOST_VARIANTS, MOST_AGAIN = 6, 30  # shapes and constants on which a mutant is tried that none before notices
FIELDS = ("file", "line", "before", "after")  # of a line, by which mutants are told apart
Variant = tuple[Conv, dict[str, int]]
SWAPS = {"R": "S", "S": "R", "E": "F", "F": "E", "H": "W", "W": "H", "C": "M", "M": "C"}
OPERATORS = {
    **{"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&"},
    **{"+": "-", "-": "+", "*": "+", "/": "*", "%": "/", "+=": "-=", "<<": ">>", ">>": "<<", "min": "max"},
}
BARRIERS = re.compile(r"\b(?:__sync\w+|\w*(?:wait|arrive|commit|fence)\w*)\([^;{}]*\);")
TOKEN = re.compile(r"(?<![\w.])\d+(?![\w.])|\b[A-Za-z_]\w*\b|<<|>>|[<>=!+]=|&&|\|\||[-+*/%<>]")
LEFT_ALONE = re.compile(
    r"^\s*(?:#|//|\*|static_assert|ASSERT_|template|using|extern|struct|namespace|asm)|static_assert"
)
SHARED_FOLDERS = ("arch", "common")  # of headers that are not a family's own


@dataclass(frozen=True)
class Mutant:
    """A change of one place: file, line number, what stood there and what stands there now."""

    file: str
    line: int
    before: str
    after: str
    start: int
    end: int


def mutants_of(rung: Rung, draw: random.Random) -> Iterator[Mutant]:
    """All mutants of a rung's own files, some barriers first, each kind in random order."""
    barriers, others = [], []
    files = [file for file in source_files(rung.path) if file.parent.name not in SHARED_FOLDERS]
    for file in files:
        position = 0
        for number, line in enumerate(file.read_text().splitlines(keepends=True), 1):
            code = line.partition("//")[0]
            if not LEFT_ALONE.search(code):
                name = str(file.relative_to(FOLDER))
                for found in BARRIERS.finditer(code):
                    barriers.append(
                        Mutant(name, number, found[0], ";", position + found.start(), position + found.end())
                    )
                for found in TOKEN.finditer(code):
                    for after in changes(found[0], code, found.end()):
                        place = position + found.start(), position + found.end()
                        others.append(Mutant(name, number, found[0], after, *place))
            position += len(line)
    draw.shuffle(barriers)
    draw.shuffle(others)
    yield from barriers[:3]
    yield from others
    yield from barriers[3:]


def changes(token: str, code: str, end: int) -> list[str]:
    """What may stand in a token's place."""
    if token in SWAPS:
        return [SWAPS[token]]
    if token in OPERATORS:
        template = token in "<>" and re.search(r"\w<[\w:, *]*>|cast<|<<<|#include|\w+<\w", code)
        return [] if template else [OPERATORS[token]]
    if token.isdecimal():
        return [str(int(token) + 1)]
    return []


def variants(rung: Rung, most: int = MOST_VARIANTS) -> list[Variant]:
    """So many shapes, or with other constants the first and last of them, that a rung takes; the defaults come first.

    A constant without choices is one that counts: half of its default, twice as much, or one less is tried.
    """
    shapes = [conv for conv in SHAPES if taken(rung, (conv, {}))]
    found: list[Variant] = [(conv, {}) for conv in shapes]
    draw = random.Random(rung.name)
    for conv in dict.fromkeys((shapes[0], shapes[-1])):
        defaults = rung.resolve(conv, {}, N)
        for constant in rung.constants:
            default = defaults[constant.name]
            choices = [
                each
                for each in constant.choices or (default // 2, 2 * default, default - 1)
                if each not in (default, 0)
            ]
            draw.shuffle(choices)
            found += [variant for each in choices[:1] if taken(rung, variant := (conv, {constant.name: each}))]
    further = found[1:]
    draw.shuffle(further)
    return [found[0], *further[: most - 1]]


def about(default: int) -> tuple[int, ...]:
    """Values to try for a constant that counts."""
    return default // 2, 2 * default, default - 1


def taken(rung: Rung, variant: Variant) -> bool:
    """Whether a rung takes a shape with these constants."""
    try:
        return not rung.refuses(Problem(variant[0], N, rung.resolve(*variant, N)))
    except (AlexconvError, ValueError):
        return False


def outcome(rung: Rung, variant: Variant, traced: bool) -> list[str]:
    """What notices that a rung is wrong, by the host trace only if it is ``traced``."""
    conv, precision = variant[0], PRECISIONS[rung.precision]
    constants = rung.resolve(*variant, N)
    draw = np.random.default_rng(3)
    x, w = (draw.uniform(-1, 1, shape).astype(np.float32) for shape in (conv.x_shape(N), conv.w_shape()))
    integers = exact_inputs(conv, N, precision, seed=5)
    found = []
    cut = plan(BoundRung(rung, conv, constants), N, MEMORY)
    try:
        with open_rung(HostExecutor(), cut, x, w, TRANSFERS["pageable"]) as opened:
            error = MaxError()
            error.add(opened.outputs(), reference(conv, x, w), patch_norms(conv, x), filter_norms(w))
        found += [] if error.passes(precision.tolerance(conv.K)) else ["error"]
        expected = reference(conv, *integers)
        with open_rung(HostExecutor(), cut, *integers, TRANSFERS["pageable"]) as opened:
            found += [] if same(opened.outputs(), expected) else ["integers"]
            found += [] if same(opened.outputs(stale=True), expected) else ["again"]
        for order in ORDERS:
            with open_rung(HostExecutor(order=order), cut, *integers, TRANSFERS["pageable"]) as opened:
                if not same(opened.outputs(), expected):
                    return [*found, "order"]
        return found or (["race"] if traced and races(rung, variant) else [])
    except CompileError:
        return ["compiler"]
    except LaunchError:
        return [*found, "fault"]


def races(rung: Rung, variant: Variant) -> bool:
    """Whether the host trace finds two accesses to a byte that nothing puts in order."""
    conv = variant[0]
    executor, cut = HostExecutor(build="trace"), plan(BoundRung(rung, conv, rung.resolve(*variant, N)), N, MEMORY)
    program = executor.load(cut.bound)
    x, w = (np.zeros(shape, rung.dtype) for shape in (rung.x_shape(conv, N), conv.w_shape()))
    opened = HostBuffers(executor.runtime, program, cut, x, w)
    opened.bring_in(0, N)
    maps: list[HostBuffer] = []
    named = program.arguments(0, cut.bound.micro_batch(N), opened.buffers, maps)
    traces = (
        trace_launch(
            program.module,
            launch,
            [named[name] for name in launch.args],
            opened.buffers.values(),
            spread_blocks(launch.grid, TRACED_BLOCKS),
        )
        for launch in cut.bound.launches(N)
    )
    return any(found.races for found in traces)


def outcome_in_time(rung: Rung, variant: Variant, traced: bool) -> list[str]:
    """The same, in a process that is ended when a kernel does not end."""
    processes = multiprocessing.get_context("fork")
    found = processes.SimpleQueue()
    child = processes.Process(target=lambda: found.put(outcome(rung, variant, traced)))
    child.start()
    child.join(ENDLESS)
    if child.is_alive():
        child.kill()
        child.join()
        return ["endless"]
    return found.get() if not found.empty() else ["crash"]


@cache
def checked(name: str, file: str, source: str = "") -> list[str]:
    """The first further kind of ``alexconv check`` that finds something in a rung of this file, in a list.

    ``source`` is what the changed one of its files now has.
    """
    with TemporaryDirectory() as folder:
        for kind in CHECKED:
            answer = Path(folder) / kind
            words = [sys.executable, "-c", CHECK, file, kind, name, str(answer)]
            environment = {**os.environ, **missing_environment(KINDS[kind].build)}
            try:
                done = subprocess.run(words, capture_output=True, timeout=CHECK_SECONDS, env=environment, check=False)
            except subprocess.TimeoutExpired:
                return [kind]
            if done.returncode or json.loads(answer.read_text()):
                return [kind]
    return []


def stands(line: dict[str, Any]) -> bool:
    """Whether a mutant's source is as it was when the mutant was made, as far as its line says."""
    source = (FOLDER / line["file"]).read_text().splitlines()
    return line["line"] <= len(source) and line["before"] in source[line["line"] - 1]


def same(y: np.ndarray, expected: np.ndarray) -> bool:
    """Whether outputs are equal; NaN is not."""
    return bool((y.astype(np.float32) == expected).all())


def machine_code(rung: Rung, variant: Variant) -> bytes:
    """The compiled library; raises CompileError."""
    bound = BoundRung(rung, variant[0], rung.resolve(*variant, N))
    return HostExecutor().load(bound).module.path.read_bytes()


def main() -> int:
    """Writes a line per mutant."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--per-rung", type=int, default=10)
    options.add_argument("--rungs")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--again", action="store_true")
    options.add_argument("--no-races", action="store_true", help="leave the host trace out; --again has it")
    options.add_argument("--forget", action="store_true")
    chosen = options.parse_args()
    lines = [json.loads(line) for line in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    if chosen.forget:
        lines = [line for line in lines if stands(line)]
        chosen.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    there = [line["rung"] for line in lines]
    names = chosen.rungs.split(",") if chosen.rungs else [rung.name for rung in LADDER if not rung.gpu_only]
    for name in names:
        unnoticed = [line for line in lines if line["rung"] == name and not line["noticed"]] if chosen.again else []
        if unnoticed:
            lines = [line for line in lines if line not in unnoticed]
            chosen.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
        missing = max(chosen.per_rung - there.count(name), 0) + len(unnoticed)
        if missing > 0:
            draw = random.Random(f"{chosen.seed} {name} {there.count(name)}")
            known = [line for line in lines if line["rung"] == name]
            run_rung(RUNGS[name], missing, draw, chosen.out, not chosen.no_races, known, unnoticed)
            lines = [json.loads(line) for line in chosen.out.read_text().splitlines()]
    return 0


def run_rung(
    rung: Rung, count: int, draw: random.Random, out: Path, traced: bool, known: Sequence[dict], first: Sequence[dict]
) -> None:
    """Runs so many mutants of a rung, those that ``first`` names before others and none that is ``known``."""
    tried = variants(rung, MOST_AGAIN if first else MOST_VARIANTS)
    named, done = ([tuple(line[field] for field in FIELDS) for line in lines] for lines in (first, known))
    with TemporaryDirectory() as temporary:
        copy = Path(temporary) / "kernels"
        shutil.copytree(FOLDER, copy)
        mutated = replace(rung, file=str(copy / rung.file))
        original = machine_code(mutated, tried[0])
        trusted = 0  # of the variants: those on which the rung itself is right
        found = [each for each in mutants_of(rung, draw) if (each.file, each.line, each.before, each.after) not in done]
        found.sort(key=lambda mutant: (mutant.file, mutant.line, mutant.before, mutant.after) not in named)
        for mutant in found:
            file = copy / mutant.file
            text = (FOLDER / mutant.file).read_text()
            file.write_text(text[: mutant.start] + mutant.after + text[mutant.end :])
            number, noticed = 0, []
            try:
                if machine_code(mutated, tried[0]) == original:
                    continue
                while not noticed and number < len(tried):
                    if number == trusted:
                        alarms = outcome(rung, tried[number], traced)
                        assert alarms == [], (rung.name, tried[number], alarms)
                        trusted += 1
                    noticed = outcome_in_time(mutated, tried[number], traced)
                    number += 1
                if first and not noticed:
                    assert checked(rung.name, rung.file) == [], rung.name
                    noticed = checked(rung.name, mutated.file, file.read_text())
            except CompileError:
                noticed = ["compiler"]
            finally:
                file.write_text(text)
            if noticed == ["compiler"] and draw.random() < 0.8:
                continue  # most are no valid C++: a few will do
            facts = {name: value for name, value in asdict(mutant).items() if name not in ("start", "end")}
            with out.open("a") as lines:
                lines.write(json.dumps({"rung": rung.name, **facts, "noticed": noticed, "variants": number}) + "\n")
            count -= 1
            if not count:
                return


if __name__ == "__main__":
    sys.exit(main())
