"""The C++ compiler of this machine."""

import os
import shutil
import subprocess

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
    """The first line that the compiler prints about itself.  Raises MissingTool when it does not run."""
    try:
        answer = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingTool(f"the C++ compiler {cxx} does not run ({error}); set {CXX_VARIABLE}") from None
    return answer.stdout.partition("\n")[0]
