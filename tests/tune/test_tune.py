"""The search for constants: what it tries, what it never chooses, what it keeps and what a run then uses."""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from io import StringIO
from itertools import repeat
from math import nan, prod
from pathlib import Path

import pytest
from points import batch_of, point_of
from rich.console import Console

from alexconv.cli.matrix import milliseconds
from alexconv.errors import MissingTool, UsageError
from alexconv.executors.host.buffers import HostBuffers
from alexconv.executors.host.executor import HostExecutor
from alexconv.files import read_json, write_json
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.kernels.studies import PUBLISHED
from alexconv.precisions import PRECISIONS
from alexconv.records.store import read
from alexconv.shapes import WORKLOADS
from alexconv.tune import __main__ as tune
from alexconv.tune import auto, workers
from alexconv.tune import cache as tuning_cache
from alexconv.tune import tables as tuning_tables
from alexconv.tune.cache import Tuned
from alexconv.tune.candidates import some_of
from alexconv.tune.measured import Request
from alexconv.tune.search import Search, axes, candidates

LENET = WORKLOADS["lenet-70-k5"]
SMALL = ["--workload", "lenet-70-k5", "--N", "1"]
FASTEST_TILE = 12
MOST_CANDIDATES = 50_000  # beyond which a test takes every other value


class MadeUpPoint(HostBuffers):
    """Computed on the CPU; its times follow from its constants, and the constants in ``wrong`` spoil its outputs."""

    def __init__(self, wrong, *arguments):
        super().__init__(*arguments)
        self.wrong = wrong

    def outputs(self, *, stale=False):
        y = super().outputs(stale=stale)
        if self.wrong and self.wrong.items() <= self.plan.constants.items():
            y[0, 0, 0, 0] += 1
        return y

    def measure(self, seconds):
        return {"kernel": [made_up_ms(self.plan.constants)] * 3}


def made_up_ms(constants):
    """Shortest at tiles of 12 outputs and, by a little, with the other constants at their least."""
    others = sum(value for name, value in constants.items() if name != "TILE")
    return 1.0 + abs(constants.get("TILE", FASTEST_TILE) - FASTEST_TILE) + 0.01 * others


class MadeUpGpu(HostExecutor):
    """The host executor with times and a device name."""

    measures = True

    def __init__(self, wrong=None, name="made-up GPU", source="as it is"):
        super().__init__()
        self.wrong, self.device_name, self.source = wrong or {}, name, source

    def header(self):
        return {**super().header(), "name": self.device_name, "compute_capability": [9, 0], "toolkit": "13.0"}

    def key(self, bound):
        return f"{super().key(bound)} {self.source}"

    def open(self, program, plan, x, w, transfer, bias=None):
        return MadeUpPoint(self.wrong, self.runtime, program, plan, x, w, transfer, bias)


@pytest.fixture
def cache(cache_of_tuning):
    return cache_of_tuning


def tuned(tmp_path, *arguments, gpu=None):
    options = tune.parser().parse_args([*SMALL, "--out", str(tmp_path / "tuning.jsonl"), *arguments])
    return tune.tune(options, LADDER, gpu or MadeUpGpu(), "the command")


def default_point(rung, layer=2, N=8):
    return point_of(batch_of(LENET.name, layer, N), rung)


def at_tile(tile):
    constants = RUNGS["tiled"].resolve(LENET.layer(2), {"TILE": tile})
    return Tuned(constants, made_up_ms(constants))


def shown(searches):
    console = Console(width=160, file=StringIO())
    tuning_tables.show_searches(console, searches, LADDER)
    return console.file.getvalue()


@pytest.mark.parametrize(
    ("rung", "layer"),
    [(rung.name, 1 + number % 2) for number, rung in enumerate(rung for rung in LADDER if rung.constants)],
)
def test_every_value_to_try_is_one_that_the_rung_takes(rung, layer):
    point = default_point(rung, layer)
    space = axes(point, None, {})
    assert list(space) == [constant.name for constant in RUNGS[rung].constants]
    assert all(point.constants[name] in values for name, values in space.items())
    if prod(map(len, space.values())) > MOST_CANDIDATES:
        space = {name: values[:: 2 if len(values) > 2 else 1] for name, values in space.items()}
    points = list(candidates(point, space))
    assert points[0] == point
    refused = RUNGS[rung].refuses(Problem(point.conv, point.N, point.constants)) is not None
    assert len({tuple(p.constants.items()) for p in points}) == len(points) > (0 if refused else 1)
    assert [p for p in points[1:] if RUNGS[rung].refuses(Problem(p.conv, p.N, p.constants))] == []


