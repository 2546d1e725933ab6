"""A cluster started elsewhere: encrypted, with several kinds of workers, and with a scheduler that dies."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from clusters import HOST, POINTS, STUDY, headers, names, points_of

from alexconv import run
from alexconv.cluster import reference
from alexconv.cluster.batches import ClusterBatches
from alexconv.cluster.connection import ClusterLost, client_of
from alexconv.cluster.pool import MOST_ENDS, Pool, Worker, difference, kind_facts
from alexconv.cluster.sending import ARRIVED, POINT
from alexconv.cluster.study import Measuring, Study
from alexconv.cluster.worker import Request
from alexconv.cpu_reference.cache import LayerData
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import FOLDER
from alexconv.own.folders import GROUP
from alexconv.shapes import WORKLOADS

ROOT = Path(__file__).resolve().parent.parent.parent
CERTIFICATE = ROOT / "tests" / "data" / "loopback.pem"
SMALL = [*HOST, "--workload", "lenet-86-k7", "--layers", "1", "--N", "1", "--rungs", "direct,tiled"]
TLS = {
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
    "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": str(CERTIFICATE),
    **{
        f"DASK_DISTRIBUTED__COMM__TLS__{part}__{what}": str(CERTIFICATE)
        for part in ("SCHEDULER", "WORKER", "CLIENT")
        for what in ("CERT", "KEY")
    },
}
OURS = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
    "DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING": "False",
}


@contextmanager
def started(*words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        env={**os.environ, **OURS, **environment},
        cwd=tempfile.gettempdir(),  # where there is no alexconv
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def worker(address: str, name: str, **environment: str):
    words = [address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0", "--name", name]
    return started("distributed.cli.dask_worker", *words, "--host", "127.0.0.1", **environment)


@contextmanager
def scheduler(folder: Path, protocol: str, **environment: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A scheduler at a port that the system chooses, and its address, which it writes to a file."""
    file = folder / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    words += ["--protocol", protocol, "--scheduler-file", str(file)]
    with started("distributed.cli.dask_scheduler", *words, **environment) as process:
        until(lambda: file.exists() and file.read_text().endswith("\n}"), process)
        yield process, json.loads(file.read_text())["address"]


