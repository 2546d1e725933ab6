"""Mutants of every rung: which of them are noticed, and by what?

python tests/attacks/mutants.py results/trust/mutants.jsonl [--per-rung 10] [--rungs NAME,NAME] [--seed 0] [--jobs 1]

A mutant is a kernel with one change: another operator, bound, index or number, a missing barrier.  It is compiled for
the CPU and runs on a small, odd, non-square shape with three images; if nothing notices it there, on further shapes
and with other constants, and its line says on how many.  One with the original's machine code is not a mutant.  What
may notice it: ``compiler``; ``rule``, a barrier of an arrival is missing in its source; ``fault``, its process ends or
its threads deadlock; ``crash``, its caller fails; ``endless``, it runs for a minute; ``error``, the max error on
uniform inputs, and on zeros with a tiny value among them; ``integers``, sums of integers that must be exact; ``again``,
a second run, of other images, with the first run's scratch arrays; ``order``, the same integers with the
threads of a block in other orders; where none of these does, ``race``, the host trace.  What nothing has noticed by
then is tried by the further kinds of ``alexconv check`` on its own shapes, ``data``, ``addresses``, ``races``,
``async`` and ``undefined``, then on more shapes and constants; its line says ``again``.

A line of FILE per mutant.  Lines whose source has changed are dropped; rungs of which FILE then has as many are left
out.
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
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "kernels"))

from test_arrivals import unguarded

from alexconv.check.hazards import BUILD
from alexconv.check.kinds import KINDS
from alexconv.compiling.sources import source_files
from alexconv.cpu_reference.cache import FLOAT32
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
from alexconv.planning.checks import Expected, MaxError, exact_bias, exact_inputs
from alexconv.planning.planner import plan
from alexconv.planning.transfers import TRANSFERS
from alexconv.precisions import PRECISIONS
from alexconv.profile.trace import spread_blocks, trace_launch
from alexconv.shapes import Conv

SHAPES = (
    Conv(C=5, H=13, W=11, M=6, R=3, S=2),
    Conv(C=8, H=13, W=11, M=6, R=3, S=2),
    Conv(C=8, H=14, W=11, M=16, R=3, S=3),
    Conv(C=64, H=9, W=8, M=64, R=3, S=3),
)
GROUPED = (  # for rungs that take none of these
    Conv(C=24, H=13, W=12, M=18, R=3, S=2, groups=3),
    Conv(C=8, H=13, W=12, M=8, R=3, S=3, groups=8),
    Conv(C=8, H=13, W=11, M=16, R=5, S=4, U=2, groups=8),
    Conv(C=32, H=9, W=8, M=24, R=3, S=3, groups=8),
)
BORDERED = (  # for what goes unnoticed: padding, strides, dilation, one tap, partial K stages, images in several tiles
    Conv(C=16, H=9, W=12, M=24, R=3, S=2, top=1, bottom=2, left=2, right=1, bias=True, relu=True),
    Conv(C=16, H=13, W=10, M=20, R=3, S=2, U=2, V=1, top=1, bottom=2, left=1, right=2, dilation_columns=2),
    Conv(C=128, H=10, W=13, M=72, R=1, S=1),
    Conv(C=72, H=6, W=7, M=16, R=3, S=1),
    Conv(C=3, H=23, W=19, M=12, R=5, S=4, U=4, top=1, bottom=2, left=2, right=1),
    Conv(C=40, H=6, W=34, M=3, R=3, S=2, top=1, bottom=2, right=1, bias=True),
    Conv(C=8, H=19, W=37, M=4, R=3, S=2, top=1, left=2, dilation_rows=2, relu=True),
    Conv(C=24, H=8, W=11, M=30, R=3, S=2, top=1, left=1, right=2, dilation_rows=2, groups=3, bias=True, relu=True),
    Conv(C=16, H=13, W=12, M=12, R=3, S=3, U=2, V=1, bottom=1, left=1, right=2, groups=2),
    Conv(C=8, H=14, W=12, M=8, R=4, S=3, U=2, V=1, top=1, bottom=2, left=2, right=1, groups=8, bias=True, relu=True),
    Conv(C=6, H=11, W=9, M=12, R=5, S=4, U=2, top=2, left=1, right=2, groups=6, bias=True),
)
N, ORDERS, MEMORY = 3, (1, 7), 1 << 32
ENDLESS = 60.0  # seconds
TINY = 1e-12  # an input in an image with a one elsewhere: fp16 at the image's scale loses it
NOT_COUNTED = 0.8  # of the mutants that are not valid C++: a few suffice
NAMED_SECTIONS = (".dynstr", ".gnu.version_d", ".note.gnu.build-id")  # of a library: they depend on its file name
TRACED_BLOCKS = 4
CHECKED = ("data", "addresses", "races", "async", "undefined")  # kinds of alexconv check beyond ``outcome``
CHECK_SECONDS = 240.0  # for a kind
CHECK = """
import sys
from dataclasses import replace
from alexconv.check import kinds
from alexconv.kernels.ladder import LADDER, Ladder
file, _, name, _ = sys.argv[1:]
kinds.ladder_of = lambda options: Ladder(replace(rung, file=file) if rung.name == name else rung for rung in LADDER)
sys.exit(kinds.run_one(sys.argv[2:]))
"""
MOST_VARIANTS, MOST_AGAIN = 6, 32  # shapes and constants to try on a mutant, and on one that goes unnoticed
FIELDS = ("file", "line", "before", "after")  # of a line, which identify a mutant
Variant = tuple[Conv, tuple[tuple[str, int], ...]]  # a shape, and constants that are not the defaults
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
SHARED_FOLDERS = ("arch", "common")  # of headers that families share


@dataclass(frozen=True)
class Mutant:
    """A change in one place: file, line number, the text before and after."""

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
                for match in BARRIERS.finditer(code):
                    barriers.append(
                        Mutant(name, number, match[0], ";", position + match.start(), position + match.end())
                    )
                for match in TOKEN.finditer(code):
                    for after in changes(match[0], code, match.end()):
                        place = position + match.start(), position + match.end()
                        others.append(Mutant(name, number, match[0], after, *place))
            position += len(line)
    draw.shuffle(barriers)
    draw.shuffle(others)
    yield from barriers[:3]
    yield from others
    yield from barriers[3:]


def changes(token: str, code: str, end: int) -> list[str]:
    """What may replace a token."""
    if token in SWAPS:
        return [SWAPS[token]]
    if token in OPERATORS:
        template = token in "<>" and re.search(r"\w<[\w:, *]*>|cast<|<<<|#include|\w+<\w", code)
        return [] if template else [OPERATORS[token]]
    if token.isdecimal():
        return [str(int(token) + 1)]
    return []


def variants(rung: Rung, most: int = MOST_VARIANTS, more: Sequence[Conv] = (), values: int | None = 1) -> list[Variant]:
    """Up to ``most`` shapes that a rung takes, and the first and last of them with other constants.

    The shapes of ``more`` follow the first one.  ``values``: of a constant, None for all.  One without choices is a
    count: half its default, twice its default, or one less is tried.
    """
    shapes = [conv for conv in SHAPES if taken(rung, (conv, ()))]
    shapes = shapes or [conv for conv in GROUPED if taken(rung, (conv, ()))]
    suited: list[Variant] = [(conv, ()) for conv in shapes]
    draw = random.Random(rung.name)
    for conv in dict.fromkeys((shapes[0], shapes[-1])):
        defaults = rung.resolve(conv, {}, N)
        for constant in rung.constants:
            default = defaults[constant.name]
            choices = [
                choice
                for choice in constant.choices or (default // 2, 2 * default, default - 1)
                if choice not in (default, 0)
            ]
            draw.shuffle(choices)
            suited += [
                variant for choice in choices[:values] if taken(rung, variant := (conv, ((constant.name, choice),)))
            ]
    further = suited[1:]
    draw.shuffle(further)
    preferred: list[Variant] = [(conv, ()) for conv in more if taken(rung, (conv, ()))]
    return [suited[0], *preferred, *further][:most]


def constants_of(rung: Rung, variant: Variant) -> dict[str, int]:
    """All constants of a variant."""
    return rung.resolve(variant[0], dict(variant[1]), N)


def taken(rung: Rung, variant: Variant) -> bool:
    """Whether a rung takes a shape with these constants."""
    try:
        return not rung.refuses(Problem(variant[0], N, constants_of(rung, variant)))
    except (AlexconvError, ValueError):
        return False


def outcome(rung: Rung, variant: Variant) -> list[str]:
    """What notices that a rung is wrong."""
    conv, precision = variant[0], PRECISIONS[rung.precision]
    draw = np.random.default_rng(3)
    shapes = conv.x_shape(N), conv.w_shape(), (conv.M,)
    x, w, bias = (draw.uniform(-1, 1, shape).astype(np.float32) for shape in shapes)
    added = bias if conv.bias else None
    lonely = np.zeros_like(x)
    lonely[:, 0, 0, 0], lonely[:, conv.C // 2, conv.H // 2, conv.W // 2] = 1, TINY
    integers, exact = exact_inputs(conv, N, precision, seed=5), exact_bias(conv, seed=5)
    alarms = []
    cut = plan(BoundRung(rung, conv, constants_of(rung, variant)), N, MEMORY)
    try:
        error = MaxError()
        for images in (x, lonely) if rung.dtype == FLOAT32 else (x,):
            with open_rung(HostExecutor(), cut, images, w, TRANSFERS["pageable"], added) as opened:
                norms = patch_norms(conv, images), filter_norms(w, added)
                error.add(opened.outputs(), Expected(reference(conv, images, w, added), *norms))
        alarms += [] if error.passes(precision.tolerance(conv.K)) else ["error"]
        expected = reference(conv, *integers, exact)
        sign = 1 if conv.bias or conv.relu else -1
        with open_rung(HostExecutor(), cut, integers[0].copy(), integers[1], TRANSFERS["pageable"], exact) as opened:
            alarms += [] if same(opened.outputs(), expected) else ["integers"]
            opened.turn(sign)
            alarms += [] if same(opened.outputs(stale=True), sign * expected[::-1]) else ["again"]
        for order in ORDERS:
            with open_rung(HostExecutor(order=order), cut, *integers, TRANSFERS["pageable"], exact) as opened:
                if not same(opened.outputs(), expected):
                    return [*alarms, "order"]
        return alarms or (["race"] if races(rung, variant) else [])
    except CompileError:
        return ["compiler"]
    except LaunchError:
        return [*alarms, "fault"]


def races(rung: Rung, variant: Variant) -> bool:
    """Whether the host trace finds two unordered accesses to a byte."""
    conv = variant[0]
    executor, cut = HostExecutor(build="trace"), plan(BoundRung(rung, conv, constants_of(rung, variant)), N, MEMORY)
    program = executor.load(cut.bound)
    x, w = (np.zeros(shape, rung.dtype) for shape in (rung.x_shape(conv, N), conv.w_shape()))
    bias = np.zeros(conv.M, rung.dtype) if conv.bias else None
    opened = HostBuffers(executor.runtime, program, cut, x, w, bias=bias)
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
    return any(trace.races for trace in traces)


def outcome_in_time(rung: Rung, variant: Variant) -> list[str]:
    """The same, in a process that is killed if a kernel does not end."""
    processes = multiprocessing.get_context("fork")
    queue = processes.SimpleQueue()
    child = processes.Process(target=lambda: queue.put(outcome(rung, variant)))
    child.start()
    child.join(ENDLESS)
    if child.is_alive():
        child.kill()
        child.join()
        return ["endless"]
    return queue.get() if not queue.empty() else ["crash"]


@cache
def original(name: str, variant: Variant, build: str) -> bytes:
    """The machine code of an unchanged rung, in a variant."""
    return machine_code(RUNGS[name], variant, build)


@cache
def alarms_of(name: str, variant: Variant) -> list[str]:
    """False alarms: what notices something about an unchanged rung, in a variant."""
    return outcome(RUNGS[name], variant)


@cache
def checked(name: str, file: str, source: str = "") -> list[str]:
    """The first further kind of ``alexconv check`` that finds something in a rung of this file, in a list.

    ``source`` is the text of its changed file.
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


