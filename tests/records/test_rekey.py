"""Records are carried over to other keys where the same machine code would run, and only there."""

import importlib
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from ladders import ladder_with

from alexconv.compiling import nvcc
from alexconv.errors import MissingTool
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring.runner import finished
from alexconv.planning.points import Point
from alexconv.records.store import identity, read

CHECKOUT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(CHECKOUT / "scripts"))
cubin, rekey = importlib.import_module("cubin"), importlib.import_module("rekey")
sys.path.remove(str(CHECKOUT / "scripts"))

RUNG = "direct-register"

KERNEL = """
__device__ __noinline__ float product(float a, float b) { return a * b + SHIFT; }
__device__ __noinline__ float shifted(float a) { return a + 3 * SHIFT; }
__constant__ float taps[TAPS];
extern "C" __global__ void first(const float* x, float* y) {
    __shared__ float tile[THREADS];
    tile[threadIdx.x] = product(x[threadIdx.x], taps[threadIdx.x]);
    __syncthreads();
    y[threadIdx.x] = shifted(tile[THREADS - 1 - threadIdx.x]);
}
extern "C" __global__ void second(float* y) { y[threadIdx.x] = SHIFT; }
"""
MACROS = {"SHIFT": 2, "TAPS": 64, "THREADS": 64}


RENAMED = {"first": "begin", "second": "end", "product": "multiplied", "taps": "filter_values", "tile": "sums"}
SAME = {
    "itself": KERNEL,
    "comments": "// a comment\n" + KERNEL.replace("{", "{  /* another */\n"),
    "other names": KERNEL,
    "another order": "__device__ float shifted(float a);\n"
    + KERNEL.replace("__device__ __noinline__ float shifted", "A", 1),
}
DIFFERENT = {
    "another number": KERNEL.replace("a * b", "a * b * 2"),
    "another function": KERNEL.replace("3 * SHIFT", "4 * SHIFT"),
    "another size of shared memory": KERNEL.replace("tile[THREADS];", "tile[THREADS + 32];"),
    "another size of constant memory": KERNEL.replace("taps[TAPS]", "taps[TAPS + 32]"),
    "another order of arguments": KERNEL.replace("const float* x, float* y", "float* y, const float* x"),
    "fewer registers": KERNEL.replace("void first", "void __launch_bounds__(1024, 2) first"),
    "another second kernel": KERNEL.replace("y[threadIdx.x] = SHIFT", "y[threadIdx.x] = 2 * SHIFT"),
}
SHIFTED = "__device__ __noinline__ float shifted(float a) { return a + 3 * SHIFT; }\n"
SAME["another order"] = "__device__ float shifted(float a);\n" + KERNEL.replace(SHIFTED, "") + SHIFTED
SECOND = KERNEL[KERNEL.index('extern "C" __global__ void second') :]
SAME["another order of kernels"] = KERNEL.replace(SECOND, "").replace('extern "C"', SECOND + 'extern "C"')


@pytest.fixture(scope="module")
def toolkit():
    try:
        return nvcc.nvcc_version()
    except MissingTool as error:
        pytest.skip(str(error))


def run_of(folder, text, entries=("first", "second")):
    """The behaviour of a source's machine code."""
    source = folder / "kernel.cu"
    source.write_text(text)
    return cubin.behaviour(nvcc.compile_cubin(source, MACROS, "90a"), entries)


@pytest.mark.usefixtures("toolkit")
@pytest.mark.parametrize("change", [*SAME, *DIFFERENT])
def test_machine_code_is_the_same_whatever_its_names_and_lines(tmp_path, change):
    text, entries = (SAME | DIFFERENT)[change], ["first", "second"]
    if change == "other names":
        entries = [RENAMED[entry] for entry in entries]
        for name, other in RENAMED.items():
            text = text.replace(name, other)
    assert (run_of(tmp_path, text, entries) == run_of(tmp_path, KERNEL)) == (change in SAME)


@pytest.mark.usefixtures("toolkit")
def test_entry_points_are_told_apart(tmp_path):
    assert run_of(tmp_path, KERNEL, ["second", "first"]) != run_of(tmp_path, KERNEL)
    with pytest.raises(ValueError, match="no entry point third"):
        run_of(tmp_path, KERNEL, ["first", "third"])
    with pytest.raises(ValueError, match="not an ELF file"):
        cubin.behaviour(b"text", [])


