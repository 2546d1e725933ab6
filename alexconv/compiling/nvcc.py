"""nvcc: finding it, and compiling a kernel to a cubin in a cache that several processes may share.

PyCUDA's own compiler cache takes no lock and can serve a truncated file, and its wrapper breaks templates, so kernels
are compiled here and PyCUDA loads the result.  Nothing in this module needs a GPU or a driver.
"""

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from alexconv.compiling.compiled import compiled
from alexconv.compiling.sources import include_options, source_digest
from alexconv.compiling.toolchain import program_of_wheel, run_compiler, unwritable
from alexconv.errors import MissingTool
from alexconv.paths import cache_dir

LASTING_FLAGS = ("-std=c++17", "-O3")  # of machine code for every shape, which names no path of its sources
FLAGS = (*LASTING_FLAGS, "-lineinfo")
SYSTEM_TOOLKIT = "/usr/local/cuda"
NVCC_WHEEL = "nvidia-cuda-nvcc"
_ELF, _ELF_HEADER_BYTES = b"\x7fELF", 64
PACKAGED = Path(__file__).parent / "cubins"  # machine code for every shape that a wheel may bring
TIME_LIMIT = 300  # seconds for one kernel; the largest take a few


@cache
def find_nvcc() -> str:
    """nvcc from $NVCC, the PATH, $CUDA_HOME, /usr/local/cuda or NVIDIA's wheels; raises MissingTool."""
    places = [os.environ.get("NVCC"), "nvcc"]
    places += [f"{root}/bin/nvcc" for root in (os.environ.get("CUDA_HOME"), SYSTEM_TOOLKIT) if root]
    for place in places:
        if place and (path := shutil.which(place)):
            return path
    if program := program_of_wheel(NVCC_WHEEL, "nvcc"):
        return str(program)
    raise MissingTool(
        "nvcc is not on this machine: install the CUDA toolkit, name it in NVCC or CUDA_HOME, "
        "or pip install 'alexconv[toolkit]'"
    )


@cache
def nvcc_version() -> str:
    """Release of nvcc, such as ``13.0.88``; raises MissingTool."""
    match = re.search(r"V(\d+\.\d+\.\d+)", _answer("--version"))
    if not match:
        raise MissingTool(f"{find_nvcc()} does not answer with a version: is the CUDA toolkit complete?")
    return match[1]


@cache
def capabilities() -> tuple[tuple[int, int], ...]:
    """The compute capabilities that nvcc compiles for, in order; empty if it does not list them (before CUDA 11)."""
    names = re.findall(r"compute_(\d+)(\d)$", _answer("--list-gpu-arch"), re.MULTILINE)
    return tuple(sorted((int(major), int(minor)) for major, minor in names))


def _answer(question: str) -> str:
    nvcc = find_nvcc()
    try:
        done = subprocess.run([nvcc, question], capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise MissingTool(f"{nvcc} does not run ({error.strerror}): name another nvcc in NVCC") from None
    return done.stdout


def refuse_unfit(name: str, capability: tuple[int, int], driver: int) -> None:
    """Raises MissingTool if nvcc does not compile for a GPU, or for a driver's CUDA version (12040 for 12.4).

    A driver runs machine code of all toolkits of its major version and of earlier ones (CUDA Compatibility, NVIDIA).
    """
    known, version, own = capabilities(), nvcc_version(), "{}.{}".format(*capability)
    if known and capability not in known:
        wanted = "an older" if capability < known[0] else "a newer"
        raise MissingTool(
            f"nvcc {version} does not compile for the {name} (compute capability {own}): name the nvcc of {wanted} "
            "CUDA toolkit in NVCC, or use --backend host"
        )
    major, minor = driver // 1000, driver % 1000 // 10
    if major < int(version.partition(".")[0]):
        raise MissingTool(
            f"the NVIDIA driver is too old for nvcc {version}, it has CUDA {major}.{minor}: update the driver, or name "
            f"the nvcc of a CUDA {major} toolkit in NVCC; or use --backend host"
        )


def arch_name(compute_capability: tuple[int, int]) -> str:
    """The target for a device of this compute capability: from Hopper on with architecture-specific instructions."""
    major, minor = compute_capability
    return f"{major}{minor}a" if major >= 9 else f"{major}{minor}"


def cubin_key(source: Path, defines: Mapping[str, int], arch: str) -> str:
    """Digest of everything that the machine code depends on.

    Line numbers are not part of it: a cached cubin may give Nsight Compute and compute-sanitizer the line numbers from
    before a comment was edited.  A new folder as ALEXCONV_CACHE_DIR gives the current ones.
    """
    return source_digest(source, defines, *FLAGS, arch, nvcc_version())


def compile_cubin(source: Path, defines: Mapping[str, int], arch: str, *, lasting: bool = False) -> bytes:
    """Machine code of one ``.cu`` for ``sm_<arch>``, such as ``90a``, from the cache if it is there.

    ``lasting``: for every shape (``lasting_path``).  Raises MissingTool without nvcc, CompileError with nvcc's first
    error line, and MachineFault.
    """

    def build(target: Path) -> None:
        macros = [f"-D{name}={value}" for name, value in defines.items()]
        target_arch = lasting_target(arch) if lasting else arch
        code = f"-gencode=arch=compute_{target_arch},code=sm_{target_arch}"
        command = [
            find_nvcc(),
            "-cubin",
            code,
            *(LASTING_FLAGS if lasting else FLAGS),
            *include_options(source),
            *macros,
            "-o",
            str(target),
            str(source),
        ]
        run_compiler(command, source.name, target.parent, seconds=TIME_LIMIT)
        if target.is_file() and not is_whole(target.read_bytes()):
            raise unwritable(source.name, "nvcc wrote a part of the machine code and no error", target.parent)

    path = lasting_path(source, defines, arch) if lasting else cubin_path(source, defines, arch)
    return compiled(path, build)


def is_whole(cubin: bytes) -> bool:
    """Whether machine code has the program headers at its end: where a disk is full nvcc reports no error.

    The place and number of headers: ELF-64 Object File Format, 1998.  Other files than ELF's are whole unless empty.
    """
    if not cubin.startswith(_ELF):
        return bool(cubin)
    if len(cubin) < _ELF_HEADER_BYTES:
        return False
    (place,), (nbytes, count) = struct.unpack_from("<Q", cubin, 32), struct.unpack_from("<HH", cubin, 54)
    return bool(len(cubin) >= place + nbytes * count)


def cubin_path(source: Path, defines: Mapping[str, int], arch: str) -> Path:
    """The path of a file's machine code in the cache, there or not."""
    return cache_dir("cubin") / f"{source.stem}-{cubin_key(source, defines, arch)}.cubin"


def lasting_target(arch: str) -> str:
    """The target whose machine code for every shape a GPU runs: Ampere's serves its generation and Ada."""
    return "80" if arch.startswith("8") else arch


def lasting_path(source: Path, defines: Mapping[str, int], arch: str) -> Path:
    """The path of machine code for every shape: the installed package's if it is there, else that in the cache.

    Whatever the toolkit that compiled it, so that a machine without one can look it up.  Every byte of the sources
    counts: a first call waits for this key, and tokens would take longer than the rest of it.
    """
    name = f"{source.stem}-{source_digest(source, defines, *LASTING_FLAGS, lasting_target(arch), exact=True)}.cubin"
    packaged = PACKAGED / name
    return packaged if packaged.is_file() else cache_dir("cubin") / name
