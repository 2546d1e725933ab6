"""The reference cache: extended, never computed twice, never stale, and attacked."""

import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from edited_code import edit_code, forget_code
from numpy.typing import NDArray

from alexconv import data
from alexconv.cpu_reference import cache as cache_module
from alexconv.cpu_reference.cache import CachedReference, DamagedReference, LayerData, ensure
from alexconv.cpu_reference.reference import reference
from alexconv.errors import UsageError
from alexconv.files import TEMPORARY_SUFFIX
from alexconv.shapes import Conv

CONV = Conv(C=2, H=7, W=6, M=3, R=3, S=2, U=2)
IMAGE_BYTES = 4 * (CONV.C * CONV.H * CONV.W + CONV.M * CONV.E * CONV.F)

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture(autouse=True)
def blocks_of_eight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_BLOCK_BYTES", 8 * IMAGE_BYTES)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batch sizes that the reference is called for."""
    batches: list[int] = []

    def counting(conv: Conv, x: NDArray[np.float32], w: NDArray[np.float32], bias: None) -> NDArray[np.float32]:
        batches.append(len(x))
        return reference(conv, x, w)

    monkeypatch.setattr(cache_module, "reference", counting)
    return batches


def expected(first: int, last: int, seed: int = 0) -> NDArray[np.float32]:
    return reference(CONV, data.images("test", 1, CONV, first, last, seed), data.filters("test", 1, CONV, seed))


def assert_right(cached: CachedReference) -> None:
    np.testing.assert_array_max_ulp(cached.read(0, cached.N), expected(0, cached.N), 1)


def files(cached: CachedReference) -> list[Path]:
    return sorted(cached.folder.glob("*.h5"))


def test_a_larger_batch_computes_only_the_missing_images(computed: list[int]) -> None:
    one = ensure(LayerData("test", 1, CONV), 1).read(0, 1)
    ensure(LayerData("test", 1, CONV), 20)
    cached = ensure(LayerData("test", 1, CONV), 32)
    assert computed == [1, 7, 8, 4, 4, 8]
    assert_right(cached)
    assert ensure(LayerData("test", 1, CONV), 9).work.images == 0
    assert sum(computed) == 32
    np.testing.assert_array_equal(one[0], cached.read(0, 32)[0])


def test_every_range_reads_its_own_images() -> None:
    ensure(LayerData("test", 1, CONV), 3)
    cached = ensure(LayerData("test", 1, CONV), 19)
    whole = cached.read(0, 19)
    for first in range(20):
        for last in range(first, 20):
            np.testing.assert_array_equal(cached.read(first, last), whole[first:last])
    for first, last in [(-1, 2), (0, 20), (3, 2)]:
        with pytest.raises(ValueError, match="not among"):
            cached.read(first, last)


def test_progress_reports_each_computed_block_only() -> None:
    heard: list[tuple[int, int]] = []
    for _ in range(2):
        ensure(LayerData("test", 1, CONV), 20, progress=lambda done, total: heard.append((done, total)))
    assert heard == [(8, 20), (16, 20), (20, 20)]


