"""Compressed record files: read under either name, never written, damage is one line."""

import gzip
import lzma

import pytest
from report_records import record

from alexconv.errors import UsageError
from alexconv.records.compressed import files_in
from alexconv.records.merging import merge
from alexconv.records.store import RecordFile, read

PACK = {".gz": gzip.compress, ".xz": lzma.compress}


@pytest.fixture(params=PACK)
def packed(request, tmp_path):
    """The plain name of a record file that is there compressed, and that compressed file."""
    plain = tmp_path / "r.jsonl"
    RecordFile(plain).point(record("alexnet", 1, 1, "direct"))
    file = plain.with_name(plain.name + request.param)
    file.write_bytes(PACK[request.param](plain.read_bytes()))
    plain.unlink()
    return plain, file


def test_a_compressed_file_is_read_under_either_name(packed):
    plain, file = packed
    first, second = (read([path]) for path in packed)
    assert first == second
    assert first.files == ["r"]
    assert [record["point"]["rung"] for record in first.points] == ["direct"]
    RecordFile(plain.with_name("other.jsonl"))
    assert files_in(plain.parent) == [plain.with_name("other.jsonl"), plain]
    assert not plain.exists() and file.exists()


def test_a_plain_file_comes_before_a_compressed_one(packed):
    plain, file = packed
    plain.write_text("")
    assert read([plain]).points == []
    assert len(read([file]).points) == 1


@pytest.mark.parametrize("write", [RecordFile, lambda out: merge([], out)])
def test_a_compressed_file_is_never_written(packed, write):
    plain, file = packed
    before = file.read_bytes()
    for path in packed:
        with pytest.raises(UsageError, match=f"compressed ones are only read; unpack {file} first"):
            write(path)
    new = plain.with_name(f"new.jsonl{file.suffix}")
    with pytest.raises(UsageError, match=r"name it .*new\.jsonl$"):
        write(new)
    assert (file.read_bytes(), plain.exists(), new.exists()) == (before, False, False)
    file.rename(plain)
    with pytest.raises(UsageError, match="compressed ones are only read"):
        write(plain)


def test_a_damaged_compressed_file_is_one_line(packed):
    plain, file = packed
    whole = file.read_bytes()
    for data in (whole[:-4], whole[: len(whole) // 2] + b"\0\0\0" + whole[len(whole) // 2 + 3 :]):
        file.write_bytes(data)
        with pytest.raises(UsageError, match=f"{plain}: its compressed data are damaged"):
            read([plain])
