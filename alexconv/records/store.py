"""Record files: JSON Lines, append-only, each line on disk before the next point starts.

A line is a *header* (type ``device``, ``host``, ``run``: what machine, what software, what command; ``end``: how long
a finished run took; named by a digest of its content) or a *point* (one measurement, naming its headers; its status is
``ok``, ``wrong``, ``skipped``, ``compile-error``, ``launch-error``, ``out-of-memory`` or ``timeout``).  The last line
may be torn by a crash or a full disk: it is ignored when read, as is any incomplete line, and closed off when the file
is continued.

A line ends with ``sum``, the checksum of its other fields, except in older files; a changed line counts as torn.
Compressed files are read, and not continued (``alexconv.records.compressed``).
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from alexconv.data import UNIFORM
from alexconv.errors import UsageError
from alexconv.records.compressed import contents, plain, refuse_to_write
from alexconv.shapes import FORWARD

SCHEMA = 1
START = b'{"'  # of a line
SUM = "sum"
DIGITS = 16  # of a digest

Record = dict[str, Any]
_TEXTS = ("device", "host", "run", "name", "uuid", "backend", "cpu_model", "system", "command", "commit", "alexconv")
AXES = ("workload", "layer", "N", "rung", "transfer", "precision", "constants")
# Axes that some points and all older records lack, with the values that these have.
DATA, DIRECTION, MIX = "data", "direction", "mix"
LATER_AXES = {DATA: UNIFORM, DIRECTION: FORWARD, MIX: ""}


def digest(data: object) -> str:
    """A short hash of JSON-able data, the same in every process."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:DIGITS]


def identity(point: Record) -> str:
    """The digest of a point's axes, constants included."""
    later = [point[axis] for axis, usual in LATER_AXES.items() if point.get(axis, usual) != usual]
    return digest([*(point[axis] for axis in AXES), *later])


