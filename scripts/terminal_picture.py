"""A picture of what a command writes to a terminal: runs it in one, and draws its standard output.

    python scripts/terminal_picture.py PICTURE.svg COLUMNS COMMAND...

Standard error, such as a progress bar, goes where this script's goes.  The exit status is the command's.
"""

import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # on a network, which a picture does not ask
ENDED = 5  # errno EIO: the command has closed its end of the terminal


def output_in_terminal(command: Sequence[str], columns: int) -> tuple[str, int]:
    """What a command writes to standard output, a terminal of some columns, and its exit status."""
    own, its = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdout=its, env=environment)
    os.close(its)
    found = b""
    while part := read(own):
        found += part
        sys.stdout.write(part.decode(errors="replace"))
    return found.decode().replace("\r\n", "\n"), process.wait()


def read(terminal: int) -> bytes:
    """The next bytes; none where the command has ended."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError as error:
        if error.errno != ENDED:
            raise
        return b""


def picture(text: str, columns: int, title: str) -> str:
    """Lines with ANSI colours as an SVG image."""
    console = Console(record=True, width=columns, file=StringIO(), legacy_windows=False)
    for line in text.splitlines():
        console.print(Text.from_ansi(line))
    svg = console.export_svg(title=title, theme=SVG_EXPORT_THEME, unique_id="terminal")
    return FONT.sub("", svg)


def main(arguments: Sequence[str]) -> int:
    """Runs the command and writes the picture; returns the command's exit status."""
    out, columns, *command = arguments
    text, status = output_in_terminal(command, int(columns))
    shown = [f"$ {shlex.join(command)}", *text.splitlines()]
    Path(out).write_text(picture("\n".join(shown), int(columns), ""))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
