"""Finds and runs nvdisasm, and parses its text into typed instructions.

Only the text of ``nvdisasm -c -hex -g`` is read.  The upper 64 bits of an instruction hold the compiler's control bits:
stall cycles until the warp's next instruction, the scoreboards that it sets and those that it waits for.  Their places
have been the same since Volta (Jia et al., "Dissecting the NVIDIA Volta GPU architecture via microbenchmarking", 2018,
section 2.1; Huerta et al., "Analyzing modern NVIDIA GPU cores", 2025, section 4).
"""

import lzma
import re
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from alexconv.compiling.nvcc import find_nvcc
from alexconv.compiling.toolchain import program_of_wheel
from alexconv.errors import AlexconvError, CompileError, MachineFault, MissingTool
from alexconv.files import replacing
from alexconv.paths import cache_dir

BYTES = 16  # of an instruction
TIME_LIMIT = 120  # seconds for one cubin
NVDISASM_WHEEL = "nvidia-cuda-nvdisasm"

_ENTRY = re.compile(r"\.text\.(\S+):")
_LABEL = re.compile(r"(\.L\S*|\$\S+):")
_LINE = re.compile(r'\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)')
_INSTRUCTION = re.compile(
    r"\s+/\*(?P<at>[0-9a-f]{4,})\*/\s+\{?\s*(?P<text>.*?)\s*;?\s*\}?\s*/\* 0x(?P<low>[0-9a-f]{16}) \*/"
)
_CONTROL = re.compile(r"\s+/\* 0x(?P<high>[0-9a-f]{16}) \*/")
_NOTE = re.compile(r'\(\*".*?"\*\)')  # such as (*"SpillRefill"*)
_GUARD = re.compile(r"@(?P<not>!?)(?P<uniform>U?)P(?P<number>\d|T)\s+")
_TARGET = re.compile(r"([^,\s]) +`\(")  # RET has no comma before its function
_OPERANDS = re.compile(r",\s*(?![^\[]*\])")
_REGISTER = re.compile(r"(?P<kind>U?[RP])(?P<number>\d+|Z|T)")
_SUFFIXES = re.compile(r"\.(reuse|H0_H0|H1_H1|64|U32|F32)\b")
_SCALE = re.compile(r"\.X(4|8|16)\b")
_CONSTANT = re.compile(r"c\[(?P<bank>0x[0-9a-f]+)\]\s*\[(?P<inside>.*)\]")
_GLOBAL = re.compile(r"desc\[UR\d+\]\s*(?P<inside>\[.*\])")
_PRODUCT_OPERAND = re.compile(r"gdesc\[UR(?P<number>\d+|Z)\](\.tnsp[AB])*")
_HEX = re.compile(r"-?0x[0-9a-f]+")

NO_REGISTER, NO_UNIFORM, ALWAYS = 255, 63, 7  # RZ, URZ, PT
_NONE_OF = {"R": NO_REGISTER, "UR": NO_UNIFORM, "P": ALWAYS, "UP": ALWAYS}
_FLOATS = {"+INF": "inf", "-INF": "-inf", "+QNAN": "nan", "-QNAN": "nan"}


class UnknownInstruction(AlexconvError):
    """Machine code that the model cannot follow."""


@dataclass(frozen=True)
class Operand:
    """An operand of an instruction.

    ``kind`` is R, UR, P or UP (a register or predicate, whose ``number`` is that of RZ, URZ or PT where it has none),
    I (``value`` is the bits), C (constant bank ``bank``), M (memory), S (special register ``name``), L (label, whose
    instruction is ``value``), B (convergence barrier), G (descriptors of a matrix product) or X (ignored here).
    Memory and constants add registers ``number`` (times ``scale``), ``uniform`` and ``value``.  ``reused`` keeps a
    register's value in the operand reuse cache for the warp's next instruction.
    """

    kind: str
    number: int = NO_REGISTER
    value: int = 0
    uniform: int = NO_UNIFORM
    scale: int = 1
    bank: int = 0
    name: str = ""
    negative: bool = False
    inverted: bool = False
    reused: bool = False
    absolute: bool = False


