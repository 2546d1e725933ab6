"""Points, shards and faults on four workers of one host."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from attack_size import drawing, keep, shares
from clusters import HOST, POINTS, STUDY, cluster_of, headers, kill_one, names, points_of, processes

from alexconv import machine, reference, run
from alexconv.cluster.connection import import_distributed
from alexconv.cluster.shards import TYPE as SHARDS
from alexconv.cpu_reference.cache import LayerData, blocks_missing, compute_block, ensure
from alexconv.cpu_reference.reference import reference as convolution
from alexconv.data import filters, images
from alexconv.errors import MissingTool, UsageError
from alexconv.records.store import RecordFile
from alexconv.shapes import WORKLOADS

OWN_SEED = 5  # used by no other test


@pytest.fixture(scope="module")
def client(shared_cache):
    with cluster_of(4) as client:
        yield client


@pytest.fixture(scope="module")
def address(client) -> str:
    return client.scheduler.address


@pytest.fixture(scope="module")
def done(address, tmp_path_factory) -> Path:
    """The record file of a study over four workers."""
    out = tmp_path_factory.mktemp("study") / "records.jsonl"
    assert run.main([*STUDY, "--cluster", address, "--out", str(out)]) == 0
    return out


def test_a_study_on_workers_has_the_same_records_as_without(done, tmp_path):
    alone = tmp_path / "alone.jsonl"
    assert run.main([*STUDY, "--out", str(alone)]) == 0
    ours, theirs = ({json.dumps(record["point"]): record for record in points_of(path)} for path in (done, alone))
    assert len(ours) == POINTS
    assert ours.keys() == theirs.keys()
    for name, record in ours.items():
        assert record["status"] == "ok"
        assert (record["key"], record["error"]) == (theirs[name]["key"], theirs[name]["error"])


def test_records_name_worker_and_host_and_every_worker_was_calibrated(done):
    workers = {header["key"]: header for header in headers(done, "worker")}
    assert {header["name"] for header in workers.values()} == {f"cpu-{number}" for number in range(4)}
    assert {header["host"] for header in workers.values()} == {os.uname().nodename}
    assert {header["worker"] for header in headers(done, "calibration")} == workers.keys()
    assert {header["status"] for header in headers(done, "calibration")} == {"ok"}
    used = {record["worker"] for record in points_of(done)}
    assert used <= workers.keys()
    assert len(used) > 1
    assert any(record.get("beside") for record in points_of(done)), "points ran side by side on the host"
    (end,) = headers(done, "end")
    assert end["points"] == {"ok": POINTS}


def test_a_layer_and_batch_size_stays_on_one_worker(done):
    where: dict[tuple[int, int], set[str]] = {}
    for record in points_of(done):
        where.setdefault((record["point"]["layer"], record["point"]["N"]), set()).add(record["worker"])
    assert len(where) == 6
    assert {len(workers) for workers in where.values()} == {1}


def test_a_resumed_study_runs_missing_points_with_or_without_a_cluster(done, address, tmp_path, capsys):
    part = tmp_path / "part.jsonl"
    lines = done.read_bytes().splitlines(keepends=True)
    missing = next(number for number, line in enumerate(lines) if b'"type":"point"' in line)
    part.write_bytes(b"".join(lines[:missing] + lines[missing + 1 :]))
    words = [*STUDY, "--out", str(part), "--resume"]
    assert run.main([*words, "--cluster", address]) == 0
    assert f"{POINTS - 1} of {POINTS} points are already in" in capsys.readouterr().out
    assert set(names(points_of(part)).values()) == {1}
    assert len(points_of(part)) == POINTS
    assert run.main(words) == 0
    assert f"{POINTS} of {POINTS} points are already in" in capsys.readouterr().out


def test_a_resumed_study_runs_a_point_again_that_had_no_memory(done, address, tmp_path, capsys):
    part = Path(shutil.copy(done, tmp_path / "part.jsonl"))
    RecordFile(part).point({**points_of(done)[-1], "status": "skipped", "reason": "needs 2 GiB"})
    assert run.main([*STUDY, "--out", str(part), "--resume", "--cluster", address]) == 0
    assert f"{POINTS - 1} of {POINTS} points are already in" in capsys.readouterr().out
    assert [record["status"] for record in points_of(part)[POINTS:]] == ["skipped", "ok"]


def test_exclusive_points_have_a_host_to_themselves(address, tmp_path):
    out = tmp_path / "records.jsonl"
    words = [*HOST, "--workload", "lenet-86-k7", "--N", "1", "--rungs", "direct,tiled", "--out", str(out)]
    assert run.main([*words, "--cluster", address, "--exclusive"]) == 0
    assert len(points_of(out)) == 4
    assert not [record for record in points_of(out) if record.get("beside")]


@shares()
def test_a_killed_worker_s_points_go_elsewhere_and_none_is_lost_or_doubled(share, client, address, tmp_path):
    draw, kills, bad = drawing(share), 0, 0
    for number in range(tries := 2):
        out = tmp_path / f"{number}.jsonl"
        killer = threading.Timer(draw.uniform(0.0, 1.5), kill_one, (client, draw.choice))
        killer.start()
        status = run.main(
            [*STUDY, "--cluster", address, "--out", str(out), "--seed", str(1000 + tries * share + number)]
        )
        killer.join()
        kills += 1
        counts = names(points_of(out))
        bad += status != 0 or len(counts) != POINTS or set(counts.values()) != {1}
        while len(processes(client)) < 4:  # until the killed worker is restarted
            time.sleep(0.05)
    assert kills == tries
    keep("kill -9 of one of four workers at a random moment", kills, "studies with a point lost or doubled", bad)
    assert bad == 0


def test_shards_have_the_outputs_of_the_whole_batch_bit_for_bit(address, tmp_path):
    out = tmp_path / "records.jsonl"
    words = [*HOST, "--workload", "lenet-86-k7", "--layers", "2", "--N", "7", "--rungs", "direct,unroll-matmul"]
    words += ["--out", str(out)]
    assert run.main([*words, "--shards", "1,2,4", "--cluster", address]) == 0
    assert run.main([*words, "--shards", "1,3", "--host-memory", "100KiB"]) == 0
    shards = headers(out, SHARDS)
    assert sorted(record["shards"] for record in shards) == [1, 1, 1, 1, 2, 2, 3, 3, 4, 4]
    assert {len(record["parts"]) - record["shards"] for record in shards} == {0}
    assert {record["together"] for record in shards if record["shards"] in (2, 4)} == {True}
    assert max(part["blocks"] for record in shards for part in record["parts"]) > 2
    assert all(
        part["block_bytes"] < part["peak_bytes"] for record in shards for part in record["parts"] if part["blocks"] > 1
    )
    for rung in ("direct", "unroll-matmul"):
        assert len({record["outputs"] for record in shards if record["point"]["rung"] == rung}) == 1
    (halves,) = (record for record in shards if record["shards"] == 2 and record["point"]["rung"] == "direct")
    assert [part["images"] for part in halves["parts"]] == [[0, 3], [3, 7]]
    assert len({part["worker"] for part in halves["parts"]}) == 2
    again = [*words, "--rungs", "direct", "--shards", "2", "--cluster", address, "--resume"]
    for status, result, more in [("wrong", 1, 0), ("skipped", 0, 1)]:
        last = {name: value for name, value in halves.items() if name not in ("schema", "type", "key")}
        RecordFile(out).header(SHARDS, {**last, "status": status})
        before = len(headers(out, SHARDS))
        assert (run.main(again), len(headers(out, SHARDS)) - before) == (result, more), status


@pytest.fixture
def no_reference(shared_cache):
    """Removes the references of OWN_SEED from the workers' cache, before and after."""
    folder = shared_cache / "reference"

    def remove() -> None:
        for left in folder.glob(f"lenet-86-k7-*-seed{OWN_SEED}-*"):
            shutil.rmtree(left)

    remove()
    yield
    remove()


