"""What the commands have in common, and what they keep apart."""

import importlib
import json
import os
import shlex
import subprocess
import sys
import time
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from compilers import needs_gcc
from report_records import record, write

import alexconv
from alexconv import ceilings, machine, reference
from alexconv.check import __main__ as check
from alexconv.cli.display import Progress
from alexconv.errors import UsageError
from alexconv.options import command_line
from alexconv.profile import __main__ as profile
from alexconv.records.store import read

HEADERS = ("device", "host", "run")
COMMANDS = [
    f"alexconv.{path.stem}"
    for path in sorted(Path(alexconv.__file__).parent.glob("*.py"))
    if '__name__ == "__main__"' in path.read_text()
]
PAGES = ("__main__", "build")
REPORTS = [f"alexconv.reports.{name}" for name in PAGES]

IMPORTED = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
own = {name: module for name, module in sys.modules.items() if name.startswith(("alexconv", "h5py"))}
print(json.dumps({name: hasattr(module, "main") for name, module in own.items()}))
"""


@cache
def imported_by(module: str) -> dict[str, bool]:
    """The modules of the package, and of h5py, that a module needs, and whether each is a command."""
    done = subprocess.run([sys.executable, "-c", IMPORTED, module], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_needs_neither_another_command_nor_the_reports(command):
    modules = imported_by(command)
    assert [name for name, is_command in modules.items() if is_command] == [command]
    assert not [name for name in modules if name.startswith("alexconv.reports")]


@pytest.mark.parametrize("command", COMMANDS)
def test_rarely_needed_modules_are_not_imported(command):
    modules = imported_by(command)
    assert "h5py" not in modules
    assert command != "alexconv.run" or not [name for name in modules if name.startswith("alexconv.predict")]


@pytest.mark.parametrize("command", REPORTS)
def test_reports_need_no_executor(command):
    modules = imported_by(command)
    assert command in modules
    assert not [name for name in modules if name.startswith(("alexconv.executors", "alexconv.measuring.runner"))]


@pytest.mark.parametrize("command", [*COMMANDS, *REPORTS])
def test_every_command_takes_its_arguments_from_a_caller_too(command, capsys):
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(command).main(["--help"])
    assert ended.value.code == 0
    assert "--help" in capsys.readouterr().out


def test_a_recorded_command_line_can_be_retyped(monkeypatch):
    words = ["--out", "a file", "--set", "TILE=8"]
    assert command_line("alexconv.run", words) == "python -m alexconv.run --out 'a file' --set TILE=8"
    monkeypatch.setattr("sys.argv", ["alexconv run", *words])
    assert shlex.split(command_line("alexconv.run", None)) == ["alexconv", "run", *words]


@needs_gcc
def test_profiles_name_their_device_host_and_command(tmp_path):
    out = tmp_path / "a file"
    chosen = ["--workload", "lenet-70-k5", "--layers", "2", "--rungs", "direct", "--blocks", "1"]
    words = ["--backend", "host", *chosen, "--out", str(out)]
    assert profile.main(words) == 0
    (header,) = recorded(out, "profile")
    assert shlex.split(header["run"]["command"]) == ["python", "-m", "alexconv.profile", *words[:-1], out.name]


def test_ceilings_name_their_device_host_and_command(tmp_path, monkeypatch):
    class Executor:
        def __init__(self, number):
            self.gpu, self.describe = None, lambda: "made up"
            self.header = lambda: {"backend": "cuda", "number": number}
            self.memory_budget = lambda: 1 << 30

    rates = dict.fromkeys(("copy_bytes_per_s", "h2d_bytes_per_s", "d2h_bytes_per_s"), 1e9)
    monkeypatch.setattr(ceilings, "CudaExecutor", Executor)
    monkeypatch.setattr(ceilings, "copy_rates", lambda gpu, budget: rates)
    monkeypatch.setattr(ceilings, "arithmetic_rates", lambda gpu: {"fp32": 1e12})
    tensor = [
        {"instruction": instruction, "factors": factors, "operands": operands, "flops": number * 1e12}
        for number, (factors, instruction, operands) in enumerate(
            product(("fp16", "tf32"), ("mma.sync", "wgmma"), ("random", "zeros")), start=1
        )
    ]
    monkeypatch.setattr(ceilings, "tensor_rates", lambda gpu: tensor)
    out = tmp_path / "ceilings.jsonl"
    assert ceilings.main(["--device", "3", "--out", str(out)]) == 0
    (header,) = recorded(out, "ceilings")
    assert header["flops"] == {"fp32": 1e12, "fp16": 3e12, "tf32": 7e12}, (
        "of random operands, by the faster instruction"
    )
    assert header["tensor"] == tensor
    assert header["device"]["number"] == 3
    assert header["host"]["cores"] >= 1
    assert header["run"]["command"] == f"python -m alexconv.ceilings --device 3 --out {out.name}"


def test_copies_are_timed_in_the_memory_that_is_free(monkeypatch):
    class Memory(int):
        """Bytes that were allocated; also their address."""

        def free(self):
            pass

    def copied(to, source, *nbytes_stream):
        nbytes = nbytes_stream[0] if len(nbytes_stream) == 2 else max(np.size(to), np.size(source))
        assert all(nbytes <= (array if isinstance(array, int) else array.nbytes) for array in (to, source))

    allocated = []
    names = ("memcpy_dtod_async", "memcpy_htod_async", "memcpy_dtoh_async")
    driver = SimpleNamespace(
        mem_alloc=lambda nbytes: allocated.append(Memory(nbytes)) or allocated[-1],
        pagelocked_empty=np.empty,
        memset_d8_async=lambda address, value, nbytes, stream: None,
        **dict.fromkeys(names, copied),
    )
    monkeypatch.setattr(ceilings, "seconds", lambda gpu, enqueue: enqueue() or 0.5)
    rates = ceilings.copy_rates(SimpleNamespace(driver=driver, stream=None), 1 << 20)
    assert sum(allocated) == 1 << 20
    assert rates == {"copy_bytes_per_s": 2 << 20, "h2d_bytes_per_s": 1 << 20, "d2h_bytes_per_s": 1 << 20}


def test_a_process_s_age_counts_from_its_start():
    aged = "import time; time.sleep(0.3); from alexconv.machine import process_age; print(process_age())"
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", aged], capture_output=True, text=True, check=True)
    assert 0.29 < float(done.stdout) <= time.monotonic() - started + 0.02, "starts are known in ticks of 10 ms"


def recorded(path, kind):
    """The records of a type, with the names of headers replaced by the headers."""
    headers = read([path]).headers
    of_kind = [header for header in headers.values() if header["type"] == kind]
    named = [{name: headers[header[name]] for name in HEADERS} for header in of_kind]
    assert all(header["type"] == name for headers in named for name, header in headers.items())
    return [header | more for header, more in zip(of_kind, named, strict=True)]


@pytest.mark.usefixtures("cache")
def test_the_reference_counts_the_images_of_all_layers(monkeypatch, capsys):
    heard: list[int | str] = []

    class Heard(Progress):
        def start(self, activity: str) -> None:
            heard.append(activity)

        def reach(self, done: int) -> None:
            heard.append(done)

    monkeypatch.setattr(machine, "_SQUARE", 100)  # rows of the matrices that dgemm is timed on
    monkeypatch.setattr(reference, "Progress", Heard)
    assert reference.main(["--workload", "lenet-86-k7", "--layers", "1-2", "--N", "3"]) == 0
    first, second = heard.index("lenet-86-k7 layer 1"), heard.index("lenet-86-k7 layer 2")
    assert (first, heard[second - 1], heard[-1]) == (0, 3, 6)
    counts = [count for count in heard if isinstance(count, int)]
    assert counts == sorted(counts)
    assert all(count > 3 for count in heard[second + 1 :])
    assert capsys.readouterr().out.splitlines()[3].split()[:3] == ["all", "3", "6"]


def test_a_recorded_command_names_no_absolute_folder():
    words = ["--out", "/home/someone/some where/r.jsonl", "--kernel=/srv/k.cu", "results/a.jsonl", "--mix", "1=a:B=2"]
    shown = shlex.split(command_line("alexconv.run", words))[3:]
    assert shown == ["--out", "r.jsonl", "--kernel=k.cu", "results/a.jsonl", "--mix", "1=a:B=2"]


def test_a_name_that_is_not_utf_8_is_at_most_one_line(tmp_path, capsys):
    name = tmp_path / "\udcff.cu"
    name.write_text("void conv_forward() {}\n")
    assert check.main([str(name)]) == UsageError.exit_status
    assert capsys.readouterr().err == "error: utf-8 has no '\\udcff': rename the file, or set PYTHONUTF8=1\n"


def test_a_report_under_an_ascii_locale_is_at_most_one_line(tmp_path):
    records = write(tmp_path / "records.jsonl", [record("alexnet", 3, 1, "direct")])
    command = [sys.executable, "-m", "alexconv.reports", str(records), "-o", str(tmp_path / "report")]
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == UsageError.exit_status
    assert done.stderr.splitlines()[-1].startswith("error: ascii has no ")
    assert "Traceback" not in done.stderr
