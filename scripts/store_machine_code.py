"""Keeps machine code of measured points for the test of predicted times, which must run without nvcc.

    python scripts/store_machine_code.py

Compiles the chosen points of results/ and writes tests/predict/machine_code.json.xz: for each program nvdisasm's
text (without encodings, which the model does not read) and what its kernels need; for each point its axes and measured
time.
"""

import json
import lzma
import re
from pathlib import Path

from alexconv.compiling import nvcc
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import RUNGS
from alexconv.predict import accuracy, cubins, disassembly
from alexconv.records.store import Record, read

CHECKOUT = Path(__file__).resolve().parent.parent
FILES = ("h200-alexnet", "h200-main-job", "h200-frontier", "h200-lenet-2019", "h200-tune")
TARGET = CHECKOUT / "tests" / "predict" / "machine_code.json.xz"
ARCH = "90a"
CONTROL_SHIFT = 41  # bits of an instruction's second word that are not timing

_CONTROL = re.compile(r"^(\s+)/\* 0x(?P<word>[0-9a-f]{16}) \*/")
_INSTRUCTION = re.compile(r"^\s+(?P<at>/\*[0-9a-f]{4,}\*/)\s+(?P<text>.*?)\s*/\* 0x[0-9a-f]{16} \*/")
_PLACE = re.compile(r'^\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)')


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
    kept = []
    for line in text.splitlines():
        if match := _CONTROL.match(line):
            kept.append(f"\t/* 0x{int(match['word'], 16) >> CONTROL_SHIFT << CONTROL_SHIFT:016x} */")
        elif match := _INSTRUCTION.match(line):
            kept.append(f"\t{match['at']} {' '.join(match['text'].split())} /* 0x0000000000000000 */")
        elif match := _PLACE.match(line):
            kept.append(f'\t//## File "{match["file"].rpartition("/kernels/")[2]}", line {match["line"]}')
        elif re.match(r"^(\.L|\$|\.text\.)\S*:", line) or line.startswith("\t.section"):
            kept.append(line)
    return "\n".join(kept) + "\n"


def main() -> None:
    """Writes the file and says how large it is."""
    programs: dict[str, Record] = {}
    points: list[Record] = []
    records = read([CHECKOUT / "results" / f"{name}.jsonl" for name in FILES])
    for record in accuracy.measured_points(records).values():
        point = accuracy.planned_point(record)
        if not chosen(point):
            continue
        bound = BoundRung(RUNGS[point["rung"]], accuracy.as_point(point).conv, point["constants"])
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
    TARGET.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(
        f"{TARGET.relative_to(CHECKOUT)}: {len(points)} points, {len(programs)} programs, {TARGET.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main()