def test_layers_seeds_shapes_and_code_do_not_mix(computed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    first = ensure(LayerData("test", 1, CONV), 2).read(0, 2)
    others = [
        ensure(LayerData("test", 2, CONV), 2),
        ensure(LayerData("other", 1, CONV), 2),
        ensure(LayerData("test", 1, CONV, 1), 2),
        ensure(LayerData("test", 1, CONV, 2**70), 2),
    ]
    assert all(not np.array_equal(first, other.read(0, 2)) for other in others)
    ensure(LayerData("test", 1, Conv(C=2, H=7, W=6, M=3, R=3, S=2, U=1)), 2)
    with monkeypatch.context() as patch:
        edit_code(patch, "alexconv.cpu_reference.reference", "product += bias", "product -= bias")
        ensure(LayerData("test", 1, CONV), 2)
        edit_code(patch, "alexconv.data", "generator.random(", "generator.normal(")
        ensure(LayerData("test", 1, CONV), 2)
        edit_code(patch, "alexconv.data", "another number gives", "another")
        ensure(LayerData("test", 1, CONV), 2)
    forget_code()
    assert len(computed) == 8


def test_changed_inputs_are_noticed_under_unchanged_code(monkeypatch: pytest.MonkeyPatch) -> None:
    ensure(LayerData("test", 1, CONV), 2)
    filters = data.filters
    monkeypatch.setattr(data, "filters", lambda *key: filters(*key) / 2)
    cache_module._fingerprint.cache_clear()
    lines: list[str] = []
    cached = ensure(LayerData("test", 1, CONV), 2, say=lines.append)
    cache_module._fingerprint.cache_clear()
    assert len(lines) == 1
    assert "wrong inputs" in lines[0]
    assert cached.work.images == 2


def flip(file: Path) -> None:
    contents = bytearray(file.read_bytes())
    contents[-20] ^= 1  # the last image's values or their checksum
    file.write_bytes(contents)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def empty(file: Path) -> None:
    os.truncate(file, 0)


def garbage(file: Path) -> None:
    file.write_bytes(np.random.default_rng(0).bytes(5000))


def wrong_seed(file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        opened.attrs["seed"] = np.bytes_("1")


def missing_attribute(file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        del opened.attrs["inputs"]


def attribute_of_another_type(file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        opened.attrs["first"] = np.arange(3)


def missing_array(file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        del opened["y"]


def not_finite(file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        opened["y"][-1] = np.nan


def array_without_checksums(file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        values = opened["y"][:]
        del opened["y"]
        opened.create_dataset("y", data=values + 1)


def array_of_another_shape(file: Path) -> None:
    with h5py.File(file, "r+") as opened:
        values = opened["y"][:-1]
        del opened["y"]
        opened.create_dataset("y", data=values, fletcher32=True)


def renamed(file: Path) -> None:
    file.rename(file.with_name("images-00000-00009.h5"))


DAMAGES = [
    flip,
    truncate,
    empty,
    garbage,
    wrong_seed,
    missing_attribute,
    attribute_of_another_type,
    missing_array,
    not_finite,
    array_without_checksums,
    array_of_another_shape,
    renamed,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_reported_in_one_line_and_rebuilt(damage: Callable[[Path], None], computed: list[int]) -> None:
    cached = ensure(LayerData("test", 1, CONV), 20)
    before = list(computed)
    damage(files(cached)[0])
    lines: list[str] = []
    cached = ensure(LayerData("test", 1, CONV), 20, say=lines.append)
    assert_right(cached)
    assert len(lines) == 1
    assert "damaged" in lines[0]
    assert "\n" not in lines[0]
    assert computed == [*before, 8]
    assert_right(ensure(LayerData("test", 1, CONV), 20, say=pytest.fail))


@pytest.mark.parametrize("damage", [flip, truncate, garbage, wrong_seed, not_finite, Path.unlink])
def test_damage_after_opening_is_noticed_on_reading(damage: Callable[[Path], None]) -> None:
    lines: list[str] = []
    cached = ensure(LayerData("test", 1, CONV), 20, say=lines.append)
    damage(files(cached)[1])
    assert_right(cached)
    assert len(lines) == (0 if damage is Path.unlink else 1)


def test_a_removed_folder_is_rebuilt() -> None:
    cached = ensure(LayerData("test", 1, CONV), 4)
    shutil.rmtree(cached.folder)
    assert_right(cached)


def test_no_flipped_byte_gives_wrong_data() -> None:
    conv = Conv(C=1, H=2, W=2, M=1, R=1, S=1)
    cached = ensure(LayerData("tiny", 1, conv), 2)
    (file,) = files(cached)
    whole, right = file.read_bytes(), cached.read(0, 2)
    noticed = 0
    for position in range(len(whole)):
        contents = bytearray(whole)
        contents[position] ^= 0xFF
        file.write_bytes(contents)
        try:
            np.testing.assert_array_equal(cached._read(0, 2), right)  # a byte that means nothing
        except DamagedReference:
            noticed += 1
    assert noticed > len(whole) / 2


def test_a_file_that_cannot_be_rebuilt_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = ensure(LayerData("test", 1, CONV), 4, say=lambda line: None)
    monkeypatch.setattr(CachedReference, "_rebuild", lambda *_: None)
    flip(files(cached)[0])
    with pytest.raises(DamagedReference, match="images-00000-00004"):
        cached.read(0, 4)


def test_a_full_disk_and_a_folder_that_is_a_file_are_one_line(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="at least 1 image"):
        ensure(LayerData("test", 1, CONV), 0)
    with pytest.raises(UsageError, match=r"needs .* bytes and .* has .* bytes free"):
        ensure(LayerData("test", 1, CONV), 10**15)
    monkeypatch.setattr(Path, "write_bytes", no_space)
    with pytest.raises(UsageError, match="No space left"):
        ensure(LayerData("test", 1, CONV), 2)
    gc.collect()  # what the traceback held; a buffer still exported would be reported here, in this test
    shutil.rmtree(cache)
    (cache / "reference").parent.mkdir()
    (cache / "reference").touch()
    with pytest.raises(UsageError, match="cannot create the cache folder"):
        ensure(LayerData("test", 1, CONV), 2)


def no_space(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


BUILD = """
import sys
from alexconv.cpu_reference import cache
from alexconv.shapes import Conv
cache._BLOCK_BYTES = {block_bytes}
computing = cache.reference
def counted(conv, x, w, bias):
    print("computed", len(x), flush=True)
    return computing(conv, x, w)
cache.reference = counted
cached = cache.ensure(cache.LayerData("test", 1, {conv}), {N})
assert cached.read(0, {N}).shape[0] == {N}
"""


def build_in_another_process(N: int) -> subprocess.Popen[str]:
    program = BUILD.format(block_bytes=8 * IMAGE_BYTES, conv=CONV, N=N)
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_concurrent_processes_compute_each_image_once() -> None:
    processes = [build_in_another_process(400) for _ in range(3)]
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sum(int(line.split()[1]) for output in outputs for line in output.splitlines()) == 400
    assert_right(ensure(LayerData("test", 1, CONV), 400, say=pytest.fail))


def test_a_killed_process_leaves_a_usable_cache(cache: Path, computed: list[int]) -> None:
    process = build_in_another_process(100_000)
    while len(list(cache.rglob("*.h5"))) < 5:
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.communicate()
    (folder,) = (cache / "reference").iterdir()
    (folder / f"images-00000-00008.h5.0123{TEMPORARY_SUFFIX}").write_bytes(b"half a file")
    images = max(int(file.stem.split("-")[2]) for file in folder.glob("*.h5"))
    cached = ensure(LayerData("test", 1, CONV), images + 8, say=pytest.fail)
    assert sum(computed) == 8
    assert not list(folder.glob(f"*{TEMPORARY_SUFFIX}"))
    assert_right(cached)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_each_data_set_and_type_has_its_own_reference_with_nan_and_infinities(dtype):
    shape = Conv(C=2, H=7, W=6, M=6, R=3, S=2)
    folders = {ensure(LayerData("test", 1, shape), 4).folder}
    for name in data.DATA_SETS:
        x, w = data.images("test", 1, shape, 0, 4, data=name), data.filters("test", 1, shape, data=name)
        with np.errstate(over="ignore"):
            x, w = (values.astype(dtype).astype(np.float32) for values in (x, w))
        cached = ensure(LayerData("test", 1, shape, 0, name, dtype), 4, say=pytest.fail)
        for outputs in (cached, ensure(LayerData("test", 1, shape, 0, name, dtype), 4, say=pytest.fail)):
            np.testing.assert_array_equal(outputs.read(0, 4), reference(shape, x, w))
        assert cached.read(0, 4).dtype == np.float32
        assert data.DATA_SETS[name].finite or np.isnan(cached.read(0, 4)).any()
        folders.add(cached.folder)
    assert len(folders) == len(data.DATA_SETS) + (dtype == "float16")
