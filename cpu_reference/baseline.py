"""Times of two CPU convolutions, the bases of speedups: serial C++ on one thread, and BLAS on all cores.

Times are kept in the user's cache, keyed by everything they depend on, so that they are measured once per machine.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from math import ceil, isfinite, sqrt
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from alexconv import data
from alexconv.compiling.toolchain import compiler_version, find_cxx
from alexconv.cpu_reference.reference import SOURCE as BLAS_SOURCE
from alexconv.cpu_reference.reference import convolve, filter_norms, patch_norms, reference
from alexconv.cpu_reference.serial import FLAGS, Convolution, compile_serial
from alexconv.cpu_reference.serial import SOURCE as SERIAL_SOURCE
from alexconv.errors import AlexconvError
from alexconv.files import locked, read_json, remove, write_json
from alexconv.machine import blas_name, cores, cpu_model, machine_name
from alexconv.messages import Say, print_to_stderr
from alexconv.paths import cache_dir
from alexconv.shapes import FORWARD, Conv

_REPEATS, _FEWEST, _APART = 5, 3, 0.01  # samples; as few if their relative spread is no larger
# Enough work for a sample of a tenth of a second or so: small layers are timed over many images.
_SERIAL_MACS = 100_000_000
_BLAS_MACS = 4_000_000_000
_MOST_IMAGES = 128
_MOST_MACS = 4_000_000_000  # of a sample: where an image has more, some of its filters are timed
_UNIT_ROUNDOFF = 2.0**-24  # of float32
_LAMBDA = 6  # the bound fails with a probability of about 2 exp(-lambda**2 / 2) per output


@dataclass(frozen=True)
class Conditions:
    """Everything that a baseline's time depends on; ``source`` is a hash of the code that was timed."""

    name: str
    machine: str
    cpu: str
    tool: str
    source: str
    workload: str
    layer: int
    conv: Conv


@dataclass(frozen=True)
class BatchTime:
    """Time of a batch in ms; ``scaled_from`` is the number of images timed when it is not the batch's own.

    It is less than one where some filters of an image were timed.
    """

    ms: float
    scaled_from: float | None


@dataclass(frozen=True)
class Baseline:
    """How long a CPU takes for a layer: samples in ms, each for ``images_timed``, a part of one in a large layer."""

    conditions: Conditions
    images_timed: float
    samples_ms: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples_ms or not all(
            isfinite(time) and time > 0 for time in (self.images_timed, *self.samples_ms)
        ):
            raise ValueError(f"no times: {self.samples_ms} ms for {self.images_timed} images")

    @property
    def ms_per_image(self) -> float:
        """Median sample, divided by its images."""
        return median(self.samples_ms) / self.images_timed

    def for_batch(self, N: int) -> BatchTime:
        """The time for N images, in proportion to the images timed."""
        return BatchTime(self.ms_per_image * N, None if self.images_timed == N else self.images_timed)


def serial_time(workload: str, layer: int, conv: Conv, *, say: Say = print_to_stderr) -> Baseline:
    """Time of the seven-loop C++ convolution, one thread, without bias and activation.

    Raises MissingTool without a C++ compiler, CompileError when it fails, and AlexconvError for a wrong output.
    """
    cxx = find_cxx()
    tool = " ".join((compiler_version(cxx), *FLAGS))
    conditions = _conditions("serial C++", tool, SERIAL_SOURCE, workload, layer, conv)
    return _cached(conditions, lambda: compile_serial(cxx), _SERIAL_MACS, say)


def blas_time(workload: str, layer: int, conv: Conv, *, say: Say = print_to_stderr) -> Baseline:
    """Time of the unrolled convolution in float32 with BLAS on all cores, without bias and activation.

    Raises AlexconvError for a wrong output.
    """
    tool = f"{blas_name()}, {cores()} cores"
    conditions = _conditions("all-core BLAS", tool, BLAS_SOURCE, workload, layer, conv)
    return _cached(conditions, lambda: partial(convolve, dtype=np.float32), _BLAS_MACS, say)


