"""How figures look: one colour, marker and hatch per rung everywhere, and output that does not change between runs."""

import hashlib
import io
import re
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from alexconv.kernels.ladder import RUNGS

# Paul Tol's "muted" scheme, distinct for colour-blind readers (personal.sron.nl/~pault), strong hues first.
COLOURS = ("#332288", "#44AA99", "#CC6677", "#999933", "#88CCEE", "#882255", "#117733", "#DDCC77", "#AA4499")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
HATCHES = ("", "///", "xx", "---")  # lines alone: a dot of a hatch costs an SVG as much as a figure
FILLS = ("full", "none", "left", "top")
LINES = ("-", "--", "-.", ":")
PEER_COLOUR = "#222222"
PUBLISHED_COLOUR = "#A8A8A8"
COPY_COLOURS = {"h2d": "#9A9A9A", "d2h": "#D5D5D5"}
WIDTH = 7.2  # inches: the text width of a page, and a phone's screen at half size
ROW = 0.23  # inches per line of a bar or dot chart

RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "svg.fonttype": "none",  # text stays text: small files that can be searched and read aloud
    "svg.hashsalt": "alexconv",
    "path.simplify": True,
}


def look(rung: str) -> dict[str, str]:
    """Colour, marker, filling, hatch and line style of a rung, fixed by its place in the ladder; peers are black."""
    if rung not in RUNGS:
        turn = sum(map(ord, rung))
        return {
            "color": PEER_COLOUR,
            "marker": MARKERS[turn % len(MARKERS)],
            "hatch": "",
            "linestyle": ":",
            "fillstyle": "full",
        }
    index = list(RUNGS).index(rung)
    turn = index // len(COLOURS)
    return {
        "color": COLOURS[index % len(COLOURS)],
        "marker": MARKERS[(index + turn) % len(MARKERS)],
        "hatch": HATCHES[turn % len(HATCHES)],
        "linestyle": LINES[turn % len(LINES)],
        "fillstyle": FILLS[turn % len(FILLS)],
    }


def canvas(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A page-wide figure with a grid of axes, ``[rows][columns]``; ``height`` in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def settle(figure: Figure) -> None:
    """Lays the figure out once, so that every file it is written to has the same layout at no further cost."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")


def svg_text(figure: Figure, key: str, identifier: str | None = None) -> str:
    """The figure as an SVG element whose ids start with ``key``, so that many can share a page."""
    buffer = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Identifier": identifier}
    figure.savefig(buffer, format="svg", metadata=metadata)
    text = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda match: f' id="{key}-{match[1]}"' if match[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)', rf"\g<1>{key}-", text)
    text = re.sub(r"(\d+\.\d\d)\d+", r"\1", text)  # a hundredth of a point is less than anybody sees
    text = re.sub(r"\n *(?=[A-Zz\"])", " ", text)  # a step of a path to a line, or an attribute
    text = re.sub(r' transform="rotate\(-?0 [^"]*"', "", text)
    return styles_once(re.sub(r">\s+<", "><", text))


def styles_once(svg: str) -> str:
    """An SVG element with classes for its style attributes, named after what they say: a page's figures share them."""
    rules: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        rule = re.sub(r"([:;]) ", r"\1", match[1])
        name = "s" + hashlib.sha256(rule.encode()).hexdigest()[:8]
        rules[name] = rule
        return f'class="{name}"'

    text = re.sub(r'style="([^"]*)"', named, svg)
    sheet = "".join(f".{name}{{{rule}}}" for name, rule in sorted(rules.items()))
    return text.replace("><", f"><style>{sheet}</style><", 1)


def save_png(figure: Figure, path: Path) -> None:
    """The figure as a PNG for print and slides."""
    figure.savefig(path, dpi=144, metadata={"Software": None})
