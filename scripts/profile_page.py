"""Writes the table of docs/profile.md: what the host executor traced beside what Nsight Compute counted.

python scripts/profile_page.py results/h200-profile.jsonl results/host/profile.jsonl docs/profile.md [--check]
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from alexconv.profile.tables import comparison
from alexconv.reports.generated import update_page


def parts(files: Sequence[Path]) -> Mapping[str, str]:
    """The table by the name of its markers, from the GPU's file and the host's."""
    gpu, host = files
    return {"comparison": "\n".join(comparison(gpu, host))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the page, or with --check says whether it is up to date; returns the exit status."""
    return update_page("scripts.profile_page", __doc__, parts, arguments, files=2)


if __name__ == "__main__":
    sys.exit(main())
