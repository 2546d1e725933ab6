"""Where nvcc is looked for, and in which order."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from alexconv.compiling import nvcc
from alexconv.errors import MissingTool

PLACES = ("NVCC", "PATH", "CUDA_HOME", "system", "wheel")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Path]]:
    """An nvcc in every place that is searched."""
    wheel = tmp_path / "site-packages/nvidia/cu13"
    folders = {name: tmp_path / name / "bin" for name in PLACES} | {"wheel": wheel / "bin"}
    compilers = {name: folder / "nvcc" for name, folder in folders.items()}
    for program in compilers.values():
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    info = tmp_path / "site-packages/nvidia_cuda_nvcc-13.0.88.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-cuda-nvcc\nVersion: 13.0.88\n")
    (info / "RECORD").write_text("nvidia/cu13/bin/nvcc.profile,,\nnvidia/cu13/bin/nvcc,,\n")
    monkeypatch.setenv("NVCC", str(compilers["NVCC"]))
    monkeypatch.setenv("PATH", str(folders["PATH"]))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "CUDA_HOME"))
    monkeypatch.setattr(nvcc, "SYSTEM_TOOLKIT", str(tmp_path / "system"))
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    nvcc.find_nvcc.cache_clear()
    yield compilers
    nvcc.find_nvcc.cache_clear()


def test_nvcc_is_found_in_the_first_place_that_has_it(places: dict[str, Path]) -> None:
    for program in places.values():
        assert nvcc.find_nvcc() == str(program)
        program.unlink()
        nvcc.find_nvcc.cache_clear()
    with pytest.raises(MissingTool, match=r"alexconv\[toolkit\]"):
        nvcc.find_nvcc()


def test_a_wheel_whose_program_may_not_run_is_passed_over(places: dict[str, Path]) -> None:
    for name in PLACES[:-1]:
        places[name].unlink()
    places["wheel"].chmod(0o644)
    with pytest.raises(MissingTool):
        nvcc.find_nvcc()


def test_an_nvcc_that_does_not_run_is_missing(places: dict[str, Path]) -> None:
    """As one for another CPU, or whose interpreter is not there."""
    places["NVCC"].write_text("#!/nowhere/sh\n")
    nvcc.nvcc_version.cache_clear()
    with pytest.raises(MissingTool, match=r"does not run \(No such file or directory\): name another nvcc in NVCC"):
        nvcc.nvcc_version()


def test_machine_code_for_every_shape_that_a_package_brings_needs_no_compiler(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, code = tmp_path / "any.cu", b"machine code"
    source.write_text("// any shape\n")
    monkeypatch.setattr(nvcc, "PACKAGED", tmp_path)

    def missing() -> str:
        raise MissingTool("no nvcc")

    monkeypatch.setattr(nvcc, "find_nvcc", missing)
    with pytest.raises(MissingTool):
        nvcc.compile_cubin(source, {"A": 1}, "86", lasting=True)
    packaged = tmp_path / nvcc.lasting_path(source, {"A": 1}, "80").name  # Ampere's, which the 86 runs
    packaged.write_bytes(code + sha256(code).digest())
    assert nvcc.compile_cubin(source, {"A": 1}, "86", lasting=True) == code
    with pytest.raises(MissingTool):
        nvcc.compile_cubin(source, {"A": 2}, "86", lasting=True)