def test_a_large_space_is_not_listed():
    point = default_point("direct")
    assert len(some_of(repeat(point), 3, None)) == 5  # one more than can be tried: the default and three others
    assert some_of(iter([point] * 9), 3, lambda points: points[:7]) == [point] * 7


def test_a_value_that_a_constant_cannot_have_is_refused_before_anything_runs():
    command = "--layers 3 --N 1 --rungs mma-half --trials 3 --set TILE_PIXELS=40,41"  # the last to be tried
    with pytest.raises(UsageError, match="TILE_PIXELS"):
        tune.points_to_tune(tune.parser().parse_args(command.split()))


def test_values_without_choices_follow_from_the_shape_and_the_batch():
    assert axes(default_point("channels"), ["CHANNELS"], {}) == {"CHANNELS": (1, 2, 4, 8, 12)}
    assert axes(default_point("unroll-matmul", N=10), ["IMAGES_PER_PIECE"], {}) == {"IMAGES_PER_PIECE": (0, 2, 3, 5)}
    assert axes(default_point("direct", layer=1), ["THREAD_OUTPUTS"], {}) == {"THREAD_OUTPUTS": (1, 2, 3, 6, 12)}


def test_constants_that_a_rung_refuses_are_not_tried():
    point = default_point("direct", layer=1)
    assert {p.constants["THREAD_OUTPUTS"] for p in candidates(point, {"THREAD_OUTPUTS": (1, 2, 3, 6)})} == {3, 6}


def test_the_sweep_of_the_2019_report_is_within_its_command():
    command = re.search(r"This prints it:\n\n(.*)", tune.__doc__, re.DOTALL)[1].replace("\\\n", " ").split()
    options = tune.parser().parse_args(command[3:])
    tried = {}
    for point, space in tune.points_to_tune(options):
        tried.setdefault((point.rung, point.layer), []).extend(p.constants for p in candidates(point, space))
    published = {name: v for (study, name), v in PUBLISHED.items() if study == "ece408-2019" and "sweep" in name}
    assert len(published) >= 8
    for variant in published.values():
        for layer in (1, 2):
            chosen = {k: v if isinstance(v, int) else v[layer - 1] for k, v in variant.constants.items()}
            assert RUNGS[variant.rung].resolve(LENET.layer(layer), chosen) in tried[variant.rung, layer]


def test_a_small_space_is_tried_in_full_and_the_fastest_found(tmp_path, cache):
    (result,) = tuned(tmp_path, "--layers", "2", "--rungs", "tiled", "--constants", "TILE")
    assert result.best == at_tile(12)
    assert result.default_ms == at_tile(16).kernel_ms
    records = read([tmp_path / "tuning.jsonl"])
    tried = [r["point"]["constants"]["TILE"] for r in records.points]
    assert sorted(tried[:-2]) == [6, 8, 12, 16, 18, 20, 24, 32]
    assert tried[-2:] == [12, 16], "the fastest and the default again"
    assert {r["status"] for r in records.points} == {"ok"}
    assert all(r["error"]["scaled"] <= r["error"]["tolerance"] for r in records.points)
    assert {h["type"] for h in records.headers.values()} == {"device", "host", "run"}


def test_a_large_space_is_searched_within_its_trials_and_reproducibly(tmp_path, cache):
    arguments = ("--layers", "1", "--rungs", "tiled", "--trials", "12", "--seed", "3")
    first, second = (tuned(tmp_path / name, *arguments)[0] for name in ("first", "second"))
    assert len(first.records) == 13
    assert [r["point"] for r in first.records] == [r["point"] for r in second.records]
    assert first.best.kernel_ms < first.default_ms