def placed(line: dict[str, Any]) -> dict[str, Any] | None:
    """A mutant's line with the current number of its source line, and with that; None if the source has changed."""
    source = [text.strip() for text in (FOLDER / line["file"]).read_text().splitlines()]
    there = line["line"] <= len(source) and line["before"] in source[line["line"] - 1]
    code = line.get("code", source[line["line"] - 1] if there else None)
    numbers = [number for number, text in enumerate(source, 1) if text == code]
    if not numbers:
        return None
    return {**line, "code": code, "line": min(numbers, key=lambda number: abs(number - line["line"]))}


def same(y: np.ndarray, expected: np.ndarray) -> bool:
    """Whether outputs are equal; NaN never is."""
    return bool((y.astype(np.float32) == expected).all())


def machine_code(rung: Rung, variant: Variant, build: str) -> bytes:
    """The compiled library's memory image, without what depends on its file name; raises CompileError."""
    bound = BoundRung(rung, variant[0], constants_of(rung, variant))
    library = HostExecutor(build).load(bound).module.path
    with TemporaryDirectory() as folder:
        image = Path(folder) / "image"
        removed = [word for section in NAMED_SECTIONS for word in ("-R", section)]
        subprocess.run(["objcopy", "-O", "binary", *removed, str(library), str(image)], check=True)
        return image.read_bytes()


