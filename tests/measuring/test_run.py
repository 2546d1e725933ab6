"""The main command as a user types it: what it prints, what it records, what it refuses (promises 1, 2, 7, 8)."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import in_process

from alexconv import run as run_module
from alexconv.cli import display
from alexconv.cli.run_jobs import NO_RUNG
from alexconv.compiling import nvcc
from alexconv.data import DATA_SETS
from alexconv.errors import MissingTool
from alexconv.executors.cuda import device
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER
from alexconv.measuring import runner as runner_module
from alexconv.records.store import read

ALEXNET = ["--layers", "3", "--rungs", "direct-register,channels", "--N", "1", "--backend", "host", "--no-baseline"]
QUICK = ["--layers", "2", *ALEXNET[2:], "--workload", "lenet-70-k5"]

run = partial(in_process, run_module.main)


def test_a_study_prints_its_backend_a_table_and_its_record_file(tmp_path):
    command = [sys.executable, "-m", "alexconv.run", *ALEXNET, "--out", tmp_path / "r.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("backend host: kernels run on the CPU")
    assert "there are no GPU times" in done.stdout
    assert "2 points: 2 ok" in done.stdout
    records = read([tmp_path / "r.jsonl"])
    assert [record["status"] for record in records.points] == ["ok", "ok"]
    headers = {header["type"]: header for header in records.headers.values()}
    assert set(headers) == {"device", "host", "run", "end"}
    assert all(not record["samples"] for record in records.points)
    end = headers["end"]
    assert (end["run"], end["points"], end["kept"]) == (headers["run"]["key"], {"ok": 2}, 0)


def ends(path):
    return [header for header in read([path]).headers.values() if header["type"] == "end"]


def test_json_goes_to_standard_output_alone(tmp_path):
    done = run(*QUICK, "--json", "--out", tmp_path / "r.jsonl")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [record["point"]["rung"] for record in records] == ["direct-register", "channels"]
    assert "backend host" in done.stderr


def test_list_as_json_has_every_rung():
    rungs = json.loads(run("--list", "--json").stdout)
    assert [rung["name"] for rung in rungs] == list(ALL_DIRECTIONS.named)
    assert all({"alias", "family", "direction", "precision", "idea", "file", "gpu_only"} <= set(rung) for rung in rungs)


@pytest.mark.parametrize(
    "options, names",
    [
        (["--rungs", "tiled,direct-register"], ["direct-register", "tiled"]),
        (["--rungs", "direct,wgrad-direct", "--direction", "wgrad"], ["wgrad-direct"]),
        (["--rungs", "direct", "--precision", "tf32"], None),
    ],
)
def test_list_has_the_rungs_that_are_chosen(options, names):
    done = run("--list", "--json", *options)
    if names is None:
        assert (done.returncode, done.stderr) == (2, f"error: {NO_RUNG}\n")
    else:
        assert [rung["name"] for rung in json.loads(done.stdout)] == names


def test_list_and_dry_run_run_nothing(tmp_path):
    assert "mk-sw-mt" in run("--list", COLUMNS="200").stdout
    done = run(*ALEXNET, "--dry-run", "--memory-budget", "64MiB", "--out", tmp_path / "r.jsonl", COLUMNS="200")
    assert done.returncode == 0
    assert "1x384x128 of 13x13x1" in done.stdout  # N x M x C/2: with CHANNELS raised to 2 it fits
    assert not (tmp_path / "r.jsonl").exists()


def test_resume_runs_only_what_is_missing(tmp_path):
    out = tmp_path / "r.jsonl"
    run(*QUICK[:3], "direct-register", *QUICK[4:], "--out", out)
    done = run(*QUICK, "--resume", "--out", out)
    assert "1 of 2 points are already in" in done.stdout
    assert [record["point"]["rung"] for record in read([out]).points] == ["direct-register", "channels"]
    assert "0 points: nothing to do" in run(*QUICK, "--resume", "--out", out).stdout


@pytest.mark.parametrize("setting", ["--seed", "--sustained"])
def test_resume_runs_again_what_has_changed(tmp_path, setting):
    out = tmp_path / "r.jsonl"
    run(*QUICK, "--out", out)
    assert "0 of 2 points are already in" in run(*QUICK, setting, "1", "--resume", "--out", out).stdout


def test_resume_knows_points_that_later_ran_elsewhere_too(tmp_path):
    out = tmp_path / "r.jsonl"
    for order in "0", "1":
        run(*QUICK, "--host-order", order, "--out", out)
    for order in "0", "1":
        assert "2 of 2 points are already in" in run(*QUICK, "--host-order", order, "--resume", "--out", out).stdout


def test_resume_runs_skipped_points_once_memory_is_free(tmp_path, monkeypatch):
    out = tmp_path / "r.jsonl"
    with monkeypatch.context() as short:
        short.setattr(runner_module, "available_memory", lambda: 2**10)
        run(*QUICK, "--out", out)
        assert "2 of 2 points are already in" in run(*QUICK, "--resume", "--out", out).stdout
    assert "2 points: 2 ok" in run(*QUICK, "--resume", "--out", out).stdout
    assert [status for _, status in statuses(out)] == ["skipped", "skipped", "ok", "ok"]


def test_data_are_an_axis_of_a_run(tmp_path):
    out = tmp_path / "r.jsonl"
    arguments = [*QUICK[:3], "direct-register", *QUICK[4:], "--out", out]
    run(*arguments)
    done = run(*arguments, "--data", "uniform,relu,non-finite", "--resume", COLUMNS="200")
    assert "1 of 3 points are already in" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr
    records = read([out]).points
    assert [record["point"]["data"] for record in records] == ["uniform", "relu", "non-finite"]
    assert len({record["key"] for record in records}) == 3
    assert all(0 < record["error"]["scaled"] <= record["error"]["componentwise"] for record in records)
    assert "lenet-70-k5, N=1 relu" in done.stdout
    done = run(*arguments, "--data", "all", "--resume", "--verbose", COLUMNS="200")
    assert f"3 of {len(DATA_SETS)} points are already in" in done.stdout
    assert "direct-register zeros" in done.stdout
    assert done.returncode == 0, done.stdout + done.stderr


STAYS_AFTER = 2  # points
STAYS = f"""
import sys, time
from alexconv import run
from alexconv.measuring.runner import Runner
recorded, done = Runner.record, []
def record(self, point):
    if len(done) == {STAYS_AFTER}:
        time.sleep(10000)
    done.append(point)
    return recorded(self, point)
