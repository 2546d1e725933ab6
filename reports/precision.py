"""The precision page's parts: the classes, errors on hard data, the search for worse data, times on data."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import frexp, fsum, inf, isfinite
from pathlib import Path

from alexconv.data import DATA_SETS, UNIFORM
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.precisions import PRECISIONS, Guarantee
from alexconv.records.labels import data_of
from alexconv.records.statistics import median_of
from alexconv.records.store import Record, Records, read
from alexconv.reports.elements import Cell, markdown_table
from alexconv.reports.frontier import NOT_MEASURED

GUARANTEE, SEARCH = "guarantee", "search"  # types of headers
OTHER = "relu"  # the data set besides uniform data in runs that compare times
CUDNN = "cuDNN"


def headers(records: Records, kind: str) -> list[Record]:
    """The headers of a type, in the order in which they were written."""
    return [header for header in records.headers.values() if header["type"] == kind]


def origin(records: Records, measured: Iterable[Record]) -> str:
    """The devices that they were measured on, in a sentence."""
    devices = {
        records.headers.get(record.get("device", ""), {}).get("name", "an unnamed device") for record in measured
    }
    return f"Measured on {' and '.join(sorted(devices))}."


def conv2d_part(records: Records) -> str:
    """For each data set and class the worst layer's error over its bound, conv2d's and below it cuDNN's."""
    measured = headers(records, GUARANTEE)
    if not measured:
        return NOT_MEASURED
    classes = list(dict.fromkeys(record["class"] for record in measured))
    rows: list[tuple[Cell, ...]] = []
    for data in DATA_SETS:
        of_data = [record for record in measured if record["data"] == data]
        for who, key in (("conv2d", "conv2d"), (CUDNN, "cudnn")):
            if any(key in record for record in of_data):
                cells = [
                    worst(record for record in of_data if record["class"] == name and key in record)(key)
                    for name in classes
                ]
                rows.append((data, who, *cells))
    layers, batches = ({record[axis] for record in measured} for axis in ("layer", "N"))
    at = ", ".join(map(str, sorted(batches)))
    note = (
        f"Error over bound, the worst of {len(layers)} layers of AlexNet at N = {at}; "
        "up to 1 is within the guarantee.  *Misplaced*: outputs that are NaN or infinite where they should not be, or "
        f"the other way round.  cuDNN: {engines(measured)}  {origin(records, measured)}"
    )
    return "\n".join([*markdown_table(("data", "who", *classes), rows), "", note])


def worst(measured: Iterable[Record]) -> Callable[[str], Cell]:
    """The cell of a class on a data set, of conv2d or of cuDNN."""
    records = list(measured)

    def cell(key: str) -> Cell:
        misplaced = sum(record[key]["misplaced"] for record in records)
        if misplaced:
            return f"{misplaced:,} misplaced"
        return max((ratio(record[key]["scaled"], record[key]["bound"]) for record in records), default=None)

    return cell


def ratio(scaled: float | str, bound: float) -> float:
    """An error over its bound; records have words for errors that are not finite."""
    quotient = float(scaled) / bound
    return quotient if isfinite(quotient) else inf


def engines(measured: Iterable[Record]) -> str:
    """The kinds of cuDNN's engines by class and layer, from the names of the kernels that ran on uniform data."""
    kinds: dict[str, dict[str, list[int]]] = {}
    for record in measured:
        engine = record.get("cudnn", {}).get("engine")
        if engine and record["data"] == UNIFORM:
            kinds.setdefault(record["class"], {}).setdefault(engine, []).append(record["layer"])
    if not kinds:
        return "its engines are not known."
    return (
        "; ".join(
            f"{name} takes "
            + ", ".join(f"{engine} on {', '.join(map(str, sorted(layers)))}" for engine, layers in of.items())
            for name, of in kinds.items()
        )
        + " (by layer)."
    )


def search_part(records: Records) -> str:
    """For each rung the largest error over its bound that the search has found, and the data."""
    latest = {record["rung"]: record for record in headers(records, SEARCH)}
    if not latest:
        return NOT_MEASURED
    order = [name for name in RUNGS if name in latest]
    rows: list[tuple[Cell, ...]] = [
        (
            f"`{name}`",
            record["class"],
            record["trials"],
            float(record["ratio"]),
            record["kind"],
            described(record["trial"]),
        )
        for name, record in ((name, latest[name]) for name in order)
    ]
    columns = ("rung", "class", "trials", "worst error over bound", "bound", "data")
    return "\n".join([*markdown_table(columns, rows), "", origin(records, latest.values())])


def described(trial: Record) -> str:
    """A trial in words: powers of two by axis, and what else is unusual."""
    parts = [f"{axis} 2^{low} to 2^{high}" for axis, (low, high) in trial["powers"].items()]
    parts += [f"{trial['singles']} single inputs"] if trial["singles"] else []
    parts += [f"signs {trial['signs']}"] if trial["signs"] != "any" else []
    parts += [f"significands {trial['significands']}"] if trial["significands"] != "any" else []
    return ", ".join(parts) or "uniform"


