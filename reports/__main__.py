"""Tables, figures and one HTML page from record files."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from alexconv.options import exits_cleanly, program
from alexconv.own.folders import add_own
from alexconv.records.store import read
from alexconv.reports.comparison import gather
from alexconv.reports.measurements import measurements
from alexconv.reports.page import compose, write


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the report; returns the exit status."""
    parser = argparse.ArgumentParser(prog=program("alexconv.reports"), description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="record files; later ones win")
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="DIR", help="folder to write into")
    parser.add_argument("--device", metavar="NAME", help="which device's points, where the files hold several GPUs'")
    add_own(parser)
    options = parser.parse_args(arguments)
    report = compose(measurements(read(options.files), options.device), gather(options.files, options.device))
    page = write(report, options.out)
    print(f"{page}: {sum(1 for _ in report.tables())} tables, {sum(1 for _ in report.plots())} figures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
