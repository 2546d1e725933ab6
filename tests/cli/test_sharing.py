"""The file to send: what it must not name, what it must keep, and how it stands beside this project's files."""

from pathlib import Path

import pytest
from report_records import GPU, HOST, RUN, record, write

from alexconv import compare, run
from alexconv.cli.sharing import command, share
from alexconv.errors import UsageError
from alexconv.records import comparisons
from alexconv.records.compressed import files_in
from alexconv.records.labels import changed_in
from alexconv.records.store import RecordFile, read
from alexconv.reports.shared import parts
from alexconv.reports.site import report_of

RESULTS = Path(__file__).parent.parent.parent / "results"
HOST_NAME, USER, SERIAL, ADDRESS = (
    "lab-17.example.org",
    "ann.smith",
    "GPU-2c0c0a9f-de21-3065-fc28-4e39d2c909fa",
    "10.1.2.3",
)
DIGESTS = {"inputs": "12ab34cd56ef7890", "outputs": "9abcdef012345678"}
OWN = "anns-rung"
SECRETS = (HOST_NAME, "lab-17", "example.org", USER, "smith", SERIAL, "2c0c0a9f", ADDRESS, OWN, "/home", "thesis")
COMMAND = (
    f"python -m alexconv.run --layers 1-5 --rungs direct,{OWN} --N=128 --ladder /home/{USER}/thesis --resume "
    f"--together --out {HOST_NAME}.jsonl --cluster tcp://{ADDRESS}:8786 --peers torch"
)
FAILED = {"status": "compile-error", "samples": {}, "launches": []}


def planted(path: Path) -> Path:
    """A record file with private texts wherever a run could write one, and in fields that no run writes."""
    file = RecordFile(path)
    more = {"host_name": HOST_NAME, "note": {"of": USER}}
    device = GPU | {"uuid": SERIAL, "toolkit": f"13.0.88 {USER}", "nvcc_flags": ["-O3", f"-I/home/{USER}/include"]}
    host = HOST | {"system": "Linux 6.8.0-lab-17-generic", "node": HOST_NAME}
    run = RUN | {
        "command": COMMAND,
        "packages": {"torch": f"2.11.0+{USER}"},
        "commit": "abc1234",
        "folder": f"/home/{USER}",
    }
    kinds = {"device": device, "host": host, "run": run}
    keys = {kind: file.header(kind, header | more) for kind, header in kinds.items()}
    reason = f"/home/{USER}/thesis/a.cu(3): error: on {HOST_NAME} ({ADDRESS}), {USER.upper()}, {SERIAL}: 2 errors"
    for point in (
        record("alexnet", 2, 128, "direct") | {"health": [{"sm_clock_mhz": 1980, "read_by": USER}]},
        record("alexnet", 2, 128, "igemm") | FAILED | {"reason": reason},
        record("alexnet", 2, 128, "torch-nchw-fp32") | {"peer": {"torch": f"2.11.0+{USER}", "kernels": [HOST_NAME]}},
        record("alexnet", 2, 128, OWN),
    ):
        file.point(point | keys | more)
    file.header("end", {"run": keys["run"], "seconds": 1.5, "points": {"ok": 3}, "kept": 0, **more})
    file.header("worker", {"host": HOST_NAME})
    return path


def test_no_name_is_left_and_no_figure_is_lost(tmp_path):
    source = planted(tmp_path / f"{USER}.jsonl")
    shared = share(source, {HOST_NAME, USER, "lab-17"})
    content = shared.path.read_text()
    assert [secret for secret in SECRETS if secret in (content + shared.path.name).lower()] == []
    assert shared.path.name.startswith("nvidia-test-9000-")
    assert (shared.points, shared.left_out) == (3, (OWN,))
    before, after = read([source]), read([shared.path])
    for old, new in zip(before.points, after.points, strict=False):
        assert all(new[name] == old[name] for name in ("point", "status", "samples", "error", "cpu", "device_bytes"))
    assert after.points[0]["health"] == [{"sm_clock_mhz": 1980}]
    assert after.points[1]["reason"] == "…(3): error: on … (…), …, …: 2 errors"
    (run,) = (header for header in after.headers.values() if header["type"] == "run")
    assert run["command"] == "python -m alexconv.run --layers 1-5 --rungs direct --N 128 --together --peers torch"
    assert (run["commit"], run["packages"]) == ("abc1234", {"torch": "2.11.0"})
    assert {header["type"] for header in after.headers.values()} == {"device", "host", "run", "end"}
    assert share(shared.path, {USER}).path == shared.path, "what is shared has nothing left to remove"
    assert shared.path.read_text() == content


