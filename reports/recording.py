"""Recordings of a terminal (asciicasts) as SVG: the lines appear at their seconds, then stay."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap

COLUMN, LINE, MARGIN, SIZE = 9.0, 21, 14, 15  # pixels
PAUSE = 1.5  # seconds before a command, as if it were typed
STYLES = {  # of lines, by what they hold
    r"^\$ ": "command",
    r"^  \w+ +ok ": "right",
    r"^  \w+ +\d+ found ": "wrong",
}
SHEET = (
    ".command{fill:#fff;font-weight:bold}.right{fill:#7ee787}.wrong{fill:#ffa198;font-weight:bold}"
    f"text{{font:{SIZE}px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d0d7de;"
    "white-space:pre;animation:show 0s both}@keyframes show{from{visibility:hidden}to{visibility:visible}}"
    "@media(prefers-reduced-motion:reduce){text{animation:none}}"
)


def lines(file: Path) -> Iterator[tuple[float, str]]:
    """Each line of the recording with its second, wrapped at words to the recording's width."""
    header, *events = map(json.loads, file.read_text().splitlines())
    pauses = 0.0
    for second, _, text in events:
        line = text.rstrip("\r\n")
        pauses += PAUSE * line.startswith("$ ")
        indent = re.match(" *", line)[0] if line.strip() else ""  # type: ignore[index]
        for part in wrap(line, header["width"], subsequent_indent=indent, drop_whitespace=True) or [""]:
            yield second + pauses, part


def picture(file: Path) -> str:
    """The recording as SVG."""
    frames = list(lines(file))
    columns = max(len(text) for _, text in frames)
    width, height = 2 * MARGIN + COLUMN * columns, 2 * MARGIN + LINE * len(frames)
    rows = []
    for row, (second, text) in enumerate(frames):
        style = next((name for pattern, name in STYLES.items() if re.search(pattern, text)), "")
        place = f'x="{MARGIN}" y="{MARGIN + LINE * row + SIZE}" textLength="{COLUMN * len(text):g}"'
        kind = f' class="{style}"' if style else ""
        shown = html.escape(text, quote=False).replace(" ", "\N{NO-BREAK SPACE}")
        rows.append(f'<text {place}{kind} style="animation-delay:{second:g}s">{shown}</text>')
    body = "\n".join(rows)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}">\n<style>{SHEET}</style>\n'
        f'<rect width="100%" height="100%" rx="8" fill="#161b22"/>\n{body}\n</svg>\n'
    )
