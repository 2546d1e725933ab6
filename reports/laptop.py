"""What docs/laptop.md tells readers to expect: predicted times of cards, and how long the main job takes."""

from collections.abc import Iterable, Sequence
from functools import partial
from math import fsum
from pathlib import Path

from alexconv.kernels.ladder import LADDER
from alexconv.messages import plural
from alexconv.precisions import PEER_CLASSES
from alexconv.predict.gpu import load
from alexconv.predict.ladder import PredictedTime, predicted_ladder
from alexconv.predict.predictions import TYPE
from alexconv.records.store import Records, read
from alexconv.reports.alexnet import WORKLOAD
from alexconv.reports.comparison import MANY
from alexconv.reports.elements import Cell, markdown_table
from alexconv.reports.measurements import layer_numbers

PREDICTED = "predicted"  # the folder of predictions
RUNG = "igemm"  # the classical implicit GEMM, which all cards run
COLUMNS = ("card", "rungs", LADDER[0].name, RUNG, *(f"best {name}" for name in PEER_CLASSES))


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The part of the page: a row for each card that has predictions of the main job, and what runs took."""
    predictions = [path for path in files if path.parent.name == PREDICTED]
    jobs = [path for path in files if path not in predictions]
    text = (
        f"Predicted, not measured: kernels of AlexNet's five layers, {MANY} images, in ms; *rungs* is how many are "
        "predicted on every layer.  [Predictions](predict.md) of a card that nobody has measured may be further off "
        "than those that were compared.  Copies between host and card come on top.  *Best*: the fastest rung that runs "
        "all five layers; the best rung for each layer takes less."
    )
    table = markdown_table(COLUMNS, rows(read(predictions)))
    return {
        "expected": "\n".join(
            [text, "", *table, "", "How long AlexNet's five layers took, from empty caches:", "", *map(took, jobs)]
        )
    }


def rows(predictions: Records) -> list[tuple[Cell, ...]]:
    """A row for each card whose prediction has all five layers of the first rung, the slowest first."""
    of_cards: dict[str, Records] = {}
    for key, header in predictions.headers.items():
        if header["type"] == TYPE:
            of_cards.setdefault(header["gpu"], Records()).headers[key] = header
    cards = {
        load(name).name: sums(predicted_ladder(of_card, None, WORKLOAD, MANY)) for name, of_card in of_cards.items()
    }
    whole = [(card, of_rung) for card, of_rung in cards.items() if LADDER[0].name in of_rung]
    return [
        (card, len(of_rung), of_rung[LADDER[0].name], of_rung.get(RUNG), *map(partial(best, of_rung), PEER_CLASSES))
        for card, of_rung in sorted(whole, key=lambda pair: -pair[1][LADDER[0].name])
    ]


def sums(times: Iterable[PredictedTime]) -> dict[str, float]:
    """The five layers' milliseconds by rung, of those that have them all."""
    by_rung: dict[str, list[float]] = {}
    for time in times:
        if time.predicted is not None:
            by_rung.setdefault(time.rung, []).append(time.predicted)
    return {rung: fsum(layers) for rung, layers in by_rung.items() if len(layers) == len(layer_numbers(WORKLOAD))}


def best(of_rung: dict[str, float], precision: str) -> float | None:
    """The least time of a class."""
    return min((ms for name, ms in of_rung.items() if LADDER.named[name].precision == precision), default=None)


def took(path: Path) -> str:
    """What a run took, from the start of its process, and where."""
    records = read([path])
    headers = list(records.headers.values())
    end, host, device = (next(line for line in headers if line["type"] == kind) for kind in ("end", "host", "device"))
    where = device.get("name") or f"a CPU with {plural(host['cores'], 'core')}"
    ran = [record["point"]["rung"] for record in records.points if record["status"] == "ok"]
    images = plural(records.points[0]["point"]["N"], "image")
    return (
        f"* {plural(len(set(ran)), 'rung')}, {plural(len(ran), 'point')}, {images}, on {where}: {end['seconds']:.0f} s"
    )