def test_run_writes_it_and_reports_and_compare_tell_it_from_the_projects(tmp_path, capsys):
    out = tmp_path / "records.jsonl"
    small = ["--workload", "lenet-86-k7", "--layers", "2", "--rungs", "direct,channels", "--backend", "host"]
    assert run.main([*small, "--no-baseline", "--out", str(out), "--share"]) == 0
    (path,) = set(tmp_path.glob("*.jsonl")) - {out}
    assert f"to send: {path}, 2 points. How: docs/send-your-card.md" in capsys.readouterr().out
    assert str(tmp_path) not in path.read_text()
    assert report_of([path]).title == "Convolution on the host executor (shared)"
    assert run.main([*small, "--share", "--shards", "2", "--out", str(out)]) == 2
    assert "--share: not with --cluster or --shards" in capsys.readouterr().err


def test_points_of_another_card_match_by_their_defaults(tmp_path, capsys):
    ours, theirs = RESULTS / "h200-main-job.jsonl", tmp_path / "theirs.jsonl"
    file, measured = RecordFile(theirs), read([ours])
    keys = {kind: file.header(kind, header) for kind, header in (("device", GPU), ("host", HOST), ("run", RUN))}
    for point in measured.latest():
        constants = {name: value + 1 for name, value in point["point"]["constants"].items()}  # of another GPU
        samples = {name: [2 * ms for ms in times] for name, times in point.get("samples", {}).items()}
        axes = point["point"] | {"constants": constants if not changed_in(point) else point["point"]["constants"]}
        file.point(point | keys | {"point": axes, "samples": samples})
    shared = share(theirs).path
    assert compare.main([str(ours), str(shared)]) == 0
    lines = capsys.readouterr().out.splitlines()
    timed = sum(bool(point.get("samples", {}).get("kernel")) for point in measured.latest())
    assert lines[-3].startswith("kernel time of B over A, NVIDIA Test 9000 (shared) over NVIDIA H200: 0 FASTER")
    assert lines[-2] == f"{timed} common points with times; 0 only in A, 0 only in B"
    assert not [line for line in lines if "[" in line], "defaults of their card are no changed constants"


def recorded(path: Path, *points: dict) -> Path:
    """A record file with these points, of one GPU."""
    file = RecordFile(path)
    keys = {kind: file.header(kind, header) for kind, header in (("device", GPU), ("host", HOST), ("run", RUN))}
    for point in points:
        file.point(point | keys)
    return path


def test_digests_of_outputs_stay_whole(tmp_path):
    point = record("alexnet", 2, 128, "direct")
    others = DIGESTS | {"outputs": "9" + DIGESTS["outputs"][:0:-1]}
    first, second = (
        share(recorded(tmp_path / name, point | {"audit": {"samples": 3, "note": USER, "digests": digests}})).path
        for name, digests in (("a.jsonl", DIGESTS), ("b.jsonl", others))
    )
    assert read([first]).points[0]["audit"] == {"samples": 3, "digests": DIGESTS}
    (comparison,) = comparisons.compare(read([first]), read([second]), "kernel")
    assert comparison.same_bits is False


def test_a_gpu_gives_its_name_and_keeps_its_times_though_the_host_ran_the_point_later(tmp_path):
    point, file = record("alexnet", 2, 128, "direct"), tmp_path / "a.jsonl"
    write(file, [point])
    write(file, [point | {"samples": {}}], {"backend": "host", "cpu": "Some CPU"})
    shared = share(file)
    assert shared.path.name.startswith("nvidia-test-9000-")
    assert [bool(line["samples"]) for line in read([shared.path]).points] == [True, False]


