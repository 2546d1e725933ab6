"""Kills, damage and concurrent runs: every reported record survives, and damage is detected."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from attack_size import drawing, keep, shares
from caches import with_runtime
from report_records import record

from alexconv.compiling.compiled import compiled
from alexconv.cpu_reference.cache import LayerData, ensure
from alexconv.files import read_json
from alexconv.paths import CACHE_VARIABLE
from alexconv.records.store import RecordFile, read
from alexconv.shapes import Conv

QUICK = ["--workload", "lenet-70-k5", "--N", "1", "--backend", "host", "--no-baseline", "--verbose"]
RUNGS = "direct,direct-register,tiled,channels"
TOLD = re.compile(r"\[\d+/\d+\] \S+ layer (\d) N=1 (\S+)(?: \[.*?\])? pageable: ok")
TESTS = Path(__file__).resolve().parent.parent
SMALL = Conv(C=1, H=6, W=5, M=2, R=3, S=2)


def started(module: str, *arguments: object, errors: Path, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", f"alexconv.{module}", *map(str, arguments)]
    with errors.open("ab") as stream:
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=stream, env={**os.environ, **environment}, cwd=errors.parent
        )


def killed_after(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process was killed before it ended."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        return True
    return False


def kill(start: Callable[[], "subprocess.Popen[bytes]"], seconds: float) -> int:
    """Starts a process and kills it after some seconds; one that ends before is started again and killed sooner."""
    while not killed_after(start(), seconds):
        seconds /= 2
    return 1


def wall_seconds(start: Callable[[], "subprocess.Popen[bytes]"]) -> float:
    """How long a process runs that nobody kills."""
    begin = monotonic()
    assert start().wait() == 0
    return monotonic() - begin


def points_of(path: Path) -> set[tuple[int, str]]:
    return {(each["point"]["layer"], each["point"]["rung"]) for each in read([path]).points if each["status"] == "ok"}


@pytest.fixture(scope="module")
def run_seconds(tmp_path_factory: pytest.TempPathFactory) -> float:
    """How long a run takes whose kernels are compiled."""
    folder = tmp_path_factory.mktemp("run")
    words = [*QUICK, "--rungs", RUNGS, "--out"]
    return [wall_seconds(lambda n=n: started("run", *words, folder / str(n), errors=folder / "err")) for n in range(2)][
        -1
    ]


@shares()
def test_a_run_killed_at_any_moment_loses_no_reported_point(share: int, tmp_path: Path, run_seconds: float) -> None:
    draw, kills, lost = drawing(share), 0, 0
    for number in range(2):
        out, errors = tmp_path / f"{number}.jsonl", tmp_path / f"{number}.err"
        reported: set[tuple[int, str]] = set()
        for resume in ([], ["--resume"]):
            start = partial(started, "run", *QUICK, "--rungs", RUNGS, "--out", out, *resume, errors=errors)
            kills += kill(start, draw.uniform(0.3, 1.0) * run_seconds)
            reported |= {(int(layer), rung) for layer, rung in TOLD.findall(errors.read_text())}
            lost += len(reported - (points_of(out) if out.exists() else set()))
        if out.exists():
            RecordFile(out)
            lost += len(reported - points_of(out))
    keep("kill -9 of a run at a random moment", kills, "points told and lost", lost)
    assert lost == 0


@shares(2)
def test_a_reference_that_is_killed_at_any_moment_is_right_afterwards(share: int, tmp_path: Path, cache: Path) -> None:
    draw, kills, wrong = drawing(share), 0, 0
    arguments = ["--workload", "lenet-86-k7", "--layers", "1", "--N", "400"]
    for number in range(2):
        start = partial(started, "reference", *arguments, errors=tmp_path / "errors", **{CACHE_VARIABLE: str(cache)})
        kills += kill(start, draw.uniform(0.5, 2.5))
        N, layer = 3, number % 2 + 1
        conv = Conv(C=1, H=7 + number, W=6, M=3, R=3, S=2)
        once = ensure(LayerData("test", layer, conv), N).read(0, N)
        wrong += not np.array_equal(once, ensure(LayerData("test", layer, conv), N).read(0, N))
        for file in cache.glob("reference/*/*.h5"):
            wrong += file.stat().st_size == 0
    keep("kill -9 of the reference at a random moment", kills, "files that are there and not whole", wrong)
    assert wrong == 0


TUNE = """
import sys
sys.path[:0] = [{tests!r}, {tuning!r}]
import test_tune
from alexconv.kernels.ladder import LADDER
from alexconv.tune import __main__ as tune
options = tune.parser().parse_args(sys.argv[1:])
tune.tune(options, LADDER, test_tune.MadeUpGpu(), "the command")
"""  # on the CPU, with times that follow from the constants


def search(out: Path, **environment: str) -> "subprocess.Popen[bytes]":
    """Starts a search for the best TILE."""
    script = TUNE.format(tests=str(TESTS), tuning=str(TESTS / "tune"))
    chosen = ["--workload", "lenet-70-k5", "--N", "1", "--layers", "1", "--rungs", "tiled", "--constants", "TILE"]
    command = [sys.executable, "-c", script, *chosen, "--out", str(out), "--resume"]
    with (out.parent / "errors").open("wb") as errors:
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, cwd=out.parent, env={**os.environ, **environment}
        )


@pytest.fixture(scope="module")
def search_seconds(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> float:
    """How long the search takes."""
    folder = tmp_path_factory.mktemp("search")
    cache = with_runtime(folder / "cache", shared_cache)
    return wall_seconds(lambda: search(folder / "records.jsonl", **{CACHE_VARIABLE: str(cache)}))


@shares(3)
def test_a_search_for_constants_that_is_killed_at_any_moment_loses_nothing(
    share: int, tmp_path: Path, fresh_cache: Path, search_seconds: float
) -> None:
    """Records and cached constants survive, and the resumed search finds the same constants."""
    draw, lost = drawing(share), 0
    out = tmp_path / "records.jsonl"
    kills = kill(lambda: search(out), draw.uniform(0.3, 1.0) * search_seconds)
    known = len(read([out]).points) if out.exists() else 0
    lost += sum(read_json(file) is None for file in fresh_cache.glob("tuning/*.json"))
    lost += search(out).wait() != 0
    lost += len(read([out]).points) < known
    lost += sum(read_json(file) is None for file in fresh_cache.glob("tuning/*.json"))
    (tile,) = {json.dumps(read_json(file)["constants"]["TILE"]) for file in fresh_cache.glob("tuning/*.json")}
    lost += tile != "12"
    keep("kill -9 of a search for constants at a random moment", kills, "points or constants lost", lost)
    assert lost == 0, (tmp_path / "errors").read_text()


def test_concurrent_runs_share_a_cache_and_a_record_file(tmp_path: Path, fresh_cache: Path) -> None:
    out, names = tmp_path / "shared.jsonl", RUNGS.split(",")
    processes = [
        started("run", *QUICK, "--rungs", name, "--out", out, errors=tmp_path / f"{name}.err") for name in names
    ]
    assert [process.wait() for process in processes] == [0] * len(names)
    records, count = read([out]), len(names)
    assert (records.unreadable, len(records.points)) == ([], 2 * count)
    assert {each["status"] for each in records.points} == {"ok"}
    keep("runs at once on one cache and one record file", count, "points lost or not whole")


def damaged(whole: bytes, draw: random.Random) -> bytes:
    """Cut short, with one bit flipped, or with some bytes zeroed."""
    place = draw.randrange(len(whole))
    kind = draw.choice(["cut", "flip", "flip", "zeros"])
    if kind == "cut":
        return whole[:place]
    if kind == "flip":
        return whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :]
    return whole[:place] + bytes(min(16, len(whole) - place)) + whole[place + 16 :]


@shares()
def test_a_damaged_library_or_cubin_is_never_used(share: int, tmp_path: Path) -> None:
    content, draw, used = random.Random(1).randbytes(5000), drawing(share), 0
    path = tmp_path / "kernel.cubin"
    compiled(path, lambda target: target.write_bytes(content))
    whole = path.read_bytes()
    for _ in range(tries := 300):
        path.write_bytes(damaged(whole, draw))
        used += compiled(path, lambda target: target.write_bytes(content)) != content
    keep("damaged cubins and libraries", tries, "used", used)
    assert used == 0


@shares()
def test_a_damaged_reference_never_gives_other_outputs(share: int, cache: Path) -> None:
    lines: list[str] = []

    def reference() -> np.ndarray:
        return ensure(LayerData("test", 1, SMALL), 2, say=lines.append).read(0, 2)

    expected, draw, wrong = reference(), drawing(share), 0
    (file,) = cache.glob("reference/*/*.h5")
    whole = file.read_bytes()
    for _ in range(tries := 60):
        file.write_bytes(damaged(whole, draw))
        wrong += not np.array_equal(reference(), expected)
        file.write_bytes(whole)
    keep("damaged HDF5 files of the reference", tries, "outputs changed", wrong)
    assert wrong == 0


@shares()
def test_a_damaged_record_file_never_has_another_record(share: int, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    file = RecordFile(path)
    for N in (1, 32, 128):
        file.point(record("alexnet", 1, N, "direct"))
    file.header("host", {"cpu": "a CPU"})
    whole = path.read_bytes()
    points = [json.dumps(each, sort_keys=True) for each in read([path]).points]
    draw, wrong = drawing(share), 0
    for _ in range(tries := 300):
        path.write_bytes(damaged(whole, draw))
        records = read([path])
        wrong += any(json.dumps(each, sort_keys=True) not in points for each in records.points)
        wrong += len(records.points) + len(records.headers) + len(records.unreadable) < 1 and path.stat().st_size > 0
    keep("damaged record files", tries, "records changed and taken for whole", wrong)
    assert wrong == 0


@pytest.mark.parametrize(
    ("away", "status", "says"),
    [
        ({"PATH": "/nonexistent", "CXX": ""}, 1, "no C++ compiler"),
        ({"CXX": "/bin/false"}, 1, "does not run"),
        ({"CXX": "/bin/true"}, 1, ""),
        ({"HOME": "/nonexistent", CACHE_VARIABLE: ""}, None, ""),
        ({"TERM": "", "COLUMNS": "x", "LANG": "C", "LC_ALL": "C"}, 0, ""),
        ({"TMPDIR": "/nonexistent"}, 0, ""),
        ({CACHE_VARIABLE: "/proc/1/nothing"}, 2, "cannot create the cache folder"),
        ({"CUDA_VISIBLE_DEVICES": "", "LD_LIBRARY_PATH": "/nonexistent"}, 0, ""),
    ],
    ids=["PATH", "a compiler that fails", "a compiler that does nothing", "home", "terminal", "TMPDIR", "cache", "GPU"],
)
def test_a_missing_part_gives_no_traceback(tmp_path: Path, away: dict[str, str], status: int | None, says: str) -> None:
    errors = tmp_path / "errors"
    quiet = [word for word in QUICK if word != "--verbose"]
    run = started("run", *quiet, "--rungs", "direct", "--out", tmp_path / "r.jsonl", errors=errors, **away)
    ended = run.wait()
    text = errors.read_text()
    assert "Traceback" not in text
    assert says in text
    if status is not None:
        assert ended == status, text
    keep("parts taken away, one at a time", 1, "tracebacks")


HIDDEN = "import sys; from alexconv.compiling import nvcc; nvcc.SYSTEM_TOOLKIT = nvcc.NVCC_WHEEL = 'absent'; "
ENTRY = "from alexconv.__main__ import main; sys.exit(main(sys.argv[1:]))"
DIRECT = [*QUICK[:-1], "--rungs", "direct"]
FIRST, PLAIN_PATH = ["--rungs", "direct", "--layers", "1"], {"PATH": "/usr/bin:/bin"}
WITHOUT: dict[str, tuple[list[str], dict[str, str], str, tuple[int, ...], str]] = {
    "driver": (["run", *DIRECT, "--backend", "cuda"], {"LD_LIBRARY_PATH": "/absent"}, "", (1,), "error: "),
    "nvcc": (["predict", *FIRST], PLAIN_PATH, "", (1,), "error: nvcc is not"),
    "counters": (["profile", *FIRST, "--backend", "cuda"], PLAIN_PATH, "", (1,), "error: "),
    "write permission": (["run", *DIRECT, "--out", "/proc/r.jsonl"], {}, "", (2,), "error: cannot write the record"),
    "cache": (["run", *DIRECT], {CACHE_VARIABLE: "/proc"}, "", (2,), "error: cannot create the cache folder"),
    "room for the output": (["run", *DIRECT], {}, ">/dev/full", (1,), "cannot write the output: No space left"),
    "standard output": (["run", *DIRECT], {}, ">&-", (0, 1), ""),
    "standard error": (["run", *DIRECT], {}, "2>&-", (0, 1), ""),
    "standard input": (["run", *DIRECT], {}, "<&-", (0,), ""),
}


@pytest.mark.parametrize("part", WITHOUT)
def test_without_a_part_there_is_one_line_and_a_status(tmp_path: Path, part: str) -> None:
    arguments, away, redirection, statuses, says = WITHOUT[part]
    words = [sys.executable, "-c", HIDDEN + ENTRY, *arguments]
    command = ["bash", "-c", f'exec "$@" {redirection}', "bash", *words]
    environment = {**os.environ, "NVCC": "", "CUDA_HOME": "", **away}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=tmp_path)
    assert done.returncode in statuses, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert sum(line.startswith("error: ") for line in done.stderr.splitlines()) <= 1
    keep("parts taken away, one at a time", 1, "tracebacks")


CALLS: dict[str, Callable[[], list[str]]] = {
    "a full disk": lambda: ["bash", "-c", 'ulimit -f 1; exec "$@"', "bash"],
    "little memory": lambda: ["bash", "-c", 'ulimit -v 3000000; exec "$@"', "bash"],
    "few files": lambda: ["bash", "-c", 'ulimit -n 24; exec "$@"', "bash"],
}


@pytest.mark.parametrize("limit", CALLS)
def test_a_system_limit_gives_no_traceback(tmp_path: Path, fresh_cache: Path, limit: str) -> None:
    quiet = [word for word in QUICK if word != "--verbose"]
    command = [sys.executable, "-m", "alexconv.run", *quiet, "--rungs", "direct", "--out", str(tmp_path / "r.jsonl")]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run([*CALLS[limit](), *command], capture_output=True, text=True, env=environment, check=False)
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    assert done.returncode in (0, 1, 2)
    keep("limits of the system reached", 1, "tracebacks")