Runner.record = record
sys.exit(run.main(sys.argv[1:]))
"""


def test_a_killed_run_keeps_its_points_and_resumes(tmp_path):
    out = tmp_path / "r.jsonl"
    arguments = [*QUICK[:3], "multi", *QUICK[4:], "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-c", STAYS, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while process.poll() is None and (not out.exists() or len(read([out]).points) < STAYS_AFTER):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = read([out]).points
    assert len(before) == STAYS_AFTER
    assert not ends(out)
    done = run(*arguments, "--resume")
    assert done.returncode == 0, done.stderr
    points = [json.dumps(record["point"]) for record in read([out]).points]
    assert len(points) == len(set(points)) == len([rung for rung in LADDER if rung.family == "multi"])
    assert [end["kept"] for end in ends(out)] == [len(before)]
    assert points[: len(before)] == [json.dumps(record["point"]) for record in before]


def test_a_small_memory_budget_gives_the_same_outputs_in_pieces(tmp_path):
    common = ["--workload", "lenet-70-k5", "--layers", "2", "--N", "24", "--rungs", "channels", "--backend", "host"]
    for name, budget in (("whole", "1GiB"), ("pieces", "4MiB")):
        done = run(*common, "--no-baseline", "--memory-budget", budget, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
    whole, pieces = (read([tmp_path / name]).points[0] for name in ("whole", "pieces"))
    assert (whole["pieces"], pieces["status"]) == (1, "ok")
    assert pieces["pieces"] > 1
    assert pieces["device_bytes"] <= 4 * 2**20
    assert pieces["error"] == whole["error"]


def test_what_cannot_fit_is_skipped_with_the_figure(tmp_path):
    done = run(*QUICK, "--memory-budget", "1KiB", "--out", tmp_path / "r.jsonl")
    assert done.returncode == 0
    records = read([tmp_path / "r.jsonl"]).points
    assert {record["status"] for record in records} == {"skipped"}
    assert all("the budget is 0.0" in record["reason"] for record in records)


def one_line_error(done: subprocess.CompletedProcess[str], status: int) -> str:
    assert done.returncode == status, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "error:" in line]
    assert "Traceback" not in done.stderr
    return line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--layers", "6"], "1 to 5"),
        (["--layers", "x"], "1 to 5"),
        (["--N", "0"], "whole numbers from 1"),
        (["--N", "-1"], "whole numbers from 1"),
        (["--rungs", "fastest"], "unknown rung 'fastest'"),
        (["--workload", "vgg"], "unknown workload 'vgg'"),
        (["--transfer", "carrier-pigeon"], "unknown transfer"),
        (["--precision", "fp8"], "unknown precision fp8"),
        (["--data", "easy"], "unknown data 'easy'"),
        (["--study", "ece408-2019", "--data", "relu"], "--data: not with --study"),
        (["--mix", "1=direct", "--data", "relu"], "--mix needs an NVIDIA GPU"),
        (["--set", "COALESCED=2"], "is 0, 1, not 2"),
        (["--memory-budget", "lots"], "invalid size value"),
        (["--memory-budget", "infGB"], "invalid size value"),
        (["--memory-budget", "0"], "invalid size value"),
        (["--memory-budget", "-5"], "invalid size value"),
        (["--host-order", "-1"], "--host-order: a whole number from 0, not '-1'"),
        (["--device", "-1"], "--device: a whole number from 0"),
        (["--seconds", "-1"], "--seconds: seconds are a number from 0"),
        (["--seconds", "nan"], "--seconds: seconds are a number from 0"),
        (["--time-limit", "0"], "--time-limit: a number above 0"),
        (["--N", ""], "--N: comma-separated words"),
        (["--rungs", ""], "--rungs: comma-separated words"),
        (["--rungs", "direct,"], "--rungs: comma-separated words"),
        (["--precision", ""], "--precision: comma-separated words"),
        (["--mix", ""], "--mix: comma-separated words"),
        (["--mix", "1=direct"], "--mix needs an NVIDIA GPU"),
        (["--together"], "--together needs an NVIDIA GPU"),
        (["--rungs", "direct", "--set", "TILE=8,16"], "TILE: no constant of direct"),
        (["--study", ""], "unknown study"),
        (["--study", "ece408-2019", "--layers", "1"], "--layers: not with --study"),
        (["--study", "ece408-2019", "--rungs", "x", "--set", "TILE=8", "--tuned"], "--rungs, --set, --tuned: not with"),
        (["--host-order", "2", "--backend", "cuda"], "--host-order: not with --backend cuda"),
        (["--backend", "tpu"], "invalid choice"),
        (["--seed", "-1"], "--seed: a whole number from 0, not '-1'"),
        (["--layers", "9" * 5000], "1 to 5"),
        (["--N", "9" * 5000], "whole numbers from 1"),
        (["--N", f"1:{'9' * 5000}:x2"], "whole numbers from 1"),
        (["--rungs", f"auto:{'9' * 5000}"], "write auto, or auto:4"),
        (["--transfer", f"streamed:{'9' * 5000}"], "the number of streams is 1 to 999999"),
    ],
)
def test_bad_usage_is_one_line_and_status_2(tmp_path, arguments, says):
    assert says in one_line_error(run("--backend", "host", *arguments, "--out", tmp_path / "r.jsonl"), 2)
    assert not (tmp_path / "r.jsonl").exists()


@pytest.mark.parametrize("options", [["--host-order", "2"], ["--host-build", "asan"]])
def test_options_of_the_host_executor_ask_for_it(monkeypatch, options):
    backends = []

    def choose(*arguments):
        backends.append(arguments[0])
        raise MissingTool("enough")

    monkeypatch.setattr(run_module, "choose_executor", choose)
    monkeypatch.setattr(run_module, "restart_where_needed", lambda *arguments: None)
    assert run_module.main(options) == 1
    assert run_module.main([]) == 1
    assert backends == ["host", "auto"]


def test_a_gpu_number_out_of_range_is_refused(monkeypatch):
    driver = SimpleNamespace(Device=SimpleNamespace(count=lambda: 2))
    monkeypatch.setattr(device, "import_driver", lambda: driver)
    monkeypatch.setattr(device, "require_bindings", lambda what: None)
    for number in (-1, 2):
        with pytest.raises(MissingTool, match=f"no CUDA device {number}"):
            CudaExecutor(number)


def test_where_nothing_applies_the_run_says_why_and_what_helps(tmp_path):
    done = run("--rungs", "wgmma-floats,direct", "--layers", "1", "--dry-run", "--backend", "host")
    assert "Nothing ran" not in done.stdout
    done = run(
        "--rungs", "wgmma-floats", "--layers", "1", "--N", "1", "--backend", "host", "--out", tmp_path / "r.jsonl"
    )
    assert done.returncode == 0
    assert re.search(r"^Nothing ran: .+; other rungs: alexconv run --list$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("capability", "driver", "says"),
    [
        (
            (6, 1),
            13000,
            r"nvcc 13\.0\.88 does not compile for the NVIDIA Card \(.* 6\.1\): .* an older CUDA toolkit",
        ),
        (
            (12, 9),
            13000,
            r"does not compile for the NVIDIA Card \(.* 12\.9\): .* a newer CUDA toolkit",
        ),
        (
            (7, 5),
            12040,
            r"the NVIDIA driver is too old for nvcc 13\.0\.88, it has CUDA 12\.4: update the driver",
        ),
    ],
)
def test_a_card_or_driver_that_does_not_suit_nvcc_is_one_line_and_the_cpu_takes_over(
    tmp_path, monkeypatch, capsys, capability, driver, says
):
    answers = 'case "$1" in --version) echo V13.0.88;; *) printf "compute_75\\ncompute_90\\ncompute_121\\n";; esac'
    (program := tmp_path / "nvcc").write_text(f"#!/bin/sh\n{answers}\n")
    program.chmod(0o755)
    stack = []  # of contexts
    context = SimpleNamespace(push=lambda: stack.append(context), pop=stack.pop)
    card = SimpleNamespace(
        compute_capability=lambda: capability,
        name=lambda: "NVIDIA Card",
        retain_primary_context=lambda: context,
        get_attribute=lambda attribute: attribute,
    )
    devices = type("Device", (), {"count": staticmethod(lambda: 1), "__new__": lambda cls, number: card})
    stand_in = SimpleNamespace(
        Device=devices,
        Stream=SimpleNamespace,
        device_attribute=type("Attributes", (), {"__getattr__": lambda self, name: 1})(),
        get_driver_version=lambda: driver,
    )
    bindings = SimpleNamespace(cuDeviceGet=lambda number: (0, number), cuDevicePrimaryCtxRetain=lambda handle: (0, 5))
    monkeypatch.setattr(device, "import_driver", lambda: stand_in)
    monkeypatch.setattr(device, "require_bindings", lambda what: bindings)
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: str(program))
    for cached in (nvcc.nvcc_version, nvcc.capabilities):
        monkeypatch.setattr(nvcc, cached.__name__, cached.__wrapped__)
    with pytest.raises(MissingTool, match=says):
        CudaExecutor()
    assert run_module.main(["--rungs", "direct", "--layers", "1", "--dry-run"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("backend host: ")
    assert re.search(says, first)
    assert not stack, "a refused GPU's context is popped"


def test_a_reader_that_stops_early_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody_reads:
        command = [sys.executable, "-m", "alexconv.run", "--list", "--json"]
        done = subprocess.run(command, stdout=nobody_reads, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


# A command whose direct-register rung has another source, and which may end its process.
WITH_SOURCE = """
import sys
from dataclasses import replace
from alexconv import run
from alexconv.kernels.ladder import RUNGS
from ladders import ladder_with
name, source, *arguments = sys.argv[1:]
run.ladder_of = lambda options: ladder_with(replace(RUNGS[name], file=source))
sys.exit(run.main(arguments))
"""


def run_with_source(source: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITH_SOURCE, "direct-register", str(source), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def statuses(out: Path) -> list[tuple[str, str]]:
    return [(record["point"]["rung"], record["status"]) for record in read([out]).points]


def test_a_missing_header_fails_only_its_points(tmp_path):
    source, out = tmp_path / "mine.cu", tmp_path / "r.jsonl"
    source.write_text('#include "tpyo.cuh"\n')
    done = run_with_source(source, *QUICK, "--out", out)
    assert done.returncode == 1
    assert statuses(out) == [("direct-register", "compile-error"), ("channels", "ok")]
    assert "mine.cu" in read([out]).points[0]["reason"]
    assert "tpyo.cuh" in read([out]).points[0]["reason"]


def test_an_endless_kernel_is_recorded_and_the_rest_runs_on_resume(tmp_path):
    source, out = tmp_path / "endless.cu", tmp_path / "r.jsonl"
    source.write_text(
        'extern "C" __global__ void direct_register(float const* x, float const* w, float* y)\n'
        "{\n    for (y[0] = x[0] + w[0];;) __syncthreads();\n}\n"
    )
    assert run(*QUICK, "--seed", "1", "--out", out).returncode == 0
    done = run_with_source(source, *QUICK, "--json", "--time-limit", "1", "--out", out)
    assert done.returncode == 1
    assert "channels" not in done.stderr, "the file's points of another seed are no results of this run"
    assert "Traceback" not in done.stderr
    assert "timeout: not finished after 1 s" in done.stderr
    assert "run again with --resume" in done.stderr
    assert "1 point: 1 timeout" in done.stderr
    assert [json.loads(line)["status"] for line in done.stdout.splitlines()] == ["timeout"]
    assert statuses(out)[2:] == [("direct-register", "timeout")]
    for left in ("1 of 2 points", "2 of 2 points"):
        done = run_with_source(source, *QUICK, "--resume", "--time-limit", "60", "--out", out)
        assert left in done.stdout
        assert done.returncode == 1, "a point of the job has no result"
        assert statuses(out)[2:] == [("direct-register", "timeout"), ("channels", "ok")]


# A command in which every running limit would expire while the reference is computed.
SLOW_REFERENCE = """
import sys
import limits
from alexconv import run
from alexconv.executors.host.executor import HostExecutor
from alexconv.measuring import runner
computed, opened, limited = runner.ensure, HostExecutor.open, []
def ensure(*arguments, **options):
    limits.end()
    return computed(*arguments, **options)
