"""Rungs from outside the package: a folder that ``--ladder`` names, or another package's entry point.

A folder has an entry file ``ladder.py`` with ``RUNGS``, a sequence of Rung whose files lie in the folder.  A package
has an entry point of the group ``alexconv.rungs`` that is such a sequence, with absolute paths.
"""

import argparse
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from alexconv.errors import UsageError
from alexconv.kernels.ladder import ALIASES, RUNGS, join
from alexconv.kernels.rung import Rung

ENTRY_FILE = "ladder.py"
GROUP = "alexconv.rungs"
SIGNATURE = "ece408"
SIGNATURES = {SIGNATURE: "conv_forward(y, x, w, B, M, C, H, W, K, S)"}  # of courses, for --kernel


class AddLadder(argparse.Action):
    """The option ``--ladder FOLDER``: parsing it adds the folder's rungs to the ladder."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Registers the rungs; raises UsageError."""
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), values])
        register(self.rungs(values, namespace), values)

    def rungs(self, value: str, namespace: argparse.Namespace) -> list[Rung]:
        """The folder's rungs; raises UsageError."""
        return rungs_of(Path(value))


class AddKernel(AddLadder):
    """The option ``--kernel FILE``: a plain CUDA file with a course's signature."""

    def rungs(self, value: str, namespace: argparse.Namespace) -> list[Rung]:
        """The file's rung; raises UsageError."""
        from alexconv.own.wrapping import wrapped  # compiles

        return [wrapped(Path(value), namespace.signature)]


def add_own(options: argparse.ArgumentParser) -> None:
    """Adds the options for the user's own rungs to a command, and registers those of installed packages."""
    add = options.add_argument_group("rungs of your own (docs/own-kernels.md)").add_argument
    add("--ladder", action=AddLadder, metavar="FOLDER", help="a folder with a ladder.py; repeatable")
    add("--kernel", action=AddKernel, metavar="FILE", help="a CUDA file with kernels and a host function; repeatable")
    add(
        "--signature",
        default=SIGNATURE,
        choices=SIGNATURES,
        help=f"host function of the --kernel files after this option; {SIGNATURE}: {SIGNATURES[SIGNATURE]}",
    )
    register_installed()


def rungs_of(folder: Path) -> list[Rung]:
    """The rungs of a folder's entry file; raises UsageError with the line that fails."""
    file = folder / ENTRY_FILE
    if not file.is_file():
        raise UsageError(f"{folder} has no {ENTRY_FILE}; `alexconv new` writes one")
    module = ModuleType(f"alexconv_ladder_{abs(hash(file.resolve()))}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    try:  # no import: it would leave bytecode in the folder, and use that for a file changed in the same second
        exec(compile(file.read_bytes(), str(file), "exec"), vars(module))
        found = list(module.RUNGS)
    except Exception as error:
        raise UsageError(f"{_line(error, file)}: {type(error).__name__}: {error}") from None
    if not found or not all(isinstance(rung, Rung) for rung in found):
        raise UsageError(f"{file}: RUNGS must be a sequence of at least one Rung")
    return [replace(rung, file=str((folder / rung.file).resolve())) for rung in found]


def _line(error: Exception, file: Path) -> str:
    """Where in the entry file an exception comes from."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


def register(rungs: Iterable[Rung], source: object) -> None:
    """Adds rungs to the ladder; adding the same rungs again is fine.  Raises UsageError for a name that is taken."""
    for rung in rungs:
        known = RUNGS.get(rung.name)
        if known and known.path == rung.path:
            continue
        taken = {*RUNGS, *ALIASES}
        if taken & {rung.name, rung.alias}:
            raise UsageError(f"{source}: the ladder already has the rung {rung.name} or alias {rung.alias}")
        if not rung.path.is_file():
            raise UsageError(f"{source}: the rung {rung.name} has no file {rung.path}")
        join(rung)


@cache
def of_packages() -> tuple[EntryPoint, ...]:
    """The entry points of packages with rungs; searches all packages, once."""
    return tuple(entry_points(group=GROUP))


def installed() -> list[str]:
    """The entry points of packages with rungs, each with its package's version."""
    return sorted(f"{point.value} {point.dist.version if point.dist else ''}" for point in of_packages())


def register_installed() -> None:
    """Adds the rungs of installed packages; raises UsageError for a package whose entry point fails."""
    for point in of_packages():
        try:
            rungs: Sequence[Rung] = point.load()
        except Exception as error:
            raise UsageError(f"entry point {point.name} of {point.value}: {type(error).__name__}: {error}") from None
        register(rungs, point.name)
