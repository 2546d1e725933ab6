"""A cubin's behaviour, apart from names and line numbers: machine code and resources of its kernels."""

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_SYMBOL_TABLE, _NO_BITS = 2, 8  # section types of ELF
_HEADER, _SECTION, _SYMBOL, _RELOCATION = "<16xHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ", "<QQq"
_OF_A_SYMBOL = {0x11, 0x12, 0x23, 0x2F}  # attributes of .nv.info: frame, least and most stack, registers
_WITH_VALUES = 4  # the format of an attribute that gives its own size
_ARGUMENTS = 0x0A  # attribute of a kernel: the symbol of its arguments' constants, and where they are
_OF_KERNELS = (".nv.info.", ".nv.shared.", ".nv.constant0.", ".nv.constant2.", ".nv.local.", ".rela.text.", ".text.")
_OF_FILES = (".nv.constant3", ".nv.constant4", ".nv.global", ".nv.global.init")


@dataclass
class _Section:
    name: str
    kind: int
    size: int
    data: bytes


@dataclass
class Cubin:
    """A cubin's sections, and what its symbols stand for."""

    sections: dict[str, _Section] = field(default_factory=dict)
    symbols: list[tuple[str, str, int]] = field(default_factory=list)  # name, section, offset in it


def parse(data: bytes) -> Cubin:
    """A cubin from its bytes; raises ValueError for anything else."""
    if data[:4] != b"\x7fELF":
        raise ValueError("not an ELF file")
    *_, table, _, _, _, _, _, count, names = struct.unpack_from(_HEADER, data)
    rows = [struct.unpack_from(_SECTION, data, table + i * struct.calcsize(_SECTION)) for i in range(count)]

    def text(section: int, offset: int) -> str:
        begin = rows[section][4] + offset
        return data[begin : data.index(b"\0", begin)].decode()

    found = Cubin()
    labels = [text(names, row[0]) for row in rows]
    for label, (_, kind, _, _, begin, size, link, *_) in zip(labels, rows, strict=True):
        content = b"" if kind == _NO_BITS else data[begin : begin + size]
        found.sections[label] = _Section(label, kind, size, content)
        if kind == _SYMBOL_TABLE:
            for name, _, _, place, value, _ in struct.iter_unpack(_SYMBOL, content):
                found.symbols.append((text(link, name), labels[place] if place < count else "", value))
    return found


def behaviour(data: bytes, entries: Sequence[str]) -> tuple[object, ...]:
    """Code, sizes and resources of each entry point in order, then of the whole file.  Equal ones run alike."""
    cubin = parse(data)
    numbers = {entry: number for number, entry in enumerate(entries)}
    resources = _resources(cubin)

    def unnamed(section: str) -> str:
        head, _, last = section.rpartition(".")
        return f"{head}.{numbers[last]}" if last in numbers else section

    def kernel(name: str) -> dict[str, object]:
        own = {kind: cubin.sections[kind + name] for kind in _OF_KERNELS if kind + name in cubin.sections}
        facts: dict[str, object] = {
            kind: (
                section.size,
                _relocations(cubin, section, unnamed)
                if kind.startswith(".rela")
                else _numberless(section.data)
                if kind == ".nv.info."
                else section.data,
            )
            for kind, section in own.items()
        }
        return facts | {"resources": resources.get(name)}

    if missing := [entry for entry in entries if f".text.{entry}" not in cubin.sections]:
        raise ValueError(f"no entry point {', '.join(missing)}")
    texts = [name.removeprefix(".text.") for name in cubin.sections if name.startswith(".text.")]
    functions = Counter(repr(kernel(name)) for name in texts if name not in numbers)
    files = [
        (name, cubin.sections[name].size, cubin.sections[name].data) for name in _OF_FILES if name in cubin.sections
    ]
    return *(kernel(entry) for entry in entries), functions, files


def _relocations(cubin: Cubin, section: _Section, unnamed) -> list[tuple[object, ...]]:
    """Places in the code that a loader fills in, with their values."""
    found: list[tuple[object, ...]] = []
    for offset, info, addend in struct.iter_unpack(_RELOCATION, section.data):
        _, place, value = cubin.symbols[info >> 32]
        found.append((offset, info & 0xFFFFFFFF, addend, unnamed(place), value))
    return found


def _attributes(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The attributes of an .nv.info section: number, begin and end of its values (none where it gives no size)."""
    place = 0
    while place < len(data):
        kind, attribute, size = struct.unpack_from("<BBH", data, place)
        place += 4
        end = place + (size if kind == _WITH_VALUES else 0)
        yield attribute, place, end
        place = end


def _numberless(data: bytes) -> bytes:
    """A kernel's attributes without the number of a symbol, which says only how many come before it."""
    found = bytearray(data)
    for attribute, begin, end in _attributes(data):
        if attribute == _ARGUMENTS and end > begin:
            found[begin : begin + 4] = bytes(4)
    return bytes(found)


def _resources(cubin: Cubin) -> dict[str, dict[int, bytes]]:
    """Registers and stack of each function, by the number of the attribute."""
    found: dict[str, dict[int, bytes]] = {}
    data = cubin.sections[".nv.info"].data
    for attribute, begin, end in _attributes(data):
        if attribute in _OF_A_SYMBOL and end > begin:
            (symbol,) = struct.unpack_from("<I", data, begin)
            found.setdefault(cubin.symbols[symbol][0], {})[attribute] = data[begin + 4 : end]
    return found
