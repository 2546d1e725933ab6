"""What the model knows of each opcode: what it computes, its execution unit, and which modifiers matter.

An opcode or modifier that is not here stops the prediction: skipping it would silently weaken the model.
"""

import re
from dataclasses import dataclass

from alexconv.predict.disassembly import Instruction, Operand, UnknownInstruction

# The execution units of a scheduler's quarter of a multiprocessor; NONE takes only an issue slot.  FMA is either half
# of the FP32 unit, HEAVY the half that also multiplies integers; MEMORY is the queue to L1 and shared memory.
PIPES = ("NONE", "FMA", "HEAVY", "ALU", "HALF", "UNIFORM", "XU", "FP64", "TENSOR", "MEMORY", "CONTROL")

# The simulator's operations; FLOAT takes its time and computes nothing.
OPS = (
    *(
        "NOP",
        "FLOAT",
        "MOV",
        "HALF_CONSTANT",
        "CS2R",
        "IABS",
        "IMAD",
        "IADD3",
        "VIADD",
        "MINIMUM",
        "ADD_MINIMUM",
        "MINIMUM3",
        "FLOAT_MINIMUM",
        "FLOAT_SELECT",
    ),
    *("LEA", "SHF", "LOP3", "PLOP3", "PRMT", "SEL", "ISETP", "FSETP", "P2R", "R2P", "POPC", "I2F", "RECIPROCAL"),
    *("DOT", "IADD"),
    *("F2I", "LDC", "R2UR", "VOTE", "ELECT", "S2R", "SHFL", "SET_REGISTERS", "B2R"),
    *("BRA", "BRA_DIVERGENT", "CALL", "RET", "EXIT", "BSSY", "BSYNC", "BREAK", "BAR", "WARPSYNC"),
    *("LDG", "STG", "RED", "ATOM", "LDS", "STS", "LDSM", "LDL", "STL"),
    *("LDGSTS", "LDGDEPBAR", "DEPBAR", "SYNCS_EXCH", "SYNCS_ARRIVE", "SYNCS_WAIT", "TMA_BOX", "TMA_BULK"),
    *("MMA", "HGMMA", "PRODUCTS_ARRIVE", "PRODUCTS_WAIT"),
)

COMPARES = ("LT", "LE", "EQ", "NE", "GT", "GE", "NAN")  # the last: of floats that have no order

# Modifiers that change what is computed, each a bit; those of no consequence here are IGNORED.
MODIFIERS = (
    *("WIDE", "HI", "X", "U32", "S32", "U64", "S64", "SX32", "L", "R", "W", "EX", "AND", "OR", "XOR", "RP", "U16"),
    *("S16", "U8", "S8", "64", "128", "ANY", "BYPASS", "IM2COL", "IDX", "BFLY", "UP", "DOWN", "TRANS64", "A1T0", "F16"),
    *("TF32", "BF16", "16816", "1688", "16832", "SYNC", "ARV", "RED", "INC", "U", "F32", "LU", "32"),
)
IGNORED = frozenset(
    {
        *("LUT", "MOV", "IADD", "SHL", "E", "CONSTANT", "STRONG", "GPU", "SM", "SYS", "ADD", "FTZ", "RN", "RZ", "RM"),
        *("DEFER_BLOCKING", "RESULT", "REL", "NOINC", "NODEC", "ALL", "CTA", "IVALL", "LE", "MMA", "PACK_AB", "TRUNC"),
        *("NTZ", "DIV", "COLLECTIVE", "VIEW", "ASYNC", "S", "G", "PHASECHK", "TRYWAIT", "EXCH", "ARRIVE", "DEPBAR"),
        *("DEALLOC", "TRY_ALLOC", "CTAPOOL", "3D", "4D", "5D", "2D", "RCP", "EX2", "LG2", "RSQ", "SQRT", "RCP64H"),
        *("PF", "M88", "MT88", "2", "4", "T", "F", "B1", "B2", "B3", "DEFER", "SAT", "EXTRACT", "OCP"),
        *("ZFILL", "CONV", "RECONVERGENT", "RELIABLE", "CLEAR", "2A", "LO"),
    }
)


COMPILERS = "13.0 to 13.5"  # versions of nvcc whose opcodes are here: tests/predict/opcodes.txt


