"""How figures look: a colour per family, a marker per precision, and output that does not change between runs."""

import hashlib
import html
import io
import re
from collections.abc import Mapping
from colorsys import hls_to_rgb, rgb_to_hls
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.precisions import PRECISIONS

# Paul Tol's "muted" scheme, distinct for colour-blind readers (personal.sron.nl/~pault).
COLOURS = ("#332288", "#88CCEE", "#44AA99", "#117733", "#999933", "#DDCC77", "#CC6677", "#882255", "#AA4499")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
FAMILIES = tuple(dict.fromkeys(rung.family for rung in LADDER))
CLASS_MARKERS = ("o", "v", "^", "s", "D", "X", "<", ">", "p", "h")
OTHER_MARKER = "P"
HOLLOW: Any = {"markerfacecolor": "white"}
INK, QUIET = "#222222", "#C0C0C0"  # peers; series in the background
ON_COLOUR = "#101010"  # text on a light colour: dark on a dark page too, where colours stay light
PUBLISHED_COLOUR = "#A8A8A8"
COPY_COLOURS = {"h2d": "#9A9A9A", "d2h": "#D5D5D5"}
FONT = "DejaVu Sans"  # which matplotlib ships, so that layouts are the same everywhere
FONTS = f"'{FONT}',Verdana,sans-serif"  # in SVG; letters of the second are as wide
PAPER = "#131619"  # of a dark page
GREY, LIGHT = 0.12, 0.6  # saturation up to which a colour is a grey; least lightness of others on a dark page
WIDTH = 7.2  # inches: the text width of a page, and a phone's screen at half size
ROW = 0.23  # inches per line of a bar or dot chart

RC: Any = {
    "font.family": FONT,
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
    "text.hinting": "none",  # widths that scale: the layout fits the drawing at any resolution
    "svg.fonttype": "none",  # text stays text: small files that can be searched and read aloud
    "svg.hashsalt": "alexconv",
    "path.simplify": True,
}


class Look(NamedTuple):
    """Colour and marker of a series; of a rung also its family and precision, for legends."""

    colour: str
    marker: str
    hollow: bool = False
    family: str = ""
    precision: str = ""

    @property
    def marked(self) -> dict[str, Any]:
        """As matplotlib's arguments for markers without a line."""
        return {"color": self.colour, "marker": self.marker, "linestyle": "", **(HOLLOW if self.hollow else {})}


def look(name: str, ladder: Ladder = LADDER) -> Look:
    """A rung has its family's colour, a peer is black; markers stand for precisions, and are hollow for NHWC peers."""
    if rung := ladder.named.get(name):
        marker = class_marker(rung.precision)
        return Look(family_colour(rung.family), marker, family=rung.family, precision=rung.precision)
    precision = next((precision for precision in PRECISIONS if name.endswith(precision) and "gemm" not in name), "")
    return Look(INK, class_marker(precision), "nhwc" in name)


def family_colour(family: str) -> str:
    """The colour of a family's rungs, fixed by its place in the ladder; families of the user's own share one."""
    place = FAMILIES.index(family) if family in FAMILIES else len(FAMILIES)
    return COLOURS[place % len(COLOURS)]


def class_marker(precision: str) -> str:
    """The marker of a precision class, fixed by its place in the table."""
    return dict(zip(PRECISIONS, CLASS_MARKERS, strict=False)).get(precision, OTHER_MARKER)


