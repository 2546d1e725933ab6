"""Writes tables, figures and a site from record files."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from alexconv.options import exits_cleanly, program
from alexconv.own.folders import add_own, ladder_of
from alexconv.reports.page import write
from alexconv.reports.site import report_of
from alexconv.shapes import FORWARD


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the report; returns the exit status."""
    parser = argparse.ArgumentParser(prog=program("alexconv.reports"), description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="record files; later ones win")
    parser.add_argument("-o", "--out", required=True, type=Path, metavar="DIR", help="folder to write into")
    parser.add_argument("--device", metavar="NAME", help="which device's points, where the files hold several GPUs'")
    add_own(parser)
    options = parser.parse_args(arguments)
    report = report_of(options.files, options.device, ladder_of(options).of_direction(FORWARD))
    page = write(report, options.out)
    counts = len(report.pages), len(list(report.tables())), len(list(report.plots()))
    print("{}: {} pages, {} tables, {} figures".format(page, *counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
