"""PyCUDA on a machine that has a driver and no CUDA toolkit: built against the toolkit of NVIDIA's wheels.

python scripts/release/pycuda_for_wheels.py    (in an environment with the extra `toolkit`; `make study` calls it)

PyCUDA comes as source.  Its build needs headers, which the wheels have, and ``libcuda.so``, which the driver has under
another name.  cuRAND, which nothing here uses, is left out: its wheel is larger than all others.
"""

import ctypes
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from alexconv.compiling.nvcc import NVCC_WHEEL
from alexconv.compiling.toolchain import program_of_wheel
from alexconv.files import unpack

PIP = [sys.executable, "-m", "pip"]
DRIVER = "libcuda.so.1"
CUDA = 13  # major version of the wheels


def driver() -> Path | None:
    """The driver's library, wherever the dynamic linker finds it."""
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        return None
    mapped = (Path(line.split(maxsplit=5)[-1]) for line in Path("/proc/self/maps").read_text().splitlines())
    return next(file for file in mapped if file.name.startswith("libcuda.so"))


def cuda_of_driver(library: Path) -> tuple[int, int]:
    """The newest CUDA that the driver runs, such as (13, 0)."""
    version = ctypes.c_int()
    ctypes.CDLL(str(library)).cuDriverGetVersion(ctypes.byref(version))
    return version.value // 1000, version.value % 1000 // 10


def site_configuration(toolkit: Path, libraries: Path) -> str:
    """What PyCUDA's setup.py reads from siteconf.py."""
    settings = {
        "CUDA_ROOT": str(toolkit),
        "CUDA_INC_DIR": [str(toolkit / "include")],
        "CUDADRV_LIB_DIR": [str(libraries)],
        "CUDA_ENABLE_CURAND": False,
        "USE_SHIPPED_BOOST": True,
    }
    return "".join(f"{name} = {value!r}\n" for name, value in settings.items())


def main() -> int:
    """Downloads PyCUDA's source and installs what it builds."""
    library = driver()
    if library is None:
        sys.exit(f"no {DRIVER} on this machine: install NVIDIA's driver")
    major, minor = cuda_of_driver(library)
    if major < CUDA:
        sys.exit(
            f"the driver runs CUDA {major}.{minor} and the toolkit's wheels are of CUDA {CUDA}: "
            f"install a newer driver, or the toolkit of CUDA {major}"
        )
    nvcc = program_of_wheel(NVCC_WHEEL, "nvcc")
    if nvcc is None:
        sys.exit("no toolkit in this environment: pip install 'alexconv[toolkit]'")
    with TemporaryDirectory() as name:
        folder = Path(name)
        wanted = ["--no-deps", "--no-binary", "pycuda", "pycuda>=2024.1.2"]
        subprocess.run([*PIP, "download", "-q", *wanted, "-d", folder / "archive"], check=True)
        (archive,) = (folder / "archive").iterdir()
        with tarfile.open(archive) as packed:
            unpack(packed, folder / "source")
        (source,) = (folder / "source").iterdir()
        libraries = folder / "libraries"
        libraries.mkdir()
        (libraries / "libcuda.so").symlink_to(library)
        (source / "siteconf.py").write_text(site_configuration(nvcc.parent.parent, libraries))
        subprocess.run([*PIP, "install", "-q", source], check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
