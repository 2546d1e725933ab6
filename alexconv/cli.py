"""What the commands share: layers and batches as text, the command line, errors as one line and an exit status."""

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import ParamSpec

from alexconv.errors import AlexconvError, UsageError
from alexconv.shapes import WORKLOADS, Workload

Arguments = ParamSpec("Arguments")

ALL_LAYERS = "all"
DEFAULT_BATCH = {"cuda": "128", "host": "1"}  # by executor
_INTERRUPTED = 130  # 128 + SIGINT, as shells report it

_LAYERS = re.compile(r"([0-9]+)(?:-([0-9]+))?")
_BATCHES = re.compile(r"([0-9]+)(?::([0-9]+):x([0-9]+))?")


def workload_named(text: str) -> Workload:
    """The workload of that name.  Raises UsageError, with the names there are, for any other."""
    if text not in WORKLOADS:
        raise UsageError(f"unknown workload '{text}'; there are: {', '.join(WORKLOADS)}")
    return WORKLOADS[text]


def parse_layers(text: str, workload: Workload) -> tuple[int, ...]:
    """Layer numbers from ``1-5``, ``1,3``, ``2-4,5`` or ``all``, each once, in the order given.

    Raises UsageError for anything else and for layers that the workload lacks.
    """
    last = len(workload.layers)
    if text == ALL_LAYERS:
        return tuple(range(1, last + 1))
    layers: list[int] = []
    for item in text.split(","):
        match = _LAYERS.fullmatch(item.strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= low <= high <= last:
            raise UsageError(
                f"no layers '{item}' in {workload.name}; it has 1 to {last}, "
                f"written like 1-{last}, 1,{last} or {ALL_LAYERS}"
            )
        layers += range(low, high + 1)
    return _each_once(layers)


def parse_batches(text: str) -> tuple[int, ...]:
    """Batch sizes from ``1,32,128`` or ``256:2048:x2`` (each twice the one before), each once, in the order given.

    Raises UsageError for anything else and for sizes below one.
    """
    batches: list[int] = []
    for item in text.split(","):
        match = _BATCHES.fullmatch(item.strip())
        first, last, factor = (int(match[1]), int(match[2] or match[1]), int(match[3] or 2)) if match else (0, 0, 0)
        if not (1 <= first <= last and factor >= 2):
            raise UsageError(f"no batch sizes in '{item}'; write whole numbers from 1, like 1,32,128 or 256:2048:x2")
        while first <= last:
            batches.append(first)
            first *= factor
    return _each_once(batches)


def _each_once(numbers: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(numbers))


def command_line(program: str, arguments: Sequence[str] | None) -> str:
    """The command as typed, such that a shell reads it; ``arguments`` None: those of this process."""
    return f"{program} {shlex.join(sys.argv[1:] if arguments is None else arguments)}"


def exits_cleanly(command: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """Decorate a command so that errors a user can act on become one line on stderr and their exit status."""

    @wraps(command)
    def guarded(*arguments: Arguments.args, **options: Arguments.kwargs) -> int:
        try:
            return command(*arguments, **options)
        except AlexconvError as error:
            print("error:", *str(error).split(), file=sys.stderr)
            return error.exit_status
        except KeyboardInterrupt:
            return _INTERRUPTED

    return guarded