def test_a_wrong_candidate_is_recorded_and_not_chosen(tmp_path, cache):
    gpu = MadeUpGpu(wrong={"TILE": 12})
    (result,) = tuned(tmp_path, "--layers", "2", "--rungs", "tiled", "--constants", "TILE", gpu=gpu)
    by_tile = {r["point"]["constants"]["TILE"]: r["status"] for r in read([tmp_path / "tuning.jsonl"]).points}
    assert by_tile[12] == "wrong"
    assert result.best.constants["TILE"] in (8, 16)
    constants = tuning_cache.load(gpu, RUNGS["tiled"], LENET.layer(2), 1, print)
    assert constants == result.best


def test_nothing_is_kept_if_every_candidate_is_wrong(tmp_path, cache):
    gpu = MadeUpGpu(wrong={"RESTRICT": 0})
    (result,) = tuned(
        tmp_path, "--layers", "2", "--rungs", "tiled", "--set", "TILE=8,16", "--constants", "TILE", gpu=gpu
    )
    assert (result.best, result.count("wrong")) == (None, 2)
    assert tuning_cache.load(gpu, RUNGS["tiled"], LENET.layer(2), 1, print) is None
    assert "error" in shown([result])


def test_the_tables_show_each_value_by_layer_and_the_gain(tmp_path, cache):
    results = tuned(tmp_path, "--rungs", "tiled", "--constants", "TILE", gpu=MadeUpGpu(wrong={"TILE": 32}))
    lines = [" ".join(re.findall(r"[\w.]+", line)) for line in shown(results).splitlines()]
    six, best, default = (at_tile(tile).kernel_ms for tile in (6, 12, 16))
    shown_six, shown_best = milliseconds(six), milliseconds(best)
    assert f"6 {shown_six} {shown_six} {milliseconds(2 * six)}" in lines
    assert "32 wrong wrong" in lines
    assert f"best {shown_best} {shown_best} {milliseconds(2 * best)}" in lines
    assert f"lenet 70 k5 2 1 tiled TILE 12 {shown_best} {milliseconds(default)} {default / best:.2f}x 8 7" in lines


def test_a_large_sweep_shows_only_the_best_rows():
    def record(tile):
        return {"status": "ok", "samples": {"kernel": [100 - tile]}, "point": {"constants": {"TILE": tile}}}

    tiles = range(2 * tuning_tables.MOST_ROWS)
    point = replace(default_point("tiled-channels-atomic"), constants={"TILE": 0})
    table = tuning_tables.sweep_table([Search(point, tuple(map(record, tiles)))])
    assert list(table.columns[0].cells) == [*map(str, tiles[tuning_tables.MOST_ROWS :]), "best"]


def test_resume_reuses_recorded_candidates(tmp_path, cache):
    tuned(tmp_path, "--layers", "2", "--rungs", "tiled", "--constants", "TILE", "--set", "TILE=8,16")
    (result,) = tuned(tmp_path, "--layers", "2", "--rungs", "tiled", "--constants", "TILE", "--resume")
    points = read([tmp_path / "tuning.jsonl"]).points
    assert len(points) == len(result.records) + 2 == 10
    tuned(tmp_path, "--layers", "2", "--rungs", "tiled", "--set", "TILE=8", "--constants", "TILE", "--resume",
          gpu=MadeUpGpu(source="changed"))  # fmt: skip
    assert len(read([tmp_path / "tuning.jsonl"]).points) == 10 + 2 + 1, "the default is as fast"


def test_resume_runs_skipped_candidates_once_memory_is_free(tmp_path, cache, monkeypatch):
    arguments = ("--layers", "2", "--rungs", "tiled", "--constants", "TILE", "--set", "TILE=8,16", "--resume")
    with monkeypatch.context() as short:
        short.setattr(MadeUpGpu, "memory_budget", lambda self: 2**10)
        (result,) = tuned(tmp_path, *arguments)
        assert result.count("skipped") == len(result.records)
    (result,) = tuned(tmp_path, *arguments)
    assert result.best and not result.count("skipped")


