"""Writes a course assignment: a handout, and a grader's file.

alexconv assignment hw3 --study ece408-2019

The grader's file has what students do not know: hidden shapes, seed, points, limits.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.grade import assignment
from alexconv.grade.assignment import CONFIG, GRADER, HANDOUT
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.options import exits_cleanly, natural, positive, program

MODULE = "alexconv.assignment"
STUDY = "ece408-2019"


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    add = options.add_argument
    add("folder", type=Path, help="the new folder; its name is the assignment's")
    add("--study", default=STUDY, help=f"layers and op times of {', '.join(STUDY_WORKLOADS)} (default: {STUDY})")
    add("--N", type=natural, help="images of the timed batch (default: the study's largest, up to 10000)")
    add(
        "--scale",
        type=positive,
        default=1.0,
        help="factor for the study's op times on another GPU (default: 1)",
    )
    add("--seed", type=natural, help="seed of hidden shapes and data (default: a random one)")
    return options


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the folder; raises UsageError where it exists."""
    options = parser().parse_args(arguments)
    folder: Path = options.folder
    name = folder.name
    if not name or not name.isprintable():
        raise UsageError(f"the folder's name is the assignment's, not {name!r}")
    new_assignment = assignment.new(name, options.study, options.N, options.scale, options.seed)
    assignment.write(new_assignment, folder)
    print(f"{folder / HANDOUT}: for students: conv.cu, README.md, Makefile, shapes.json")
    print(f"{folder / GRADER / CONFIG}: for you alone: hidden shapes, seed, points, limits")
    print(f"next: alexconv grade {folder} SUBMISSIONS -o SCORES")
    return 0


if __name__ == "__main__":
    sys.exit(main())
