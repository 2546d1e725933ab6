"""Record files joined into one, line by line as they are."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.messages import plural
from alexconv.records.compressed import refuse_to_write
from alexconv.records.store import complete, identity, lines_of, make_folder, parsed


@dataclass
class Merged:
    """A merge's counts: lines of headers and of points, points that several files have, lines that were left out."""

    headers: int = 0
    points: int = 0
    again: int = 0
    unreadable: int = 0


def merge(paths: Sequence[Path], out: Path) -> Merged:
    """Writes the lines of record files to a new one: equal lines once, damaged ones not at all.

    All records of a point that several files have are kept; the last of each model of device counts, as it does within
    a file, so a line is written again after others of its point.  One file at a time is in memory; of the others,
    digests of lines and points.  Raises UsageError if ``out`` exists or cannot be written, for a file that cannot be
    read, and where no file has a record; no new file is left then.
    """
    counts = Merged()
    try:
        refuse_to_write(out)
        make_folder(out)
        with out.open("xb") as file, _gone_if_it_fails(out):
            file.writelines(line + b"\n" for line in _joined(paths, counts))
            file.flush()
            os.fsync(file.fileno())
            if not counts.headers + counts.points:
                raise UsageError(f"no record in {plural(counts.unreadable, 'line')}: are these record files?")
    except FileExistsError:
        raise UsageError(f"{out} exists already and is not overwritten: name another file") from None
    except OSError as error:
        raise UsageError(f"cannot write the record file {out}: {error.strerror}") from None
    return counts


def _joined(paths: Sequence[Path], counts: Merged) -> Iterator[bytes]:
    """The lines of the joined file, counted in ``counts``."""
    written, last = set[bytes](), dict[bytes, bytes]()  # lines of headers; the last line of each point on each model
    models = dict[str, str]()  # of devices
    for path in paths:
        for line in filter(None, lines_of(path)):
            record = parsed(line, path)
            if record is None or not complete(record):
                counts.unreadable += 1
                continue
            line_digest = sha256(line).digest()
            if record["type"] == "point":
                model = models.get(str(record.get("device")))
                point = sha256(f"{identity(record['point'])} {model}".encode()).digest()
                if last.get(point) != line_digest:
                    counts.points, counts.again = counts.points + 1, counts.again + (point in last)
                    last[point] = line_digest
                    yield line
            elif line_digest not in written:
                models[record["key"]] = str(record.get("name"))
                written.add(line_digest)
                counts.headers += 1
                yield line


@contextmanager
def _gone_if_it_fails(path: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        path.unlink()
        raise
