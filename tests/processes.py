"""Commands in this process, and the processes of this machine."""

from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest


def in_process(main: Callable[[list[str]], int], *arguments: object, **environment: str) -> CompletedProcess[str]:
    """A command with its arguments and more variables, without the imports of a process of its own."""
    words, out, err = list(map(str, arguments)), StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in environment.items():
            patch.setenv(name, value)
        try:
            status = main(words)
        except SystemExit as end:
            status = end.code
    return CompletedProcess(words, status, out.getvalue(), err.getvalue())


def running(text: str) -> list[int]:
    """The processes whose command lines contain the text, from /proc: not every system has pgrep."""
    numbers = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if text.encode() in (process / "cmdline").read_bytes().replace(b"\0", b" "):
                numbers.append(int(process.name))
    return numbers
