"""Changing one character causes a miss in each cache that depends on it, and in no other."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from attack_size import keep
from edited_code import edit_code, forget_code
from points import batch_of, point_of

from alexconv.compiling import nvcc
from alexconv.cpu_reference import baseline
from alexconv.cpu_reference.cache import LayerData, ensure
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import FOLDER
from alexconv.kernels.times import on_cuda_cores
from alexconv.measuring.runner import Runner, Settings
from alexconv.paths import CACHE_VARIABLE
from alexconv.precisions import PRECISIONS
from alexconv.records.store import read
from alexconv.shapes import WORKLOADS
from alexconv.tune import cache as tuning

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD, LAYER, N = "lenet-70-k5", 2, 1
CONV = WORKLOADS[WORKLOAD].layer(LAYER)
TIME = on_cuda_cores(rate=9.0)
ON_GPU, ON_CPU = {"cubin", "record of a GPU", "tuned constants"}, {"library", "record of a CPU"}


class Gpu(HostExecutor):
    """An executor with a GPU's keys."""

    name, gpu, toolkit = "cuda", "NVIDIA H200", "13.0"
    measures = True
    opens = CudaExecutor.opens

    def header(self) -> dict:
        return {"backend": "cuda", "name": self.gpu, "compute_capability": [9, 0], "toolkit": nvcc.nvcc_version()}

    def key(self, bound: BoundRung) -> str:
        return nvcc.cubin_key(bound.rung.path, bound.macros, "90a")


class World:
    """Everything that keys are made from."""

    def __init__(self, folder: Path) -> None:
        self.kernels = folder / "kernels"
        shutil.copytree(FOLDER, self.kernels, ignore=shutil.ignore_patterns("__pycache__"))
        self.serial = Path(shutil.copy(baseline.SERIAL_SOURCE, folder))
        self.rung = replace(RUNGS["tiled"], file=str(self.kernels / "tiles" / "tiled.cu"))
        self.constants: dict[str, int] = {}
        self.seed = 0

    def keys(self) -> dict[str, object]:
        """The key in each cache."""
        constants, gpu, cpu = self.rung.resolve(CONV, self.constants, N), Gpu(), HostExecutor()
        point = point_of(batch_of(WORKLOAD, LAYER, N), self.rung, constants)
        records = [
            (Runner(executor, [point], Settings(seed=self.seed)).key(point), point.axes()) for executor in (gpu, cpu)
        ]
        bound = BoundRung(self.rung, CONV, constants, gpu.device)
        tool = cpu.runtime.compiler
        return {
            "cubin": gpu.key(bound),
            "library": cpu.key(bound),
            "record of a GPU": records[0],
            "record of a CPU": records[1],
            "tuned constants": tuning.key(gpu, self.rung, CONV, N),
            "reference": ensure(LayerData(WORKLOAD, LAYER, CONV, self.seed), N).folder.name,
            "baseline": baseline._conditions("serial C++", tool, self.serial, WORKLOAD, LAYER, CONV),
        }


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = HostRuntime._flags.fget
    monkeypatch.setattr(HostRuntime, "_flags", property(lambda self: (*plain(self), "-g")))


def another_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = HostRuntime.__init__

    def init(self: HostRuntime, *arguments: object, **options: object) -> None:
        plain(self, *arguments, **options)
        self.compiler += "1"

    monkeypatch.setattr(HostRuntime, "__init__", init)


def of_class(patch: pytest.MonkeyPatch, **facts: object) -> None:
    """Changes facts of the rung's class."""
    patch.setitem(PRECISIONS, "fp32", replace(PRECISIONS["fp32"], **facts))