def main() -> int:
    """Writes a line per mutant."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--per-rung", type=int, default=10)
    options.add_argument("--rungs")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=1, help="mutants tried at a time")
    chosen = options.parse_args()
    lines = [json.loads(line) for line in chosen.out.read_text().splitlines()] if chosen.out.exists() else []
    lines = [line for line in map(placed, lines) if line]
    write(lines, chosen.out)
    names = chosen.rungs.split(",") if chosen.rungs else [rung.name for rung in LADDER if not rung.gpu_only]
    tasks = [task for name in names for task in tasks_of(name, lines, chosen.per_rung, chosen.seed)]
    status = 0
    with ProcessPoolExecutor(chosen.jobs) as pool:
        for done in as_completed([pool.submit(tried, task) for task in tasks]):
            try:
                line = done.result()
            except AlexconvError as error:
                print(f"error: {error}", file=sys.stderr)
                status = 1
                continue
            lines += [line] if line else []
            write(lines, chosen.out)
    return status


@dataclass(frozen=True)
class Task:
    """A mutant to make and try: the next of every ``stride``-th in a random order."""

    rung: str
    seed: str
    known: frozenset[tuple[str, int, str, str]]  # mutants that have lines
    first: int
    stride: int

    def mutants(self) -> Iterable[Mutant]:
        """The candidates, in order."""
        candidates = mutants_of(RUNGS[self.rung], random.Random(self.seed))
        return [mutant for mutant in candidates if identity(asdict(mutant)) not in self.known][
            self.first :: self.stride
        ]


def tasks_of(name: str, lines: Sequence[dict[str, Any]], per_rung: int, seed: int) -> list[Task]:
    """The tasks of a rung."""
    known = [identity(line) for line in lines if line["rung"] == name]
    missing = max(per_rung - len(known), 0)
    return [Task(name, f"{seed} {name} {len(known)}", frozenset(known), first, missing) for first in range(missing)]


def identity(line: dict[str, Any]) -> tuple[Any, ...]:
    """What identifies a mutant of a rung."""
    return tuple(line[field] for field in FIELDS)


def write(lines: Iterable[dict[str, Any]], out: Path) -> None:
    """Replaces the file."""
    new = out.with_name(out.name + ".new")
    new.write_text("".join(json.dumps(line) + "\n" for line in lines))
    new.replace(out)


def tried(task: Task) -> dict[str, Any] | None:
    """The line of a task's mutant; None if there are no more mutants."""
    rung, draw = RUNGS[task.rung], random.Random(task.seed)
    with TemporaryDirectory() as temporary:
        copy = Path(temporary) / "kernels"
        shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
        mutated = replace(rung, file=str(copy / rung.file))
        for mutant in task.mutants():
            file = copy / mutant.file
            text = (FOLDER / mutant.file).read_text()
            changed = text[: mutant.start] + mutant.after + text[mutant.end :]
            file.write_text(changed)
            verdict = noticed(mutated, changed)
            file.write_text(text)
            if verdict is None or (verdict["noticed"] == ["compiler"] and draw.random() < NOT_COUNTED):
                continue
            facts = {name: value for name, value in asdict(mutant).items() if name not in ("start", "end")}
            return {"rung": rung.name, **facts, "code": text.splitlines()[mutant.line - 1].strip(), **verdict}
    return None