@dataclass(frozen=True)
class Instruction:
    """One instruction of a kernel, and its source line.

    ``guard`` is its predicate.  ``stall`` is the cycles until the warp's next instruction; ``writes`` and ``reads`` are
    the scoreboards that track its results and its operands, if any; ``waits`` is the mask of those that it waits for.
    """

    text: str
    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Operand
    stall: int
    writes: int | None
    reads: int | None
    waits: int
    yields: bool
    file: str
    line: int


@cache
def find_nvdisasm() -> str:
    """nvdisasm on the PATH, next to nvcc, or in the wheel nvidia-cuda-nvdisasm; raises MissingTool."""
    if path := shutil.which("nvdisasm"):
        return path
    try:
        beside = shutil.which(str(Path(find_nvcc()).resolve().parent / "nvdisasm"))
    except MissingTool:
        beside = None
    if program := beside or program_of_wheel(NVDISASM_WHEEL, "nvdisasm"):
        return str(program)
    raise MissingTool("nvdisasm is not on this machine: pip install 'alexconv[predict]', or install the CUDA toolkit's")


def disassembled(cubin: bytes) -> str:
    """nvdisasm's text of a cubin, from the cache if it is there; raises MissingTool, CompileError and MachineFault."""
    path = cache_dir("disassembly") / f"{sha256(cubin).hexdigest()[:32]}.xz"
    try:
        return lzma.decompress(path.read_bytes()).decode()
    except (OSError, lzma.LZMAError):
        pass
    program = find_nvdisasm()
    try:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            command = [program, "-c", "-hex", "-g", file.name]
            done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        raise MachineFault(f"nvdisasm did not finish within {TIME_LIMIT} s; try again") from None
    except OSError as error:
        raise MachineFault(f"nvdisasm cannot run: {error.strerror}; try again") from None
    if done.returncode:
        raise CompileError(f"nvdisasm: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'it failed'}")
    with replacing(path) as target:
        target.write_bytes(lzma.compress(done.stdout.encode(), preset=1))
    return done.stdout


def kernels(text: str) -> dict[str, list[Instruction]]:
    """The instructions of each kernel in nvdisasm's text; raises UnknownInstruction."""
    return {entry: list(_instructions(lines)) for entry, lines in _sections(text)}


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    entry, lines = None, list[str]()
    for line in text.splitlines():
        if match := _ENTRY.match(line):
            if entry:
                yield entry, lines
            entry, lines = match[1], []
        elif line.startswith("\t.section") and entry:
            yield entry, lines
            entry, lines = None, []
        elif entry:
            lines.append(line)
    if entry:
        yield entry, lines


def _instructions(lines: list[str]) -> Iterator[Instruction]:
    rows: list[tuple[str, int, str, int]] = []
    labels: dict[str, int] = {}
    pending: str | None = None
    file, number = "", 0
    for line in lines:
        if match := _LINE.match(line):
            file, number = match["file"], int(match["line"])
        elif match := _LABEL.match(line):
            labels[match[1]] = len(rows)
        elif pending is None and (match := _INSTRUCTION.match(line)):
            pending = match["text"]
        elif pending is not None and (match := _CONTROL.match(line)):
            rows.append((pending, int(match["high"], 16) >> 41, file, number))
            pending = None
    for text, control, file, number in rows:
        yield _instruction(text, control, labels, file, number)


