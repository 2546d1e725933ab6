"""The C++ compiler of this machine, and compilers' messages."""

import os
import re
import shutil
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from itertools import pairwise
from pathlib import Path

from alexconv.errors import MissingTool

CXX_VARIABLE = "CXX"
_COMPILERS = ("g++", "clang++")


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
    answer = subprocess.run([cxx, "--version"], capture_output=True, text=True, errors="replace", check=True)
    return answer.stdout.partition("\n")[0]


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
        if re.search(r"\berror\s*:", line):
            return previous if "ld returned" in line or "linker command failed" in line else line
    return lines[-1]
