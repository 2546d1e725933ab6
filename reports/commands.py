"""The main job's wall time on docs/commands.md, from the record file of that run.

python -m alexconv.reports.commands results/h200-main-job.jsonl docs/commands.md [--check]
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.records.store import Records, read
from alexconv.reports.generated import update_page
from alexconv.reports.measurements import SHORT, card_of, name_of

PART = "main-job"


def main_job(records: Records, file: str) -> str:
    """Time and machine of the file's last run that measured all of its points; raises UsageError if there is none."""
    ends = [header for header in records.headers.values() if header["type"] == "end" and not header.get("kept")]
    if not ends:
        raise UsageError(f"{file} has no finished run that measured all of its points")
    end = ends[-1]
    run = records.headers[end["run"]]
    of_run = [record for record in records.points if record["run"] == end["run"]]
    device, host = (records.headers[of_run[-1][kind]] for kind in ("device", "host"))
    statuses = Counter(record["status"] for record in of_run)
    counts = ", ".join(f"{n} {status}" for status, n in statuses.items())
    return (
        f"With empty caches it took **{end['seconds']:.1f} s** from the start of the process, compilers and CPU "
        f"references included: {len(of_run)} points ({counts}) on an {name_of(device)} ({card_of(device)}) with "
        f"{host['cores']} CPU cores, commit {str(run.get('commit', '?'))[:SHORT]}; record file `{file}`."
    )


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's part from the record file of the main job."""
    return {PART: main_job(read(files), files[0].as_posix())}


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the part, or with --check says whether it is up to date."""
    return update_page("alexconv.reports.commands", __doc__, parts, arguments, files=1)


if __name__ == "__main__":
    sys.exit(main())