def _instruction(text: str, control: int, labels: dict[str, int], file: str, line: int) -> Instruction:
    rest = _NOTE.sub("", text).strip().rstrip(";").strip()
    guard = Operand("P", ALWAYS)
    if match := _GUARD.match(rest):
        number = ALWAYS if match["number"] == "T" else int(match["number"])
        guard = Operand(f"{match['uniform']}P", number, inverted=bool(match["not"]))
        rest = rest[match.end() :]
    head, _, tail = rest.partition(" ")
    name, *modifiers = head.split(".")
    halves = name in ("HFMA2", "HADD2", "HMUL2")
    words = [word.strip() for word in _OPERANDS.split(_TARGET.sub(r"\1, `(", tail)) if word.strip()]
    operands = tuple(_operand(word, labels, halves, text) for word in words)
    scoreboards = [None if number == 7 else number for number in (control >> 5 & 7, control >> 8 & 7)]
    return Instruction(
        rest,
        name,
        tuple(modifiers),
        operands,
        guard,
        stall=control & 15,
        writes=scoreboards[0],
        reads=scoreboards[1],
        waits=control >> 11 & 63,
        yields=not control >> 4 & 1,
        file=file,
        line=line,
    )


def _operand(text: str, labels: dict[str, int], halves: bool, instruction: str) -> Operand:
    word = text
    if word.startswith("`("):
        return Operand("L", value=labels.get(word[2:-1], 0))  # a kernel's own name is its first instruction
    inverted = word.startswith(("!", "~"))
    word = word.lstrip("!~")
    negative = word.startswith("-") and not re.match(r"-(0x|\d|\.|INF|QNAN)", word)
    word = word.removeprefix("-") if negative else word
    absolute, word = "|" in word, word.replace("|", "")
    operand = partial(Operand, negative=negative, inverted=inverted, absolute=absolute)
    if match := _CONSTANT.fullmatch(word):
        number, uniform, scale, value = _sum(match["inside"], instruction)
        return operand("C", number, value, uniform, scale, int(match["bank"], 16))
    if match := _GLOBAL.fullmatch(word):
        word = match["inside"]
    if word.startswith("["):
        number, uniform, scale, value = _sum(word.strip("[]"), instruction)
        return operand("M", number, value, uniform, scale)
    if match := _PRODUCT_OPERAND.fullmatch(word):
        return Operand("G", NO_UNIFORM if match["number"] == "Z" else int(match["number"]))
    if word.startswith("SR"):
        return Operand("S", name=word)
    bare = _SUFFIXES.sub("", word)
    if match := _REGISTER.fullmatch(bare):
        kind = match["kind"]
        number = int(match["number"]) if match["number"].isdecimal() else _NONE_OF[kind]
        return operand(kind, number, reused=".reuse" in word)
    if match := re.fullmatch(r"B(\d+)", bare):
        return Operand("B", int(match[1]))
    if re.fullmatch(r"PR|SB\d|gsb\d", bare):
        return Operand("X", name=bare)
    if _HEX.fullmatch(bare):
        return operand("I", value=int(bare, 16))
    try:
        literal = float(_FLOATS.get(bare, bare))
    except ValueError:
        raise UnknownInstruction(f"an operand that the model does not know, {text!r}: {instruction}") from None
    return operand("I", value=_bits(literal, halves))


def _bits(number: float, half: bool) -> int:
    bits: int = struct.unpack("<H", struct.pack("<e", number))[0] if half else _bits_of_single(number)
    return bits


def _bits_of_single(number: float) -> int:
    bits: int = struct.unpack("<I", struct.pack("<f", number))[0]
    return bits


def _sum(text: str, instruction: str) -> tuple[int, int, int, int]:
    """Register, uniform register, scale of the register, and offset of an address in brackets."""
    number, uniform, scale, value = NO_REGISTER, NO_UNIFORM, 1, 0
    for part in text.split("+"):
        word = part.strip()
        if match := _SCALE.search(word):
            scale = int(match[1])
            word = _SCALE.sub("", word)
        bare = _SUFFIXES.sub("", word)
        if match := _REGISTER.fullmatch(bare):
            index = int(match["number"]) if match["number"].isdecimal() else None
            if match["kind"] == "R" and index is not None:
                number = index
            elif match["kind"] == "UR" and index is not None:
                uniform = index
        elif _HEX.fullmatch(bare):
            value += int(bare, 16)
        elif bare:
            raise UnknownInstruction(f"an address that the model does not know, [{text}]: {instruction}")
    return number, uniform, scale, value
