"""A record file to send to others: the measurements of one, without names of hosts, users and single cards.

Nothing is searched for and removed: each field that may stay is listed here with the values that it may have, and all
else is left out.  So are rungs that are not this project's, whose names are their authors'.  Only reasons of failures
are free text: paths, addresses, serial numbers and this machine's names are replaced in them.
"""

import getpass
import os
import platform
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from alexconv.errors import UsageError
from alexconv.kernels.ladder import ALL_DIRECTIONS
from alexconv.planning.peers import ALL_PEERS
from alexconv.planning.points import rungs_by_word
from alexconv.records.labels import MIXED, SEQUENCE_SUFFIX, SHARED
from alexconv.records.store import AXES, LATER_AXES, MIX, Record, RecordFile, Records, read

DIGITS = 8  # of a file's content, in its name
LEAST_NAME = 3  # letters of a name that is replaced in a reason
REMOVED = "…"

_MODEL = re.compile(r"[\w ()/@.,+-]{1,80}")
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc|\.?dev|\.post)\d+)?")
_WORD = re.compile(r"[\w.+-]{1,60}")
_FLAG = re.compile(r"-{1,2}\w[\w=+-]*")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_DIGEST = re.compile(r"[0-9a-f]{16}")
_TIME = re.compile(r"[\d:T+-]{10,40}")
_COMPILER = re.compile(r"(g\+\+|clang)[^\d]*?.*?(\d+\.\d+\.\d+)")
_SYSTEM = re.compile(r"(\w+) (\d+\.\d+)")
_PRIVATE = re.compile(
    r"(GPU|MIG)-[0-9a-f-]{8,}"  # serial numbers of cards
    r"|\w+://\S+|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|\S+@\S+"  # addresses
    r"|(?<![\w<])~?(/[^\s:'\"()]+)+"  # paths
)
# Options of alexconv run whose values this project defines: numbers, and words of its tables.
_FLAGS = frozenset({"together", "sequence", "tuned", "verify-only", "no-baseline", "predict"})
_OPTIONS = frozenset(
    {
        *("workload", "layers", "N", "transfer", "precision", "data", "seed", "study", "peers", "backend", "set"),
        *("host-build", "host-order", "memory-budget", "seconds", "sustained", "time-limit", "rungs", "direction", MIX),
    }
)
_PEERS = frozenset(peer.name for peer in ALL_PEERS)

LINKS = ("device", "host", "run")  # headers that lines name
PREDICTION = "prediction"
BELONGING = ("end", "ceilings", PREDICTION)  # headers that belong to a run

Filter = Callable[[Any], Any]  # what may stay of a field's value; None if nothing may
Allowed = Mapping[str, Mapping[str, Filter]]  # the fields that stay of each type of line


def what_stays(keep: Filter, value: Any) -> Any:
    """What a filter lets stay of a value; nothing of one that no run writes."""
    try:
        return keep(value)
    except (AttributeError, LookupError, TypeError, ValueError):
        return None


def text(pattern: re.Pattern[str]) -> Filter:
    """A text that matches as a whole."""
    return lambda value: value if isinstance(value, str) and pattern.fullmatch(value) else None


def version(value: Any) -> str | None:
    """The public part of a version: what a build adds after it may name who built it."""
    parts = _VERSION.match(value) if isinstance(value, str) else None
    return parts[0] if parts else None


def compiler(value: Any) -> str | None:
    """A compiler's name and version, without its distributor's words."""
    parts = _COMPILER.match(value) if isinstance(value, str) else None
    return f"{parts[1]} {parts[2]}" if parts else None


def system(value: Any) -> str | None:
    """The system, the first two numbers of its version, and whether it is Windows' subsystem for Linux."""
    parts = _SYSTEM.match(value) if isinstance(value, str) else None
    return f"{parts[1]} {parts[2]}{' WSL' if 'microsoft' in value.lower() else ''}" if parts else None


def figures(value: Any) -> Any:
    """Numbers, truth values and versions, in lists and by name."""
    if isinstance(value, Mapping):
        return {name: stays for name, item in value.items() if (stays := figures(item)) is not None}
    if isinstance(value, list):
        return [stays for item in value if (stays := figures(item)) is not None]
    return version(value) if isinstance(value, str) else value


