"""The main job on docs/commands.md: its wall time, and pictures of what it ends with on a terminal."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from alexconv.cli import matrix
from alexconv.errors import UsageError
from alexconv.records.labels import device_name
from alexconv.records.store import Records, read
from alexconv.reports.measurements import SHORT, card_of

PART = "main-job"
FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # on a network, which a picture must not use


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
        f"references included: {len(of_run)} points ({counts}) on an {device_name(device)} ({card_of(device)}) with "
        f"{host['cores']} CPU cores, commit {str(run.get('commit', '?'))[:SHORT]}; record file `{file}`."
    )


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's part from the record file of the main job."""
    return {PART: main_job(read(files), files[0].as_posix())}


def picture(file: Path) -> str:
    """The command of a record file's last points, and the table that its run ends with on a terminal, as SVG."""
    records = read([file])
    points = records.latest()
    shown = StringIO()
    terminal = partial(Console, width=matrix.WIDEST, color_system="standard", no_color=False, _environ={})
    matrix.show(terminal(file=shown, force_terminal=True, highlight=False), points)
    console = terminal(file=StringIO(), record=True, legacy_windows=False)
    command = records.headers[points[-1]["run"]]["command"]
    for line in f"$ {command}\n{shown.getvalue()}".splitlines():
        console.print(Text.from_ansi(line))
    return FONT.sub("", console.export_svg(title="", theme=SVG_EXPORT_THEME, unique_id="terminal"))