@dataclass(frozen=True)
class Opcode:
    """An opcode's operation and execution unit."""

    op: str
    pipe: str


# UTMACCTL.PF, the prefetch of a tensor map, costs its issue slot.  The 128 bytes that it moves, once per block
# while the block starts, are not modelled; neither is the wait of a first UTMALDG without it.
_UNITS = {  # names by operation and execution unit
    ("NOP", "NONE"): "NOP YIELD ERRBAR CGAERRBAR CCTL UTMACCTL ENDCOLLECTIVE ACQBULK PREEXIT MEMBAR FENCE",
    ("SET_REGISTERS", "NONE"): "USETMAXREG",
    ("B2R", "CONTROL"): "B2R",
    ("B2R", "XU"): "FCHK",  # says no: quotients of usual numbers need no slow path
    ("NOP", "CONTROL"): "BMOV",
    ("FLOAT", "FMA"): "FFMA FADD FMUL",
    ("FLOAT", "HEAVY"): "HFMA2 HADD2 HMUL2",
    ("FLOAT_MINIMUM", "ALU"): "FMNMX",
    ("FLOAT_SELECT", "ALU"): "FSEL",
    ("FLOAT", "ALU"): "HSETP2 HMNMX2 VHMNMX F2FP",
    ("FLOAT", "XU"): "F2F FRND",
    ("FLOAT", "FP64"): "DFMA DADD DMUL",
    ("MOV", "ALU"): "MOV",
    ("CS2R", "ALU"): "CS2R",
    ("IABS", "ALU"): "IABS",
    ("IMAD", "HEAVY"): "IMAD",
    ("IADD3", "ALU"): "IADD3",
    ("IADD", "ALU"): "IADD",
    ("VIADD", "ALU"): "VIADD",
    ("MINIMUM", "ALU"): "VIMNMX IMNMX",
    ("ADD_MINIMUM", "ALU"): "VIADDMNMX",
    ("MINIMUM3", "ALU"): "VIMNMX3",
    ("LEA", "ALU"): "LEA",
    ("SHF", "ALU"): "SHF",
    ("LOP3", "ALU"): "LOP3",
    ("PLOP3", "ALU"): "PLOP3",
    ("PRMT", "ALU"): "PRMT",
    ("SEL", "ALU"): "SEL",
    ("ISETP", "ALU"): "ISETP",
    ("FSETP", "ALU"): "FSETP",
    ("P2R", "ALU"): "P2R",
    ("R2P", "ALU"): "R2P",
    ("POPC", "XU"): "POPC",
    ("DOT", "HEAVY"): "IDP",
    ("I2F", "XU"): "I2F",
    ("RECIPROCAL", "XU"): "MUFU",
    ("F2I", "XU"): "F2I",
    ("LDC", "MEMORY"): "LDC",
    ("R2UR", "ALU"): "R2UR",
    ("VOTE", "ALU"): "VOTE VOTEU",
    ("ELECT", "ALU"): "ELECT",
    ("S2R", "XU"): "S2R S2UR",
    ("SHFL", "MEMORY"): "SHFL",
    ("BRA", "CONTROL"): "BRA",
    ("CALL", "CONTROL"): "CALL",
    ("RET", "CONTROL"): "RET",
    ("EXIT", "CONTROL"): "EXIT",
    ("BSSY", "CONTROL"): "BSSY",
    ("BSYNC", "CONTROL"): "BSYNC",
    ("BREAK", "CONTROL"): "BREAK",
    ("BAR", "CONTROL"): "BAR",
    ("WARPSYNC", "CONTROL"): "WARPSYNC",
    ("LDG", "MEMORY"): "LDG LD",
    ("STG", "MEMORY"): "STG ST",
    ("RED", "MEMORY"): "RED REDG",
    ("ATOM", "MEMORY"): "ATOM ATOMG",
    ("LDS", "MEMORY"): "LDS",
    ("STS", "MEMORY"): "STS",
    ("LDSM", "MEMORY"): "LDSM",
    ("LDL", "MEMORY"): "LDL",
    ("STL", "MEMORY"): "STL",
    ("LDGSTS", "MEMORY"): "LDGSTS",
    ("LDGDEPBAR", "NONE"): "LDGDEPBAR",
    ("DEPBAR", "NONE"): "DEPBAR",
    ("SYNCS_EXCH", "MEMORY"): "SYNCS",
    ("TMA_BOX", "MEMORY"): "UTMALDG",
    ("TMA_BULK", "MEMORY"): "UBLKCP",
    ("MMA", "TENSOR"): "HMMA",
    ("HGMMA", "TENSOR"): "HGMMA",
    ("PRODUCTS_ARRIVE", "NONE"): "WARPGROUP",
}
OPCODES = {name: Opcode(op, pipe) for (op, pipe), names in _UNITS.items() for name in names.split()}
_UNIFORM = ["MOV", "IMAD", "IADD3", "LEA", "SHF", "LOP3", "PLOP3", "PRMT", "SEL", "ISETP", "LDC", "P2R", "R2P", "POPC"]
_UNIFORM += ["VIMNMX", "I2F", "F2I"]
OPCODES |= {f"U{name}": Opcode(OPCODES[name].op, "UNIFORM") for name in _UNIFORM}
OPCODES["LDCU"] = OPCODES["ULDC"]
OPCODES["I2FP"] = Opcode("I2F", "ALU")
_SPECIAL = {
    ("SYNCS", "ARRIVE"): "SYNCS_ARRIVE",
    ("SYNCS", "PHASECHK"): "SYNCS_WAIT",
    ("WARPGROUP", "DEPBAR"): "PRODUCTS_WAIT",
    ("BRA", "DIV"): "BRA_DIVERGENT",
}
# The only forms of these opcodes that the model computes, up to their registers; warps converge, so that a branch of
# converged ones is taken.
_FORMS = {
    "BMOV": re.compile(r"BMOV\.32\.CLEAR RZ, B\d+"),
    "IADD": re.compile(r"IADD\.64 R\w+, [^P]"),
    "IDP": re.compile(r"IDP\.2A\.LO\.U16\.U8 "),
}
_MUFU_OTHER = frozenset({"EX2", "LG2", "RSQ", "SQRT", "SIN", "COS"})


