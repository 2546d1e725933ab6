"""Carries records over to the current keys: python scripts/rekey.py results/*.jsonl

Records made before kernels were moved and renamed have keys of the code at commit 4ad6089.  For each point whose key
that code still gives, what ran then is compared with what would run now.  Where machine code, resources, launches,
arrays and tolerance are the same, the point gets its current key, in a header of type ``keys`` appended to its file;
the rest of the file stays as it is.  nvcc must be the one that the records name; no GPU is needed.
With ``--before COMMIT`` the keys are those of that commit's code, which has a rekey.py of its own.  The checks' code,
which a key has too, is not compared: carry records over only where the checks of then were as strict.

The table counts, for each file, the points that are carried over, those that were stale before or made later, and those
that would run something else now, by what differs first.
"""

import argparse
import json
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cubin import behaviour

from alexconv.compiling import nvcc
from alexconv.errors import CompileError
from alexconv.executors.cuda.executor import CudaExecutor
from alexconv.files import unpack
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.problem import H200
from alexconv.kernels.rung import BATCH
from alexconv.machine import cores
from alexconv.measuring.runner import Runner, Settings
from alexconv.measuring.sequences import RungSequence, SequenceRunner
from alexconv.measuring.torch_peers import TorchRunner
from alexconv.planning.checks import PRECISIONS
from alexconv.planning.points import LayerSequence, Point
from alexconv.records.environment import git_facts
from alexconv.records.names import in_present_names
from alexconv.records.store import KEYS, Record, RecordFile, complete, digest, line_name
from alexconv.shapes import WORKLOADS

BEFORE = "4ad60895f98fa9f7162fae5f6e000b5b504bbc6c"
SCRIPTS = Path(__file__).resolve().parent
CARRIED, STALE = "carried over", "stale before, or made later"
FIXED_ARGUMENTS = ("x", "w", "y", BATCH)


class Changed(Exception):
    """A point would not run as it did; the text says what differs."""


class RecordedGpu:
    """The GPU of a record, as far as keys depend on it."""

    device = H200
    name, opens, open = CudaExecutor.name, CudaExecutor.opens, CudaExecutor.open

    def __init__(self, header: Record) -> None:
        self._header, self.arch = header, nvcc.arch_name(tuple(header["compute_capability"]))
        known = {"name": H200.name, "multiprocessors": H200.multiprocessors, "l2_bytes": H200.l2_bytes}
        tools = {"toolkit": nvcc.nvcc_version(), "nvcc_flags": list(nvcc.FLAGS)}
        if other := {name: header[name] for name, value in (known | tools).items() if header[name] != value}:
            raise Changed(f"other {', '.join(f'{name} ({value})' for name, value in other.items())}")

    def header(self) -> Record:
        """The header, which keys cover as a whole."""
        return self._header

    def key(self, bound: BoundRung) -> str:
        """What CudaExecutor.key is on this GPU."""
        return nvcc.cubin_key(bound.rung.path, bound.macros, self.arch)


class RecordedPeers(TorchRunner):
    """Peers of the versions that a record names."""

    def __init__(self, versions: Record, executor: RecordedGpu, runner: Runner) -> None:
        self.executor, self._runner = executor, runner
        self._versions = {name: versions[name] for name in ("torch", "cudnn", "cuda")}

    def versions(self) -> Record:
        """The versions."""
        return self._versions


def records_of(path: Path) -> list[Record]:
    """The points of a file as written there, with ``device`` and ``command`` in the headers' place.

    ``known`` is the key that the last header of keys gives the point, or its own.
    """
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    headers = {line["key"]: line for line in lines if line["type"] != "point"}
    devices = {
        key: {name: value for name, value in header.items() if name not in ("schema", "type", "key", "sum")}
        for key, header in headers.items()
    }
    keys = known_keys(lines)
    return [
        line
        | {"device": devices[line["device"]], "command": headers[line["run"]]["command"]}
        | {"known": keys.get(line_name(line), line["key"])}
        for line in lines
        if line["type"] == "point" and complete(line)
    ]


def known_keys(lines: Sequence[Record]) -> dict[str, str]:
    """The keys that the last header of keys gives to lines of points, by their names."""
    headers = [line[KEYS] for line in lines if line["type"] == KEYS]
    return dict(headers[-1]) if headers else {}


