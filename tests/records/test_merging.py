"""Record files joined: nothing lost, nothing doubled, nothing overwritten."""

import json
import tracemalloc

import pytest
from points import batch_of, peer_point, point_of
from report_records import GPU, record, write

from alexconv import merge, run
from alexconv.cluster.groups import parse_shard, shard_of
from alexconv.errors import UsageError
from alexconv.records import merging
from alexconv.records.store import RecordFile, read

STUDY = ["--backend", "host", "--no-baseline", "--workload", "lenet-86-k7", "--N", "1,2,3", "--rungs", "direct,tiled"]


def test_shards_merge_into_the_whole_study(tmp_path, capsys):
    parts = [tmp_path / f"part-{number}.jsonl" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        assert run.main([*STUDY, "--shard", f"{number}/2", "--out", str(part)]) == 0
    whole = tmp_path / "whole.jsonl"
    assert merge.main([*map(str, parts), str(parts[0]), "--out", str(whole)]) == 0
    assert f"{whole}: 12 records of points from 3 files" in capsys.readouterr().out
    records = read([whole])
    assert len({json.dumps(record["point"]) for record in records.points}) == len(records.points) == 12
    assert {record[name] for record in records.points for name in ("device", "host", "run")} <= records.headers.keys()
    assert run.main([*STUDY, "--resume", "--out", str(whole)]) == 0
    assert "12 of 12 points are already in" in capsys.readouterr().out


def test_damaged_lines_are_left_out_and_a_file_is_never_overwritten(tmp_path, capsys):
    one, out = tmp_path / "one.jsonl", tmp_path / "out.jsonl"
    RecordFile(one).point(record("alexnet", 1, 1, "direct"))
    whole = one.read_bytes()
    one.write_bytes(whole + whole.replace(b'"N":1', b'"N":2') + b'{"torn')
    assert merge.main([str(one), "--out", str(out)]) == 0
    assert out.read_bytes() == whole
    assert "2 unreadable line(s) were left out" in capsys.readouterr().out
    assert merge.main([str(one), "--out", str(out)]) == UsageError.exit_status
    assert "exists already" in capsys.readouterr().err
    assert out.read_bytes() == whole


def test_the_last_record_of_a_point_counts_though_an_earlier_line_is_equal(tmp_path):
    earlier, both, out = (tmp_path / f"{name}.jsonl" for name in ("earlier", "both", "out"))
    for path, times in ((earlier, ["1"]), (both, ["1", "2"])):
        for time in times:
            RecordFile(path).point(record("alexnet", 1, 1, "direct") | {"time": time})
    merged = merging.merge([both, earlier], out)
    assert (merged.points, merged.again) == (3, 2)
    assert read([out]).latest() == read([both, earlier]).latest()


def test_a_point_on_another_model_is_no_repetition(tmp_path):
    paths = [tmp_path / f"{name}.jsonl" for name in ("First", "Second")]
    for path in paths:
        write(path, [record("alexnet", 1, 1, "direct")], GPU | {"name": path.stem})
    merged = merging.merge([*paths, paths[0]], tmp_path / "out.jsonl")
    assert (merged.points, merged.again) == (2, 0)
    assert len(read([tmp_path / "out.jsonl"]).latest()) == 2


def test_one_file_at_a_time_is_in_memory(tmp_path):
    paths = [tmp_path / f"{N}.jsonl" for N in range(1, 25)]
    for N, path in enumerate(paths, 1):
        RecordFile(path).point({**record("alexnet", 1, N, "direct"), "reason": "x" * (1 << 18)})
    tracemalloc.start()
    try:
        merged = merging.merge(paths, tmp_path / "out.jsonl")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert merged.points == len(paths)
    assert peak < sum(path.stat().st_size for path in paths) / 2


def test_an_unreadable_file_leaves_no_merged_file(tmp_path, capsys):
    one, out = tmp_path / "one.jsonl", tmp_path / "out.jsonl"
    RecordFile(one).point(record("alexnet", 1, 1, "direct"))
    assert merge.main([str(one), str(tmp_path / "none.jsonl"), "--out", str(out)]) == UsageError.exit_status
    assert "none.jsonl" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(("content", "count"), [(b"", "0 lines"), (b"\0\xff\nkernel\n", "2 lines")])
def test_files_without_records_leave_no_merged_file(content, count, tmp_path, capsys):
    one, out = tmp_path / "one.jsonl", tmp_path / "out.jsonl"
    one.write_bytes(content)
    assert merge.main([str(one), "--out", str(out)]) == UsageError.exit_status
    assert f"no record in {count}" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3"])
def test_an_invalid_shard_is_refused(text):
    with pytest.raises(UsageError, match="--shard"):
        parse_shard(text)


def test_of_more_shards_than_points_the_first_have_one_each():
    points = [point_of(batch_of("alexnet", layer, 1), "direct") for layer in (1, 2)]
    assert {len(shard_of(points, number, 10**15)) for number in (1, 2)} == {1}
    assert shard_of(points, 3, 10**15) == shard_of([], 1, 2) == []


def test_shards_share_the_groups_and_keep_them_whole():
    points = [
        point
        for layer in (1, 2, 3)
        for N in (1, 128)
        for batch in [batch_of("alexnet", layer, N)]
        for point in (point_of(batch, "direct"), point_of(batch, "tiled"), peer_point(batch, "torch-nchw-fp32"))
    ]
    for of in (1, 2, 4, 9):
        shards = [shard_of(points, number, of) for number in range(1, of + 1)]
        assert sorted(map(repr, (point for shard in shards for point in shard))) == sorted(map(repr, points))
        for shard in shards:
            assert shard == [point for point in points if point in shard]
            assert all(sum(other.layer == p.layer and other.N == p.N for other in shard) == 3 for p in shard)