def opcode(instruction: Instruction) -> Opcode:
    """The opcode of an instruction; raises UnknownInstruction."""
    known = OPCODES.get(instruction.name)
    form = _FORMS.get(instruction.name)
    if known is None or (form and not form.match(instruction.text)):
        raise UnknownInstruction(f"the model does not know the opcode {instruction.name}: {instruction.text}")
    for modifier in instruction.modifiers[:2]:
        if special := _SPECIAL.get((instruction.name, modifier)):
            return Opcode(special, known.pipe)
    if instruction.name == "HFMA2":
        pipe = "HALF" if "MMA" in instruction.modifiers else known.pipe
        return Opcode("HALF_CONSTANT" if _loads_a_constant(instruction.operands) else known.op, pipe)
    if instruction.name == "MUFU" and not _MUFU_OTHER.isdisjoint(instruction.modifiers):
        return Opcode("FLOAT", "XU")
    return known


def _loads_a_constant(operands: tuple[Operand, ...]) -> bool:
    """HFMA2 R, -RZ, RZ, high, low: two halves, as an integer constant."""
    return len(operands) == 5 and operands[1].kind == "R" and operands[1].number == 255


def modifier_bits(instruction: Instruction) -> int:
    """The modifiers that matter, as bits; raises UnknownInstruction for an unknown one."""
    bits = 0
    for modifier in instruction.modifiers:
        if modifier in MODIFIERS:
            bits |= 1 << MODIFIERS.index(modifier)
        elif modifier not in IGNORED and comparison(modifier) is None and not is_tile(modifier):
            raise UnknownInstruction(f"the model does not know the modifier {modifier}: {instruction.text}")
    return bits


def comparison(modifier: str) -> int | None:
    """The number of a comparison, or None; a form that is also true for unordered floats (LTU) counts as LT."""
    name = modifier.removesuffix("U") if modifier not in COMPARES else modifier
    return COMPARES.index(name) if name in COMPARES else None


def is_tile(modifier: str) -> bool:
    """Whether it is the extents of a warpgroup's product, such as 64x128x16."""
    words = modifier.split("x")
    return len(words) == 3 and all(word.isdecimal() for word in words)
