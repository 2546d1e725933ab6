"""The fastest constants that were found for a rung, kept per GPU, toolkit, shape, batch size and kernel source.

A kernel, toolkit or GPU that changed has another key, so constants found for the old one are never used for it.  The
transfer is not part of the key: it does not affect the kernels.

The same folder has the fastest rung of each precision and layout, per GPU, toolkit, shape and batch size.  Its kernel
is not known before the file is read, so the kernel's digest is in the file: if it differs, the file is ignored.
"""

from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path

from alexconv.executors.interface import Executor
from alexconv.files import locked, read_json, write_json
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, Ladder
from alexconv.kernels.problem import Constants
from alexconv.kernels.rung import Rung
from alexconv.messages import Say
from alexconv.paths import cache_dir
from alexconv.records.store import Record, digest
from alexconv.shapes import FORWARD, Conv
from alexconv.tune.measured import Request

_VERSION = 1  # part of every key: raise it when a file's content means something else
_DEVICE_FACTS = ("backend", "name", "compute_capability", "toolkit")


@dataclass(frozen=True)
class Tuned:
    """A rung's constants and the median time of its kernels with them, in ms per batch."""

    constants: dict[str, int]
    kernel_ms: float


@dataclass(frozen=True)
class Best:
    """The fastest rung that was found, its constants, and the median time of its kernels, in ms per batch."""

    rung: Rung
    constants: dict[str, int]
    kernel_ms: float


def key(executor: Executor, rung: Rung, conv: Conv, N: int) -> Record:
    """Everything that decides which constants are the fastest."""
    return {
        "version": _VERSION,
        "device": _device(executor),
        "conv": conv.facts(),
        "N": N,
        "rung": rung.name,
        "kernel": _kernel(executor, rung, conv, N, rung.resolve(conv, {}, N, executor.device)),
    }


def load(executor: Executor, rung: Rung, conv: Conv, N: int, say: Say) -> Tuned | None:
    """The cached constants of the rung, or None; a damaged file is reported to ``say`` and ignored."""
    path = _path(key(executor, rung, conv, N))
    try:
        content = read_json(path)
        if content is None:
            return None
        tuned = Tuned(content["constants"], content["kernel_ms"])
        check(rung, conv, tuned.constants, tuned.kernel_ms)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        say(f"{path} is damaged ({error}) and not used; python -m alexconv.tune recreates it")
        return None
    return tuned


def check(rung: Rung, conv: Conv, constants: dict[str, int], kernel_ms: float) -> None:
    """Raises ValueError or TypeError unless these are the rung's constants and a possible kernel time in ms."""
    if rung.resolve(conv, constants) != constants:
        raise ValueError("not the rung's constants")
    if not (isfinite(kernel_ms) and kernel_ms > 0):
        raise ValueError(f"an impossible kernel time, {kernel_ms} ms")


def keep(executor: Executor, rung: Rung, conv: Conv, N: int, tuned: Tuned, say: Say) -> Tuned:
    """Stores constants, unless the cache has faster ones; returns those that it keeps."""
    with locked(cache_dir("tuning"), say):
        known = load(executor, rung, conv, N, say)
        if known is not None and known.kernel_ms <= tuned.kernel_ms:
            return known
        facts = key(executor, rung, conv, N)
        write_json(_path(facts), {"key": facts, **asdict(tuned)})
    return tuned


def best_key(executor: Executor, request: Request) -> Record:
    """Everything that decides which rung is the fastest, except the kernels."""
    return {
        "version": _VERSION,
        "device": _device(executor),
        "conv": request.conv.sizes(),
        **({} if request.conv.direction == FORWARD else {"direction": request.conv.direction}),
        "N": request.N,
        "precision": request.precision,
        "layout": request.layout,
    }


def load_best(executor: Executor, request: Request, say: Say, ladder: Ladder = LADDER) -> Best | None:
    """The cached fastest rung, if it is of the ladder and ``auto`` may choose it, or None.

    A damaged file is reported to ``say`` and ignored.
    """
    path, conv = _path(best_key(executor, request)), request.conv
    try:
        content = read_json(path)
        if content is None:
            return None
        rung, constants, kernel_ms = ladder.named.get(content["rung"]), content["constants"], content["kernel_ms"]
        if rung is None or rung.order_varies:
            return None  # not of the ladder, or kept where no other had a time: ``auto`` never chooses it
        if constants.keys() != {constant.name for constant in rung.constants}:
            return None  # measured before the rung changed
        if content["kernel"] != _kernel(executor, rung, conv, request.N, constants):
            return None  # likewise
        check(rung, conv, constants, kernel_ms)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        say(f"{path} is damaged ({error}) and not used; python -m alexconv.tune --auto recreates it")
        return None
    return Best(rung, constants, kernel_ms)


def keep_best(executor: Executor, conv: Conv, N: int, best: Best, say: Say, ladder: Ladder = LADDER) -> Best:
    """Stores the fastest rung, unless the cache has a faster one; returns the one that it keeps."""
    rung = best.rung
    request = Request(conv, N, rung.precision, rung.layout)
    with locked(cache_dir("tuning"), say):
        known = load_best(executor, request, say, ladder)
        if known is not None and known.kernel_ms <= best.kernel_ms:
            return known
        facts = best_key(executor, request)
        kernel = _kernel(executor, rung, conv, N, best.constants)
        content = {"rung": rung.name, "constants": best.constants, "kernel_ms": best.kernel_ms}
        write_json(_path(facts), {"key": facts, "kernel": kernel, **content})
    return best


def _kernel(executor: Executor, rung: Rung, conv: Conv, N: int, constants: Constants) -> str:
    """Digest of what is compiled and how it is launched."""
    bound = BoundRung(rung, conv, constants, executor.device)
    return digest([executor.key(bound), bound.launch_facts(N)])


def _device(executor: Executor) -> Record:
    header = executor.header()
    return {name: header.get(name) for name in _DEVICE_FACTS}


def _path(facts: Record) -> Path:
    return cache_dir("tuning") / f"{digest(facts)}.json"
