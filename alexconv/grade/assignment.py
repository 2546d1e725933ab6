"""An assignment: the students' handout, and what only its grader knows."""

import json
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from math import fsum, isfinite, prod, sqrt
from pathlib import Path
from string import Template
from typing import Any, TypeGuard

from alexconv.errors import UsageError
from alexconv.files import new_folder
from alexconv.grade.sandbox import Limits
from alexconv.kernels.studies import STUDY_WORKLOADS
from alexconv.own import SIGNATURE
from alexconv.records.published import figures
from alexconv.shapes import WORKLOADS, Conv

HANDOUT, GRADER, CONFIG = "handout", "grader", "grader.json"
FILE = "conv.cu"  # what a student writes
SCHEMA = 1
POINTS = {"correct": 45.0, "exact": 15.0, "addresses": 10.0, "races": 10.0, "async": 5.0, "op time": 15.0}
LARGEST_BATCH = 10000
SHARES = (0.5, 0.75, 1.0)  # of the points of op time: the study's baseline, half way, its best
SOURCE_BYTES = 256 << 10  # of a submission
LETTERS = ("C", "H", "W", "M", "R", "S", "U")


@dataclass(frozen=True)
class Shape:
    """A layer's shape and a number of images."""

    conv: Conv
    images: int

    def sizes(self) -> dict[str, int]:
        """Its sizes by letter, N for the images."""
        return {**{letter: getattr(self.conv, letter) for letter in LETTERS}, "N": self.images}


@dataclass(frozen=True)
class TimeLimit:
    """The share of the points for an op time, in ms for all layers of the workload, and where the figure is from."""

    ms: float
    share: float
    source: str


@dataclass(frozen=True)
class Assignment:
    """All that a grader knows.  ``shapes`` and ``seed`` are hidden from students.

    ``points`` are by check; ``times`` are the limits of op time, on ``workload`` with ``N`` images.  The hazard checks
    use the first ``hazard_shapes`` shapes.  ``screen`` says whether to refuse words that a convolution does not need.
    """

    name: str
    study: str
    workload: str
    N: int
    shapes: tuple[Shape, ...]
    seed: int
    times: tuple[TimeLimit, ...]
    points: Mapping[str, float] = field(default_factory=lambda: dict(POINTS))
    limits: Limits = field(default_factory=Limits)
    hazard_shapes: int = 2
    screen: bool = True
    signature: str = SIGNATURE

    def share(self, ms: float) -> float:
        """The share of the points for an op time."""
        return max((limit.share for limit in self.times if ms <= limit.ms), default=0.0)


def op_times(study: str, N: int) -> dict[str, float]:
    """A study's printed op times: ms of all layers together by variant, where it has every layer's time at this N."""
    layers = range(1, len(WORKLOADS[STUDY_WORKLOADS[study]].layers) + 1)
    printed: dict[str, dict[int | None, float]] = {}
    for figure in figures():
        if (figure.study, figure.quantity, figure.N) == (study, "op_time", N) and figure.variant != "cpu-serial":
            printed.setdefault(figure.variant, {}).setdefault(figure.layer, figure.value)
    return {
        variant: round(fsum(of_layer[layer] for layer in layers), 3)
        for variant, of_layer in printed.items()
        if all(layer in of_layer for layer in layers)
    }


def largest_batch(study: str) -> int:
    """The largest batch at which a study printed op times of all its layers; raises UsageError."""
    batches = {figure.N for figure in figures() if figure.study == study and figure.quantity == "op_time"}
    timed_batches = [N for N in batches if N <= LARGEST_BATCH and len(op_times(study, N)) > 1]
    if not timed_batches:
        raise UsageError(f"the study {study} prints no op times of all layers")
    return max(timed_batches)


def time_limits(study: str, N: int, scale: float) -> tuple[TimeLimit, ...]:
    """Limits from a study's table: its baseline, its fastest variant, and the geometric mean of both, times ``scale``.

    Raises UsageError for a batch at which the study has no op times.
    """
    times = op_times(study, N)
    baseline = next((name for name in ("tiled-grid-baseline", "baseline") if name in times), None)
    if baseline is None:
        raise UsageError(f"{study} prints no op times for N={N}; its largest is N={largest_batch(study)}")
    fastest = min(times, key=times.__getitem__)
    slow, fast = times[baseline], times[fastest]
    middle = sqrt(slow * fast)
    sources = (f"{baseline} of {study}", f"half way from {baseline} to {fastest}", f"{fastest} of {study}")
    return tuple(
        TimeLimit(round(ms * scale, 3), share, source)
        for ms, share, source in zip((slow, middle, fast), SHARES, sources, strict=True)
    )


def hidden_shapes(generator: random.Random) -> tuple[Shape, ...]:
    """Small shapes that differ from assignment to assignment: planes that are not square, a stride, one channel,
    numbers that no tile divides, and an output of a single pixel.
    """

    def size(least: int, most: int) -> int:
        return generator.randint(least, most)

    K = generator.choice((3, 5, 7))
    one_pixel = size(2, 5)
    return tuple(
        Shape(Conv(**dict[str, Any](zip(LETTERS, sizes, strict=True))), images)
        for *sizes, images in (
            (1, size(17, 29), size(17, 29), size(3, 9), K, K, 1, 2),
            (size(2, 7), size(13, 24), size(25, 40), 2 * size(5, 12) + 1, 5, 5, 1, 3),
            (size(3, 6), size(16, 30), size(16, 30), size(5, 20), 3, 3, 2, 2),
            (size(5, 9), one_pixel, one_pixel, size(2, 33), one_pixel, one_pixel, 1, 4),
        )
    )


