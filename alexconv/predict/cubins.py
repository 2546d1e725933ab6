"""Registers, local and shared memory, and literals of a cubin's kernels (ELF64, little-endian).

Registers and local memory are in the attributes of section ``.nv.info``, as ``cuobjdump --dump-elf`` shows them:
EIATTR_REGCOUNT and EIATTR_FRAME_SIZE, a symbol and a number.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from alexconv.errors import CompileError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REGISTER_COUNT, _FRAME_SIZE = 0x2F, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE
_LITERALS = ".nv.constant2."  # before Hopper
_SIZED = 4  # the format of attributes that give their size
_RESERVED_SINCE, RESERVED = 90, 1024  # since Hopper, the first bytes of each block's shared memory


@dataclass(frozen=True)
class Needs:
    """A kernel's resources: registers and bytes of local memory per thread, static shared memory per block in bytes."""

    registers: int
    static_shared: int
    local: int = 0


@dataclass(frozen=True)
class _Section:
    name: str
    start: int
    size: int


def needs(cubin: bytes, arch: str) -> dict[str, Needs]:
    """Resources of each kernel of a cubin for ``sm_<arch>``, by entry point; raises CompileError if it is no cubin."""
    if cubin[:4] != b"\x7fELF":
        raise CompileError("nvcc wrote no ELF file")
    sections = {section.name: section for section in _sections(cubin)}
    symbols = _symbols(cubin, sections)
    registers, frames = (
        {symbols[symbol]: number for symbol, number in _attributes(cubin, sections[".nv.info"], attribute)}
        for attribute in (_REGISTER_COUNT, _FRAME_SIZE)
    )
    reserved = RESERVED if int(arch.rstrip("a")) >= _RESERVED_SINCE else 0
    resources = {}
    for name in sections:
        if name.startswith(".text."):
            entry = name.removeprefix(".text.")
            shared = sections.get(f".nv.shared.{entry}")
            static = max(0, shared.size - reserved) if shared else 0
            resources[entry] = Needs(registers[entry], static, frames.get(entry, 0))
    return resources


def literals(cubin: bytes) -> dict[str, bytes]:
    """Constants that the compiler placed in bank 2 of each kernel that has some, by entry point."""
    return {
        section.name.removeprefix(_LITERALS): cubin[section.start : section.start + section.size]
        for section in _sections(cubin)
        if section.name.startswith(_LITERALS)
    }


def _sections(cubin: bytes) -> Iterator[_Section]:
    header = _HEADER.unpack_from(cubin)
    offset, count, names = header[6], header[12], header[13]
    rows = [_SECTION.unpack_from(cubin, offset + k * _SECTION.size) for k in range(count)]
    for row in rows:
        yield _Section(_text(cubin, rows[names][4] + row[0]), row[4], row[5])


def _symbols(cubin: bytes, sections: dict[str, _Section]) -> list[str]:
    table, texts = sections[".symtab"], sections[".strtab"]
    places = range(table.start, table.start + table.size, _SYMBOL.size)
    return [_text(cubin, texts.start + _SYMBOL.unpack_from(cubin, place)[0]) for place in places]


def _attributes(cubin: bytes, info: _Section, wanted: int) -> Iterator[tuple[int, int]]:
    at, end = info.start, info.start + info.size
    while at < end:
        kind, attribute, size = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if kind == _SIZED:
            if attribute == wanted:
                yield struct.unpack_from("<II", cubin, at)
            at += size


def _text(cubin: bytes, start: int) -> str:
    return cubin[start : cubin.index(b"\0", start)].decode()
