"""Rungs from outside the package: a folder that ``--ladder`` names, or another package's entry point.

A command's ladder is a value, made once from its options (``ladder_of``): this package's rungs, those of other packages
and the user's own.

A folder has an entry file ``ladder.py`` with ``RUNGS``, a sequence of Rung whose files lie in the folder.  A package
has an entry point of the group ``alexconv.rungs`` that is such a sequence, with absolute paths.
"""

import argparse
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import cache, wraps
from importlib.metadata import EntryPoint, entry_points
from numbers import Integral
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from alexconv.errors import UsageError
from alexconv.kernels.ladder import ALL_DIRECTIONS, Ladder
from alexconv.kernels.rung import Rung
from alexconv.own import SIGNATURE, SIGNATURES

ENTRY_FILE = "ladder.py"
LADDER_OPTION, KERNEL_OPTION = "--ladder", "--kernel"
GROUP = "alexconv.rungs"
DIMS = ("grid", "block")  # of a launch


class Source(NamedTuple):
    """An option that adds rungs, as typed, and the signature of a ``--kernel`` file's host function."""

    option: str
    value: str
    signature: str

    def rungs(self) -> list[Rung]:
        """Its rungs; raises UsageError."""
        if self.option == LADDER_OPTION:
            return rungs_of(Path(self.value))
        from alexconv.own.wrapping import wrapped  # compiles

        return [wrapped(Path(self.value), self.signature)]


class AddSource(argparse.Action):
    """Keeps an option's values, and all Sources in the order in which they are typed as ``own``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Adds a value."""
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest) or []), values])
        namespace.own = [*namespace.own, Source(self.option_strings[0], values, namespace.signature)]


def add_own(options: argparse.ArgumentParser) -> None:
    """Adds the options for the user's own rungs to a command."""
    add = options.add_argument_group("rungs of your own (docs/own-kernels.md)").add_argument
    add(LADDER_OPTION, action=AddSource, metavar="FOLDER", help="a folder with a ladder.py; repeatable")
    add(
        KERNEL_OPTION,
        action=AddSource,
        metavar="FILE",
        help="a CUDA file with kernels and a host function; repeatable",
    )
    add(
        "--signature",
        default=SIGNATURE,
        choices=SIGNATURES,
        help=f"host function of the --kernel files after this option; {SIGNATURE}: {SIGNATURES[SIGNATURE]}",
    )
    options.set_defaults(own=[])


def ladder_of(options: argparse.Namespace) -> Ladder:
    """The ladder of a command line: this package's rungs, other packages' and its own.  Raises UsageError."""
    ladder = installed_ladder()
    for source in options.own:
        ladder = ladder.with_rungs(source.rungs(), source.value)
    return ladder


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
        given = vars(module).get("RUNGS")
        rungs = list(given) if isinstance(given, Iterable) else []
    except (Exception, SystemExit) as error:
        raise UsageError(f"{_line(error, file)}: {type(error).__name__}: {error}") from None
    if not rungs or not all(isinstance(rung, Rung) for rung in rungs):
        raise UsageError(f"{file}: RUNGS must be a sequence of at least one Rung")
    return [replace(_naming_lines(rung, file), file=str((folder / rung.file).resolve())) for rung in rungs]


def _naming_lines(part: Any, file: Path, name: str = "") -> Any:
    """A rung, or a part of it called ``name``, whose functions raise UsageError with the entry file's line that fails.

    So does a grid or block that is not three whole numbers.
    """
    if isinstance(part, tuple):
        return tuple(_naming_lines(item, file) for item in part)
    if is_dataclass(part) and not isinstance(part, type):
        parts = {field.name: _naming_lines(getattr(part, field.name), file, field.name) for field in fields(part)}
        return replace(part, **parts)
    if not isinstance(part, FunctionType):
        return part

    @wraps(part)
    def function(*arguments: Any) -> Any:
        try:
            value = part(*arguments)
        except Exception as error:
            if isinstance(error, UsageError) or (line := _line(error, file)) == str(file):
                raise
            raise UsageError(f"{line}: {type(error).__name__}: {error}") from None
        if name in DIMS and not (isinstance(value, tuple) and [isinstance(n, Integral) for n in value] == [True] * 3):
            line = f"{file}:{part.__code__.co_firstlineno}"
            raise UsageError(f"{line}: a {name} is three whole numbers, not {value!r}")
        return value

    return function


def _line(error: BaseException, file: Path) -> str:
    """Where in the entry file an exception comes from."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


@cache
def of_packages() -> tuple[EntryPoint, ...]:
    """The entry points of packages with rungs; searches all packages, once."""
    return tuple(entry_points(group=GROUP))


def installed() -> list[str]:
    """The entry points of packages with rungs, each with its package's version."""
    return sorted(f"{point.value} {point.dist.version if point.dist else ''}" for point in of_packages())


@cache
def installed_ladder() -> Ladder:
    """The rungs of this package and of other packages; raises UsageError for a package whose entry point fails."""
    ladder = ALL_DIRECTIONS
    for point in of_packages():
        try:
            rungs: Sequence[Rung] = point.load()
        except Exception as error:
            raise UsageError(f"entry point {point.name} of {point.value}: {type(error).__name__}: {error}") from None
        ladder = ladder.with_rungs(rungs, point.name)
    return ladder