def until(holds: Callable[[], bool], process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Waits for a condition; fails if the process that should bring it about has ended."""
    while not holds():
        assert process.poll() is None
        time.sleep(0.05)


def run_in_a_process(*words: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "alexconv.run", *words],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_clean_up_failures_do_not_hide_a_lost_scheduler(monkeypatch):
    class Lost:
        """A client that has not noticed that its scheduler is gone."""

        status = "running"

        def subscribe_topic(self, topic, handler):
            pass

        def unsubscribe_topic(self, topic):
            raise OSError("closed")

        def close(self, timeout):
            raise AssertionError("status")

    library = SimpleNamespace(Client=lambda *arguments, **options: Lost())
    monkeypatch.setattr(Pool, "_await_first", lambda pool: None)
    with (
        pytest.raises(ClusterLost, match="gone"),
        client_of(library, "tcp://nowhere") as client,
        Pool(client, Request("topic", "command"), lambda line: None),
    ):
        raise ClusterLost("gone")


FACTS = {"name": "gpu-0", "host": "here", "uuid": "GPU-1", "store": "one", "code": "c", "header": {}}


def test_a_card_whose_workers_end_in_their_calibration_is_left_out():
    lines = []
    pool = SimpleNamespace(request=None, leave_out=lambda address, line: lines.append((address, line)))
    workers = [Worker(f"tcp://{number}", FACTS) for number in range(MOST_ENDS + 2)]
    measuring = Measuring(pool, [Study(workers[0].kind, Path("r.jsonl"), [], {}, {}, False, None)], None)
    measuring.go()
    (task,) = measuring._welcome(workers[0])
    task.lost(workers[0])
    (task,) = measuring._welcome(workers[1])
    task.done(workers[1], ("ok", None))  # ends that no calibration followed count
    for worker in workers[1:-1]:
        (task,) = measuring._welcome(worker)
        assert list(task.lost(worker)) == []
    assert measuring._welcome(workers[-1]) == []
    line = f"gpu-0 on here is left out: {MOST_ENDS} workers of its card ended in their calibration"
    assert lines == [(workers[-1].address, line)]


class Call:
    """A call on a worker, which ends when ``end`` is called."""

    status = "pending"

    def add_done_callback(self, told):
        self.told = told
        if self.status == "finished":
            told(self)

    def end(self):
        if self.status == "pending":
            self.status = "finished"
            if told := getattr(self, "told", None):
                told(self)

    def result(self, timeout):
        return None


class OneIsLeft:
    """A client with two workers, of which one has just ended.  A shard with a meeting ends when all are there."""

    status, looks = "running", 0

    def nthreads(self):
        self.looks += 1
        if self.looks > 4:
            raise OSError("the shard still waits for the other")
        return {"tcp://0": 1}

    def submit(self, call, request, point, count, number, block_bytes, meeting, *, workers, **options):
        self.call, address = Call(), workers[0]
        for kind, content in ((ARRIVED, (number, "0-kernels")), (POINT, (number, {"shard": number}))):
            message = {"worker": address, "kind": kind, "content": json.dumps(content)}
            self.pool._inbox.put(("message", message))
        if not meeting:
            self.call.end()
        return self.call


def test_no_shard_waits_for_one_whose_worker_ended_before_it_began(monkeypatch):
    client = OneIsLeft()
    monkeypatch.setattr("distributed.Event", lambda name, client: SimpleNamespace(set=client.call.end))
    client.pool = pool = Pool(client, Request("topic", "command"), lambda line: None)
    for number in range(2):
        worker = Worker(f"tcp://{number}", {**FACTS, "uuid": f"GPU-{number}"})
        pool.workers[worker.address] = pool.ever[worker.address] = worker
    point = SimpleNamespace(label=lambda: "a batch")
    parts, together = ClusterBatches(pool, None, 0).run(point, 2)
    assert (parts, together) == ([{"shard": 0}, {"shard": 1}], False)


def test_a_reference_that_ends_every_worker_is_given_up():
    inputs = LayerData("alexnet", 1, WORKLOADS["alexnet"].layer(1))
    pool = SimpleNamespace(request=None, call=lambda *arguments: [(inputs, 0, 8)])
    worker = Worker("tcp://0", FACTS)
    (task,) = reference.blocks_of(pool, worker, [(inputs, 8)])
    for _ in range(MOST_ENDS - 1):
        (task,) = task.lost(worker)
    with pytest.raises(ClusterLost, match=f"{MOST_ENDS} workers .* the reference of alexnet layer 1, images 0 to 7"):
        task.lost(worker)


def test_an_encrypted_cluster_runs_and_a_lost_scheduler_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("alexconv.cluster.connection.ANSWER_S", 2)
    out = tmp_path / "records.jsonl"
    with ExitStack() as stack:
        process, address = stack.enter_context(scheduler(tmp_path, "tls", **TLS))
        stack.enter_context(worker(address, "encrypted", **TLS))
        assert run.main([*SMALL, "--cluster", address, "--out", str(out)]) == 1, "without a certificate"
        assert "no scheduler answers" in capsys.readouterr().err
        command = [*STUDY, "--seed", "3", "--cluster", address, "--out", str(out)]
        lost = run_in_a_process(*command, **TLS)
        until(lambda: out.exists() and len(points_of(out)) >= 2, lost)
        process.send_signal(signal.SIGKILL)
        _, errors = lost.communicate()
    assert lost.returncode == 1
    assert [line for line in errors.splitlines() if "the scheduler no longer answers" in line] == [
        "error: the scheduler no longer answers: run the same command with --resume to continue"
    ]
    assert "Traceback" not in errors
    before = names(points_of(out))
    assert 0 < len(before) < POINTS
    assert run.main([*STUDY, "--seed", "3", "--resume", "--out", str(out)]) == 0
    after = names(points_of(out))
    assert len(after) == POINTS
    assert set(after.values()) == {1}


def test_workers_of_another_version_are_left_out_or_recorded_apart(tmp_path, capfd):
    copy = tmp_path / "other"
    for folder in ("alexconv", "kernels", "cpu_reference", "reports"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    with (copy / "kernels" / "single" / "direct.cu").open("a") as file:
        file.write("// another version\n")
    with ExitStack() as stack:
        process, address = stack.enter_context(scheduler(tmp_path, "tcp"))
        for name, environment in (("one", {}), ("two", {}), ("other", {"PYTHONPATH": str(copy)})):
            stack.enter_context(worker(address, name, **environment))
        until(lambda: workers_of(address) == 3, process)
        for mixed in ("refuse", "apart"):
            words = [*SMALL, "--cluster", address, "--mixed", mixed, "--out", str(tmp_path / f"{mixed}.jsonl")]
            assert run.main(words) == 0
            errors = capfd.readouterr().err
            assert ("other on" in errors and "is left out: it has code" in errors) == (mixed == "refuse")
    assert not list(tmp_path.glob("refuse-*"))
    (other,) = tmp_path.glob("apart-*")
    for path in (tmp_path / "refuse.jsonl", tmp_path / "apart.jsonl", other):
        assert len(points_of(path)) == 2
        assert set(names(points_of(path)).values()) == {1}
        ran = {header["name"] for header in headers(path, "worker")}
        assert ran == {"other"} if path == other else ran <= {"one", "two"}


def workers_of(address: str) -> int:
    from distributed import Client

    with Client(address, set_as_default=False) as client:
        return len(client.nthreads())


def test_workers_that_differ_only_by_card_are_of_one_kind():
    facts = {"code": "c", "header": {"name": "GPU", "uuid": "1", "driver": "580"}}
    another_card = {**facts, "header": {**facts["header"], "uuid": "2"}}
    another_driver = {**facts, "header": {**facts["header"], "driver": "590"}}
    assert kind_facts(facts) == kind_facts(another_card) != kind_facts(another_driver)
    assert difference(another_driver, facts) == "driver 590 instead of 580"


def test_nothing_is_unpickled():
    for module in [*ROOT.glob("alexconv/**/*.py"), *ROOT.glob("reports/*.py"), *ROOT.glob("cpu_reference/*.py")]:
        words = module.read_text()
        serializers = [
            name for name in ("pickle", "cloudpickle", "marshal", "shelve", "dill") if f"import {name}" in words
        ]
        assert not serializers, module
        assert "allow_pickle" not in words, module


def test_workers_have_the_rungs_of_installed_packages(tmp_path):
    package = tmp_path / "their_package"
    package.mkdir()
    (package / "their_conv.cu").write_text(
        (FOLDER / RUNGS["direct-register"].file).read_text().replace("../common/", "common/")
    )
    (package / "__init__.py").write_text(
        "from dataclasses import replace\nfrom pathlib import Path\n"
        "from alexconv.kernels.ladder import RUNGS as LADDER\n"
        "file = str(Path(__file__).with_name('their_conv.cu'))\n"
        "RUNGS = (replace(LADDER['direct-register'], name='theirs', alias='their-alias', file=file),)\n"
    )
    about = tmp_path / "their_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{GROUP}]\ntheirs = their_package:RUNGS\n")
    words = [
        *HOST,
        "--workload",
        "lenet-86-k7",
        "--layers",
        "1",
        "--N",
        "1",
        "--rungs",
        "theirs",
        "--cluster",
        "local:1",
    ]
    out = tmp_path / "records.jsonl"
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "alexconv.run", *words, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [(point["point"]["rung"], point["status"]) for point in points_of(out)] == [("theirs", "ok")]
