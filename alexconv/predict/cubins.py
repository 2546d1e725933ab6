"""Registers and shared memory of a cubin's kernels (ELF64, little-endian).

Registers are in the attributes of section ``.nv.info``, as ``cuobjdump --dump-elf`` shows them: EIATTR_REGCOUNT, a
symbol and a number.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from alexconv.errors import CompileError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REGISTER_COUNT, _SIZED = 0x2F, 4  # EIATTR_REGCOUNT; the format of attributes that give their size
_RESERVED_SINCE, RESERVED = 90, 1024  # since Hopper, the first bytes of each block's shared memory


@dataclass(frozen=True)
class Needs:
    """A kernel's resources: registers per thread, static shared memory per block in bytes."""

    registers: int
    static_shared: int


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
    registers = {symbols[symbol]: count for symbol, count in _register_counts(cubin, sections[".nv.info"])}
    reserved = RESERVED if int(arch.rstrip("a")) >= _RESERVED_SINCE else 0
    found = {}
    for name in sections:
        if name.startswith(".text."):
            entry = name.removeprefix(".text.")
            shared = sections.get(f".nv.shared.{entry}")
            found[entry] = Needs(registers[entry], max(0, shared.size - reserved) if shared else 0)
    return found


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


def _register_counts(cubin: bytes, info: _Section) -> Iterator[tuple[int, int]]:
    at, end = info.start, info.start + info.size
    while at < end:
        kind, attribute, size = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if kind == _SIZED:
            if attribute == _REGISTER_COUNT:
                yield struct.unpack_from("<II", cubin, at)
            at += size


def _text(cubin: bytes, start: int) -> str:
    return cubin[start : cubin.index(b"\0", start)].decode()
