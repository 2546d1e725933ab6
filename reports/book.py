"""The book: chapters from templates, with excerpts of the kernels, times, predictions, counters and drawings."""

import json
import lzma
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from math import nan
from pathlib import Path
from statistics import median
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from matplotlib import rc_context

from alexconv.errors import UsageError
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER, RUNGS
from alexconv.kernels.rung import FOLDER
from alexconv.precisions import PRECISIONS
from alexconv.records.compressed import files_in
from alexconv.records.labels import changed_in
from alexconv.records.statistics import faster
from alexconv.records.store import DIRECTION, Record, read
from alexconv.reports import wholes
from alexconv.reports.book_drawings import DRAWINGS
from alexconv.reports.comparison import cudnn_of
from alexconv.reports.excerpts import code_of, line_with
from alexconv.reports.measurements import card_of
from alexconv.reports.style import RC, svg_text
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent  # of the checkout
TEMPLATES = Path(__file__).parent / "book"
STYLES = Path(__file__).parent / "templates" / "book.css"
LAYER, FIRST_LAYER, N = 3, 1, 128
COLUMNS = 120  # of the Markdown
WARP_BYTES = 128  # a float of each thread
CLOSE = 1.5  # ratios below have a third digit
TIMES, PEERS = "h200-main-job.jsonl", "h200-frontier.jsonl"
PREDICTED, COUNTERS, CEILINGS = "predicted/h200.jsonl", "book/h200-profile.jsonl", "h200-ceilings.jsonl"
EXERCISES = "book/exercises.json.xz"
GRADIENTS = "gradients/*.jsonl"
WHOLE = "h200-networks-whole.jsonl"
PLAIN = {  # counters in plain words
    "l1_throughput": "L1 and shared memory busy",
    "l2_throughput": "L2 busy",
    "dram_throughput": "memory busy",
    "fma_pipe": "multipliers busy",
    "tensor_pipe": "tensor cores busy",
    "issue_slots": "issue slots used",
    "active_lanes": "active threads per warp, of 32",
    "registers": "registers per thread",
    "achieved_occupancy": "resident warps, of the maximum",
    "stall_lg_throttle": "cycles a warp waits to issue a memory access",
    "stall_long_scoreboard": "cycles a warp waits for a load",
    "stall_barrier": "cycles a warp waits at a barrier",
    "global_load_sectors_per_request": "32-byte sectors per load of a warp",
}
CALLED = (
    *("ms", "predicted", "counter", "error", "faster", "rate", "roof", "memory_rate", "shared_rate", "results"),
    *("cudnn", "against_cudnn", "cudnn_kernels", "cudnn_workspace", "fft_size", "peers_elsewhere"),
    *("gradients", "gradient_faster", "gradient_card"),
    *("schedules", "schedules_card", "schedule_us"),
    *("excerpt", "printed", "printed_ms", "counted", "solution"),
)
FFT = re.compile(r"fft2d_r2c_(\d+)x\1")  # cuDNN's transform of real planes, with the size of its tiles
PERCENT = ("throughput", "pipe", "slots", "occupancy")


@dataclass(frozen=True)
class Chapter:
    """A chapter: its file, title, the terms that it explains, and its text in Markdown."""

    name: str
    title: str
    explains: tuple[str, ...]
    text: str