@pytest.fixture
def lucky(monkeypatch):
    """The first time of tiles of 24 outputs, the slowest, is the least of all."""
    measured = []

    def measure(self, seconds):
        constants = self.plan.constants
        measured.append(constants.get("TILE"))
        ms = 0.5 if constants.get("TILE") == 24 and measured.count(24) == 1 else made_up_ms(constants)
        return {"kernel": [ms] * 3}

    monkeypatch.setattr(MadeUpPoint, "measure", measure)
    return measured


def test_the_time_of_the_fastest_is_not_the_one_that_made_it_win(tmp_path, cache, lucky):
    arguments = ("--layers", "2", "--rungs", "tiled", "--constants", "TILE", "--set", "TILE=12,16,24")
    (result,) = tuned(tmp_path, *arguments)
    assert result.best == at_tile(24)
    assert result.default_ms == at_tile(16).kernel_ms
    assert tuning_cache.load(MadeUpGpu(), RUNGS["tiled"], LENET.layer(2), 1, print) == at_tile(24)
    assert lucky[-2:] == [24, 16]
    before = len(lucky)
    (resumed,) = tuned(tmp_path, *arguments, "--resume")
    assert (resumed.best, resumed.default_ms, len(lucky)) == (result.best, result.default_ms, before)
    assert [record.get("again") for record in read([tmp_path / "tuning.jsonl"]).latest()].count(True) == 2


def test_the_time_of_the_fastest_rung_is_not_the_one_that_made_it_win(tmp_path, cache, lucky):
    tuning_cache.keep(MadeUpGpu(), RUNGS["tiled"], LENET.layer(2), 1, at_tile(24), print)
    (result,) = comparison(tmp_path, "--precision", "fp32")
    assert result.best == tuning_cache.Best(RUNGS["tiled"], at_tile(24).constants, at_tile(24).kernel_ms)
    assert (len(result.records), lucky[-1]) == (3, 24)


def test_a_winner_that_is_wrong_when_rerun_is_not_kept(tmp_path, cache, lucky, monkeypatch):
    right = MadeUpPoint.outputs

    def outputs(self, *, stale=False):
        y = right(self, stale=stale)
        y[0, 0, 0, 0] += 24 in lucky and self.plan.constants["TILE"] == 24
        return y

    monkeypatch.setattr(MadeUpPoint, "outputs", outputs)
    (result,) = tuned(tmp_path, "--layers", "2", "--rungs", "tiled", "--constants", "TILE", "--set", "TILE=16,24")
    assert [record["status"] for record in result.again] == ["wrong", "ok"]
    assert result.best is None
    assert tuning_cache.load(MadeUpGpu(), RUNGS["tiled"], LENET.layer(2), 1, print) is None


@pytest.fixture
def cache_entry(cache):
    gpu, rung, conv = MadeUpGpu(), RUNGS["tiled"], LENET.layer(2)
    best = Tuned(rung.resolve(conv, {"TILE": 24}), 2.0)
    tuning_cache.keep(gpu, rung, conv, 100, best, print)
    assert tuning_cache.load(gpu, rung, conv, 100, print) == best
    return best


@pytest.mark.parametrize(
    ("gpu", "rung", "layer", "N"),
    [
        ({"source": "changed"}, "tiled", 2, 100),
        ({"name": "another GPU"}, "tiled", 2, 100),
        ({}, "tiled-half", 2, 100),
        ({}, "tiled", 1, 100),
        ({}, "tiled", 2, 1000),
    ],
)
def test_tuned_constants_apply_only_where_they_were_found(cache_entry, gpu, rung, layer, N):
    assert tuning_cache.load(MadeUpGpu(**gpu), RUNGS[rung], LENET.layer(layer), N, print) is None


def test_constants_are_not_used_after_a_launch_changed(cache_entry, monkeypatch):
    rung, launch = RUNGS["tiled"], RUNGS["tiled"].launches[0]
    where = (MadeUpGpu(), LENET.layer(2), 100, print)
    larger = replace(launch, grid=lambda p: tuple(size + (p.N > 1) for size in launch.grid(p)))
    assert tuning_cache.load(where[0], rung, *where[1:]) == cache_entry
    assert tuning_cache.load(where[0], replace(rung, launches=(larger,)), *where[1:]) is None


