"""Changing one character causes a miss in each cache that depends on it, and in no other."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from attack_size import keep
from ladders import ladder_with

from alexconv import data
from alexconv.compiling import nvcc
from alexconv.cpu_reference import baseline
from alexconv.cpu_reference.cache import ensure
from alexconv.executors.host.executor import HostExecutor
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import FOLDER
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.checks import PRECISIONS
from alexconv.planning.points import Point
from alexconv.shapes import WORKLOADS
from alexconv.tuning import cache as tuning

WORKLOAD, LAYER, N = "lenet-70-k5", 2, 1
CONV = WORKLOADS[WORKLOAD].layer(LAYER)
ON_GPU, ON_CPU = {"cubin", "record of a GPU", "tuned constants"}, {"library", "record of a CPU"}


class Gpu(HostExecutor):
    """An executor with a GPU's keys."""

    gpu, toolkit = "NVIDIA H200", "13.0"
    measures = True

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
        point = Point(WORKLOAD, LAYER, N, "tiled", "pageable", "fp32", constants)
        with ladder_with(self.rung):
            records = [
                (Runner(executor, [point], Settings(seed=self.seed)).key(point), point.axes())
                for executor in (gpu, cpu)
            ]
        bound = BoundRung(self.rung, CONV, constants, gpu.device)
        tool = cpu.runtime.compiler
        return {
            "cubin": gpu.key(bound),
            "library": cpu.key(bound),
            "record of a GPU": records[0],
            "record of a CPU": records[1],
            "tuned constants": tuning.key(gpu, self.rung, CONV, N),
            "reference": ensure(WORKLOAD, LAYER, CONV, N, self.seed).folder.name,
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
    made = HostRuntime.__init__

    def init(self: HostRuntime, *arguments: object, **options: object) -> None:
        made(self, *arguments, **options)
        self.compiler += "1"

    monkeypatch.setattr(HostRuntime, "__init__", init)


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
    "way in which inputs are made": (
        lambda world, patch: patch.setattr(data, "GENERATOR_VERSION", data.GENERATOR_VERSION + 1),
        {"record of a GPU", "record of a CPU", "reference"},
    ),
    "tolerance": (
        lambda world, patch: patch.setattr(type(PRECISIONS["fp32"]), "tolerance", lambda self, K: 1e-9),
        {"record of a GPU", "record of a CPU"},
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
