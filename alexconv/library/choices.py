"""The rung chosen for a layer, cached on disk: choosing it takes longer than loading its cubin."""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from alexconv import planning, shapes, tune
from alexconv.errors import UsageError
from alexconv.executors.interface import Executor
from alexconv.files import read_json, write_json
from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.messages import print_to_stderr
from alexconv.paths import cache_dir, kernels_folder
from alexconv.records.store import Record, digest
from alexconv.tune import auto
from alexconv.tune import cache as tuning_cache
from alexconv.tune.measured import Request

PART = "choices"  # of the cache


@dataclass(frozen=True)
class CachedChoice:
    """A cached choice, None where no rung takes the layer."""

    choice: auto.Choice | None


def load(executor: Executor, request: Request, budget: int) -> CachedChoice | None:
    """A layer's cached choice if it still fits ``budget`` bytes, else None.  A damaged file counts as missing."""
    path = _path(executor, request)
    try:
        content = read_json(path)
        if content is None:
            return None
        if content["rung"] is None:
            return CachedChoice(None)
        rung, constants = ALL_DIRECTIONS.named[content["rung"]], content["constants"]
        if rung.resolve(request.conv, constants, request.N, executor.device) != constants:
            raise ValueError("not the rung's constants")
        choice = auto.Choice(rung, constants, bool(content["measured"]), float(content["us"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        print_to_stderr(f"{path} is damaged ({error}) and not used")
        return None
    return None if auto.misfit(executor, choice, request.conv, request.N, budget) else CachedChoice(choice)


def is_kept(executor: Executor, request: Request) -> bool:
    """Whether a layer's choice is in the cache."""
    return _path(executor, request).is_file()


def keep(executor: Executor, request: Request, choice: auto.Choice | None) -> None:
    """Caches a choice; prints an error if that fails."""
    content: Record = {"rung": None}
    if choice:
        facts = {"constants": choice.constants, "measured": choice.measured, "us": choice.us}
        content = {"rung": choice.rung.name, **facts}
    try:
        write_json(_path(executor, request), content)
    except UsageError as error:
        print_to_stderr(str(error))


def _path(executor: Executor, request: Request) -> Path:
    facts: Record = {
        **tuning_cache.best_key(executor, request),
        "code": code(),
        "tuned": cache_dir("tuning").stat().st_mtime_ns,  # later tuning may find a faster rung
    }
    return cache_dir(PART) / f"{digest(facts)}.json"


@cache
def code() -> str:
    """Digest of what determines a choice: Python code and a table of measurements."""
    return sha256(b"".join(file.read_bytes() for file in code_files())).hexdigest()


def code_files() -> list[Path]:
    """The files of ``code``."""
    folders = [kernels_folder(), *(Path(str(part.__file__)).parent for part in (tune, planning))]
    files = (file for folder in folders for file in sorted(folder.rglob("*")))
    return [Path(shapes.__file__), *(file for file in files if file.suffix in (".py", ".json"))]