def test_mixes_of_this_projects_rungs_stay(tmp_path):
    base = record("alexnet", 1, 128, "direct")
    axes = base["point"] | {"layer": "1-2", "constants": {}}
    ours, one, own = "1=direct,2=tiled:TILE=8", "1=tiled,2=tiled:TILE=8", f"1=direct,2={OWN}:TILE=8"
    names = (("mixed-together", ours), ("tiled-together", one), ("mixed-together", own), ("mixed-together", ""))
    points = [base | {"point": axes | {"rung": rung, "mix": mix}} for rung, mix in names]
    shared = share(recorded(tmp_path / "a.jsonl", *points))
    assert (shared.points, shared.left_out) == (2, ("mixed-together",))
    assert [point["point"]["mix"] for point in read([shared.path]).points] == [ours, one]
    assert OWN not in shared.path.read_text()
    assert command(f"run --N 1 --mix {ours} --together") == f"python -m alexconv.run --N 1 --mix {ours} --together"
    assert command(f"run --N 1 --mix={own} --together") == "python -m alexconv.run --N 1 --together"


def test_directions_stay_apart_and_gradients_are_this_projects(tmp_path):
    peer, rung = record("alexnet", 2, 128, "torch-nchw-fp32"), record("alexnet", 2, 128, "direct")
    gradient = rung["point"] | {"rung": "dgrad-direct", "direction": "dgrad", "constants": {}}
    points = [peer | {"point": peer["point"] | {"direction": name}} for name in ("forward", "dgrad", "wgrad")]
    shared = share(recorded(tmp_path / "a.jsonl", *points, rung | {"point": gradient, "changed": []}))
    assert (shared.points, shared.left_out) == (4, ())
    directions = [point["point"]["direction"] for point in read([shared.path]).latest()]
    assert directions == ["forward", "dgrad", "wgrad", "dgrad"]


@pytest.mark.parametrize(("kind", "field"), [("point", "audit"), ("point", "launches"), ("device", "nvcc_flags")])
@pytest.mark.parametrize("value", [None, "x", [1], [{}], {"digests": 1}])
def test_nothing_stays_of_a_value_that_no_run_writes(tmp_path, kind, field, value):
    point, device = record("alexnet", 2, 128, "direct"), GPU
    if kind == "point":
        point |= {field: value}
    else:
        device |= {field: value}
    file = RecordFile(tmp_path / "a.jsonl")
    file.point(point | {"device": file.header("device", device)})
    shared = read([share(tmp_path / "a.jsonl").path])
    line = shared.points[0] if kind == "point" else next(iter(shared.headers.values()))
    assert not line.get(field)


def test_the_records_stay_whatever_their_file_is_called(tmp_path):
    source = recorded(tmp_path / "records.sharing", record("alexnet", 2, 128, "direct"))
    content = source.read_bytes()
    share(source)
    assert source.read_bytes() == content


def test_the_page_of_files_has_a_row_for_each_and_takes_no_other_file(tmp_path):
    sent = share(planted(tmp_path / "records.jsonl")).path
    row = parts([sent])["files"].splitlines()[-1]
    assert row.startswith(f"| `{sent.name}` | NVIDIA Test 9000 | 580.1, 13.0.88 | 0.1.0 abc1234 |")
    assert "| 2 ok, 1 compile-error |" in row
    with pytest.raises(UsageError, match=r"records\.jsonl is not a file of alexconv run --share"):
        parts([tmp_path / "records.jsonl"])


def test_files_that_were_sent_have_nothing_left_to_remove(tmp_path):
    for path in [share(planted(tmp_path / "records.jsonl")).path, *files_in(RESULTS / "shared")]:
        (copy := tmp_path / "again" / path.name).parent.mkdir(exist_ok=True)
        copy.write_bytes(path.read_bytes())
        assert share(copy, ()).path == copy, f"{path} is not as alexconv run --share writes it"
        assert copy.read_bytes() == path.read_bytes()