def test_a_slower_result_does_not_replace_a_faster_one(cache_entry):
    where = (MadeUpGpu(), RUNGS["tiled"], LENET.layer(2), 100)
    assert tuning_cache.keep(*where, replace(cache_entry, kernel_ms=3.0), print) == cache_entry
    faster = Tuned({**cache_entry.constants, "TILE": 8}, 1.0)
    assert tuning_cache.keep(*where, faster, print) == tuning_cache.load(*where, print) == faster


@pytest.mark.parametrize(
    "content",
    [
        '{"constants": {"TI',
        "[]",
        pytest.param("[" * 100_000, id="too many brackets"),
        '{"constants": {"TILE": 7}, "kernel_ms": 1.0}',
        "{}",
        -1.0,
        0,
        None,
        "abc",
        nan,
    ],
)
def test_a_damaged_file_is_reported_and_not_used(cache_entry, cache, content):
    (file,) = cache.glob("tuning/*.json")
    if str(content).startswith(("{", "[")):
        file.write_text(content)
    else:
        write_json(file, asdict(cache_entry) | {"kernel_ms": content})
    messages = []
    where = (MadeUpGpu(), RUNGS["tiled"], LENET.layer(2), 100)
    assert tuning_cache.load(*where, messages.append) is None
    assert "damaged" in messages[0]
    assert tuning_cache.keep(*where, cache_entry, messages.append) == tuning_cache.load(*where, print) == cache_entry


def test_a_flipped_bit_of_every_byte_is_noticed(cache_entry, cache):
    (file,) = cache.glob("tuning/*.json")
    whole, where = file.read_bytes(), (MadeUpGpu(), RUNGS["tiled"], LENET.layer(2), 100)
    for place in range(len(whole)):
        for bit in (place % 4, 4 + place % 4):
            file.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            loaded = tuning_cache.load(*where, lambda line: None)
            assert loaded is None or (loaded == cache_entry and chr(whole[place]) not in "0123456789.")


def command(module, *arguments):
    return subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, check=False)


def test_a_run_uses_tuned_constants_unless_told_others(tmp_path, cache):
    rung, conv = RUNGS["tiled"], LENET.layer(2)
    tuning_cache.keep(HostExecutor(), rung, conv, 1, Tuned(rung.resolve(conv, {"TILE": 24, "UNROLL": 3}), 1.0), print)
    out = tmp_path / "r.jsonl"
    common = [*SMALL, "--rungs", "tiled", "--backend", "host", "--no-baseline", "--out", str(out)]
    done = command("alexconv.run", *common, "--tuned")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 points have constants from alexconv.tune" in done.stdout
    command("alexconv.run", *common, "--tuned", "--set", "TILE=8")
    command("alexconv.run", *common)
    tiles = [(r["point"]["constants"]["TILE"], r["point"]["constants"]["UNROLL"]) for r in read([out]).points]
    default = rung.resolve(conv, {})["UNROLL"]
    assert tiles == [(16, default), (24, 3), (8, default), (8, 3), (16, default), (16, default)]


def test_without_a_gpu_there_is_one_line(tmp_path):
    done = command("alexconv.tune", *SMALL, "--backend", "host", "--out", str(tmp_path / "r.jsonl"))
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "needs a GPU" in done.stderr
    assert not (tmp_path / "r.jsonl").exists()


def test_without_optuna_there_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingTool, match=re.escape("pip install 'alexconv[tune]'")):
        tuned(tmp_path)
    assert list(Path(tmp_path).iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--constants", "TILES"], "no rung has a constant TILES"),
        (["--rungs", "tiled", "--constants", "CHANNELS"], "have none of these constants"),
        (["--rungs", "direct-any"], "have no constants to tune"),
        (["--rungs", "tiled", "--set", "TILE=7"], "is 6, 8"),
        (["--rungs", "direct", "--set", "TILE=8"], "TILE: no constant of direct"),
        (["--trials", "0"], "1 or more"),
    ],
)
def test_bad_usage_is_reported(tmp_path, cache, arguments, says):
    with pytest.raises(UsageError, match=says):
        tuned(tmp_path, *arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--precision", "fp32"], "--precision works only with --auto"),
        (["--auto", "--set", "TILE=8", "--trials", "3"], "--set, --trials: not with --auto"),
    ],
)
def test_options_of_the_other_kind_are_refused(capsys, arguments, says):
    assert tune.main(arguments) == 2
    assert says in capsys.readouterr().err


