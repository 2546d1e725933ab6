"""The reference outputs of a layer, kept in immutable HDF5 files that together cover its images 0, 1, 2, ...

Each (workload, layer, shape, seed, data set, type, code) has a folder of files ``images-<first>-<last>.h5``,
``last`` excluded.  Readers take no lock: a file under its final name is complete.  Adding or removing files takes the
folder's lock.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from io import BytesIO
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alexconv import data
from alexconv.code import code_digest
from alexconv.cpu_reference.reference import reference
from alexconv.errors import AlexconvError, UsageError
from alexconv.files import locked, remove, remove_left, replacing
from alexconv.messages import Say, print_to_stderr
from alexconv.paths import CACHE_VARIABLE, cache_dir
from alexconv.shapes import FILTERS, Conv

Progress = Callable[[int, int], None]  # images done, images to do

# Inputs and outputs of the images computed at once.  A killed process loses at most two blocks: the one it computes
# and the one it writes.
_BLOCK_BYTES = 64 << 20
_FILE_NAME = re.compile(r"images-([0-9]+)-([0-9]+)\.h5")
_DATASET = "y"
FLOAT32 = "float32"
_HDF5_FORMAT = ("v110", "v110")  # the oldest format in which HDF5 checksums its own structures too

# What h5py raises, depending on which byte of a file is wrong.
_HDF5_ERRORS = (OSError, RuntimeError, KeyError, ValueError, TypeError)


class LayerData(NamedTuple):
    """A layer's images, filters and biases: those of a data set, from a seed, rounded to a type.

    Of a gradient, the arrays of its direction in the same roles (``alexconv.shapes.Direction``).  Where outputs are
    sums over images, ``batch`` is their number, and the first axis of the outputs takes the place of that of images.
    """

    workload: str
    layer: int
    conv: Conv
    seed: int = 0
    data_set: str = data.UNIFORM
    dtype: str = FLOAT32
    batch: int = 0

    def images(self, first: int, last: int) -> NDArray[np.float32]:
        """Images ``first`` to ``last - 1``, float32 ``[last - first][C][H][W]``; of dgrad their ``dy``."""
        return self._by_image(self.conv.roles.x, first, last)

    def filters(self) -> NDArray[np.float32]:
        """The filters, float32 ``[M][C][R][S]``; of wgrad the batch's ``dy``."""
        if self.conv.roles.w not in FILTERS:
            return self._by_image(self.conv.roles.w, 0, self.batch)
        return rounded(data.filters(self.workload, self.layer, self.conv, self.seed, self.data_set), self.dtype)

    def _by_image(self, array: str, first: int, last: int) -> NDArray[np.float32]:
        generate = data.images if array == "x" else data.gradients
        return rounded(
            generate(self.workload, self.layer, self.conv, first, last, self.seed, self.data_set), self.dtype
        )

    def output_shape(self, count: int) -> tuple[int, ...]:
        """``count`` entries of the output's first axis."""
        return (count, *self.conv.shape_of(self.conv.roles.y, 1)[1:])

    def outputs(self, N: int) -> int:
        """The length of the first axis of the outputs of N images."""
        return self.conv.shape_of(self.conv.roles.y, N)[0]

    def operands(self, first: int, last: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """What outputs ``first`` to ``last - 1`` are computed from, besides biases: images, and filters.

        Outputs that are sums over images are all computed together.
        """
        whole = self.conv.roles.sums_images
        return self.images(*((0, self.batch) if whole else (first, last))), self.filters()

    def biases(self) -> NDArray[np.float32] | None:
        """The bias of each filter, float32 ``[M]``; None for a layer without one."""
        if not self.conv.bias:
            return None
        return rounded(data.biases(self.workload, self.layer, self.conv, self.seed, self.data_set), self.dtype)

    @property
    def usual(self) -> bool:
        """Whether data set and type are the defaults, which the files of older versions do not state."""
        return (self.data_set, self.dtype) == (data.UNIFORM, FLOAT32)


class DamagedReference(AlexconvError):
    """A file of the reference cache is missing or not what was written."""


@dataclass(frozen=True, order=True)
class _Part:
    """A file of the cache and the images it holds, ``first`` to ``last - 1``."""

    first: int
    last: int
    path: Path


@dataclass(frozen=True)
class Work:
    """What a call computed: images, and the seconds that their convolution alone took."""

    images: int
    convolution_s: float


@dataclass(frozen=True)
class CachedReference:
    """A layer's reference outputs, images ``first`` to N - 1, on disk.  ``ensure`` makes it and fills in ``work``."""

    of: LayerData
    N: int
    folder: Path
    say: Say
    first: int = 0
    work: Work = Work(0, 0.0)

    def read(self, first: int, last: int) -> NDArray[np.float32]:
        """Outputs of images ``first`` to ``last - 1``, float32 ``[last - first][M][E][F]``, checksums verified.

        A damaged file is reported in one line and rebuilt.  Raises ValueError for images outside its range, and
        DamagedReference when what was just rebuilt cannot be read either.
        """
        if not self.first <= first <= last <= self.N:
            raise ValueError(
                f"images {first} to {last - 1} are not among {self.first} to {self.N - 1} of this reference"
            )
        try:
            return self._read(first, last)
        except DamagedReference:
            self._rebuild(self._check_data)
            return self._read(first, last)

    def bytes_on_disk(self) -> int:
        """Size of all files of this layer, in bytes."""
        return sum(part.path.stat().st_size for part in self._parts())

    def _parts(self) -> list[_Part]:
        """The files, in order of their first image."""
        names = ((_FILE_NAME.fullmatch(path.name), path) for path in self.folder.glob("*.h5"))
        return sorted(_Part(int(name[1]), int(name[2]), path) for name, path in names if name)

    def _missing(self) -> list[tuple[int, int]]:
        """The runs ``(first, last)`` of its images that no file holds."""
        runs, covered = [], self.first
        for part in self._parts():
            if covered < min(part.first, self.N):
                runs.append((covered, min(part.first, self.N)))
            covered = max(covered, part.last)
        return [*runs, (covered, self.N)] if covered < self.N else runs

    def _read(self, first: int, last: int) -> NDArray[np.float32]:
        y = np.empty(self.of.output_shape(last - first), np.float32)
        covered = first
        for part in self._parts():
            if part.first <= covered < min(part.last, last):
                end = min(part.last, last)
                self._read_part(part, covered, end, y[covered - first : end - first])
                covered = end
        if covered < last:
            raise DamagedReference(f"reference images {covered} to {last - 1} are missing from {self.folder}")
        return y

    def _read_part(self, part: _Part, first: int, last: int, y: NDArray[np.float32]) -> None:
        """Reads images ``first`` to ``last - 1`` of a file into ``y``; HDF5 verifies each one's checksum."""
        with self._opened(part) as dataset:
            dataset.read_direct(y, np.s_[first - part.first : last - part.first])
            if self._must_be_finite and not all(np.isfinite(image).all() for image in y):
                raise ValueError("values that are not finite")

    @property
    def _must_be_finite(self) -> bool:
        """Whether no output can be NaN or infinite."""
        return self.of.data_set == data.UNIFORM

    @contextmanager
    def _opened(self, part: _Part) -> Iterator[Any]:
        """The outputs in a file as an h5py.Dataset, its attributes verified.

        Errors in the block are DamagedReference too.
        """
        import h5py  # here, because many commands read no reference

        try:
            if not part.path.is_file():
                raise ValueError("no regular file")  # HDF5 would wait for a pipe
            with h5py.File(part.path, locking=False) as file:  # immutable; and some file systems cannot lock
                wanted = self._attributes(part.first, part.last)
                attributes = dict(file.attrs)
                if wrong := [name for name in wanted if attributes.get(name) != wanted[name]]:
                    raise ValueError(f"wrong {', '.join(wrong)}")
                dataset = file[_DATASET]
                shape = self.of.output_shape(part.last - part.first)
                if (dataset.shape, dataset.dtype, dataset.fletcher32) != (shape, np.float32, True):
                    raise ValueError("wrong array")
                yield dataset
        except _HDF5_ERRORS as error:
            raise DamagedReference(f"reference file {part.path} is damaged ({error})") from None

    def _attributes(self, first: int, last: int) -> dict[str, int | np.bytes_]:
        """The attributes of a file with these images.

        Text has a fixed length: HDF5 keeps other text outside its checksums and can hang on a damaged byte there.
        """
        of = self.of
        other: dict[str, int | np.bytes_] = {}
        if not of.usual:
            other = {"data": np.bytes_(of.data_set.encode()), "dtype": np.bytes_(of.dtype.encode())}
        if of.batch:
            other["batch"] = of.batch
        sizes = of.conv.facts().items()
        return {
            **other,
            "workload": np.bytes_(of.workload.encode()),
            "layer": of.layer,
            "seed": np.bytes_(str(of.seed).encode()),  # any size: HDF5 integers have 64 bits
            **{name: np.bytes_(value.encode()) if isinstance(value, str) else value for name, value in sizes},
            "first": first,
            "last": last,
            "code": np.bytes_(_code().encode()),
            "inputs": np.bytes_(_fingerprint(of, first).encode()),
        }

    def _check_attributes(self, part: _Part) -> None:
        with self._opened(part):
            pass

    def _check_data(self, part: _Part) -> None:
        self._check_attributes(part)
        for image in range(part.first, part.last):
            self._read_part(part, image, image + 1, np.empty(self.of.output_shape(1), np.float32))

    def _is_complete(self) -> bool:
        """Whether files with the right attributes hold all N images."""
        try:
            for part in self._parts():
                self._check_attributes(part)
        except DamagedReference:
            return False
        return not self._missing()

    def _rebuild(self, check: Callable[[_Part], None], progress: Progress | None = None) -> Work:
        """Removes files that fail ``check`` and computes what is missing, under the folder's lock."""
        with locked(self.folder, self.say):
            self._remove_damaged(check)
            return self._compute_missing(progress)

    def _remove_damaged(self, check: Callable[[_Part], None]) -> None:
        """Removes what fails ``check``, and what killed processes left; needs the lock."""
        remove_left(self.folder, after=0)
        for part in self._parts():
            try:
                check(part)
            except DamagedReference as damage:
                self.say(f"{damage}; removed, its images are recomputed when needed")
                remove(part.path)

    def _compute_missing(self, progress: Progress | None) -> Work:
        """Computes the images that no file holds, block by block, each block a file; needs the lock."""
        missing = self._missing()
        total = sum(last - first for first, last in missing)
        _refuse_full_disk(self.folder, 4 * prod(self.of.output_shape(total)))
        with ThreadPoolExecutor(1) as writer:  # one block is written while the next is computed
            writing: Future[None] | None = None
            done, seconds = 0, 0.0
            for first, last in (block for run in missing for block in _blocks(self.of.conv, *run)):
                y, taken = self._computed(first, last)
                seconds += taken
                if writing:
                    writing.result()
                writing = writer.submit(self._write, first, last, y)
                done += last - first
                if progress:
                    progress(done, total)
            if writing:
                writing.result()
        return Work(total, seconds)

    def _computed(self, first: int, last: int) -> tuple[NDArray[np.float32], float]:
        """Outputs ``first`` to ``last - 1``, and the seconds that the convolution took."""
        (x, w), bias = self.of.operands(first, last), self.of.biases()
        start = perf_counter()
        y = reference(self.of.conv, x, w, bias)
        seconds = perf_counter() - start
        return (y[first:last] if self.of.conv.roles.sums_images else y), seconds

    def _add(self, first: int, last: int) -> float:
        """Computes images that no file holds, and then writes them under the lock; seconds of the convolution.

        Several processes may compute blocks of a layer at the same time.
        """
        y, seconds = self._computed(first, last)
        with locked(self.folder, self.say):
            if any(low < last and first < high for low, high in self._missing()):
                self._write(first, last, y)
        return seconds

    def _write(self, first: int, last: int, y: NDArray[np.float32]) -> None:
        import h5py

        whole = BytesIO()  # HDF5 prints more than one line about a full disk
        with h5py.File(whole, "w", libver=_HDF5_FORMAT) as file:
            file.attrs.update(self._attributes(first, last))
            file.create_dataset(_DATASET, data=y, chunks=(1, *y.shape[1:]), fletcher32=True, fillvalue=np.nan)
        with replacing(self.folder / f"images-{first:05}-{last:05}.h5") as path:
            path.write_bytes(whole.getvalue())


def ensure(
    of: LayerData, N: int, *, first: int = 0, progress: Progress | None = None, say: Say = print_to_stderr
) -> CachedReference:
    """The reference of a layer's images ``first`` to N - 1; those that the cache lacks are computed and added.

    A process that finds another one computing waits for it.  ``progress`` gets images done and to do, ``say`` a line
    for each damaged file.  Raises UsageError when the cache cannot be written or N is below 1.
    """
    cached = _located(of, first, N, say)
    if not cached._is_complete():
        return replace(cached, work=cached._rebuild(cached._check_attributes, progress))
    return cached


def blocks_missing(of: LayerData, N: int) -> list[tuple[int, int]]:
    """The blocks of a layer's first N images that the cache lacks, for ``compute_block``; damaged files are removed."""
    cached = _located(of, 0, N, print_to_stderr)
    if cached._is_complete():
        return []
    with locked(cached.folder, print_to_stderr):
        cached._remove_damaged(cached._check_attributes)
        return [block for run in cached._missing() for block in _blocks(of.conv, *run)]


def compute_block(of: LayerData, first: int, last: int) -> float:
    """Computes images ``first`` to ``last - 1`` and adds them to the cache; the seconds that the convolution took."""
    return _located(of, first, last, print_to_stderr)._add(first, last)


def _located(of: LayerData, first: int, N: int, say: Say) -> CachedReference:
    """A layer's folder in the cache; raises UsageError when it cannot be written or N is not above ``first``."""
    if first >= N:
        raise UsageError(f"a batch has at least 1 image, not {N - first}")
    shape = "-".join(f"{letter}{size}" for letter, size in of.conv.facts().items())
    kinds = (of.data_set, data.UNIFORM), (of.dtype, FLOAT32), (f"N{of.batch}", "N0")
    kind = "".join(f"-{word}" for word, usual in kinds if word != usual)
    folder = cache_dir("reference") / f"{of.workload}-{of.layer}-{shape}{kind}-seed{of.seed}-{_code()}"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot create {folder} ({error.strerror}); set {CACHE_VARIABLE}") from None
    return CachedReference(of, N, folder, say, first)


def _code() -> str:
    """Digest of the code that computes inputs and outputs."""
    return code_digest(("alexconv.cpu_reference.reference", "reference"), (__name__, "LayerData"))


def _blocks(conv: Conv, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Images ``first`` to ``last - 1`` cut at the multiples of a power of two, so that extended caches line up.

    What is computed together is not cut.
    """
    if conv.roles.sums_images:
        yield first, last
        return
    values = conv.C * conv.H * conv.W + conv.M * conv.E * conv.F
    most = max(_BLOCK_BYTES // (4 * values), 1)
    size = 1 << (most.bit_length() - 1)
    while first < last:
        end = min((first // size + 1) * size, last)
        yield first, end
        first = end


def _refuse_full_disk(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"the reference needs {needed:,} bytes and {folder} has {free:,} bytes free; set {CACHE_VARIABLE}"
        )


def rounded(values: NDArray[np.float32], dtype: str) -> NDArray[np.float32]:
    """Values rounded to a type, as float32; those beyond its range become infinite."""
    with np.errstate(over="ignore"):
        return values if dtype == FLOAT32 else values.astype(dtype).astype(np.float32)


@lru_cache(maxsize=256)
def _fingerprint(of: LayerData, image: int) -> str:
    """Hash of a layer's filters and one image, so that changed inputs are noticed even under an unchanged version."""
    return sha256(of.images(image, image + 1).tobytes() + of.filters().tobytes()).hexdigest()