@pytest.mark.usefixtures("cache", "no_reference")
def test_blocks_of_the_reference_are_those_of_one_process(address, capsys, monkeypatch):
    """The workers' cache is not this process's, which computes everything itself."""
    monkeypatch.setattr(machine, "_SQUARE", 100)  # rows of the matrices that dgemm is timed on
    words = ["--workload", "lenet-86-k7", "--N", "270", "--seed", str(OWN_SEED)]
    assert reference.main([*words, "--cluster", address]) == 0
    assert capsys.readouterr().out.splitlines()[3].split()[:3] == ["all", "270", "540"]
    assert reference.main([*words, "--cluster", address]) == 0
    assert capsys.readouterr().out.splitlines()[3].split()[:3] == ["all", "270", "0"]
    conv = WORKLOADS["lenet-86-k7"].layer(1)
    of = LayerData("lenet-86-k7", 1, conv, OWN_SEED)
    assert blocks_missing(of, 270) == [(0, 256), (256, 270)]
    for block in reversed(blocks_missing(of, 270)):
        compute_block(of, *block)
    assert blocks_missing(of, 270) == []
    whole = ensure(of, 270)
    assert whole.work.images == 0
    ours = whole.read(200, 270)
    x = images("lenet-86-k7", 1, conv, 200, 270, OWN_SEED)
    assert np.array_equal(ours, convolution(conv, x, filters("lenet-86-k7", 1, conv, OWN_SEED)))
    part = ensure(of, 300, first=280)
    assert part.work.images == 20
    with pytest.raises(ValueError, match="not among 280 to 299"):
        part.read(0, 300)


def test_only_the_loopback_interface_is_listened_on(client):
    ours = {os.getpid(), *processes(client).values()}
    folders = [Path(f"/proc/{process}/fd") for process in ours]
    links = []
    for link in (link for folder in folders for link in folder.iterdir()):
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(str(link.readlink()))
    sockets = {link[8:-1] for link in links if link.startswith("socket:[")}
    listening = "0A"
    addresses = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == listening and rest[5] in sockets:
                addresses.append(local.partition(":")[0])
    assert len(addresses) >= 5, "a scheduler and four workers"
    assert set(addresses) == {"0100007F"}, "127.0.0.1"


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("local:0", "the number of workers must be 1 or more"),
        ("no/such/file.json", "no such file"),
        ("somewhere", "tls://HOST:PORT or FILE"),
        ("--exclusive", "--exclusive: only with --cluster"),
    ],
)
def test_an_invalid_cluster_option_is_one_line(where, says, tmp_path, capsys):
    words = [where] if where.startswith("--") else ["--cluster", where]
    assert run.main([*STUDY, *words, "--out", str(tmp_path / "r.jsonl")]) == UsageError.exit_status
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_a_missing_scheduler_and_a_missing_dask_are_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("alexconv.cluster.connection.ANSWER_S", 0.2)
    assert run.main([*STUDY, "--cluster", "127.0.0.1:9", "--out", str(tmp_path / "r.jsonl")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "no scheduler answers at tcp://127.0.0.1:9" in line
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingTool, match=r"pip install 'alexconv\[cluster\]'"):
        import_distributed()


def test_commands_do_not_need_dask():
    loads = "import sys, alexconv.run, alexconv.tune, alexconv.reference; print('distributed' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
