"""Every table and figure of the studies, with its counterpart here or why there is none."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from alexconv.reports.elements import Cell, Section, Table
from alexconv.reports.published import ALEXNET_STUDY

PROGRAM = "time of a whole program that loads a framework and a model: no rung corresponds to it"
ACCURACY = "docs/accuracy.md: accuracy of a digits model by precision; the study's model and images are not public"
HOST_CALLS = "times of host calls: here allocation is separate and not timed; copies are in the figure"
LISTING = "the study's own source; ours is on each rung's page"
DATA_SHOWN = "the data that they show, of our kernels"
ORGANISATION = "about the team or its files, not about a GPU"


class Item(NamedTuple):
    """A table, figure or list of a study; ``ours`` are the keys of tables and figures here, ``note`` what differs."""

    study: str
    name: str
    shows: str
    ours: tuple[str, ...] = ()
    note: str = ""


def alexnet() -> Iterator[Item]:
    """The AlexNet study's."""
    study = ALEXNET_STUDY
    yield Item(study, "Headline", "0.41 s, 2490x, 3696.5x", ("headline",))
    yield Item(study, "Fig. 1", "drawing of a convolution layer", (), "drawn in the book, chapter 1")
    yield Item(study, "Fig. 2a, 2b", "drawing of the grids", ("table-1",), "the grids as numbers; drawn in the book, 1")
    for number, shows in enumerate(("abbreviations", "blocks", "copies"), start=1):
        yield Item(study, f"Table {number}", shows, (f"table-{number}",))
    for number, shows in zip(range(4, 8), ("kernel time", "speedup", "kernel time", "speedup"), strict=True):
        yield Item(
            study,
            f"Table {number}",
            f"{shows}, {'one kernel' if number < 6 else 'several kernels'}",
            (f"table-{number}",),
        )
    for number in range(3, 8):
        yield Item(study, f"Fig. {number}a", f"speedup of layer {number - 2}", (f"fig-{number}a",))
        yield Item(study, f"Fig. {number}b", f"breakdown of layer {number - 2}", (f"fig-{number}b",))
    for letter in "abc":
        yield Item(
            study,
            f"Fig. 8{letter}",
            "overall speedup",
            (f"fig-8{letter}",),
            "the study prints 8c alone; a and b derived",
        )
    yield Item(study, "Table 8", "coalesced or not, layer 1", ("table-8",))
    yield Item(study, "Table 9", "kernels and copies of the best", ("table-9",))
    for number in (9, 10):
        note = "drawn from the rung's constants; the code is on the rung's page"
        yield Item(study, f"Fig. {number}", "code and drawing of accesses", (f"fig-{number}",), note)
    for name in ("11", "12a", "12b", "12c", "13a", "13b", "14a", "14b", "15a", "15b", "16"):
        yield Item(study, f"Fig. {name}", FIGURES[name], (f"fig-{name}",))
    for number in (10, 11):
        yield Item(study, f"Table {number}", "time against the batch", (f"table-{number}", f"table-{number}-fit"))


FIGURES = {
    "11": "coalesced or not",
    **dict.fromkeys(("12a", "12b", "12c"), "copies and kernels"),
    **dict.fromkeys(("13a", "13b"), "speedup by layer and batch"),
    **dict.fromkeys(("14a", "15a"), "time against the batch"),
    **dict.fromkeys(("14b", "15b"), "speedup against the batch"),
    "16": "partial planes or atomics",
}


def of_2018() -> Iterator[Item]:
    """The course's study of 2018."""
    study = "ece408-2018"
    times, gains, counters = (f"{study}-{name}" for name in ("by-batch", "gains", "counters"))
    for name in ("Milestone 3: baseline", *(f"Optimization {number}" for number in range(1, 8))):
        yield Item(study, f"{name}, op times", "three batches, two layers", (times, gains))
    yield Item(study, "Milestone 2, op times", "serial CPU", (times,), "the first rows: with our serial C++")
    yield Item(study, "Table 1", "grid, block, efficiencies, occupancy", (f"{study}-properties", "launches"))
    shown = {
        "1, 5, 7, 10, 13": "timelines of nvprof",
        "2, 4, 6A, 8, 9, 11": "use of compute and memory",
        "3, 6B, 14": "bandwidth of each memory",
        "12": "use of multiprocessors",
    }
    for numbers, shows in shown.items():
        yield Item(study, f"Fig. {numbers}", f"screenshots: {shows}", (counters,), DATA_SHOWN)
    yield Item(study, "Occupancy and divergence in the text", "per cent by kernel", (counters,))
    yield Item(
        study,
        "Milestone 1, lists",
        "kernels and API calls of MXNet",
        (),
        "of another program; our kernels: every rung's launches",
    )
    yield Item(study, "Program times", "user, system, elapsed", (), PROGRAM)
    yield Item(study, "Correctness", "accuracy at each batch", (), ACCURACY)