@pytest.fixture
def old_file(tmp_path, toolkit):
    """Some records as they were made: of a rung, of a point that was skipped, of a peer, and of layers in one graph."""
    kinds: dict[str, str] = {}
    headers: dict[str, str] = {}
    for name in ("frontier", "frontier-together"):
        shown = ["git", "show", f"{rekey.BEFORE}:results/h200-{name}.jsonl"]
        file = subprocess.run(shown, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        if file.returncode:
            pytest.skip("the history of this checkout lacks the commit")
        for line in file.stdout.splitlines():
            record = json.loads(line)
            if record["type"] != "point":
                if record.get("toolkit", toolkit) != toolkit:
                    pytest.skip("the records were made with another toolkit")
                headers[record["key"]] = line
                continue
            point, kind = record["point"], "other"
            if (point["rung"], point["layer"], point["N"]) == (RUNG, 3, 128):
                kind = "rung"
            elif "layers" in record and point["rung"].startswith("mma-half"):
                kind = "graph"
            elif record["status"] == "skipped" or "peer" in record:
                kind = "peer" if "peer" in record else "skipped"
            kinds.setdefault(kind, line)
    del kinds["other"]
    assert len(kinds) == 4
    path = tmp_path / "old.jsonl"
    path.write_text("\n".join([*headers.values(), *kinds.values()]) + "\n")
    return path


@pytest.fixture
def alike(monkeypatch):
    """Machine code that is always the same; compiling is tested above."""
    monkeypatch.setattr(rekey.Comparison, "_compared", lambda self, named: {named[0]: None})


def outcome_of(path, kind=RUNG):
    """The outcomes for the points of a rung, or for all."""
    (counts,) = rekey.rekey([path], write=True).values()
    return Counter(outcome for outcome, rung in counts.elements() if rung.startswith(kind))


def present_key_of(record, path):
    """The key that the point would have in a new run with the same settings on the same GPU."""
    (raw,) = [raw for raw in rekey.records_of(path) if raw["time"] == record["time"] and "peer" not in raw]
    runner = rekey.Runner(rekey.RecordedGpu(raw["device"]), [], rekey.Settings())
    return runner.key(Point(**record["point"]))


@pytest.mark.usefixtures("alike")
def test_points_get_current_keys_and_the_rest_of_the_file_stays(old_file):
    before = old_file.read_bytes()
    old = read([old_file])
    assert outcome_of(old_file, "") == {rekey.CARRIED: 4}
    assert old_file.read_bytes().startswith(before)
    assert len(old_file.read_bytes().splitlines()) == len(before.splitlines()) + 1
    new = read([old_file])
    assert new.unreadable == []
    for then, now in zip(old.points, new.points, strict=True):
        assert now["key"] != then["key"]
        assert now | {"key": then["key"]} == then
    (record,) = [record for record in new.points if record["point"]["rung"] == RUNG]
    key = present_key_of(record, old_file)
    assert record["key"] == key
    previous = {identity(record["point"]): record}
    assert finished(Point(**record["point"]), key, previous)
    whole = old_file.read_bytes()
    assert outcome_of(old_file, "") == {rekey.CARRIED: 4}
    assert old_file.read_bytes() == whole  # the same keys are not written again


@pytest.mark.usefixtures("alike")
def test_a_dry_run_writes_nothing(old_file, capsys):
    before = old_file.read_bytes()
    assert rekey.main(["--dry-run", str(old_file)]) == 0
    assert f"{old_file}: 4 points, 4 carried over" in capsys.readouterr().out
    assert old_file.read_bytes() == before


@pytest.mark.usefixtures("alike")
def test_a_renamed_rung_takes_its_records_along(old_file, change_ladder):
    constants = tuple(
        replace(each, name=f"NEW_{each.name}", formerly=(each.name, *each.formerly)) for each in RUNGS[RUNG].constants
    )
    block = (26, 13, 1)
    launch = replace(RUNGS[RUNG].launches[0], block=lambda p: block)
    renamed = replace(RUNGS[RUNG], name="another", formerly=(RUNG,), constants=constants, launches=(launch,))
    change_ladder(renamed, without=RUNG, former={RUNG: "another"})
    (raw,) = [raw for raw in rekey.records_of(old_file) if raw["point"]["rung"] == RUNG]
    block = tuple(raw["launches"][0]["block"])
    assert outcome_of(old_file, "another") == {rekey.CARRIED: 1}
    (record,) = [record for record in read([old_file]).points if record["point"]["rung"] == "another"]
    assert set(record["point"]["constants"]) == {constant.name for constant in constants}
    assert record["key"] != raw["key"]


def larger(numbers):
    return lambda p: tuple(size + 1 for size in numbers(p))


LAUNCH = RUNGS[RUNG].launches[0]
CHANGED_LADDERS = {
    "other launches": [replace(RUNGS[RUNG], launches=(replace(LAUNCH, grid=larger(LAUNCH.grid)),))],
    "other constants": [replace(RUNGS[RUNG], constants=RUNGS[RUNG].constants[:1])],
    "no such rung": [],
}
CHANGED_VALUES = {
    "other tolerance": ("alexconv.planning.checks.DEVIATIONS", 100),
    "other machine code": ("rekey.Comparison._compared", lambda self, named: {named[0]: "other machine code"}),
}


@pytest.mark.usefixtures("alike")
@pytest.mark.parametrize("change", [*CHANGED_LADDERS, *CHANGED_VALUES])
def test_a_point_that_would_now_run_differently_keeps_its_key(old_file, monkeypatch, change_ladder, change):
    keys = [record["key"] for record in read([old_file]).points if record["point"]["rung"] == RUNG]
    if change in CHANGED_LADDERS:
        changed = CHANGED_LADDERS[change]
        change_ladder(*changed, without=None if changed else RUNG)
    else:
        monkeypatch.setattr(*CHANGED_VALUES[change])
    assert outcome_of(old_file) == {change: 1}
    assert [record["key"] for record in read([old_file]).points if record["point"]["rung"] == RUNG] == keys


@pytest.mark.usefixtures("alike")
def test_a_key_that_was_stale_stays_so(old_file):
    old_file.write_text(old_file.read_text().replace('"key":"', '"key":"0').replace('"key": "', '"key": "0'))
    text = old_file.read_text()
    for name in ("device", "host", "run"):
        text = text.replace(f'"{name}":"', f'"{name}":"0').replace(f'"{name}": "', f'"{name}": "0')
    old_file.write_text(text)
    assert outcome_of(old_file, "") == {rekey.STALE: 4}
    assert old_file.read_text() == text


@pytest.mark.usefixtures("alike")
def test_records_of_later_versions_keep_their_keys(old_file):
    lines = [json.loads(line) for line in old_file.read_text().splitlines()]
    for line in lines:
        line.pop("sum", None)
        if line["type"] == "run":
            line["command"] += " --data relu"  # an option that the earlier code lacks
    old_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    before = old_file.read_bytes()
    assert outcome_of(old_file, "") == {rekey.STALE: 4}
    assert old_file.read_bytes() == before


def test_the_machine_code_of_a_changed_kernel_is_noticed(old_file, tmp_path):
    source = RUNGS[RUNG].path
    for name, text in (("same", source.read_text()), ("other", source.read_text() + "// the end\n")):
        (tmp_path / f"{name}.cu").write_text(text.replace('#include "../', f'#include "{source.parent.parent}/'))
    lines = [json.loads(line) for line in old_file.read_text().splitlines()]
    kept = [line for line in lines if line["type"] != "point" or line["point"]["rung"] == RUNG]
    old_file.write_text("".join(json.dumps(line) + "\n" for line in kept))
    (tmp_path / "other.cu").write_text((tmp_path / "other.cu").read_text().replace("+=", "-=", 1))
    for name, outcome in (("same", rekey.CARRIED), ("other", "other machine code")):
        with ladder_with(replace(RUNGS[RUNG], file=str(tmp_path / f"{name}.cu"))):
            assert outcome_of(old_file) == {outcome: 1}
