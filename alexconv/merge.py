"""Joins record files into one, such as those of a job array.

python -m alexconv.merge study/part-*.jsonl --out study/records.jsonl
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from alexconv.options import exits_cleanly, program
from alexconv.records.merging import merge

MODULE = "alexconv.merge"


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="record files; for a point in several, the last of each GPU model counts",
    )
    options.add_argument("-o", "--out", type=Path, required=True, metavar="FILE", help="a file that does not exist yet")
    return options


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Joins the files; returns the exit status."""
    options = parser().parse_args(arguments)
    merged = merge(options.files, options.out)
    again = f"; {merged.again} repeat earlier points, of which the last counts" if merged.again else ""
    print(f"{options.out}: {merged.points} records of points from {len(options.files)} files{again}")
    if merged.unreadable:
        print(f"{merged.unreadable} unreadable line(s) were left out")
    return 0


if __name__ == "__main__":
    sys.exit(main())
