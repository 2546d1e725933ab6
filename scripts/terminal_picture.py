"""What a run showed at its end, as a picture: the table of a record file's latest points in a terminal 120 wide.

python scripts/terminal_picture.py results/h200-main-job.jsonl docs/terminal/run-gpu.svg
"""

import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from rich.console import Console

from alexconv.cli import matrix
from alexconv.records.store import read


def picture(file: Path) -> str:
    """SVG of the command and of the table that it ends with."""
    records = read([file])
    points = records.latest()
    console = Console(record=True, width=matrix.WIDEST, file=StringIO(), force_terminal=True, highlight=False)
    console.print(f"$ {records.headers[points[-1]['run']]['command']}", markup=False, soft_wrap=True)
    matrix.show(console, points)
    return console.export_svg(title="alexconv", unique_id="terminal")


def main(arguments: Sequence[str]) -> int:
    """Writes the picture; returns the exit status."""
    file, out = map(Path, arguments)
    out.write_text(picture(file))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
