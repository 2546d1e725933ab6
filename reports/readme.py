"""The README's result table: generated from the record files, between markers, and checked to be up to date.

python -m alexconv.reports.readme results/FILE.jsonl README.md [--check]
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from alexconv.errors import AlexconvError, UsageError
from alexconv.records import Records, read
from alexconv.reports.summary import Row, rows

BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def markdown(records: Records) -> str:
    """Rungs by rows; per batch size the kernels of all layers, everything with copies, and the speedup of both."""
    table = [row for row in rows(records.latest()) if row.layer is None]
    batches = sorted({row.N for row in table})
    heads = [f"N={N} {what}" for N in batches for what in ("kernel ms", "total ms", "speedup")]
    lines = [line(["rung", "transfer", *heads, "max error"]), line(["---", "---", *["---:"] * (len(heads) + 1)])]
    for name in dict.fromkeys((row.rung, row.transfer) for row in table):
        found = {row.N: row for row in table if (row.rung, row.transfer) == name}
        cells = [cell for N in batches for cell in figures(found.get(N))]
        worst = max((row.error for row in found.values() if row.error is not None), default=None)
        lines.append(line([*name, *cells, "" if worst is None else f"{worst:.1e}"]))
    return "\n".join([*lines, "", caption(records)])


def figures(row: Row | None) -> list[str]:
    """Kernel and total in ms, and the speedup of the total over the serial CPU; the status where there are none."""
    if row is None:
        return ["", "", ""]
    if row.kernel is None or row.total is None:
        return [row.status, "", ""]
    speedup = row.speedup("total")
    return [f"{row.kernel:.3f}", f"{row.total:.3f}", f"{speedup:,.0f}x" if speedup else ""]


def line(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(cells)} |"


def caption(records: Records) -> str:
    """Where the figures come from: devices, commands, the meaning of the columns."""
    by_kind: dict[str, list[str]] = {"device": [], "run": []}
    for header in records.headers.values():
        if header["type"] == "device":
            by_kind["device"].append(f"{header['name']} (driver {header.get('driver', '?')}, CUDA {header['toolkit']})")
        elif header["type"] == "run":
            by_kind["run"].append(f"`{header['command']}`")
    return (
        f"All five layers, {', '.join(dict.fromkeys(by_kind['device']))}.  Kernel: all kernels of the rung, hot; total: "
        "host arrays to host arrays; medians of ms per batch.  Speedup: serial CPU (one core, -O2) over total.  "
        f"Max error: over the norms of patch and filter.  Made by {', '.join(dict.fromkeys(by_kind['run']))}."
    )


def updated(text: str, table: str) -> str:
    """The text with the table between the markers; raises UsageError when they are missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the README has no markers {BEGIN} and {END}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the table into the README, or with --check says whether it is the same."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    check = "--check" in words
    try:
        *files, readme = [Path(word) for word in words if word != "--check"]
        text = readme.read_text()
        fresh = updated(text, markdown(read(files)))
    except (ValueError, OSError, AlexconvError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if check and fresh != text:
        print(
            f"{readme} is stale: run python -m alexconv.reports.readme {' '.join(map(str, words[:-1]))}",
            file=sys.stderr,
        )
        return 1
    if not check:
        readme.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