ENDLESS = """
import sys, time
import limits
from alexconv.tune import __main__ as tune
from test_tune import FASTEST_TILE, MadeUpGpu, MadeUpPoint
def measure(self, seconds):
    if self.plan.constants["TILE"] == FASTEST_TILE:
        limits.end()
        time.sleep(10000)
    return {"kernel": [1.0] * 3}
MadeUpPoint.measure = measure
limits.by_hand()
tune.choose_executor = lambda *arguments: MadeUpGpu()
sys.exit(tune.main(sys.argv[1:]))
"""


def test_an_endless_candidate_is_recorded_and_left_out_on_resume(tmp_path, cache):
    out = tmp_path / "r.jsonl"
    arguments = [*SMALL, "--layers", "2", "--rungs", "tiled", "--constants", "TILE", "--out", str(out), "--resume"]

    def search():
        words = [sys.executable, "-c", ENDLESS, *arguments, "--time-limit", "1"]
        tests = Path(__file__).parent
        folders = os.pathsep.join([str(tests), str(tests.parent), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": folders}
        return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)

    done = search()
    assert done.returncode == 1
    assert "TILE=12] pageable did not end: the same command with --resume continues without" in done.stderr
    before = read([out]).points
    assert [record["status"] for record in before].count("timeout") == 1
    assert before[-1]["status"] == "timeout"
    assert search().returncode == 0
    after = read([out]).points
    assert len(after) == 8 + 1, "the fastest is the default"
    assert [record["status"] for record in after].count("timeout") == 1


def test_the_table_says_why_the_fastest_failed_in_its_second_run():
    default = default_point("tiled")
    point = {"constants": default.constants}
    once = {"point": point, "status": "ok", "samples": {"kernel": [1.0]}, "reason": None}
    again = {"point": point, "status": "launch-error", "reason": "made up"}
    search = Search(default, (once,), (again,))
    assert search.best is None
    assert tuning_tables.changed_constants(search) == "made up"


@pytest.mark.gpu
@pytest.mark.alone
def test_a_gpu_finds_constants_at_least_as_fast_as_the_default(tmp_path, cache):
    pytest.importorskip("optuna")
    out = tmp_path / "r.jsonl"
    arguments = [*SMALL, "--layers", "2", "--rungs", "tiled", "--constants", "TILE", "--seconds", "0.01"]
    done = command("alexconv.tune", *arguments, "--backend", "cuda", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert len(read([out]).points) in (8 + 1, 8 + 2), "the fastest again, and the default if that is another"
    done = command("alexconv.run", *SMALL, "--layers", "2", "--rungs", "tiled", "--tuned", "--out", str(out))
    assert "1 of 1 points have constants from alexconv.tune" in done.stdout


COMPARED_RUNGS = "tiled,direct-register,tiled-half,tiled-half2"


def comparison(tmp_path, *arguments, gpu=None):
    words = [*SMALL, "--auto", "--layers", "2", "--rungs", COMPARED_RUNGS, "--out", str(tmp_path / "auto.jsonl")]
    return tune.compare(tune.parser().parse_args([*words, *arguments]), LADDER, gpu or MadeUpGpu(), "the command")


def chosen(gpu, precision="fp32", layout="nchw", N=1, conv=None):
    choice = auto.choose(gpu, Request(conv or LENET.layer(2), N, precision, layout), print)
    return choice and (choice.rung.name, choice.constants, choice.measured)


def test_auto_compares_rungs_and_keeps_the_fastest_of_each_precision(tmp_path, cache):
    comparisons = comparison(tmp_path)
    assert [(c.first.precision, len(c.records)) for c in comparisons] == [("fp32", 2), ("half", 2)]
    assert {c.best.rung.name for c in comparisons} < set(COMPARED_RUNGS.split(","))
    for precision in comparisons:
        assert precision.best.kernel_ms == min(made_up_ms(r["point"]["constants"]) for r in precision.records)
        assert chosen(MadeUpGpu(), precision.first.precision) == (
            precision.best.rung.name,
            precision.best.constants,
            True,
        )
    assert "fastest rung" in {column.header for column in tuning_tables.rungs_table(comparisons).columns}


def test_auto_compares_the_rungs_of_each_direction_among_themselves(tmp_path, cache):
    words = [*SMALL, "--auto", "--layers", "2", "--direction", "dgrad,wgrad", "--out", str(tmp_path / "auto.jsonl")]
    rungs = "dgrad-direct,dgrad-phases,dgrad-igemm,wgrad-direct,wgrad-partial,wgrad-igemm"
    options = tune.parser().parse_args([*words, "--rungs", rungs])
    comparisons = tune.compare(options, ALL_DIRECTIONS, MadeUpGpu(), "the command")
    assert [(c.first.direction, len(c.records), c.best.rung.direction) for c in comparisons] == [
        ("dgrad", 3, "dgrad"),
        ("wgrad", 3, "wgrad"),
    ]
    for of_direction in comparisons:
        conv = LENET.layer(2).toward(of_direction.first.direction)
        request = Request(conv, 1, "fp32", "nchw")
        assert auto.choose(MadeUpGpu(), request, print).rung is of_direction.best.rung


def test_auto_keeps_the_fastest_rung_that_it_may_choose(tmp_path, cache):
    words = [*SMALL, "--auto", "--layers", "2", "--direction", "dgrad", "--out", str(tmp_path / "auto.jsonl")]
    for rungs in ("dgrad-scatter", "dgrad-scatter,dgrad-igemm"):
        options = tune.parser().parse_args([*words, "--rungs", rungs])
        (comparison,) = tune.compare(options, ALL_DIRECTIONS, MadeUpGpu(), "the command")
    scatter, igemm = (record["samples"]["kernel"][0] for record in comparison.records)
    assert scatter < igemm, "but its order of additions varies"
    choice = auto.choose(MadeUpGpu(), Request(LENET.layer(2).toward("dgrad"), 1, "fp32", "nchw"), print)
    assert choice.measured
    assert choice.rung.name == comparison.best.rung.name == "dgrad-igemm"


def test_auto_tries_the_constants_that_were_tuned(tmp_path, cache):
    tuning_cache.keep(MadeUpGpu(), RUNGS["tiled"], LENET.layer(2), 1, at_tile(12), print)
    (result,) = comparison(tmp_path, "--precision", "fp32")
    assert len(result.records) == 3
    assert result.best == tuning_cache.Best(RUNGS["tiled"], at_tile(12).constants, at_tile(12).kernel_ms)


def test_a_worker_compares_a_rung_that_takes_only_its_tuned_constants(tmp_path, cache, monkeypatch):
    rung, conv, gpu = RUNGS["depthwise-planes"], LENET.layer(1), MadeUpGpu()
    wider = rung.resolve(conv, {"TILE_COLUMNS": 8}, 1, gpu.device)
    tuning_cache.keep(gpu, rung, conv, 1, Tuned(wider, made_up_ms(wider)), print)
    words = [*SMALL, "--auto", "--layers", "1", "--rungs", "depthwise-planes,direct", "--out", str(tmp_path / "auto")]
    options = tune.parser().parse_args(words)
    points = tune.default_points(options, LADDER, gpu.device, ["fp32"])
    assert BoundRung(rung, conv, points[0].constants, gpu.device).refusal()
    monkeypatch.setattr(workers.remote, "executor_of", lambda request: gpu)
    monkeypatch.setattr(workers, "session_of", lambda request, previous: tune.session(options, "the command"))
    request = workers.Request("a topic", "the command", settings=tune.settings(options))
    text = workers.remote_comparison(request, points, [])
    ((first, records, _),) = json.loads(text)
    assert (first, [record["point"]["constants"] for record in records]) == (0, [wider, points[1].constants])


def test_auto_never_keeps_a_wrong_rung(tmp_path, cache):
    (result,) = comparison(tmp_path, "--precision", "fp32", gpu=MadeUpGpu(wrong={"COALESCED": 1}))
    assert result.best.rung.name == "tiled"


def test_a_measured_rung_counts_only_for_what_it_was_measured_for(tmp_path, cache):
    comparison(tmp_path, "--precision", "fp32")
    assert chosen(MadeUpGpu())[2]
    others = [
        chosen(MadeUpGpu(source="changed")),
        chosen(MadeUpGpu(name="another GPU")),
        chosen(MadeUpGpu(), N=2),
        chosen(MadeUpGpu(), conv=LENET.layer(1)),
        chosen(MadeUpGpu(), "half"),
    ]
    assert [measured for _, _, measured in others] == [False] * 5
    assert chosen(MadeUpGpu(), "fp32", "nhwc") is None


def test_a_damaged_best_is_reported_and_not_used(tmp_path, cache):
    comparison(tmp_path, "--precision", "fp32")
    (file,) = cache.glob("tuning/*.json")
    file.write_text("{")
    messages = []
    assert tuning_cache.load_best(MadeUpGpu(), Request(LENET.layer(2), 1, "fp32", "nchw"), messages.append) is None
    assert "damaged" in messages[0] and "--auto" in messages[0]


@pytest.mark.parametrize("changed", (lambda name: {}, lambda name: {name: 1, "FORMER": 1}))
def test_a_best_of_other_constants_is_one_of_another_rung(tmp_path, cache, changed):
    comparison(tmp_path, "--precision", "fp32", gpu=MadeUpGpu(wrong={"COALESCED": 1}))
    (file,) = cache.glob("tuning/*.json")
    content = read_json(file)
    write_json(file, {**content, "constants": {"RESTRICT": 0, **changed("TILE")}})
    messages = []
    assert tuning_cache.load_best(MadeUpGpu(), Request(LENET.layer(2), 1, "fp32", "nchw"), messages.append) is None
    assert messages == []


def test_the_default_choice_names_rungs_of_its_precision_and_takes_every_shape():
    conv = replace(LENET.layer(2), C=7, R=3, S=2, U=3)
    for precision in PRECISIONS:
        served = {precision, *PRECISIONS[precision].stricter}
        for executor in (MadeUpGpu(), HostExecutor()):
            preferred = auto.preferences(executor, conv, 3, precision)
            assert {bound.rung.precision for bound in preferred} <= served
        for gpu in (MadeUpGpu(), HostExecutor()):
            assert any(chosen(gpu, precision, layout, 3, conv) for layout in auto.layouts_of(precision))


def test_single_channel_images_go_to_rungs_without_fp16_terms():
    first, second = LENET.layer(1), LENET.layer(2)
    assert (first.C, second.C) == (1, 12)
    assert auto.preferences(MadeUpGpu(), second, 1000, "fp32")[0].rung.splits_floats
    for N in (1, 1000):
        rungs = [bound.rung for bound in auto.preferences(MadeUpGpu(), first, N, "fp32")]
        assert [rung.splits_floats for rung in rungs] == [False] * (len(rungs) - 3) + [True] * 3


def test_a_run_of_auto_records_the_rung_that_it_stands_for(tmp_path, cache):
    out = tmp_path / "r.jsonl"
    arguments = [*SMALL, "--rungs", "auto,tiled", "--precision", "fp32,half", "--backend", "host", "--no-baseline"]
    done = command("alexconv.run", *arguments, "--out", str(out))
    assert done.returncode == 0, done.stderr
    ran = {(r["point"]["layer"], r["point"]["rung"], r["status"]) for r in read([out]).points}
    assert ran == {(layer, rung, "ok") for layer in (1, 2) for rung in ("tiled", "direct-register", "direct-half")}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(["--precision", "fp8"], "unknown precision fp8"), (["--precision", "tf32"], "no rung is left")],
)
def test_bad_usage_of_auto_is_reported(tmp_path, cache, arguments, says):
    with pytest.raises(UsageError, match=says):
        comparison(tmp_path, *arguments)