def new(name: str, study: str, N: int | None, scale: float, seed: int | None) -> Assignment:
    """An assignment based on a study; raises UsageError.  ``seed`` None draws a secret one."""
    if study not in STUDY_WORKLOADS:
        raise UsageError(f"no study {study}: choose from {', '.join(STUDY_WORKLOADS)}")
    batch = largest_batch(study) if N is None else N
    chosen = secrets.randbits(48) if seed is None else seed
    return Assignment(
        name=name,
        study=study,
        workload=STUDY_WORKLOADS[study],
        N=batch,
        shapes=hidden_shapes(random.Random(chosen)),
        seed=chosen,
        times=time_limits(study, batch, scale),
    )


def write(assignment: Assignment, folder: Path) -> None:
    """Writes handout and grader into a new folder; raises UsageError."""
    with new_folder(folder):
        _fill(assignment, folder)


def _fill(assignment: Assignment, folder: Path) -> None:
    handout, grader = folder / HANDOUT, folder / GRADER
    handout.mkdir()
    grader.mkdir(mode=0o700)
    layers = WORKLOADS[assignment.workload].layers
    words = {
        "name": assignment.name,
        "study": assignment.study,
        "workload": assignment.workload,
        "batch": assignment.N,
        "layers": "\n".join(
            f"| {number} | {conv.C} | {conv.H} x {conv.W} | {conv.M} | {conv.R} | {conv.U} |"
            for number, conv in enumerate(layers, 1)
        ),
        "points": "\n".join(f"| {check} | {points:g} |" for check, points in assignment.points.items()),
        "times": "\n".join(f"| {limit.ms:g} ms | {limit.share:.0%} | {limit.source} |" for limit in assignment.times),
        "operations": f"{2 * sum(conv.macs(assignment.N) for conv in layers) / 1e9:.0f}",
        "values": f"{sum(prod(conv.y_shape(assignment.N)) for conv in layers) / 1e6:.0f}",
    }
    templates = resources.files("alexconv.grade") / "templates"
    for file, template in ((FILE, FILE), ("README.md", "handout.txt"), ("Makefile", "Makefile")):
        (handout / file).write_text(Template((templates / template).read_text()).substitute(words))
    shapes = [Shape(conv, assignment.N).sizes() for conv in layers]
    (handout / "shapes.json").write_text(json.dumps(shapes, indent=1) + "\n")
    (grader / CONFIG).write_text(json.dumps(as_json(assignment), indent=1) + "\n")
    (grader / CONFIG).chmod(0o600)


def as_json(assignment: Assignment) -> dict[str, Any]:
    """An assignment as JSON."""
    content = {"schema": SCHEMA, **asdict(assignment)}
    content["shapes"] = [shape.sizes() for shape in assignment.shapes]
    return content


def read(folder: Path) -> Assignment:
    """The assignment of a folder; raises UsageError that says what is wrong with grader.json."""
    path = folder / GRADER / CONFIG
    try:
        content = json.loads(path.read_text())
        if content.pop("schema") != SCHEMA:
            raise UsageError(f"{path} is from another version of alexconv")
        content["shapes"] = tuple(map(shape, content["shapes"]))
        content["times"] = tuple(TimeLimit(**limit) for limit in content["times"])
        content["limits"] = Limits(**content["limits"])
        assignment = Assignment(**content)
    except OSError as error:
        raise UsageError(f"cannot read {path} ({error.strerror}): is {folder} an assignment?") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path}: {type(error).__name__}: {error}") from None
    if problem := fault_of(assignment):
        raise UsageError(f"{path}: {problem}")
    return assignment


def shape(sizes: Mapping[str, int]) -> Shape:
    """A shape from its sizes; raises ValueError, TypeError and KeyError."""
    if set(sizes) != {*LETTERS, "N"} or not all(type(size) is int for size in sizes.values()):
        raise ValueError(f"a shape needs the integers {', '.join((*LETTERS, 'N'))}, not {dict(sizes)}")
    if sizes["R"] != sizes["S"] or sizes["N"] < 1:
        raise ValueError(f"a shape needs R = S and N >= 1, not {dict(sizes)}")
    return Shape(Conv(**dict[str, Any]((letter, sizes[letter]) for letter in LETTERS)), sizes["N"])


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and isfinite(value)


def fault_of(assignment: Assignment) -> str | None:
    """Why an assignment is invalid, or None."""
    if assignment.workload not in WORKLOADS:
        return f"no workload {assignment.workload}"
    if assignment.signature != SIGNATURE:
        return f"no signature {assignment.signature}"
    if set(assignment.points) != set(POINTS):
        return f"points must be given for {', '.join(POINTS)}, and nothing else"
    numbers: Sequence[object] = [*assignment.points.values()]
    numbers = [*numbers, *(value for limit in assignment.times for value in (limit.ms, limit.share))]
    if not all(_is_number(number) and number >= 0 for number in numbers):
        return "points and times must be numbers from 0"
    if any(limit.share > 1 for limit in assignment.times):
        return "shares of the points must be at most 1"
    if not all(_is_number(number) and number > 0 for number in asdict(assignment.limits).values()):
        return "limits must be numbers above 0"
    if not (type(assignment.seed) is int and assignment.seed >= 0):
        return "seed must be a whole number from 0"
    if not all(type(number) is int and number >= 1 for number in (assignment.N, assignment.hazard_shapes)):
        return "N and hazard_shapes must be whole numbers from 1"
    screen: object = assignment.screen
    if not isinstance(screen, bool):
        return "screen must be true or false"
    if not assignment.shapes or not sum(assignment.points.values()):
        return "it needs shapes, and points above 0"
    return None
