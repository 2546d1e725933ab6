"""Record files joined into one, line by line as they are."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.records.store import (
    KEYS,
    SCHEMA,
    SUM,
    Record,
    digest,
    identity,
    in_names_of_today,
    lines_of,
    parsed,
)


@dataclass
class Merged:
    """What was joined: lines of headers and of points, points that several files have, lines that were left out."""

    headers: int = 0
    points: int = 0
    again: int = 0
    unreadable: int = 0


def merge(paths: Sequence[Path], out: Path) -> Merged:
    """Writes the lines of record files to a new one: equal lines once, damaged ones not at all.

    Of a point that several files have, all records are kept; the last counts, as it does within a file.  Raises
    UsageError where ``out`` is there already or cannot be written.
    """
    found, lines, keys = Merged(), dict[bytes, None](), Record()
    of_keys: Record = {}
    names: set[str] = set()
    for path in paths:
        for line in lines_of(path):
            record = parsed(line, path)
            if record is None or in_names_of_today(record) is None:
                found.unreadable += 1
            elif record["type"] == KEYS:
                keys |= record["keys"]
                of_keys = record
            elif line not in lines:
                lines[line] = None
                if record["type"] == "point":
                    name = identity(record["point"])
                    found.points, found.again = found.points + 1, found.again + (name in names)
                    names.add(name)
                else:
                    found.headers += 1
    if keys:
        rest = {name: value for name, value in of_keys.items() if name not in ("schema", "type", "key")} | {KEYS: keys}
        header = {"schema": SCHEMA, "type": KEYS, "key": digest([KEYS, rest]), **rest}
        lines[json.dumps({**header, SUM: digest(header)}, separators=(",", ":")).encode()] = None
    _write(list(lines), out)
    return found


def _write(lines: Sequence[bytes], out: Path) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("xb") as file:
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise UsageError(f"{out} is there already: nothing is overwritten; name another file") from None
    except OSError as error:
        raise UsageError(f"cannot write the record file {out}: {error.strerror}") from None
