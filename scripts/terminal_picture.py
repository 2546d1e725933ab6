"""A picture of what a command writes to a terminal: runs it in one, or reads what it measured, and draws the output.

    python scripts/terminal_picture.py PICTURE.svg COLUMNS COMMAND...
    python scripts/terminal_picture.py PICTURE.svg --records results/h200-main-job.jsonl

Standard error, such as a progress bar, goes where this script's goes.  The exit status is the command's.  Of records,
the table that their run ended with is drawn, without a GPU.
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

from alexconv.cli import matrix
from alexconv.records import store

FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # on a network, which a picture must not use
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


def picture_of_records(file: Path) -> str:
    """The command of a record file's last points, and the table of its points that a run ends with, as an SVG image."""
    records = store.read([file])
    points = records.latest()
    shown = StringIO()
    matrix.show(Console(file=shown, width=matrix.WIDEST, force_terminal=True, highlight=False), points)
    command = records.headers[points[-1]["run"]]["command"]
    return picture(f"$ {command}\n{shown.getvalue()}", matrix.WIDEST, "")


def main(arguments: Sequence[str]) -> int:
    """Writes the picture; returns the exit status, that of the command if it runs one."""
    out, columns, *command = arguments
    if columns == "--records":
        Path(out).write_text(picture_of_records(Path(*command)))
        return 0
    text, status = output_in_terminal(command, int(columns))
    shown = [f"$ {shlex.join(command)}", *text.splitlines()]
    Path(out).write_text(picture("\n".join(shown), int(columns), ""))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