class Sources:
    """The book's records and sources, as its templates use them.  Raises UsageError for anything missing."""

    def __init__(self, results: Path) -> None:
        self._results = results

    @cached_property
    def _printed(self) -> dict[str, str]:
        recording = json.loads(lzma.decompress((self._results / EXERCISES).read_bytes()))
        return {answer["command"]: answer["output"] for answer in recording["commands"]}

    def _points(self, file: str) -> list[Record]:
        return [record for record in read([self._results / file]).latest() if record["point"]["N"] == N]

    def _headers(self, file: str, kind: str) -> list[Record]:
        return [header for header in read([self._results / file]).headers.values() if header["type"] == kind]

    @cached_property
    def _records(self) -> dict[tuple[str, int], Record]:
        return {
            (record["point"]["rung"], record["point"]["layer"]): record
            for file in (PEERS, TIMES)
            for record in self._points(file)
            if record["status"] == "ok" and record["point"]["transfer"] == "pageable"
        }

    @cached_property
    def _times(self) -> dict[tuple[str, int], float]:
        return {point: median(record["samples"]["kernel"]) for point, record in self._records.items()}

    @cached_property
    def _errors(self) -> dict[tuple[str, int], float]:
        return {point: float(record["error"]["scaled"]) for point, record in self._records.items()}

    @cached_property
    def _predicted(self) -> dict[tuple[str, int], float]:
        times = {}
        for record in self._headers(PREDICTED, "prediction"):
            point = record["point"]
            if record["status"] == "ok" and point["N"] == N:
                rung, conv = RUNGS.get(point["rung"]), WORKLOADS[point["workload"]].layer(point["layer"])
                if (
                    point["workload"] == "alexnet"
                    and rung
                    and rung.recorded(point["constants"]) == rung.resolve(conv, {}, N)
                ):
                    times[point["rung"], point["layer"]] = float(record["ms"])
        return times

    @cached_property
    def _counters(self) -> dict[tuple[str, str], Mapping[str, float]]:
        profiles = self._headers(COUNTERS, "profile")
        return {(record["point"]["rung"], record["entry"]): record["metrics"] for record in profiles}

    @cached_property
    def _roofs(self) -> Mapping[str, float]:
        roofs: Mapping[str, float] = self._headers(CEILINGS, "ceilings")[-1]["flops"]
        return roofs

    # ---- What templates call

    def ms(self, rung: str, layer: int = LAYER) -> float:
        """Measured time of all kernels of a rung, in ms."""
        if (rung, layer) not in self._times:
            raise UsageError(f"no record of {rung} on layer {layer} in {TIMES}")
        return self._times[rung, layer]

    def peers_elsewhere(self) -> str:
        """The words that cuDNN was timed on another card than the rungs; empty for the same one."""
        cards = {card_of(header) for file in (TIMES, PEERS) for header in self._headers(file, "device")}
        return ", cuDNN's on another card of the same kind" if len(cards) > 1 else ""

    def predicted(self, rung: str, layer: int = LAYER) -> float | None:
        """Predicted time in ms; None without a prediction for the rung's current constants."""
        return self._predicted.get((rung, layer))

    def error(self, rung: str, layer: int = LAYER) -> float:
        """A rung's largest error over the norms of patch and filter."""
        if (rung, layer) not in self._errors:
            raise UsageError(f"no record of {rung} on layer {layer} in {TIMES}")
        return self._errors[rung, layer]

    def counter(self, rung: str, metric: str, entry: str | None = None) -> float:
        """A counter of the rung's longest kernel, or of an entry point."""
        counters = {kernel: metrics for (name, kernel), metrics in self._counters.items() if name == rung}
        if not counters:
            raise UsageError(f"no counters of {rung} in {COUNTERS}")
        chosen = entry or max(counters, key=lambda kernel: counters[kernel]["duration_ns"])
        return counters[chosen][metric]

    def cudnn(self, kind: str, layer: int = LAYER) -> float:
        """cuDNN's time in a class, in ms: the faster of its layouts."""
        return min(self.ms(peer, layer) for peer in cudnn_of(PRECISIONS[kind]))

    def _fastest_cudnn(self, kind: str, layer: int) -> Mapping[str, Any]:
        """What the record says of cuDNN in the faster of its layouts."""
        fastest = min(cudnn_of(PRECISIONS[kind]), key=lambda peer: self.ms(peer, layer))
        facts: Mapping[str, Any] = self._records[fastest, layer]["peer"]
        return facts

    def cudnn_kernels(self, kind: str, layer: int = LAYER) -> str:
        """The names of cuDNN's kernels, in the order of their launches."""
        names = (f"`{function_name(symbol)}`" for symbol in self._fastest_cudnn(kind, layer)["kernels"])
        runs = [(name, len([*run])) for name, run in groupby(names)]
        times = {1: "", 2: " (twice)"}
        return ", ".join(name + times.get(count, f" ({count} times)") for name, count in runs)

    def cudnn_workspace(self, kind: str, layer: int = LAYER) -> float:
        """The scratch memory of cuDNN, in MB."""
        return float(self._fastest_cudnn(kind, layer)["workspace_bytes"] / 1e6)

    def fft_size(self, kind: str, layer: int = LAYER) -> int:
        """The side of the square tiles that cuDNN's FFT transforms; raises UsageError if it uses none."""
        match = FFT.search(self.cudnn_kernels(kind, layer))
        if not match:
            raise UsageError(f"cuDNN uses no FFT in {kind} on layer {layer} in {PEERS}")
        return int(match[1])

    def faster(self, slow: str, fast: str, layer: int = LAYER) -> str:
        """How many times faster a rung is than another."""
        ratio = self.ms(slow, layer) / self.ms(fast, layer)
        return f"{figures(ratio, 3 if ratio < CLOSE else 2)}×"

    def against_cudnn(self, rung: str, layer: int = LAYER) -> str:
        """How many times faster or slower a rung is than cuDNN in its class."""
        return faster(self.cudnn(RUNGS[rung].precision, layer) / self.ms(rung, layer))

    def rate(self, rung: str, layer: int = LAYER) -> float:
        """Floating-point operations of the layer per second, in units of 10^12."""
        return 2 * WORKLOADS["alexnet"].layer(layer).macs(N) / self.ms(rung, layer) / 1e9

    def roof(self, kind: str) -> float:
        """The measured peak of this GPU by type of factors, in 10^12 operations per second."""
        return self._roofs[kind] / 1e12

    def memory_rate(self) -> float:
        """The measured rate of copies within the GPU's memory, in TB/s."""
        return float(self._headers(CEILINGS, "ceilings")[-1]["copy_bytes_per_s"] / 1e12)

    def shared_rate(self) -> float:
        """The rate of all L1 caches and shared memories, in TB/s: a load of a warp per cycle and multiprocessor."""
        (device,) = self._headers(CEILINGS, "device")
        return float(device["multiprocessors"] * device["clock_khz"] * WARP_BYTES / 1e9)

    def results(self, *rows: tuple[str, str] | tuple[str, str, str]) -> str:
        """A table: for each rung predicted and measured time, against cuDNN, and a counter."""
        lines = [
            "| kernel | predicted, ms | measured, ms | against cuDNN | counter |",
            "|---|---:|---:|---:|---|",
        ]
        for rung, metric, *entry in rows:
            expected = self.predicted(rung)
            cells = (
                f"[`{rung}`]({self.link(RUNGS[rung].path)})",
                "–" if expected is None else figures(expected),
                figures(self.ms(rung)),
                self.against_cudnn(rung),
                f"{PLAIN[metric]}: {value_of(metric, self.counter(rung, metric, *entry))}",
            )
            lines.append(f"| {' | '.join(cells)} |")
        layers = ", ".join(f"`{rung}` {figures(self.ms(rung, FIRST_LAYER))}" for rung, *_ in rows if self._has(rung))
        return "\n".join([*lines, *(["", f"On layer 1, ms: {layers}."] if layers else [])])

    @cached_property
    def _gradients(self) -> dict[tuple[str, str, int], Record]:
        """Records of gradients, by direction, rung and layer, of rungs with their default constants."""
        records = read(files_in(self._results, GRADIENTS)).latest()
        return {
            (record["point"][DIRECTION], record["point"]["rung"], record["point"]["layer"]): record
            for record in records
            if record["status"] == "ok" and record["point"]["N"] == N and not changed_in(record)
        }

    def _gradient(self, direction: str, rung: str, layer: int) -> Record:
        record = self._gradients.get((direction, rung, layer))
        if record is None:
            raise UsageError(f"no record of {rung} on layer {layer} in {GRADIENTS}")
        return record

    def _gradient_ms(self, direction: str, rung: str, layer: int) -> float:
        return float(median(self._gradient(direction, rung, layer)["samples"]["kernel"]))

    def gradient_faster(self, direction: str, slow: str, fast: str, layer: int) -> str:
        """How many times faster a gradient's rung is than another."""
        ratio = self._gradient_ms(direction, slow, layer) / self._gradient_ms(direction, fast, layer)
        return f"{figures(ratio, 3 if ratio < CLOSE else 2)}×"

    def gradient_card(self) -> str:
        """The GPU of the records of gradients."""
        headers = read(files_in(self._results, GRADIENTS)).headers.values()
        return " and ".join(dict.fromkeys(header["name"] for header in headers if header["type"] == "device"))

    def gradients(self, direction: str, rungs: Sequence[str], layers: Sequence[int]) -> str:
        """A table of a gradient's rungs and cuDNN: times, the largest error, whether every run has the same bits."""
        columns = ["kernel", *(f"layer {layer}, ms" for layer in layers), "max error", "same bits"]
        lines = [f"| {' | '.join(columns)} |", f"|---|{'---:|' * (len(layers) + 1)}---|"]
        for name in rungs:
            rung, records = ALL_DIRECTIONS.named[name], [self._gradient(direction, name, layer) for layer in layers]
            times = [figures(self._gradient_ms(direction, name, layer)) for layer in layers]
            error = max(float(record["error"]["scaled"]) for record in records)
            same = "no" if rung.order_varies else "yes"
            lines.append(f"| [`{name}`]({self.link(rung.path)}) | {' | '.join(times)} | {error:.1e} | {same} |")
        fastest = [
            min(
                (
                    self._gradient_ms(direction, peer, layer)
                    for peer in cudnn_of(PRECISIONS["fp32"])
                    if (direction, peer, layer) in self._gradients
                ),
                default=None,
            )
            for layer in layers
        ]
        times = ["wrong" if ms is None else figures(ms) for ms in fastest]
        return "\n".join([*lines, f"| cuDNN, fp32 | {' | '.join(times)} | | |"])

    def schedules(self, *names: str) -> str:
        """A table of schedules, each against the one before it, for one image."""
        lines = ["| schedule | predicted, µs | measured, µs | gain |", "|---|---:|---:|---|"]
        timed = self._timed_schedules
        for before, name in zip((None, *names), names, strict=False):
            gain = faster(timed[before].latency / timed[name].latency) if before else "–"
            cells = f"`{name}`", f"{timed[name].predicted:.0f}", figures(timed[name].latency), gain
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    @cached_property
    def _timed_schedules(self) -> dict[str, wholes.Timed]:
        networks, _ = wholes.networks_in(self._results / WHOLE)
        return wholes.schedules_of(networks, wholes.ONE)

    def schedule_us(self, name: str) -> str:
        """Microseconds of a schedule's kernels for one image."""
        return f"{self._timed_schedules[name].kernels:.0f}"

    def schedules_card(self) -> str:
        """The GPU of these records."""
        headers = read([self._results / WHOLE]).headers.values()
        return " and ".join(dict.fromkeys(header["name"] for header in headers if header["type"] == "device"))

    def _has(self, rung: str) -> bool:
        return (rung, FIRST_LAYER) in self._times

    @staticmethod
    def link(path: Path) -> str:
        """A file of the kernels from a chapter."""
        return f"../../kernels/{path.relative_to(FOLDER)}"

    def excerpt(self, file: str, *pieces: tuple[str, ...]) -> str:
        """Pieces of a kernel's file, or of an example's: see ``excerpts.code_of``."""
        example = file.startswith("examples/")
        path = (ROOT if example else FOLDER) / file
        link = f"../../{file}" if example else self.link(path)
        name = file if example else f"kernels/{file}"
        return f"```cuda\n{code_of(path, name, pieces)}\n```\n\n[`{name}`]({link})"

    def _output(self, command: str) -> list[str]:
        outputs = [output for typed, output in self._printed.items() if typed.startswith(command)]
        if len(outputs) != 1:
            raise UsageError(f"{EXERCISES} has {len(outputs)} {command!r}: run scripts/measure/book_exercises.py")
        return outputs[0].splitlines()

    def printed(self, command: str, *texts: str, start: str = "", count: int | None = None) -> str:
        """What a command of the exercises printed: its lines that have one of the texts, or all.

        With ``start`` only the lines from the first one with that text on, ``count`` of them.
        """
        lines = self._output(command)
        first = line_with(start, lines, 0, f"what {command!r} printed")
        chosen = [line.rstrip() for line in lines[first:] if not texts or any(text in line for text in texts)][:count]
        if not chosen:
            raise UsageError(f"{command!r} printed nothing with {' or '.join(texts)}")
        return "\n".join(["```text", *chosen, "```"])

    def printed_ms(self, command: str, text: str) -> float:
        """The predicted time in the first line with a text that a command of the exercises printed."""
        lines = self._output(command)
        match = re.search(r"predicted: (\S+) ms", lines[line_with(text, lines, 0, f"what {command!r} printed")])
        if not match:
            raise UsageError(f"{command!r} printed no prediction with {text!r}")
        return float(match[1])

    def counted(self, command: str, text: str) -> int:
        """How many lines with a text a command of the exercises printed."""
        return sum(text in line for line in self._output(command))

    @staticmethod
    def solution(chapter: str) -> str:
        """The change that solves a chapter's exercise."""
        lines = (TEMPLATES / f"{chapter}.diff").read_text().splitlines()
        return "\n".join(["```diff", *(line for line in lines if not line.startswith(("--- ", "+++ ", "@@"))), "```"])


