"""Builds a source distribution and a wheel, reproducible byte for byte.

python scripts/release/dist.py [FOLDER]    (dist/ unless named)

The wheel is built from the source distribution; where nvcc is, it brings the machine code that serves every shape
(alexconv warm), for TARGETS.  All times are SOURCE_DATE_EPOCH (reproducible-builds.org), or else the
time of the last commit.  Nothing is downloaded: setuptools has to be installed.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

from alexconv.compiling import nvcc
from alexconv.errors import MissingTool
from alexconv.files import unpack

ROOT = Path(__file__).resolve().parents[2]
EPOCH = "SOURCE_DATE_EPOCH"
TARGETS = "80,90a"  # Ampere and Ada, Hopper
CUBINS = nvcc.PACKAGED.relative_to(ROOT)
NO_SOURCES = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "docs", "results", "study")
DIRECTORY, FILE, PROGRAM, UMASK = 0o755, 0o644, 0o755, 0o022


def epoch() -> int:
    """The modification time of all files in the archives."""
    if seconds := os.environ.get(EPOCH):
        return int(seconds)
    command = ["git", "log", "-1", "--format=%ct"]
    return int(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def built(kind: str, sources: Path, folder: Path, when: int) -> Path:
    """The archive that setuptools builds of a folder: ``kind`` is sdist or wheel."""
    hook = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    environment = os.environ | {EPOCH: str(when)}
    folder.mkdir()
    command = [sys.executable, "-c", hook, folder]
    done = subprocess.run(
        command, cwd=sources, env=environment, umask=UMASK, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    (archive,) = folder.iterdir()
    return archive


def write_reproducibly(archive: Path, target: Path, when: int) -> None:
    """Repacks a ``.tar.gz``: sorted, with one time, owned by root, with modes independent of the umask."""
    plain = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.pax_headers = when, {}
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mode = DIRECTORY if member.isdir() else PROGRAM if member.mode & 0o100 else FILE
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with target.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=when) as packed:
        packed.write(plain.getvalue())


def distribute(root: Path, folder: Path, when: int, targets: str = "") -> tuple[Path, Path]:
    """Builds both archives of a checkout into a folder: source distribution and wheel.

    ``targets``: of nvcc, for which the wheel brings machine code.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as name:
        temporary = Path(name)
        shutil.copytree(root, temporary / "checkout", ignore=NO_SOURCES)  # old build files must not get into an archive
        archive_path = built("sdist", temporary / "checkout", temporary / "sdist", when)
        source = folder / archive_path.name
        write_reproducibly(archive_path, source, when)
        with tarfile.open(source) as archive:
            unpack(archive, temporary / "unpacked")
        (unpacked,) = (temporary / "unpacked").iterdir()
        if targets:
            compile_into(unpacked, targets)
        archive_path = built("wheel", unpacked, temporary / "wheel", when)
        return source, Path(shutil.copy(archive_path, folder / archive_path.name))


def compile_into(package: Path, targets: str) -> None:
    """Compiles an unpacked package's kernels for every shape into it."""
    command = [sys.executable, "-m", "alexconv", "warm", "--arch", targets, "--into", package / CUBINS]
    done = subprocess.run(command, cwd=package, env=os.environ | {"PYTHONPATH": str(package)}, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def has_nvcc() -> bool:
    """Whether this machine can compile for GPUs."""
    try:
        nvcc.find_nvcc()
    except MissingTool:
        return False
    return True


def main() -> int:
    """Builds, and prints where."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    print(*distribute(ROOT, folder, epoch(), TARGETS if has_nvcc() else ""), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