def by_key(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """The last of points' records with each identity and key: all that its result depends on is the same."""
    return {(identity(record["point"]), record["key"]): record for record in records}


@dataclass
class Records:
    """Contents of record files: headers by digest, points in the order of their lines, numbers of unreadable lines."""

    headers: dict[str, Record] = field(default_factory=dict)
    points: list[Record] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # each point's, without folder and suffix

    def latest(self) -> list[Record]:
        """One record per point and model of device, the last written."""
        return list({(identity(record["point"]), self.model(record)): record for record in self.points}.values())

    def model(self, record: Record) -> str:
        """The model of the device of a point; ``None`` for the host, and where its header is missing."""
        return str(self.headers.get(str(record.get("device")), {}).get("name"))


def read(paths: Iterable[Path]) -> Records:
    """Reads record files one after the other; raises UsageError for one that cannot be read or has another schema."""
    return joined(map(read_file, paths))


def joined(parts: Iterable[Records]) -> Records:
    """The contents of several files as one."""
    records = Records()
    for part in parts:
        records.headers |= part.headers
        records.points += part.points
        records.unreadable += part.unreadable
        records.files += part.files
    return records


_FILES: ContextVar[dict[Path, Records] | None] = ContextVar("files", default=None)


@contextmanager
def reading_once() -> Iterator[None]:
    """Within it each file is read once, however often it is asked for; files must not change meanwhile."""
    token = _FILES.set({})
    try:
        yield
    finally:
        _FILES.reset(token)


def read_file(path: Path) -> Records:
    """Reads one record file, as ``read`` does."""
    files = _FILES.get()
    if files is None:
        return _records_in(path)
    where = path.absolute()
    if where not in files:
        files[where] = _records_in(path)
    return files[where]


def _records_in(path: Path) -> Records:
    records = Records()
    for number, line in enumerate(lines_of(path), 1):
        if not line:  # two runs at once: one closed off what the other was writing
            continue
        record = parsed(line, path)
        if record is None or not complete(record):
            records.unreadable.append(number)
        elif record["type"] == "point":
            records.points.append(record)
        else:
            records.headers[record["key"]] = record
    records.files += [plain(path).stem.encode(errors="backslashreplace").decode()] * len(records.points)
    return records


def lines_of(path: Path) -> list[bytes]:
    """The lines of a record file; raises UsageError for one that cannot be read."""
    try:
        if path.is_char_device():  # reading it may never end
            raise UsageError(f"cannot read the record file {path}: not a regular file")
        return contents(path).splitlines()
    except OSError as error:
        raise UsageError(f"cannot read the record file {path}: {error.strerror}") from None


def parsed(line: bytes, path: Path) -> Record | None:
    """A line of a file as written, None for a torn or damaged one; raises UsageError for another schema."""
    try:
        record: Record = json.loads(line)
        check_sum(record)
        schema, _ = record["schema"], record["type"]
        if b"\\u" in line:
            json.dumps(record, ensure_ascii=False).encode()  # half of a surrogate pair is not text
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if schema != SCHEMA:
        raise UsageError(f"{path} has records of schema {schema}; this version reads schema {SCHEMA}")
    return record


def check_sum(record: Record) -> None:
    """Removes the checksum from a line; raises ValueError if it does not match the line.

    Older lines have none; but a last field that matches under another name is a checksum whose name was damaged.
    """
    if not isinstance(record, dict) or not record:
        raise ValueError("no object")
    last = next(reversed(record))
    if last == SUM or (isinstance(record[last], str) and len(record[last]) == DIGITS):
        rest = {name: value for name, value in record.items() if name != last}
        if (record[last] == digest(rest)) != (last == SUM):
            raise ValueError("wrong checksum")
    record.pop(SUM, None)


def complete(record: Record) -> bool:
    """Whether a header has its texts, a profile or timeline all axes, and a point these, a status, a key and samples.

    Samples may be missing or not finite.
    """
    texts = ("type", "key", *_TEXTS)
    if any(not isinstance(record[name], str) for name in texts if record.get(name) is not None):
        return False
    if record.get("key") is None:
        return False
    if record["type"] not in ("point", "profile", "timeline"):
        return True
    point, samples = record.get("point"), record.get("samples", {})
    if not isinstance(point, dict) or point.keys() - LATER_AXES.keys() != set(AXES):
        return False
    if not isinstance(point["rung"], str) or not isinstance(point["constants"], dict):
        return False
    if record["type"] != "point":
        return True
    sampled = isinstance(samples, dict) and all(
        isinstance(times, list) and numbers(times) for times in samples.values()
    )
    return "status" in record and sampled


def numbers(values: list[object]) -> bool:
    """Whether all are whole or floating-point numbers; booleans are not."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def make_folder(path: Path) -> None:
    """Makes the folder of a record file; raises UsageError where a file is in its place, and OSError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        file = next(folder for folder in path.parents if os.path.lexists(folder))
        raise UsageError(f"cannot write the record file {path}: {file} is not a folder") from None


class RecordWriter(Protocol):
    """A sink for a run's records: a file, or the other end of a connection.  ``previous`` are earlier records."""

    previous: Records

    def header(self, kind: str, data: Record) -> str:
        """Writes a header; returns the digest by which points name it."""
        ...

    def point(self, record: Record) -> Record:
        """Writes a finished point; returns the line as written."""
        ...


class RecordFile:
    """A record file opened for appending; each of its functions raises UsageError when it cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[bytes] | None = None  # lines of a batch
        try:
            make_folder(path)
            if path.exists() and not path.is_file():
                raise UsageError(f"cannot write the record file {path}: not a regular file")
            refuse_to_write(path)
            with path.open("ab+") as file:
                self.previous = read([path])
                self._refuse_another_file()
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    if file.read() != b"\n":
                        file.write(b"\n")  # closes off a torn line, so that it spoils no other
        except OSError as error:
            raise self._unwritable(error) from None
        self._headers = set(self.previous.headers)

    def _refuse_another_file(self) -> None:
        """Raises UsageError for a file with content of another kind; a first line may be torn."""
        if self.previous.headers or self.previous.points or not self.previous.unreadable:
            return
        if not lines_of(self.path)[0].startswith(START):
            raise UsageError(f"cannot write the record file {self.path}: it is another kind of file; name a new one")

    def header(self, kind: str, data: Record) -> str:
        """Writes a header unless the file has it; returns the digest by which points name it."""
        key = digest([kind, data])
        if key not in self._headers:
            self._headers.add(key)
            self._write({"schema": SCHEMA, "type": kind, "key": key, **data})
        return key

    def point(self, record: Record) -> Record:
        """Writes a finished point; returns the line as written."""
        line = {"schema": SCHEMA, "type": "point", **record}
        self._write(line)
        return line

    @contextmanager
    def batched(self) -> Iterator[None]:
        """Writes and flushes the lines of the block together, at its end: a flush can take 20 ms."""
        self._waiting = []
        try:
            yield
        finally:
            lines, self._waiting = self._waiting, None
            if lines:
                self._append(b"".join(lines))

    def _write(self, line: Record) -> None:
        as_read = json.loads(json.dumps(line))
        line = {**line, SUM: digest(as_read)}
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        if self._waiting is None:
            self._append(text)
        else:
            self._waiting.append(text)

    def _append(self, lines: bytes) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> UsageError:
        return UsageError(f"cannot write the record file {self.path}: {error.strerror}")