def flags(value: Any) -> list[str]:
    """Those of a list of options that name no file."""
    return [flag for flag in value if _FLAG.fullmatch(flag)]


def named(*names: str) -> Filter:
    """Dictionaries in a list with these texts, and their numbers."""

    def items(value: Any) -> list[Record]:
        texts = [{name: item[name] for name in names if _WORD.fullmatch(str(item.get(name)))} for item in value]
        return [own | figures(item) for own, item in zip(texts, value, strict=True)]

    return items


def audit(value: Any) -> Record:
    """An audit's numbers and digests."""
    digests = {name: text(_DIGEST)(value.get("digests", {}).get(name)) for name in ("inputs", "outputs")}
    counts: Record = figures({name: item for name, item in value.items() if name != "digests"})
    return counts | ({"digests": digests} if all(digests.values()) else {})


def command(value: Any) -> str:
    """The command line, as far as its options are listed above."""
    words = shlex.split(value)
    parts, known = ["python -m alexconv.run"], rungs_by_word(ALL_DIRECTIONS)
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, own = word.removeprefix("--").partition("=")
        argument = own if equals else following
        if not word.startswith("--") or name not in _FLAGS | _OPTIONS:
            continue
        if name == "rungs":
            argument = ",".join(rung for rung in argument.split(",") if rung in known or rung.startswith("auto"))
        if name == MIX and not rungs_of_mix(argument) <= known.keys():
            continue
        parts += [word] if name in _FLAGS else [f"--{name}", argument] if re.fullmatch(r"[\w.,:=-]+", argument) else []
    return " ".join(parts)


def point(value: Any) -> Record:
    """A point's axes: of this project's rungs all of them are words of its tables."""
    return {axis: value[axis] for axis in (*AXES, *LATER_AXES) if axis in value}


def reason(names: Collection[str]) -> Filter:
    """A free text without paths, addresses, serial numbers and these names."""
    longest_first = sorted(names, key=len, reverse=True)
    hidden = re.compile("|".join(rf"\b{re.escape(name)}\b" for name in longest_first) or r"(?!)", re.IGNORECASE)
    return lambda value: hidden.sub(REMOVED, _PRIVATE.sub(REMOVED, value)) if isinstance(value, str) else None


def names_here() -> set[str]:
    """This machine's names and this user's, which a compiler's message may contain."""
    node, home = platform.node(), Path.home().name
    user = os.environ.get("USER") or getpass.getuser()
    names = {node, node.partition(".")[0], home, user, os.environ.get("SUDO_USER", "")}
    return {name for name in names if len(name) >= LEAST_NAME}


def fields(names: Collection[str]) -> Allowed:
    """The fields that stay of each type of line, and what may stay of each."""
    word, free = text(_WORD), reason(names)
    status: Mapping[str, Filter] = {"status": word, "reason": free}
    return {
        "device": {
            **dict.fromkeys(("backend", "build"), word),
            **dict.fromkeys(("name", "cpu"), text(_MODEL)),
            **dict.fromkeys(("cuda_driver", "toolkit", "driver"), version),
            **dict.fromkeys(("compute_capability", "multiprocessors", "l2_bytes", "memory_bytes"), figures),
            **dict.fromkeys(("memory_bus_bits", "clock_khz", "memory_clock_khz", "max_sm_clock_mhz"), figures),
            **dict.fromkeys(("workers", "order", SHARED), figures),
            **{"nvcc_flags": flags, "kernels_launched": text(re.compile("as a graph")), "compiler": compiler},
        },
        "host": {"cpu": text(_MODEL), "cores": figures, "system": system},
        "run": {
            **dict.fromkeys(("sampling", "sustained_seconds", "packages", "dirty"), figures),
            **dict.fromkeys(("alexconv", "python"), version),
            **{"command": command, "commit": text(_COMMIT), "method": text(re.compile("predicted"))},
        },
        "end": {"ended": text(_TIME), **dict.fromkeys(("seconds", "points", "kept"), figures)},
        "ceilings": dict.fromkeys(("copy_bytes_per_s", "h2d_bytes_per_s", "d2h_bytes_per_s", "flops"), figures),
        PREDICTION: {
            **status,
            **{"point": point, "gpu": word, "launches": named("entry", "limit")},
            **dict.fromkeys(("ms", "band_ms"), figures),
        },
        "point": {
            **status,
            **{"time": text(_TIME), "point": point, "launches": named("entry"), "timeline": named("what")},
            **{"key": word, "changed": lambda value: value},
            **dict.fromkeys(("error", "exact", "pieces", "images_per_piece", "planned_constants"), figures),
            **dict.fromkeys(("device_bytes", "cpu", "samples", "health", "throttled", "under_load"), figures),
            **dict.fromkeys(("spread", "peer", "again"), figures),
            "audit": audit,
        },
    }