def _conditions(name: str, tool: str, source: Path, workload: str, layer: int, conv: Conv) -> Conditions:
    digest = sha256(source.read_bytes()).hexdigest()
    return Conditions(name, machine_name(), cpu_model(), tool, digest, workload, layer, conv.alone().toward(FORWARD))


def _cached(conditions: Conditions, prepare: Callable[[], Convolution], enough_macs: int, say: Say) -> Baseline:
    """The baseline from the cache, else timed now and kept."""
    digest = sha256(json.dumps(asdict(conditions)).encode()).hexdigest()[:16]
    folder = cache_dir("baseline")
    path = folder / f"{conditions.workload}-{conditions.layer}-{digest}.json"
    with locked(folder, say):  # one process measures at a time: two would slow each other
        try:
            if known := _load(path, conditions):
                return known
        except (ValueError, TypeError, KeyError) as damage:
            say(f"baseline file {path} is damaged ({damage}); timing again")
            remove(path)
        conv, timed = conditions.conv, some_filters(conditions.conv)
        images = min(ceil(enough_macs / timed.macs(1)), _MOST_IMAGES)
        samples = _measure(prepare(), conditions, timed, images)
        baseline = Baseline(conditions, images if timed == conv else images * timed.M / conv.M, samples)
        write_json(path, asdict(baseline))
        return baseline


def _load(path: Path, conditions: Conditions) -> Baseline | None:
    """The baseline in a file, None if there is none.  Raises ValueError, TypeError or KeyError for a damaged one."""
    record = read_json(path)
    if record is None:
        return None
    if record["conditions"] != asdict(conditions):
        raise ValueError("other conditions")
    return Baseline(conditions, record["images_timed"], tuple(record["samples_ms"]))


def some_filters(conv: Conv) -> Conv:
    """The layer with as many of each group's filters as an image may have for _MOST_MACS, at least one."""
    filters = conv.M // conv.groups
    fewer = min(filters, max(1, int(filters * _MOST_MACS / conv.macs(1))))
    return replace(conv, M=fewer * conv.groups)


def _measure(convolution: Convolution, conditions: Conditions, conv: Conv, images: int) -> tuple[float, ...]:
    """Samples in ms of a convolution of the conditions' layer, or of some of its filters, first checked."""
    x = data.images(conditions.workload, conditions.layer, conv, 0, images)
    w = data.filters(conditions.workload, conditions.layer, conv)
    if not within_float32_rounding(conv, x, w, convolution(conv, x, w)):
        raise AlexconvError(f"{conditions.name} gives a wrong output for {conditions.workload} {conditions.layer}")
    samples: list[float] = []
    while len(samples) < (_FEWEST if _alike(samples) else _REPEATS):
        start = perf_counter()
        convolution(conv, x, w)
        samples.append(1e3 * (perf_counter() - start))
    return tuple(samples)


def _alike(samples: Sequence[float]) -> bool:
    """Whether more samples would add little."""
    return len(samples) >= _FEWEST and max(samples) <= (1 + _APART) * min(samples)


def within_float32_rounding(conv: Conv, x: NDArray[np.float32], w: NDArray[np.float32], y: NDArray[np.float32]) -> bool:
    """Whether ``y`` ``[N][M][E][F]`` differs from the reference by no more than rounding of float32 sums explains.

    The bound is lambda sqrt(K) u sum|x||w| (Higham and Mary, "A new approach to probabilistic rounding error
    analysis", SIAM J. Sci. Comput. 41, 2019), its sum bounded by the patch's norm times the filter's.
    """
    patches = patch_norms(conv, x)
    of_outputs = patches if conv.groups > 1 else patches[:, None]
    norms = of_outputs * filter_norms(w)[:, None, None]  # [N][M][E][F]
    tolerance = _LAMBDA * sqrt(conv.K) * _UNIT_ROUNDOFF
    errors = np.abs(y.astype(np.float64) - reference(conv, x, w))
    return bool((errors <= tolerance * norms).all())
