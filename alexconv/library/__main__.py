"""Compiles conv2d's builds for every shape, which compute first calls.

python -m alexconv.library --arch 80,90a --into FOLDER

Once a machine: afterwards the first call of a shape needs no compiler.  Without options, for this machine's first GPU,
into the cache.  With ``--into``, for a package that brings them along (make dist).
"""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from alexconv.errors import MissingTool, UsageError
from alexconv.library.devices import gpu
from alexconv.library.every_shape import Build, builds, compile_all
from alexconv.messages import plural
from alexconv.options import comma_separated, exits_cleanly, program

MODULE = "alexconv.library"


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument(
        "--arch",
        type=comma_separated,
        metavar="LIST",
        help="targets of nvcc, as in 80,90a (default: the first GPU's)",
    )
    options.add_argument("--into", type=Path, metavar="FOLDER", help="copies the machine code here too")
    return options


def builds_of(arch: str) -> list[Build]:
    """The builds for a target of nvcc; raises UsageError for a name that is none."""
    digits = arch.removesuffix("a")
    if not digits.isdecimal() or len(digits) < 2:
        raise UsageError(f"{arch!r} is no target of nvcc, such as 80 or 90a")
    return builds(arch, (int(digits[:-1]), int(digits[-1])))


def arch_here() -> str:
    """The target for this machine's first GPU; raises MissingTool without one."""
    try:
        return gpu(0).executor.gpu.arch
    except MissingTool as error:
        raise MissingTool(f"warm without --arch is for this machine's GPU: {error}") from None


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Compiles them, and prints how many and in what time; returns the exit status."""
    chosen = parser().parse_args(arguments)
    arches = chosen.arch.split(",") if chosen.arch else [arch_here()]
    begun, wanted = perf_counter(), [build for arch in arches for build in builds_of(arch)]
    paths = compile_all(wanted)
    if chosen.into:
        chosen.into.mkdir(parents=True, exist_ok=True)
        for path in paths:
            shutil.copyfile(path, chosen.into / path.name)
    targets = ", ".join(f"sm_{arch}" for arch in arches)
    print(f"{plural(len(paths), 'kernel file')} for {targets} ready in {perf_counter() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
