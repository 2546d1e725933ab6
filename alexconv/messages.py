"""Messages of the commands: counted nouns, and notes and errors on standard error."""

import sys
from collections.abc import Callable

from alexconv.errors import AlexconvError

Say = Callable[[str], None]


def plural(count: int, noun: str) -> str:
    """``1 point``, ``2 points``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_to_stderr(line: str) -> None:
    """Prints a line to standard error."""
    print(line, file=sys.stderr)


def print_error(error: AlexconvError) -> int:
    """Prints an error as one line; returns its exit status."""
    print_to_stderr(" ".join(["error:", *str(error).split()]))
    return error.exit_status