def rungs_of_mix(text: str) -> set[str]:
    """The words for rungs in a mix, such as ``1=direct,2=tiled:TILE=8``."""
    return {entry.partition("=")[2].partition(":")[0] for entry in text.split(",")}


def is_ours(record: Record) -> bool:
    """Whether a line is of no rung, or of this project's rungs and peers."""
    point = record.get("point") or {}
    name, mix = point.get("rung", ALL_DIRECTIONS[0].name).removesuffix(SEQUENCE_SUFFIX), str(point.get(MIX, ""))
    names = (rungs_of_mix(mix) if mix else set()) | ({name} if name != MIXED or not mix else set())
    return names <= ALL_DIRECTIONS.named.keys() | _PEERS


@dataclass(frozen=True)
class SharedFile:
    """A file to send, its points, and the rungs that it leaves out."""

    path: Path
    points: int
    left_out: tuple[str, ...]


def share(source: Path, names: Collection[str] | None = None) -> SharedFile:
    """Writes the file to send beside a record file, under its card's name; raises UsageError if there are no points.

    It has the last record of each point.  The same records give the same file, and one of these gives itself.
    """
    records = read([source])
    latest = [record for record in records.latest() if is_ours(record)]
    if not latest:
        raise UsageError(f"{source} has no points of this project's rungs to share")
    unnamed = source.with_name(f"{source.name}.sharing")
    unnamed.unlink(missing_ok=True)
    try:
        write(RecordFile(unnamed), records, latest, fields(names_here() if names is None else names))
        content = sha256(unnamed.read_bytes()).hexdigest()[:DIGITS]
        devices = [records.headers.get(record.get("device", ""), {}) for record in reversed(latest)]
        card = next((device for device in devices if device.get("name")), devices[0])
        path = source.with_name(f"{card_name(card)}-{content}.jsonl")
        unnamed.replace(path)
    finally:
        unnamed.unlink(missing_ok=True)
    others = {str(record["point"]["rung"]) for record in records.points if not is_ours(record)}
    return SharedFile(path, len(latest), tuple(sorted(others)))


def card_name(device: Record) -> str:
    """A device as the name of a file: ``nvidia-geforce-rtx-4090``; without a GPU the CPU."""
    name = text(_MODEL)(device.get("name") or device.get("cpu")) or "unnamed"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def write(file: RecordFile, records: Records, latest: Sequence[Record], allowed: Allowed) -> None:
    """Writes what may stay of the points, of the headers that they name, and of what else belongs to those."""
    used = {record.get(kind) for record in latest for kind in LINKS}
    others = [header for header in records.headers.values() if header["type"] in BELONGING and is_ours(header)]
    used |= {header.get(kind) for header in others for kind in LINKS if header["type"] == PREDICTION}
    keys: dict[str, str] = {}

    def public_part(line: Record) -> Record:
        filters = allowed[line["type"]]
        stays = {name: what_stays(filters[name], value) for name, value in line.items() if name in filters}
        links = {kind: keys[line[kind]] for kind in LINKS if line.get(kind) in keys}
        return links | {name: value for name, value in stays.items() if value is not None or name == "reason"}

    with file.batched():
        for key, header in records.headers.items():
            if key in used and header["type"] in LINKS:
                shared = {SHARED: True} if header["type"] == "device" else {}
                keys[key] = file.header(header["type"], public_part(header) | shared)
        for record in latest:
            file.point(public_part(record))
        for header in others:
            if header.get("run") in keys:
                file.header(header["type"], public_part(header))
