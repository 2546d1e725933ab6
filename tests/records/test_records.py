"""Record files survive kills and keep every line (promises 1 and 5)."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from alexconv.errors import UsageError
from alexconv.records.merging import merge
from alexconv.records.store import RecordFile, digest, identity, read

AXES = {"workload": "alexnet", "layer": 1, "N": 1, "rung": "direct", "transfer": "pinned", "precision": "fp32"}


def point(N: int, **constants: int) -> dict:
    return {"point": {**AXES, "N": N, "constants": constants}, "status": "ok", "reason": None, "key": "k"}


def test_what_is_written_is_read(tmp_path):
    file = RecordFile(tmp_path / "new" / "records.jsonl")
    key = file.header("device", {"name": "GPU"})
    assert file.header("device", {"name": "GPU"}) == key
    file.point(point(1) | {"device": key})
    records = read([tmp_path / "new" / "records.jsonl"])
    assert records.headers[key]["name"] == "GPU"
    assert [record["point"]["N"] for record in records.points] == [1]
    assert records.unreadable == []
    assert len((tmp_path / "new" / "records.jsonl").read_text().splitlines()) == 2


def test_a_torn_last_line_costs_only_itself(tmp_path):
    path = tmp_path / "records.jsonl"
    RecordFile(path).point(point(1))
    with path.open("ab") as file:
        file.write(b'{"schema":1,"type":"poi')
    again = RecordFile(path)
    assert len(again.previous.unreadable) == 1
    again.point(point(2))
    assert [record["point"]["N"] for record in read([path]).points] == [1, 2]


def test_an_empty_line_costs_nothing(tmp_path):
    path, whole = tmp_path / "records.jsonl", tmp_path / "whole.jsonl"
    for N in (1, 2):
        RecordFile(whole).point(point(N))
    path.write_bytes(whole.read_bytes().replace(b"\n", b"\n\n"))  # as a run leaves that starts while another writes
    records = read([path])
    assert ([record["point"]["N"] for record in records.points], records.unreadable) == ([1, 2], [])
    assert merge([path], tmp_path / "out.jsonl").unreadable == 0


WHOLE = {"schema": 1, "type": "point", **point(1)}
INCOMPLETE = {
    "a header without its key": {"schema": 1, "type": "device", "backend": "host"},
    "no axes": {**WHOLE, "point": None},
    "an axis too few": {**WHOLE, "point": AXES},
    "an axis too many": {**WHOLE, "point": {**WHOLE["point"], "colour": "red"}},
    "no status": {name: value for name, value in WHOLE.items() if name != "status"},
    "samples that are no object": {**WHOLE, "samples": None},
    "a figure's samples that are no list": {**WHOLE, "samples": {"kernel": 1.5}},
    "a sample that is text": {**WHOLE, "samples": {"kernel": [1.5, "2"]}},
    "a sample that is a truth value": {**WHOLE, "samples": {"kernel": [1.5], "total": [True]}},
    "a profile without a point": {"schema": 1, "type": "profile", "key": "k", "point": "direct"},
    "no key": {name: value for name, value in WHOLE.items() if name != "key"},
}


@pytest.mark.parametrize("line", INCOMPLETE.values(), ids=INCOMPLETE)
def test_a_line_without_its_fields_costs_only_itself(tmp_path, line):
    path = tmp_path / "records.jsonl"
    path.write_text(f"{json.dumps(line)}\n{json.dumps(WHOLE)}\n")
    records = read([path])
    assert len(records.unreadable) == 1
    assert [record["point"]["N"] for record in records.latest()] == [1]
    assert records.headers == {}


def test_a_full_disk_is_one_error_and_keeps_earlier_points(tmp_path):
    path = tmp_path / "records.jsonl"
    script = (
        "import json, resource, sys; from pathlib import Path; from alexconv.records.store import RecordFile\n"
        "from alexconv.errors import UsageError\n"
        "file, point = RecordFile(Path(sys.argv[1])), json.loads(sys.argv[2])\n"
        "file.point(point)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n"
        "try:\n"
        "    for _ in range(10): file.point(point)\n"
        "except UsageError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), json.dumps(point(7))], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"cannot write the record file {path}: File too large\n"
    assert path.stat().st_size == 500
    before = read([path])
    assert (len(before.points), len(before.unreadable)) == (2, 1)
    RecordFile(path).point(point(8))
    assert [record["point"]["N"] for record in read([path]).points] == [7, 7, 8]


def test_a_finished_point_survives_kill(tmp_path):
    path = tmp_path / "records.jsonl"
    script = (
        "import json, os, sys; from pathlib import Path; from alexconv.records.store import RecordFile\n"
        "file = RecordFile(Path(sys.argv[1])); file.point(json.loads(sys.argv[2])); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path), json.dumps(point(7))], check=False)
    assert done.returncode == -signal.SIGKILL
    assert read([path]).points[0]["point"]["N"] == 7


def test_the_latest_record_of_a_point_counts(tmp_path):
    file = RecordFile(tmp_path / "records.jsonl")
    for record in (point(1) | {"key": "old"}, point(1, CHANNELS=2), point(1) | {"key": "new"}):
        file.point(record)
    latest = read([file.path]).latest()
    assert sorted(record["key"] for record in latest) == ["k", "new"]


def test_identity_covers_every_axis_and_the_order_of_constants_does_not_matter():
    one, other = point(1, A=1, B=2)["point"], point(1, B=2, A=1)["point"]
    assert identity(one) == identity(other)
    assert len({identity({**one, **change}) for change in ({}, {"N": 2}, {"transfer": "x"}, {"constants": {}})}) == 4


def test_digest_does_not_depend_on_the_process():
    script = "from alexconv.records.store import digest; print(digest({'b': [1, 2.5], 'a': None}))"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    printed = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == digest({"a": None, "b": [1, 2.5]})


def test_another_schema_is_refused(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"schema": 99, "type": "point"}\n')
    with pytest.raises(UsageError, match="schema 99"):
        read([path])


def test_a_place_that_cannot_be_written_is_a_usage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write the record file"):
        RecordFile(tmp_path / "file" / "records.jsonl")


def test_a_device_is_refused_and_a_pipe_can_only_be_read(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (Path("/dev/full"), tmp_path, pipe):
        with pytest.raises(UsageError, match=f"cannot write the record file {path}: not a regular file"):
            RecordFile(path)
    with pytest.raises(UsageError, match="cannot read the record file /dev/full: not a regular file"):
        read([Path("/dev/full")])
    with subprocess.Popen(["bash", "-c", f"echo '{json.dumps(WHOLE)}' > {pipe}"]):
        assert len(read([pipe]).points) == 1


def test_a_file_of_another_kind_is_left_as_it_is(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("# Notes\n{")
    with pytest.raises(UsageError, match=f"cannot write the record file {path}: it is another kind of file"):
        RecordFile(path)
    assert path.read_text() == "# Notes\n{"
    path.write_bytes(b'{"schema":1,"ty')
    RecordFile(path).point(point(1))
    assert len(read([path]).points) == 1


@pytest.mark.parametrize("inner", ["", "folder"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path, inner):
    path = tmp_path / "file" / inner / "r.jsonl"
    (tmp_path / "file").write_text("")
    for write in (RecordFile, partial(merge, [])):
        with pytest.raises(
            UsageError, match=f"cannot write the record file {path}: {tmp_path / 'file'} is not a folder"
        ):
            write(path)


def test_samples_may_be_integers_or_nonfinite(tmp_path):
    path = tmp_path / "records.jsonl"
    RecordFile(path).point(point(1) | {"samples": {"kernel": [1, 2.5, float("nan"), float("inf")], "total": []}})
    assert (len(read([path]).points), read([path]).unreadable) == (1, [])


def test_a_line_that_is_not_an_object_costs_only_itself(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('[1]\n[]\n{}\n1\nnull\n"text"\n' + json.dumps(WHOLE) + "\n")
    assert (read([path]).unreadable, len(read([path]).points)) == ([1, 2, 3, 4, 5, 6], 1)


def test_a_changed_digit_is_noticed_and_lines_without_a_checksum_are_read(tmp_path):
    path = tmp_path / "records.jsonl"
    RecordFile(path).point(point(128))
    line = path.read_text()
    path.write_text(line.replace("128", "129") + line + json.dumps(WHOLE) + "\n" + line.replace('"sum"', '"sun"'))
    records = read([path])
    assert (records.unreadable, [record["point"]["N"] for record in records.points]) == ([1, 4], [128, 1])
    assert "sum" not in records.points[0]
