"""Adds the opcodes that this machine's nvcc emits to the list that the tests of the model are held to.

    NVCC=.../bin/nvcc python scripts/store_opcodes.py

Compiles every rung on one layer and rewrites tests/predict/opcodes.txt: a line of the versions of nvcc
that were tried, then a line for each opcode with its modifiers, followed by the versions that emit it where not all do.
"""

from collections.abc import Iterator
from pathlib import Path

from alexconv.compiling import nvcc
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import LADDER
from alexconv.kernels.problem import H200
from alexconv.predict import disassembly
from alexconv.predict.gpu import of_device
from alexconv.shapes import WORKLOADS

TARGET = Path(__file__).resolve().parent.parent / "tests" / "predict" / "opcodes.txt"
LAYERS = ("alexnet", 2), ("alexnet", 1), ("lenet-72-k7", 1), ("vgg16", 2)  # the first that a rung takes


def stored() -> dict[str, set[str]]:
    """The versions that emit each opcode, by the opcode with its modifiers; empty without a file."""
    if not TARGET.exists():
        return {}
    first, *lines = TARGET.read_text().splitlines()
    rows = (line.split() for line in lines)
    return {form: set(versions or first.split()) for form, *versions in rows}


def emitted() -> Iterator[str]:
    """The opcodes of all rungs, with repeats; raises UnknownInstruction for an operand that cannot be read."""
    arch = nvcc.arch_name(of_device(H200.name).capability)
    for rung in LADDER:
        convs = (WORKLOADS[name].layer(layer) for name, layer in LAYERS)
        bounds = (BoundRung(rung, conv, rung.resolve(conv, {}), H200) for conv in convs)
        bound = next(each for each in bounds if not each.refusal())
        text = disassembly.disassembled(nvcc.compile_cubin(rung.path, bound.macros, arch))
        for code in disassembly.kernels(text).values():
            yield from (".".join([each.name, *each.modifiers]) for each in code)


def main() -> None:
    """Writes the file."""
    version, forms = nvcc.nvcc_version(), stored()
    for form in set(emitted()):
        forms.setdefault(form, set()).add(version)
    versions = sorted(set().union(*forms.values()), key=lambda text: [int(part) for part in text.split(".")])
    lines = [" ".join(versions)]
    for form, emitting in sorted(forms.items()):
        lines.append(" ".join([form, *([] if len(emitting) == len(versions) else sorted(emitting))]))
    TARGET.write_text("\n".join(lines) + "\n")
    print(f"{TARGET.name}: {len(forms)} opcodes of nvcc {', '.join(versions)}")


if __name__ == "__main__":
    main()
