"""The main job's wall time on docs/commands.md, from the record file of that run.

python -m alexconv.reports.commands results/study/h200.jsonl docs/commands.md [--check]
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.options import exits_cleanly
from alexconv.records.store import Records, read
from alexconv.reports.generated import check, updated
from alexconv.reports.measurements import SHORT, card_of, name_of

PART = "main-job"


def main_job(records: Records, file: str) -> str:
    """What the file's last finished run took, and on what; raises UsageError for a file without one."""
    ends = [header for header in records.headers.values() if header["type"] == "end"]
    if not ends:
        raise UsageError(f"{file} holds no run that came to its end")
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


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the part, or with --check says whether it is up to date."""
    description = __doc__.splitlines()[0] if __doc__ else ""
    parser = argparse.ArgumentParser(prog="python -m alexconv.reports.commands", description=description)
    parser.add_argument("file", type=Path, metavar="FILE", help="record file of the main job")
    parser.add_argument("page", type=Path, metavar="PAGE", help="the page with the part's markers")
    parser.add_argument("--check", action="store_true", help="change nothing; exit status 1 if the page is stale")
    options = parser.parse_args(arguments)
    try:
        text = options.page.read_text()
        fresh = updated(text, {PART: main_job(read([options.file]), options.file.as_posix())})
        if not options.check:
            options.page.write_text(fresh)
    except OSError as error:
        raise UsageError(f"cannot update {options.page}: {error.strerror}") from None
    old = [options.page] if text != fresh else []
    return check(old, "alexconv.reports.commands", [options.file], options.page) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