class Unanswered(Sources):
    """The same without the recording of the exercises, which is made from the chapters."""

    def _output(self, command: str) -> list[str]:
        return []

    def printed(self, command: str, *texts: str, start: str = "", count: int | None = None) -> str:
        """Nothing."""
        return ""

    def printed_ms(self, command: str, text: str) -> float:
        """Not a number."""
        return nan


def tile_count(layer: int, images: int, side: int = 128) -> int:
    """How many square tiles the layer's matrix of outputs has."""
    conv = WORKLOADS["alexnet"].layer(layer)
    return -(-conv.M // side) * -(-images * conv.E * conv.F // side)


def function_name(symbol: str) -> str:
    """The function that a kernel's symbol names, without namespaces, parameters and sizes of tiles."""
    name = symbol.partition("_tilesize")[0]
    rest = re.sub("^_ZN?", "", symbol)
    while match := re.match(r"\d+", rest):  # the length of a namespace's or the function's name
        end = match.end() + int(match[0])
        name, rest = rest[match.end() : end], rest[end:]
    return name


def figures(value: float, count: int = 3) -> str:
    """A number with a given number of significant digits."""
    if value >= 10**count:
        return f"{value:.0f}"
    text = f"{value:#.{count}g}"
    return text.rstrip(".") if "e" not in text else f"{value:.{count}f}"


def value_of(metric: str, value: float) -> str:
    """A counter's value with its unit."""
    return f"{value:.0f} %" if metric.endswith(PERCENT) else figures(value, 2)


def templates() -> list[Path]:
    """The chapters' templates in order."""
    return sorted(TEMPLATES.glob("[0-9]*.j2"))


def environment(sources: Sources) -> Environment:
    """What templates may use."""
    jinja = Environment(loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, keep_trailing_newline=True)
    jinja.globals |= {name: getattr(sources, name) for name in CALLED}
    conv = WORKLOADS["alexnet"].layer(LAYER)
    jinja.globals |= {"conv": conv, "batch": N, "operations": 2 * conv.macs(N), "tile_count": tile_count}
    jinja.filters |= {"figures": figures}
    return jinja


def commands(text: str) -> list[str]:
    """The commands of a chapter that its reader types."""
    return [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]


def chapters(results: Path, *, with_answers: bool = True) -> list[Chapter]:
    """The chapters, without what commands printed if asked; raises UsageError where a record or excerpt is missing."""
    named = environment((Sources if with_answers else Unanswered)(results))
    book = []
    for path in templates():
        source = path.read_text()
        match = re.match(r"\{#- explains:(.*?)-#\}\n", source, re.DOTALL)
        if not match:
            raise UsageError(f"{path.name} does not begin with the terms that it explains")
        terms = tuple(term.strip() for term in " ".join(match[1].split()).split(";") if term.strip())
        text = reflowed(named.get_template(path.name).render().lstrip())
        title = text.partition("\n")[0].removeprefix("# ")
        book.append(Chapter(path.name.removesuffix(".md.j2"), title, terms, text))
    return book


def reflowed(text: str) -> str:
    """Markdown with its plain paragraphs rewrapped: the numbers in them vary in length."""
    parts = re.split(r"(```.*?```|\n\n+)", text, flags=re.DOTALL)
    return "".join(_filled(part) if _PARAGRAPH.match(part) else part for part in parts)


# Anything but a table, heading, picture, list, tag or code; and marks that would begin a list at the start of a line.
_PARAGRAPH = re.compile(r"(?!```|\n|\||#|!|<|- |\d+\. |    |-{3})\S")
_BULLET = re.compile(r" ([-+*=#]|\d+\.) ")


def _filled(paragraph: str) -> str:
    glued = _BULLET.sub("\0\\1\0", " ".join(paragraph.replace(".  ", ".\1\1").split()))
    lines = textwrap.fill(glued.replace("\1\1", "\1 "), COLUMNS, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ").replace("\1", " ").replace(" \n", "\n")


def pages(results: Path) -> Iterator[tuple[str, str]]:
    """Files of the book in Markdown, by name: chapters with links to their neighbours, contents, and drawings."""
    book = chapters(results)
    for number, chapter in enumerate(book):
        around = ["[Contents](README.md)"]
        if number:
            around.insert(0, f"[← {book[number - 1].title}]({book[number - 1].name}.md)")
        if number + 1 < len(book):
            around.append(f"[{book[number + 1].title} →]({book[number + 1].name}.md)")
        yield f"{chapter.name}.md", f"{chapter.text.rstrip()}\n\n---\n\n{' · '.join(around)}\n"
    contents = "\n".join(
        f"{number}. [{chapter.title.partition('. ')[2]}]({chapter.name}.md)" for number, chapter in enumerate(book)
    )
    intro = environment(Sources(results)).get_template("README.md.j2").render()
    yield "README.md", reflowed(intro).replace("CONTENTS", contents)
    for name, svg in drawings(Sources(results)).items():
        yield f"figures/{name}.svg", svg


def drawings(sources: Sources) -> dict[str, str]:
    """The drawings as SVG, by name."""
    with rc_context({**RC, "axes.grid": False}):
        return {name: svg_text(draw(sources), f"book-{name}", name) for name, draw in DRAWINGS.items()}


def site(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The chapters and the contents as HTML pages, from their Markdown; drawings are part of the pages.

    The templates' tags stay, which fold answers.
    """
    markdown = MarkdownIt("commonmark", {"html": True}).enable("table")
    for name, text in files.items():
        if not name.endswith(".md"):
            continue
        body = markdown.render(text).replace("<pre>", '<pre tabindex="0">')  # scrolls, by the keyboard too
        for drawing, svg in files.items():
            if drawing.endswith(".svg"):
                image = re.compile(rf'<p><img src="{re.escape(drawing)}" alt="([^"]*)" ?/?></p>')
                if match := image.search(body):
                    figure = f'<figure role="img" aria-label="{match[1]}">{svg}</figure>'
                    body = body.replace(match[0], figure)
        body = re.sub(r'href="(?:README)\.md"', 'href="index.html"', body)
        body = re.sub(r'href="(\d\d-[\w-]+)\.md"', r'href="\1.html"', body)
        for rung in LADDER:  # its page shows its source
            body = body.replace(f'href="../../kernels/{rung.file}"', f'href="../rung-{rung.name}.html"')
        body = re.sub(r'href="\.\./(?!rung-|\.\.)', 'href="../../docs/', body)  # the site is next to docs
        title = text.partition("\n")[0].removeprefix("# ")
        page = HTML.format(title=escape(title), style=STYLES.read_text(), body=body)
        yield ("index.html" if name == "README.md" else f"{name.removesuffix('.md')}.html"), page


HTML = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
{style}</style>
<nav aria-label="Report"><a href="../index.html">The report</a> · <a href="../rungs.html">All rungs</a></nav>
<main>
{body}</main>
</html>
"""