def ask_before(records: Sequence[Record], tree: Path, commit: str = BEFORE) -> list[Record]:
    """What the code of a commit says about each record, as keys_before.py or keys_of_tree.py gives it."""
    archive = subprocess.run(["git", "archive", commit], cwd=SCRIPTS.parent, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        unpack(files, tree)
    paths = [str(tree), str(tree / "scripts")]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {paths!r}; exec(open(sys.argv[1]).read())"]
    asked = [
        {name: value for name, value in record.items() if name not in ("samples", "timeline")} for record in records
    ]
    script = str(SCRIPTS / ("keys_before.py" if commit == BEFORE else "keys_of_tree.py"))
    done = subprocess.run([*command, script], input=json.dumps(asked), capture_output=True, text=True, check=True)
    answers: list[Record] = json.loads(done.stdout)
    return answers


def entries(kernel: Record) -> list[str]:
    """The entry points that are launched, each once."""
    *_, launches, _, _ = kernel["facts"]
    return list(dict.fromkeys(launch["entry"] for launch in launches))


def unnamed(kernel: Record) -> Any:
    """The facts of a kernel's launches, with numbers in the places of names."""
    dtype, layout, constant_symbol, launches, arrays, maps = kernel["facts"]
    numbers = {name: name for name in FIXED_ARGUMENTS}

    def number(name: str) -> str:
        return numbers.setdefault(name, f"#{len(numbers)}")

    mapped = {name: array for name, array, *_ in maps}
    found, order = [], entries(kernel)
    for launch in launches:
        arguments = []
        for name in launch["args"]:
            arguments.append(number(name))
            if name in mapped:
                number(mapped[name])
        sizes = [launch[name] for name in ("grid", "block", "dynamic_shared", "pdl")]
        found.append([order.index(launch["entry"]), arguments, sizes])
    own_arrays = {numbers.get(name, "unused"): nbytes for name, nbytes in arrays}
    own_maps = {numbers[name]: [numbers[array], *rest] for name, array, *rest in maps}
    return json.loads(json.dumps([dtype, layout, constant_symbol is None, found, own_arrays, own_maps]))


def ran_now(record: Record) -> list[Record]:
    """What a record in current names would run now; raises Changed."""
    point = record["point"]
    planned = {
        "constants": record.get("planned_constants", point["constants"]),
        "images_per_piece": record.get("images_per_piece", point["N"]),
    }
    found = []
    for each in record.get("layers") or [point | planned]:
        rung, conv = RUNGS.get(each["rung"]), WORKLOADS[point["workload"]].layer(each["layer"])
        if rung is None:
            raise Changed("no such rung")
        if {constant.name for constant in rung.constants} != set(each["constants"]):
            raise Changed("other constants")
        bound = BoundRung(rung, conv, each["constants"], H200)
        facts = bound.launch_facts(each["images_per_piece"])
        found.append({"source": str(rung.path), "macros": bound.macros, "facts": facts})
    return found


def present_key(record: Record, settings: Settings, gpu: RecordedGpu) -> str:
    """The key that a record in current names has now; raises Changed."""
    point = record["point"]
    axes = {name: value for name, value in point.items() if name != "layer"}
    runner = Runner(gpu, [], settings)
    if "layers" in record:
        chosen = tuple(
            Point(**point | {name: layer[name] for name in ("layer", "rung", "constants")})
            for layer in record["layers"]
        )
        layers = tuple(each.layer for each in chosen)
        return SequenceRunner(gpu, runner).key(RungSequence(**axes, layers=layers, chosen=chosen))
    if "peer" in record:
        first, _, last = str(point["layer"]).partition("-")
        layers = tuple(range(int(first), int(last or first) + 1))
        peer = LayerSequence(**axes, layers=layers) if last else Point(**point)
        return RecordedPeers(record["peer"], gpu, runner).key(peer)
    return runner.key(Point(**point))


def tolerance(record: Record) -> float:
    """The tolerance that the point has now; of several layers, that of the layer with the worst error then."""
    convs = WORKLOADS[record["point"]["workload"]].layers
    of = PRECISIONS[record["point"]["precision"]].tolerance
    found = [of(conv.K) for conv in convs]
    recorded = record["error"]["tolerance"]
    own = [found[layer["layer"] - 1] for layer in record.get("layers", [])] or found
    return recorded if recorded in own else own[0]


class Comparison:
    """Compares machine code of then and now, each pair once."""

    def __init__(self) -> None:
        self.pairs: dict[str, tuple[Record, Record, str]] = {}
        self.differs: dict[str, str | None] = {}

    def add(self, before: Record, now: Record, arch: str) -> str:
        """Asks for a pair; returns its name."""
        name = digest([before["source"], before["macros"], now["source"], now["macros"], arch])
        self.pairs[name] = (before, now, arch)
        return name

    def compile(self) -> None:
        """Compares all pairs."""
        with ThreadPoolExecutor(cores()) as pool:
            for done, differs in enumerate(pool.map(self._compared, self.pairs.items()), 1):
                self.differs |= differs
                if done % 10 == 0:
                    print(f"{done} of {len(self.pairs)} kernels compared", file=sys.stderr)

    def _compared(self, named: tuple[str, tuple[Record, Record, str]]) -> dict[str, str | None]:
        name, (*both, arch) = named
        try:
            then, now = (nvcc.compile_cubin(Path(each["source"]), each["macros"], arch) for each in both)
        except CompileError:
            return {name: "does not compile"}
        same = behaviour(then, entries(both[0])) == behaviour(now, entries(both[1]))
        return {name: None if same else "other machine code"}


def rekey(paths: Iterable[Path], *, write: bool, commit: str = BEFORE) -> dict[Path, Counter[tuple[str, str]]]:
    """Carries the points of files over; returns for each file the number of points by outcome and rung."""
    found = {path: records_of(path) for path in paths}
    outcomes: dict[Path, Counter[tuple[str, str]]] = {path: Counter() for path in found}
    keys: dict[Path, dict[str, str]] = {path: {} for path in found}
    comparison, waiting = Comparison(), []
    with TemporaryDirectory() as folder:
        answers = ask_before([record for records in found.values() for record in records], Path(folder), commit)
        asked = [(path, record) for path, records in found.items() for record in records]
        for (path, record), before in zip(asked, answers, strict=True):
            present, needed = in_present_names(record), []
            try:
                if before["key"] not in (record["key"], record["known"]):
                    raise Changed(STALE)
                gpu = RecordedGpu(record["device"])
                if present["status"] == "skipped":
                    refused(present)
                elif "peer" not in present:
                    now = ran_now(present)
                    if [unnamed(each) for each in now] != [unnamed(each) for each in before["kernels"]]:
                        raise Changed("other launches")
                    needed = [comparison.add(*pair, gpu.arch) for pair in zip(before["kernels"], now, strict=True)]
                key = present_key(present, Settings(**before["settings"]), gpu)
                if "error" in present and tolerance(present) != present["error"]["tolerance"]:
                    raise Changed("other tolerance")
                waiting.append((path, record, present, key, needed))
            except Changed as reason:
                outcomes[path][str(reason), present["point"]["rung"]] += 1
        comparison.compile()
    for path, record, present, key, needed in waiting:
        reasons = [comparison.differs[name] for name in needed if comparison.differs[name]]
        outcomes[path][reasons[0] if reasons else CARRIED, present["point"]["rung"]] += 1
        if not reasons:
            keys[path][line_name(record)] = key
    if write:
        for path in found:
            if keys[path]:
                lines = [json.loads(line) for line in path.read_bytes().splitlines()]
                named = known_keys(lines) | keys[path]
                RecordFile(path).header(KEYS, {"before": commit, "now": git_facts().get("commit"), KEYS: named})
    return outcomes


def refused(record: Record) -> None:
    """Raises Changed unless a point that was skipped still would be."""
    point = record["point"]
    rung, conv = RUNGS.get(point["rung"]), WORKLOADS[point["workload"]].layer(point["layer"])
    if rung is None or not BoundRung(rung, conv, point["constants"], H200).refusal():
        raise Changed("no longer skipped")


def main(arguments: Sequence[str] | None = None) -> int:
    """Converts the files and prints the table."""
    parser = argparse.ArgumentParser(description="give records the current keys where their kernels are unchanged")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="record files")
    parser.add_argument("--dry-run", action="store_true", help="only print the table")
    parser.add_argument("--before", default=BEFORE, metavar="COMMIT", help="commit whose keys the records have")
    options = parser.parse_args(arguments)
    outcomes = rekey(options.files, write=not options.dry_run, commit=options.before)
    for path, counts in outcomes.items():
        by_outcome: Counter[str] = Counter()
        for (outcome, _), count in counts.items():
            by_outcome[outcome] += count
        print(f"{path}: {counts.total()} points", *(f"{count} {what}" for what, count in by_outcome.items()), sep=", ")
        for outcome in by_outcome.keys() - {CARRIED}:
            print(f"    {outcome}:", ", ".join(sorted(rung for what, rung in counts if what == outcome)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