def canvas(height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A page-wide figure with a grid of axes, ``[rows][columns]``; ``height`` in inches."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def settle(figure: Figure) -> None:
    """Lays the figure out once, so that every file it is written to has the same layout at no further cost."""
    if engine := figure.get_layout_engine():
        engine.execute(figure)
    figure.set_layout_engine(None)  # with "none" in its place each file would be drawn once more, for nothing


def svg_text(figure: Figure, key: str, identifier: str | None = None) -> str:
    """The figure as an SVG element whose ids start with ``key``, so that many can share a page."""
    buffer = io.StringIO()
    metadata = {"Date": None, "Creator": None, "Identifier": identifier}
    figure.savefig(buffer, format="svg", metadata=metadata)
    text = re.sub(r"^.*?(?=<svg)", "", buffer.getvalue(), flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', text))
    ids = [name for name in re.findall(r' id="([^"]+)"', text) if name in used]
    # By number: matplotlib's own names of clip paths depend on addresses, and differ from run to run.
    names = {name: f"{key}-{number}" for number, name in enumerate(ids, 1)}
    text = re.sub(r' id="([^"]+)"', lambda match: f' id="{names[match[1]]}"' if match[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)([^")]+)', lambda match: match[1] + names[match[2]], text)
    text = COORDINATES.sub(rounded, text)
    text = re.sub(r"\n *(?=[A-Zz\"])", " ", text)  # a step of a path to a line, or an attribute
    text = re.sub(r' transform="rotate\(-?0 [^"]*"', "", text).replace(f"'{FONT}'", FONTS)
    return styles_once(re.sub(r">\s+<", "><", text))


HEX = re.compile(r"#[0-9a-f]{6}")
# Attributes that hold coordinates in points: a hundredth is invisible.  Text is never rounded.
COORDINATES = re.compile(r' (?:d|points|transform|x|y|x1|y1|x2|y2|cx|cy|r|width|height)="[^"]*"')
LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def rounded(attribute: re.Match[str]) -> str:
    """An attribute with at most two digits after each point."""
    return LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), attribute[0])


def texts(svg: str) -> list[str]:
    """The text labels of an SVG element, in the order of drawing."""
    return [html.unescape(text) for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg)]


def styles_once(svg: str) -> str:
    """An SVG element with classes for its style attributes, named after their content, and dark where its page is."""
    rules: dict[str, str] = {}

    def named(match: re.Match[str]) -> str:
        rule = re.sub(r"([:;]) ", r"\1", match[1])
        name = "s" + hashlib.sha256(rule.encode()).hexdigest()[:8]
        rules[name] = rule
        return f'class="{name}"'

    text = re.sub(r'style="([^"]*)"', named, svg)
    sheet = "".join(f".{name}{{{rule}}}" for name, rule in sorted(rules.items()))
    dark = "svg{filter:invert(.92) hue-rotate(180deg)}" if "<image" in svg else dark_sheet(rules)
    sheet += f"@media (prefers-color-scheme:dark){{{dark}}}"
    return text.replace("><", f"><style>{sheet}</style><", 1)


def dark_sheet(rules: Mapping[str, str]) -> str:
    """The rules of a dark page: backgrounds, lines and texts change places, colours become light enough."""
    paint = {name: re.findall(r"(?:fill|stroke):#[0-9a-f]{6}", rule) for name, rule in sorted(rules.items())}
    sheet = f"svg{{background:{darkened('#ffffff')}}}text{{fill:{darkened('#000000')}}}"
    return sheet + "".join(
        f".{name}{{{';'.join(HEX.sub(lambda colour: darkened(colour[0]), part) for part in parts)}}}"
        for name, parts in paint.items()
        if parts
    )


def darkened(colour: str) -> str:
    """A colour for a dark page: a grey as dark as it was light, any other with a least lightness."""
    if colour in ("#ffffff", ON_COLOUR):
        return PAPER
    hue, lightness, saturation = rgb_to_hls(*(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)))
    lightness = 0.08 + 0.84 * (1 - lightness) if saturation < GREY else max(lightness, LIGHT)
    return "#" + "".join(f"{round(255 * part):02x}" for part in hls_to_rgb(hue, lightness, saturation))


def save_png(figure: Figure, path: Path) -> None:
    """The figure as a PNG for print and slides."""
    figure.savefig(path, dpi=144, metadata={"Software": None})