def open(self, *arguments):
    limited.append(len(limits.running))
    return opened(self, *arguments)
runner.ensure, HostExecutor.open = ensure, open
limits.by_hand()
status = run.main(sys.argv[1:])
assert limited and set(limited) == {1}, "kernels run under the limit"
sys.exit(status)
"""


def test_the_time_limit_excludes_work_on_the_cpu(tmp_path):
    command = [sys.executable, "-c", SLOW_REFERENCE, *QUICK, "--time-limit", "2", "--out", str(tmp_path / "r.jsonl")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_time_limit_ends_the_process_whatever_happens_then():
    script = (
        "import time; from alexconv.measuring.watchdog import time_limit\n"
        "def expired(): raise ValueError('unforeseen')\n"
        "with time_limit(0.1, expired): time.sleep(10000)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "unforeseen" in done.stderr


def test_what_the_hosts_memory_cannot_hold_is_skipped_with_the_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(runner_module, "available_memory", lambda: 2**20)
    out = tmp_path / "r.jsonl"
    assert run(*QUICK, "--N", "1,10000000", "--out", out).returncode == 0
    assert [record["status"] for record in read([out]).points] == ["ok", "ok", "skipped", "skipped"]
    assert "MiB of host memory, 1.0 are available" in read([out]).points[-1]["reason"]


def test_an_interrupted_run_says_what_is_recorded(tmp_path, monkeypatch):
    def stop(self, record):
        finish(self, record)
        raise KeyboardInterrupt

    finish = display.Progress.finish
    monkeypatch.setattr(display.Progress, "finish", stop)
    out = tmp_path / "r.jsonl"
    done = run(*QUICK, "--out", out)
    assert (done.returncode, len(read([out]).points)) == (130, 1)
    assert done.stderr.splitlines()[-1].startswith(f"interrupted: 1 of 2 points are in {out}; --resume")
    monkeypatch.undo()
    assert f"1 of 2 points are already in {out}" in run(*QUICK, "--out", out, "--resume").stdout


@pytest.mark.parametrize(("redirection", "status", "says"), [("> /dev/full", 1, "No space left"), (">&-", 0, "")])
def test_an_unwritable_standard_output_is_at_most_one_line(redirection, status, says):
    command = f"{sys.executable} -m alexconv.run --list {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == status


@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-", "2>&- >&-", "2> /dev/full <&-"])
def test_a_run_succeeds_without_standard_error(tmp_path, redirection):
    """Lines of progress, the note on a broken record and errors all go to standard error."""
    out = tmp_path / "r.jsonl"
    out.write_text('{"schema":1,"torn\n')
    words = " ".join([sys.executable, "-m alexconv.run", *QUICK, "--verbose", "--out", str(out), redirection])
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [record["status"] for record in read([out]).points] == ["ok"] * 2
    wrong = f"{sys.executable} -m alexconv.run --rungs nonsense {redirection}"
    assert subprocess.run(["bash", "-c", wrong], capture_output=True, check=False).returncode == 2


def test_an_unwritable_place_for_records_or_cache_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot write the record file" in one_line_error(run(*QUICK, "--out", tmp_path / "file" / "r"), 2)
    done = run(*QUICK, "--out", tmp_path / "r", ALEXCONV_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert "cannot create the cache folder" in one_line_error(done, 2)


def test_a_missing_compiler_is_one_line(tmp_path):
    done = run(*QUICK, "--out", tmp_path / "r", CXX="no-such-compiler")
    assert "no-such-compiler" in one_line_error(done, 1)


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has an NVIDIA driver")
def test_a_missing_gpu_is_one_line_and_auto_takes_the_host(tmp_path):
    assert "--backend host" in one_line_error(run("--backend", "cuda", "--out", tmp_path / "r"), 1)
    done = run(*QUICK, "--backend", "auto", "--out", tmp_path / "r")
    assert done.returncode == 0
    assert "No GPU: " in done.stdout


def test_a_damaged_reference_is_reported_and_rebuilt(tmp_path, fresh_cache):
    assert run(*QUICK, "--out", tmp_path / "r").returncode == 0
    (file,) = fresh_cache.glob("reference/*/*.h5")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    done = run(*QUICK, "--out", tmp_path / "r")
    assert done.returncode == 0, done.stderr
    assert "damaged" in done.stderr
    assert {record["status"] for record in read([tmp_path / "r"]).points} == {"ok"}


def test_a_torn_record_is_reported_and_left(tmp_path):
    (tmp_path / "r").write_text('{"torn')
    done = run(*QUICK, "--out", tmp_path / "r")
    assert "1 unreadable line(s)" in done.stdout
    assert (tmp_path / "r").read_text().startswith('{"torn\n')
