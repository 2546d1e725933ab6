"""Keeps what this machine's nvcc makes of the kernels, for tests of the model of kernel times that have no nvcc.

    python scripts/measure/store_code.py opcodes     which opcodes, added to tests/predict/opcodes.txt
    python scripts/measure/store_code.py code        machine code of measured points: machine_code.json.xz beside it

``opcodes`` compiles every rung on one layer: a line of the versions of nvcc that were tried, then a line for each
opcode with its modifiers, followed by the versions that emit it where not all do.  ``code`` compiles the chosen points
of results/: for each program nvdisasm's text (without encodings, which the model does not read) and what its kernels
need; for each point its axes and measured time.
"""

import json
import lzma
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from alexconv.compiling import nvcc
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER, RUNGS
from alexconv.kernels.problem import H200
from alexconv.planning.points import Point
from alexconv.predict import accuracy, cubins, disassembly
from alexconv.records.store import Record, read
from alexconv.shapes import WORKLOADS

CHECKOUT = Path(__file__).resolve().parents[2]
FILES = ("h200-alexnet", "h200-main-job", "h200-frontier", "h200-lenet-2019", "h200-tune")
OPCODES, CODE = (CHECKOUT / "tests" / "predict" / name for name in ("opcodes.txt", "machine_code.json.xz"))
ARCH = "90a"
LAYERS = ("alexnet", 2), ("alexnet", 1), ("lenet-72-k7", 1), ("vgg16", 2)  # the first that a rung takes
CONTROL_SHIFT = 41  # bits of an instruction's second word that are not timing

_CONTROL = re.compile(r"^(\s+)/\* 0x(?P<word>[0-9a-f]{16}) \*/")
_INSTRUCTION = re.compile(r"^\s+(?P<at>/\*[0-9a-f]{4,}\*/)\s+(?P<text>.*?)\s*/\* 0x[0-9a-f]{16} \*/")
_PLACE = re.compile(r'^\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)')


def known_opcodes() -> dict[str, set[str]]:
    """The versions of nvcc that emit each opcode, by the opcode with its modifiers."""
    first, *lines = OPCODES.read_text().splitlines()
    rows = (line.split() for line in lines)
    return {form: set(versions or first.split()) for form, *versions in rows}


def emitted() -> Iterator[str]:
    """The opcodes of all rungs, with repeats; raises UnknownInstruction for an operand that cannot be read."""
    for rung in LADDER:
        convs = (WORKLOADS[name].layer(layer) for name, layer in LAYERS)
        bounds = (BoundRung(rung, conv, rung.resolve(conv, {}), H200) for conv in convs)
        bound = next(candidate for candidate in bounds if not candidate.refusal())
        text = disassembly.disassembled(nvcc.compile_cubin(rung.path, bound.macros, ARCH))
        for code in disassembly.kernels(text).values():
            yield from (".".join([instruction.name, *instruction.modifiers]) for instruction in code)


def store_opcodes() -> None:
    """Writes the list of opcodes."""
    version, forms = nvcc.nvcc_version(), known_opcodes()
    for form in set(emitted()):
        forms.setdefault(form, set()).add(version)
    versions = sorted(set().union(*forms.values()), key=lambda text: [int(part) for part in text.split(".")])
    lines = [" ".join(versions)]
    for form, emitting in sorted(forms.items()):
        lines.append(" ".join([form, *([] if len(emitting) == len(versions) else sorted(emitting))]))
    OPCODES.write_text("\n".join(lines) + "\n")
    print(f"{OPCODES.name}: {len(forms)} opcodes of nvcc {', '.join(versions)}")


def chosen(point: Record) -> bool:
    """Whether a point is kept."""
    layer, N, family = point["layer"], point["N"], RUNGS[point["rung"]].family
    if point["workload"] == "alexnet":
        small = {"single": (1, 32), "multi": (1, 32), "igemm": (1, 128), "mma": (1, 128)}
        study = family in ("tiles", "shared", "gemm") and N == 128 and "atomic" not in point["rung"]
        both = layer in (3, 4) and family in ("single", "multi")
        return (N in small.get(family, ()) and (both or layer == 3)) or (study and layer == 3)
    return point["workload"] == "lenet-70-k5" and layer == 2 and N == 1000 and family in ("tiles", "gemm")


def slim(text: str) -> str:
    """nvdisasm's text without encodings, alignment and folders."""
    slim_lines = []
    for line in text.splitlines():
        if match := _CONTROL.match(line):
            slim_lines.append(f"\t/* 0x{int(match['word'], 16) >> CONTROL_SHIFT << CONTROL_SHIFT:016x} */")
        elif match := _INSTRUCTION.match(line):
            slim_lines.append(f"\t{match['at']} {' '.join(match['text'].split())} /* 0x0000000000000000 */")
        elif match := _PLACE.match(line):
            slim_lines.append(f'\t//## File "{match["file"].rpartition("/kernels/")[2]}", line {match["line"]}')
        elif re.match(r"^(\.L|\$|\.text\.)\S*:", line) or line.startswith("\t.section"):
            slim_lines.append(line)
    return "\n".join(slim_lines) + "\n"


def store_code() -> None:
    """Writes the machine code of the chosen points."""
    programs: dict[str, Record] = {}
    points: list[Record] = []
    records = read([CHECKOUT / "results" / f"{name}.jsonl" for name in FILES])
    for record in accuracy.measured_points(records).values():
        point = accuracy.planned_point(record)
        if not chosen(point):
            continue
        bound = Point.from_axes(point).bound(H200)
        key = nvcc.cubin_key(bound.rung.path, bound.macros, ARCH)[:12]
        if key not in programs:
            cubin = nvcc.compile_cubin(bound.rung.path, bound.macros, ARCH)
            needs = cubins.needs(cubin, ARCH)
            programs[key] = {
                "text": slim(disassembly.disassembled(cubin)),
                "needs": {entry: [needs[entry].registers, needs[entry].static_shared] for entry in bound.entries()},
            }
        points.append({"point": point, "program": key, "ms": round(accuracy.median_ms(record), 5)})
    data = json.dumps({"programs": programs, "points": points}).encode()
    CODE.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(f"{CODE.name}: {len(points)} points, {len(programs)} programs, {CODE.stat().st_size} bytes")


if __name__ == "__main__":
    {"opcodes": store_opcodes, "code": store_code}[sys.argv[1]]()
