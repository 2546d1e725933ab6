"""The C++ compiler of this machine, running compilers, and their messages."""

import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path

from alexconv.errors import AlexconvError, CompileError, MachineFault, MissingTool
from alexconv.paths import CACHE_VARIABLE

CXX_VARIABLE = "CXX"
_COMPILERS = ("g++", "clang++")
_LITTLE_SPACE = 16 << 20  # bytes free, with which a compiler that fails without an error has had too few

# What compilers and linkers print when the machine, not the source, is at fault.
_DISK = re.compile(
    r"No space left on device|Disk quota exceeded|Read-only file system|Permission denied|Input/output error"
    r"|File too large|File size limit exceeded|Bus error|Could not open output file|[Cc]annot create temporary"
)
_MEMORY = re.compile(
    r"Cannot allocate memory|[Oo]ut of memory|memory exhausted|bad_alloc|Resource temporarily unavailable"
    r"|Too many open files|failed to map segment"
)
_KILLED = re.compile(r"\b(Killed|Terminated|Hangup|CPU time limit exceeded)\b|died due to signal (9|15)\b")
_ERROR = re.compile(r"(?<!compiler )\berror\b")
# A line that quotes the source: an excerpt, or an error at a place, which may name anything of it.
_OF_SOURCE = re.compile(r"\s*\d*\s*\||.*(#\s*error|static.assert)|.*(:\d+|\(\d+\)): (error|warning|note):")


def find_cxx() -> str:
    """Path of the C++ compiler: the one that ``CXX`` names, else g++, else clang++.

    Raises MissingTool when there is none.
    """
    named = os.environ.get(CXX_VARIABLE)
    for name in (named,) if named else _COMPILERS:
        if path := shutil.which(name):
            return path
    if named:
        raise MissingTool(f"the C++ compiler '{named}' that {CXX_VARIABLE} names is not found; correct or unset it")
    raise MissingTool(f"no C++ compiler ({' or '.join(_COMPILERS)}) on the PATH; install one or set {CXX_VARIABLE}")


def compiler_version(cxx: str) -> str:
    """The first line of the compiler's ``--version``.  Raises MissingTool when it does not run."""
    try:
        file = Path(cxx).stat()
        return _version(cxx, file.st_ino, file.st_mtime_ns)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingTool(f"the C++ compiler {cxx} does not run ({error}); set {CXX_VARIABLE}") from None


@cache
def _version(cxx: str, inode: int, changed: int) -> str:
    """Cached until the compiler's file changes."""
    return _first_line(cxx, "--version")


@cache
def compiler_machine(cxx: str) -> str:
    """The CPU architecture that a compiler which runs compiles for, as ``platform.machine`` names it."""
    return _first_line(cxx, "-dumpmachine").partition("-")[0]


def _first_line(cxx: str, question: str) -> str:
    answer = subprocess.run([cxx, question], capture_output=True, text=True, errors="replace", check=True)
    return answer.stdout.partition("\n")[0]


@cache
def emulator(cxx: str) -> tuple[str, ...]:
    """The words before a program that a compiler has made for another CPU: QEMU's, with that CPU's C library.

    None where this machine runs it by itself.  Raises MissingTool without QEMU.
    """
    machine = compiler_machine(cxx)
    if machine == platform.machine():
        return ()
    names = (f"qemu-{machine}", f"qemu-{machine}-static")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        raise MissingTool(
            f"{cxx} compiles for {machine}, and {names[0]}, which runs its kernels here, is not on the PATH; "
            "install it (Debian: apt-get install qemu-user)"
        )
    library = Path(_first_line(cxx, "-print-file-name=libc.so.6")).resolve()
    return program, "-L", str(library.parent.parent)


def run_compiler(
    command: Sequence[str | Path], name: str, folder: Path, unit: str = "", seconds: float | None = None
) -> str:
    """Runs a compiler, which writes to ``folder``, on ``unit`` as its standard input; returns its messages.

    Raises CompileError with its first error, or if it takes longer than ``seconds``, and MachineFault where it failed
    for want of space, memory or permission, or was killed.
    """
    english = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, input=os.fsencode(unit), capture_output=True, check=False, timeout=seconds, env=english
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"{name}: {Path(command[0]).name} did not finish within {seconds:g} s") from None
    except OSError as error:
        raise MachineFault(f"{name}: cannot run {command[0]} ({error.strerror}); try again") from None
    messages = done.stderr.decode(errors="replace")
    if done.returncode:
        died = signal.Signals(-done.returncode).name if done.returncode < 0 else ""
        raise failure(name, messages, folder, died)
    return messages


def failure(name: str, messages: str, folder: Path, died: str = "") -> AlexconvError:
    """The error of a compiler or loader that failed: the source's, a CompileError, or the machine's.

    ``died`` names the signal that ended it.
    """
    lines = [line.strip() for line in messages.splitlines() if not _OF_SOURCE.match(line)]
    for line in lines:
        if _DISK.search(line):
            return unwritable(name, line, folder)
        if _MEMORY.search(line):
            return MachineFault(f"{name}: no memory or processes left for the compiler ({line}); free some, try again")
        if _KILLED.search(line):
            return MachineFault(f"{name}: the compiler was killed, perhaps for want of memory ({line}); try again")
    if died in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGXCPU"):
        return MachineFault(f"{name}: the compiler was killed by {died}, perhaps for want of memory; try again")
    reason = died or first_error(messages)
    if not _ERROR.search(messages) and _free(_fullest(folder)) < _LITTLE_SPACE:
        return unwritable(name, reason, folder)
    reason = re.sub(rf"^[^:(]*/(?={re.escape(name)}[:(])", "", reason)
    return CompileError(reason if reason.startswith((f"{name}:", f"{name}(")) else f"{name}: {reason}")


def unwritable(name: str, line: str, folder: Path) -> MachineFault:
    """The fault of a folder in which a compiler cannot write: the one that its message names, else the fullest."""
    reason = line.rpartition("error:")[2]  # the source's own place comes before it
    place = next((place for place in (folder, _temporary()) if f"{place}/" in reason), _fullest(folder))
    variable = CACHE_VARIABLE if place == folder else "TMPDIR"
    return MachineFault(f"{name}: the compiler cannot write to {place} ({line}); make room there or set {variable}")


def _fullest(folder: Path) -> Path:
    """The folder with the least free space, of a compiler's output and of its temporary files."""
    return min(folder, _temporary(), key=_free)


def _temporary() -> Path:
    """Where compilers write temporary files."""
    return Path(os.environ.get("TMPDIR") or tempfile.gettempdir())


def _free(folder: Path) -> int:
    """Bytes free; none in a folder that is not there."""
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


def program_of_wheel(wheel: str, name: str) -> Path | None:
    """A program from one of NVIDIA's wheels in this environment, or None."""
    try:
        files = distribution(wheel).files or []
    except PackageNotFoundError:
        return None
    programs = (Path(str(file.locate())) for file in files if file.parts[-2:] == ("bin", name))
    return next((program.resolve() for program in programs if os.access(program, os.X_OK)), None)


def first_error(output: str) -> str:
    """The first error in a compiler's output, else its last line.

    For an error that only reports the linker's failure, the line before it, which has the reason.
    """
    lines = ["the compiler printed nothing", *(line.strip() for line in output.splitlines() if line.strip())]
    for previous, line in pairwise(lines):
        if re.search(r"\b[eE]rror\s*:", line):
            return previous if "ld returned" in line or "linker command failed" in line else line
    return lines[-1]