def times_part(records: Records) -> str:
    """Kernel times over all layers on other data over those on uniform data, of the runs that have both."""
    runs = {record["run"] for record in records.points if data_of(record) == OTHER and record.get("samples")}
    measured = [record for record in records.points if record["run"] in runs and record["status"] == "ok"]
    if not measured:
        return NOT_MEASURED
    sets = [name for name in DATA_SETS if any(data_of(record) == name for record in measured)]
    layers = sorted({record["point"]["layer"] for record in measured})
    names = list(dict.fromkeys(record["point"]["rung"] for record in measured))
    rows: list[tuple[Cell, ...]] = []
    places = {name: place for place, name in enumerate(RUNGS)}
    for name in sorted(names, key=lambda rung: places.get(rung, len(places))):
        times = {
            (data_of(record), record["point"]["layer"]): median_of(record, "kernel")
            for record in measured
            if record["point"]["rung"] == name
        }
        common = [layer for layer in layers if all(times.get((data, layer)) for data in sets)]
        if common:
            ms = {place: time or 0.0 for place, time in times.items()}
            sums = {data: fsum(ms[data, layer] for layer in common) for data in sets}
            shares = [share for data in sets if data != UNIFORM for share in over_uniform(data, sums, ms, common)]
            rows.append((f"`{name}`", ", ".join(map(str, common)), sums[UNIFORM], *shares))
    others = [f"{data} over uniform{of}" for data in sets if data != UNIFORM for of in ("", ", worst layer")]
    batch = ", ".join(map(str, sorted({record["point"]["N"] for record in measured})))
    note = f"Kernels of the layers, N = {batch}, medians added up.  {origin(records, measured)}"
    return "\n".join([*markdown_table(("rung or peer", "layers", "uniform, ms", *others), rows), "", note])


def over_uniform(
    data: str, sums: Mapping[str, float], ms: Mapping[tuple[str, int], float], layers: Iterable[int]
) -> tuple[float, float]:
    """Times on a data set over those on uniform data: over all layers, and on the worst layer."""
    return sums[data] / sums[UNIFORM], max(ms[data, layer] / ms[UNIFORM, layer] for layer in layers)


def classes_table() -> str:
    """What a class computes with, and the rungs that promise it: without tensor cores the number of each family's."""
    rows: list[tuple[Cell, ...]] = []
    for name, precision in PRECISIONS.items():
        of_class = [rung for rung in LADDER if rung.precision == name]
        families = Counter(rung.family for rung in of_class if not rung.tensor_factors)
        rungs = [f"`{family}` ({count})" for family, count in families.items()]
        rungs += [f"`{rung.name}`" for rung in of_class if rung.tensor_factors]
        output = precision.dtype.replace("float", "fp")
        rows.append((f"`{name}`", precision.operands, precision.sums, output, ", ".join(rungs)))
    return "\n".join(markdown_table(("class", "operands", "accumulator", "output", "rungs"), rows))


def guarantees_table() -> str:
    """The bounds of each class as formulas."""
    rows: list[tuple[Cell, ...]] = []
    for name, precision in PRECISIONS.items():
        promise = precision.guarantee
        tile = ", with the norm of the tile" if promise.reach else ""
        steps = f"2 K + {promise.any_steps}", f"{promise.walk} sqrt(K) + {promise.walk_steps}"
        least = ("" if promise.stored else "K ") + power(promise.least)
        rows.append((f"`{name}`{tile}", *(factor(promise, of_kind) for of_kind in steps), least))
    columns = ("factor for every finite input (`any`)", "factor for independent roundings (`walk`)", "absolute")
    return "\n".join(markdown_table(("class", *columns), rows))


def factor(promise: Guarantee, steps: str) -> str:
    """A guarantee's factor for so many steps."""
    sums = f"({steps}) {power(promise.u)}"
    if promise.rounding:
        sums = f"{power(promise.rounding)} + {sums}"
    if promise.growth == 1:
        return sums
    return f"{promise.growth} ({sums})" if promise.rounding else f"{promise.growth} {sums}"


def power(value: float) -> str:
    """A number as a multiple of a power of two."""
    fraction, exponent = frexp(value)
    return (f"{2 * fraction:g} " if fraction > 1 / 2 else "") + f"2^{exponent - 1}"


CLASSES: dict[str, Callable[[], str]] = {
    "precision-classes": classes_table,
    "precision-guarantees": guarantees_table,
}
PARTS: dict[str, Callable[[Records], str]] = {
    "hard-conv2d": conv2d_part,
    "hard-search": search_part,
    "data-times": times_part,
}


def parts(files: Sequence[Path]) -> dict[str, str]:
    """The page's parts, from the table of classes and from record files."""
    records = read(files)
    tables = {name: table() for name, table in CLASSES.items()}
    return tables | {name: part(records) for name, part in PARTS.items()}
