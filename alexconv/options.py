"""What the commands share: argparse types, the command line, errors as one line and an exit status."""

import argparse
import errno
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import wraps
from io import TextIOWrapper
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TextIO, cast

from alexconv.errors import AlexconvError, UsageError
from alexconv.messages import print_error
from alexconv.precisions import PRECISIONS

Arguments = ParamSpec("Arguments")

_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_CLOSED_PIPE = 141  # 128 + SIGPIPE
FOLDERS = re.compile(r"(?:^|(?<==))/(?:[^/]*/)*(?=[^/])")  # of an absolute path
_OUTPUT_ERRORS = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


def precision_names() -> str:
    """The precision classes for a command's help, and the type of the sums where that of the arrays does not say it."""
    halves = [f"{name}: {row.sums} accumulation" for name, row in PRECISIONS.items() if row.dtype == "float16"]
    return f"{', '.join(PRECISIONS)} ({'; '.join(reversed(halves))})"


def natural(text: str) -> int:
    """An argparse type: a whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"a whole number from 0, not {text!r}")
    return int(text)


def duration(text: str) -> float:
    """An argparse type: seconds, 0 or more."""
    return _number(text, lambda value: value >= 0, "seconds are a number from 0")


def positive(text: str) -> float:
    """An argparse type: a number above 0."""
    return _number(text, lambda value: value > 0, "a number above 0")


def _number(text: str, holds: Callable[[float], bool], wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (isfinite(value) and holds(value)):
        raise argparse.ArgumentTypeError(f"{wanted}, not {text!r}")
    return value


def comma_separated(text: str) -> str:
    """An argparse type: comma-separated words, unchanged; empty ones are refused."""
    if not all(word.strip() for word in text.split(",")):
        raise argparse.ArgumentTypeError(f"comma-separated words, not {text!r}")
    return text


def size(text: str) -> int:
    """An argparse type: ``64MiB``, ``8GB`` or plain bytes, one at least; argparse words the ValueError."""
    nbytes: float | None = None
    for suffix, unit in {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "KB": 10**3, "MB": 10**6, "GB": 10**9}.items():
        if text.endswith(suffix):
            nbytes = float(text.removesuffix(suffix)) * unit
    nbytes = int(text) if nbytes is None else nbytes
    if not 1 <= nbytes < inf:
        raise ValueError
    return int(nbytes)


def non_default(options: argparse.Namespace, parser: argparse.ArgumentParser, names: Iterable[str]) -> list[str]:
    """The options whose values differ from their defaults, as they are typed."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) != parser.get_default(name)]


class Refusal(NamedTuple):
    """Options that are refused ``when`` others have certain values; ``why`` ends the message."""

    when: Callable[[argparse.Namespace], bool]
    names: tuple[str, ...]
    why: str


def refuse(options: argparse.Namespace, parser: argparse.ArgumentParser, refusals: Iterable[Refusal]) -> None:
    """Raises UsageError for the first of the refusals."""
    for when, names, why in refusals:
        if when(options) and (options_used := non_default(options, parser, names)):
            raise UsageError(f"{', '.join(options_used)}: {why}")


def program(module: str) -> str:
    """The command as started: ``alexconv run`` where ``alexconv`` started it, else ``python -m`` and the module."""
    started = sys.argv[0]
    return started if started.startswith(("alexconv ", "python -m alexconv ")) else f"python -m {module}"


def command_line(module: str, arguments: Sequence[str] | None) -> str:
    """The command as typed, quoted for a shell; without ``arguments``, this process's.

    Absolute paths are cut to file names: records are published, and local folders are no part of a measurement.
    """
    words = sys.argv[1:] if arguments is None else arguments
    return f"{program(module)} {shlex.join(FOLDERS.sub('', word) for word in words)}"


class Forgiving:
    """A text stream for messages that drops everything after its first write error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Writes the text if possible; returns its length."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flushes if possible."""
        self._try(self._stream.flush)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError:
            to_nowhere(self._stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def to_nowhere(stream: TextIO) -> None:
    """Redirects a stream's further output to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def exits_cleanly(command: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """Decorates a command: errors a user can act on become one line on stderr and an exit status.

    So do errors of standard output; a reader that stops early, such as ``head``, ends the command silently.  Standard
    error may be closed or full.  Characters that the output's encoding lacks are escaped.
    """

    @wraps(command)
    def guarded(*arguments: Arguments.args, **options: Arguments.kwargs) -> int:
        try:
            return command(*arguments, **options)
        except AlexconvError as error:
            return print_error(error)
        except UnicodeEncodeError as error:  # of a name that is not UTF-8, or under a locale that is not
            character = ascii(error.object[error.start])
            return print_error(UsageError(f"{error.encoding} has no {character}: rename the file, or set PYTHONUTF8=1"))
        except KeyboardInterrupt:
            return _INTERRUPTED
        finally:
            sys.stdout.flush()  # here, and not at the interpreter's exit, where no error is caught

    @wraps(command)
    def heard(*arguments: Arguments.args, **options: Arguments.kwargs) -> int:
        if sys.stdout is None or sys.stderr is None:  # the caller closed it
            with Path(os.devnull).open("w") as nowhere:
                redirect = redirect_stdout if sys.stdout is None else redirect_stderr
                with redirect(nowhere):
                    return heard(*arguments, **options)
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            with redirect_stderr(cast(TextIO, Forgiving(sys.stderr))):
                return guarded(*arguments, **options)
        except OSError as error:
            if error.filename is not None or error.errno not in _OUTPUT_ERRORS:
                raise  # files that this project writes raise its own exceptions
            to_nowhere(sys.stdout)
            if isinstance(error, BrokenPipeError):
                return _CLOSED_PIPE
            print(f"cannot write the output: {error.strerror}", file=Forgiving(sys.stderr))
            return 1

    return heard