def of_2019() -> Iterator[Item]:
    """The course's study of 2019."""
    study = "ece408-2019"
    times, gains, counters = (f"{study}-{name}" for name in ("by-batch", "gains", "counters"))
    yield Item(study, "Milestone 3, op times", "baseline, three batches", (times,))
    yield Item(study, "Milestone 4, op times", "core tile in shared memory, three batches", (times, gains))
    for number, optimization in zip((1, 3, 5, 7), (4, 5, 6, 7), strict=True):
        yield Item(study, f"Fig. {number}", f"op times of optimization {optimization}", (times, gains))
        note = "the data that it shows, of our kernels"
        yield Item(study, f"Fig. {number + 1}", "screenshot: NVVP timeline", (counters,), note)
    yield Item(study, "Fig. 9, 10", "screenshots: divergent branches", (counters,), "lanes of 32 that compute")
    yield Item(study, "Table 2", "sweep of block sizes", (f"{study}-sweep",))
    yield Item(
        study,
        "Table 2 (again)",
        "which optimization has which techniques",
        ("rungs-table",),
        "idea and technique of each rung",
    )
    yield Item(study, "Table 3, contributions", "line numbers, people", (), ORGANISATION)
    yield Item(study, "Milestones 1, 3, 4: pictures", "profilers", (counters,), DATA_SHOWN)
    yield Item(
        study,
        "Milestone 1, lists",
        "kernels and API calls of MXNet",
        (),
        "of another program; our kernels: every rung's launches",
    )
    yield Item(study, "Listings", "CPU and GPU source", (), LISTING)
    yield Item(
        study,
        "Milestone 2, op times",
        "serial CPU, 11 s and 78 s",
        ("lenet-70-k5-layers",),
        "serial C++ here: the speedups' base",
    )
    yield Item(study, "Program times, accuracies", "user, system, elapsed", (), f"{PROGRAM}. {ACCURACY}")


def of_2023() -> Iterator[Item]:
    """The course's study of 2023."""
    study = "ece408-2023"
    times, gains, counters = (f"{study}-{name}" for name in ("by-batch", "gains", "counters"))
    for name in ("Baseline", "Streams", "FP16", "Restrict and unrolling"):
        yield Item(study, f"{name}: table", "op times, three batches", (times, gains))
        yield Item(study, f"{name}: last columns", "execution time and accuracy", (), f"{PROGRAM}. {ACCURACY}")
    yield Item(
        study, "Streams: Nsight Systems", "screenshots: copies and kernels overlap", ("lenet-86-k7-timeline", "overlap")
    )
    for name in ("Streams", "FP16", "Unrolling"):
        shown = "screenshots: use of multiprocessors and memory"
        yield Item(study, f"{name}: Nsight Compute", shown, (counters,), DATA_SHOWN)
    yield Item(study, "Sweep of the unrolling", "factors 2, 3, 4", (times, "lenet-86-k7-ablations"))
    yield Item(study, "Listings", "source", (), LISTING)


def of_2024() -> Iterator[Item]:
    """The course's study of 2024."""
    study = "ece408-2024"
    times, gains, counters = (f"{study}-{name}" for name in ("by-batch", "gains", "counters"))
    names = (
        "Baseline",
        "0: streams",
        "1: tiled",
        "2: unrolling",
        "3: fusion",
        "4: constant",
        "5: restrict",
        "9: atomics",
        "10: FP16",
    )
    for name in names:
        yield Item(study, f"{name}, table", "op times, three batches", (times, gains))
    yield Item(study, "Tables: last columns", "execution time and accuracy", (), f"{PROGRAM}. {ACCURACY}")
    yield Item(study, "0: nsys timeline", "screenshot: copies and kernels overlap", ("lenet-86-k7-timeline", "overlap"))
    yield Item(study, "0: nsys API calls", "table of host calls", ("lenet-86-k7-breakdown",), HOST_CALLS)
    for number in (0, 2, 3):
        yield Item(study, f"{number}: nsys kernels", "time, grid and block of each kernel", (counters, "launches"))
    yield Item(
        study,
        "Baseline and 1: memory charts",
        "screenshots: bytes between memories",
        (counters,),
        "bytes and hit rates of our kernels",
    )
    yield Item(study, "Listings", "source", (), LISTING)


def items() -> list[Item]:
    """The items of all studies."""
    return [item for study in (alexnet, of_2018, of_2019, of_2023, of_2024) for item in study()]


def section(titles: Mapping[str, str]) -> Section:
    """Where ours are: ``titles`` are those of the report's tables and figures by their keys."""
    rows: list[tuple[Cell, ...]] = []
    for item in items():
        places = [titles[key] for key in item.ours if key in titles]
        lacking = [key for key in item.ours if key not in titles]
        note = "; ".join([item.note, *(f"{key} needs records of results/measure.sh" for key in lacking)]).strip("; ")
        state = "here" if places else "not in these records" if lacking else "no counterpart"
        for place in places or [""]:
            rows.append((item.study, item.name, item.shows, state, place or None, note or None))
    every = {(row[0], row[1]): row[3] for row in rows}
    counts = [f"{sum(state == name for state in every.values())} {name}" for name in ("here", "no counterpart")]
    lost = sum(state == "not in these records" for state in every.values())
    text = f"{len(every)} tables, figures and lists of the five studies: {', '.join(counts)}"
    columns = ("study", "what", "it shows", "state", "ours", "note")
    table = Table("studies", "Tables and figures of the studies", "", columns, rows, filters=("study", "state"))
    summary = f"{text}{f', {lost} not in these records' if lost else ''}."
    return Section("studies", "Every table and figure of the studies", summary, [table])