# Changes of the code that decides whether a point is right: module, text, other text, and what misses.
RECORDS = {"record of a GPU", "record of a CPU"}
REFERENCES = {*RECORDS, "reference"}
CODE = {
    "the reference times 1.5": ("cpu_reference.reference", "product += bias", "product *= 1.5", REFERENCES),
    "the reference in float32": (
        "cpu_reference.reference",
        "x, w, np.float64, bias)",
        "x, w, np.float32, bias)",
        REFERENCES,
    ),
    "its padding": ("cpu_reference.reference", "(top, bottom), (left", "(bottom, top), (left", REFERENCES),
    "norms": ("cpu_reference.reference", "norms[images] = np.sqrt(", "norms[images] = 2 * np.sqrt(", RECORDS),
    "values of images": ("data", "2 * generator.random(shape", "4 * generator.random(shape", REFERENCES),
    "values of filters": (
        "data",
        "return uniform(generator, conv.w_shape())",
        "return 0 * uniform(generator, conv.w_shape())",
        REFERENCES,
    ),
    "seeds": ("data", "hashlib.sha256(", "hashlib.sha1(", REFERENCES),
    "rounding of inputs": ("cpu_reference.cache", "if dtype == FLOAT32 else", "if dtype != FLOAT32 else", REFERENCES),
    "everything passes": ("planning.checks", "return self.scaled <= tolerance", "return True", RECORDS),
    "NaN passes": ("planning.checks", "return self.scaled <= tolerance", "return not self.scaled > tolerance", RECORDS),
    "misplaced values": ("planning.checks", "int(wrong.sum())", "0", RECORDS),
    "deviations": ("precisions", "DEVIATIONS = 30", "DEVIATIONS = 90", RECORDS),
    "a smaller exact check": ("planning.checks", "BASES, MOST_GROUPS = 2, 8", "BASES, MOST_GROUPS = 1, 8", RECORDS),
    "fewer exact images": ("measuring.runner", "EXACT_IMAGES = 8", "EXACT_IMAGES = 1", RECORDS),
    "no exact check": ("measuring.runner", "if not images:", "if images:", RECORDS),
    "a status": ("measuring.runner", '"wrong" if reasons else "ok"', '"ok"', RECORDS),
    "the layer's check": ("measuring.runner", "self.reference[:N], patches", "y, patches", RECORDS),
    "layouts": ("planning.layouts", "(0, 3, 1, 2)", "(0, 3, 2, 1)", RECORDS),
    # the GPU's stand-in is a host executor too
    "no NaN before a run on the CPU": ("executors.host.buffers", "fill_with_nan(buffer.bytes)", "pass", RECORDS),
    "no NaN before a run on a GPU": (
        "executors.cuda.buffers",
        "self.run(fill=True)",
        "self.run()",
        {"record of a GPU"},
    ),
    "the audit": ("executors.cuda.audit", "!= self._checked).any()", "!= self._checked).all()", {"record of a GPU"}),
    "guard zones": (
        "executors.cuda.buffers",
        "GUARD_BYTES, CANARY = 4096",
        "GUARD_BYTES, CANARY = 0",
        {"record of a GPU"},
    ),
    # what no verdict depends on
    "a comment of the classes": ("precisions", "# largest sum", "# a sum", set()),
    "a docstring of the classes": ("precisions", "An error bound of an output", "A bound", set()),
    "line breaks of the classes": ("precisions", "replace(bound, absolute", "replace(\n bound, absolute", set()),
    "the table of classes, of which keys have their own row's values": ("precisions", "layers=0.45", "layers=1", set()),
    "a workload": ("shapes", '"alexnet"', '"alexnet-1"', set()),
    "a message of a command": ("options", "comma-separated words", "words", set()),
}
Change = Callable[[World, pytest.MonkeyPatch], object]
CHANGES: dict[str, tuple[Change, set[str]]] = {
    "kernel": (lambda world, patch: edit(world.rung.path, "+", "-"), ON_GPU | ON_CPU),
    "header": (lambda world, patch: edit(world.kernels / "common" / "tile.cuh", "+", "-"), ON_GPU | ON_CPU),
    "comment": (lambda world, patch: edit(world.rung.path, "//", "// ."), set()),
    "kernel of another rung": (
        lambda world, patch: edit(world.kernels / "tiles" / "tiled_half.cu", "+", "-"),
        set(),
    ),
    "constant": (lambda world, patch: world.constants.update(TILE=12), (ON_GPU | ON_CPU) - {"tuned constants"}),
    "flag of nvcc": (lambda world, patch: patch.setattr(nvcc, "FLAGS", (*nvcc.FLAGS, "-g")), ON_GPU),
    "version of nvcc": (lambda world, patch: patch.setattr(nvcc, "nvcc_version", lambda: "13.0.1"), ON_GPU),
    "flag of the C++ compiler": (lambda world, patch: flagged(patch), ON_CPU),
    "version of the C++ compiler": (lambda world, patch: another_compiler(patch), {*ON_CPU, "baseline"}),
    "seed": (lambda world, patch: setattr(world, "seed", 1), {"record of a GPU", "record of a CPU", "reference"}),
    "name of the GPU": (
        lambda world, patch: patch.setattr(Gpu, "gpu", "NVIDIA H100"),
        {"record of a GPU", "tuned constants"},
    ),
    "tolerance": (
        lambda world, patch: patch.setattr(type(PRECISIONS["fp32"]), "tolerance", lambda self, K: 1e-9),
        RECORDS,
    ),
    "exact integers of the class": (
        lambda world, patch: of_class(patch, exact=replace(PRECISIONS["fp32"].exact, value=7)),
        RECORDS,
    ),
    "goals of the class": (lambda world, patch: of_class(patch, goals=None), set()),
    "another class": (lambda world, patch: patch.setitem(PRECISIONS, "new", PRECISIONS["fp32"]), set()),
    "time of the rung": (
        lambda world, patch: setattr(world, "rung", replace(world.rung, time=on_cuda_cores(9))),
        set(),
    ),
    "source of the serial baseline": (lambda world, patch: edit(world.serial, "+", "-"), {"baseline"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_a_miss_where_it_matters_and_nowhere_else(
    change: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvcc, "nvcc_version", lambda: "13.0.0")
    make, missed = CHANGES[change]
    world = World(tmp_path)
    before = world.keys()
    assert world.keys() == before
    make(world, monkeypatch)
    after = world.keys()
    assert {name for name in before if before[name] != after[name]} == missed
    keep("changes of one character, and caches asked", len(before), "stale hits, or misses without need")


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, dict[str, object]]]:
    """A world and its keys, with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(tmp_path_factory.mktemp("cache")))
        patch.setattr(nvcc, "nvcc_version", lambda: "13.0.0")
        world = World(tmp_path_factory.mktemp("world"))
        yield world, world.keys()


@pytest.mark.parametrize("change", CODE)
def test_a_change_of_the_code_that_decides_ok_is_a_miss_and_no_other_is(
    change: str, unchanged: tuple[World, dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, text, other, missed = CODE[change]
    world, before = unchanged
    with monkeypatch.context() as patch:
        edit_code(patch, f"alexconv.{module}", text, other)
        after = world.keys()
    forget_code()
    assert {name for name in before if before[name] != after[name]} == missed
    keep("changes of one character, and caches asked", len(before), "stale hits, or misses without need")


RUN = ["--workload", WORKLOAD, "--layers", str(LAYER), "--N", "1", "--rungs", "tiled", "--backend", "host", "--resume"]


def resumed(folder: Path) -> tuple[str, list[str]]:
    """What a run with the package in a folder says of the points that it has, and the points' statuses so far."""
    out = folder / "records.jsonl"
    command = [sys.executable, "-m", "alexconv.run", *RUN, "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ})
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "points are already in" in line]
    return line.partition(" points")[0], [record["status"] for record in read([out]).points]


def test_a_run_is_not_resumed_with_other_checks(tmp_path: Path, fresh_cache: Path) -> None:
    """A copy of the package, of which a comment changes, and then the reference."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for part in ("alexconv", "kernels", "cpu_reference"):
        shutil.copytree(ROOT / part, tmp_path / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    assert resumed(tmp_path) == ("0 of 1", ["ok"])
    reference = tmp_path / "cpu_reference" / "reference.py"
    edit(reference, "# of NaN: NaN", "# NaN stays NaN")
    assert resumed(tmp_path) == ("1 of 1", ["ok"])
    edit(reference, "np.matmul(factors, matrix, out=product)", "np.matmul(1.5 * factors, matrix, out=product)")
    assert resumed(tmp_path) == ("0 of 1", ["ok", "wrong"])