def noticed(mutated: Rung, source: str) -> dict[str, Any] | None:
    """What notices a mutant, on how many variants it ran, and whether ``again``; None if it is not a mutant.

    One whose code differs only in the build that watches asynchronous copies and products is tried again at once.
    """
    if unguarded(source):
        return {"noticed": ["rule"], "variants": 0}
    usual, ran = variants(mutated), 0
    try:
        if same_code(mutated, usual[0]):
            if same_code(mutated, usual[0], BUILD):
                return None
            usual = usual[:1]
        else:
            for ran, variant in enumerate(usual, 1):
                if notices := run(mutated, variant):
                    return {"noticed": notices, "variants": ran}
        if alarms := checked(mutated.name, RUNGS[mutated.name].file):
            raise AlexconvError(f"{mutated.name}: false alarm of alexconv check: {alarms}")
        notices = checked(mutated.name, mutated.file, source)
        for variant in variants(mutated, MOST_AGAIN, BORDERED, values=None):
            if notices:
                break
            if variant not in usual and not same_code(mutated, variant):
                ran += 1
                notices = run(mutated, variant)
    except CompileError:
        return {"noticed": ["compiler"], "variants": ran}
    return {"noticed": notices, "variants": ran, "again": True}


def same_code(mutated: Rung, variant: Variant, build: str = "fast") -> bool:
    """Whether a variant has the original's machine code."""
    return machine_code(mutated, variant, build) == original(mutated.name, variant, build)


def run(mutated: Rung, variant: Variant) -> list[str]:
    """What notices a mutant on a variant; raises AlexconvError if the unchanged rung raises an alarm there."""
    if alarms := alarms_of(mutated.name, variant):
        raise AlexconvError(f"{mutated.name}: false alarm: {alarms}, {variant}")
    return outcome_in_time(mutated, variant)


if __name__ == "__main__":
    sys.exit(main())
