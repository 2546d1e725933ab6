"""What a compiled kernel depends on: the tokens of its file and of the project headers that it includes.

Keys are made from what the compiler sees (translation phases 1 to 4, ISO C++ [lex.phases]): comments, white space, line
breaks, and the names and folders of headers do not change a key; any changed token does, or one in another file.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from alexconv.paths import kernels_folder

_SPLICE = r"\\[ \t\f\v\r]*\n"  # as g++ and clang take it; nvcc preprocesses with g++
_SPLICES = f"(?:{_SPLICE})*"
_IDENTIFIER = r"(?:[\w$\x80-\U0010ffff]++|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})++"
_NUMBER = r"\.?[0-9](?:[eEpP][+-]|'?\w|\.)*"  # a preprocessing number; ' may separate digits

# Comments and raw strings, and all that may contain what looks like their beginning.
_COMMENT_OR_LITERAL = re.compile(
    rf"""
    (?P<comment>/{_SPLICES}/(?:{_SPLICE}|[^\n])*|/{_SPLICES}\*.*?\*{_SPLICES}/)
    | (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{{0,16}})\((?P<raw>.*?)\)(?P=delimiter)"
    | include(?:[ \t\f\v\r]|{_SPLICE}|(?>/\*.*?\*/))*(?P<header><[^>\n]*>) | {_NUMBER} | {_IDENTIFIER}
    | "(?:{_SPLICE}|\\.|[^"\\\n])*" | '(?:{_SPLICE}|\\.|[^'\\\n])*'
    """,
    re.VERBOSE | re.DOTALL,
)
_TOKEN = re.compile(
    rf"""
    (?:(?:u8|[uUL])?R?"(?:\\.|[^"\\])*"|(?:u8|[uUL])?'(?:\\.|[^'\\])*')(?:{_IDENTIFIER})?
    | {_NUMBER} | {_IDENTIFIER}
    | <<<|>>>|<=>|<<=|>>=|->\*|\.\.\.|%:%:|::|->|\.\*|\+\+|--|<<|>>|&&|\|\||\#\#|<:(?!:)|:>|<%|%>|%:|[-+*/%&|^<>=!]=
    | \S
    """,
    re.VERBOSE,
)
_HASH = r"\s*(?:#|%:)\s*"
_INCLUDE = re.compile(rf'{_HASH}include\s*(?P<header><.*>|"(?P<name>.*)")')
_QUOTED = re.compile(rb'include(?:[^"\n]|\\\s*\n)*"([^"\n]*)"')
_FUNCTION_MACRO = re.compile(rf"{_HASH}define\s+(?P<name>{_IDENTIFIER})\(")
_LINE_END = ""  # before and after a directive; no token is empty
# Identifiers whose meaning depends on where they stand.
_POSITIONAL = frozenset({"__LINE__", "__FILE__", "__builtin_LINE", "__builtin_FILE", "source_location", "assert"})


class Include(NamedTuple):
    """A directive that includes a file with quotes."""

    name: str


class Unit(NamedTuple):
    """A file with the files that it includes with quotes: contents by path, in the order of first inclusion.

    ``parts``: digests of the files' tokens, and what their includes are.
    """

    contents: dict[Path, bytes]
    parts: list[str]
    sees_positions: bool


class Text(NamedTuple):
    """What counts of a file: the names that it includes, a digest of its other tokens, whether it sees positions."""

    included: tuple[str, ...]
    digest: str = ""
    sees_positions: bool = True


def source_digest(path: Path, defines: Mapping[str, int], *more: str, exact: bool = False) -> str:
    """A key that changes with a token of the file or its headers, a macro, or one of ``more`` (flags, version).

    With ``exact``, for builds that report source lines, it changes with every byte and with the files' names too; the
    first such key takes a tenth of the time.
    """
    unit = _unit(path, _bytes if exact else _tokens)
    exact = unit.sees_positions
    digest = hashlib.sha256(b"" if exact else "\n".join(unit.parts).encode(errors="surrogateescape"))
    if exact:
        for file, content in unit.contents.items():
            digest.update(file.name.encode() + b"\0" + content + b"\0")
    digest.update(repr((exact, sorted(defines.items()), more)).encode())
    return digest.hexdigest()[:32]


def source_files(path: Path) -> list[Path]:
    """The file, then every file that it includes with quotes, each once, as far as they exist.

    Missing includes are left to the compiler to report.
    """
    return list(_unit(path, _tokens).contents)


def _unit(path: Path, read: Callable[[bytes], Text]) -> Unit:
    """A repeated include counts by the file's number.  One whose name is a macro is not followed."""
    unit = Unit({}, [], sees_positions=False)

    def visit(file: Path) -> bool:
        unit.contents[file] = content = file.read_bytes()
        text = read(content)
        unit.parts.append(text.digest)
        positions = text.sees_positions
        for name in text.included:
            header = _included(file, name)
            if header in unit.contents:
                unit.parts.append(f"again {list(unit.contents).index(header)}")
            elif header.is_file():
                positions |= visit(header)
            else:
                unit.parts.append(f"missing {name}")
        return positions

    return unit._replace(sees_positions=path.is_file() and visit(path.resolve()))


def _bytes(content: bytes) -> Text:
    """A file of which every byte counts, and so do includes in comments."""
    return Text(tuple(name.decode(errors="surrogateescape") for name in _QUOTED.findall(content)))


@lru_cache(maxsize=1024)
def _tokens(content: bytes) -> Text:
    of_file = tokens(content.decode(errors="surrogateescape"))
    included = tuple(token.name for token in of_file if isinstance(token, Include))
    text = "\n".join("#include" if isinstance(token, Include) else token for token in of_file)
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    return Text(included, digest, _sees_positions(of_file))


def tokens(text: str) -> tuple[str | Include, ...]:
    """The preprocessing tokens of a source text, directives between line ends.

    A quoted include is one token, and so is ``#define NAME(``, whose bracket must follow directly.
    """
    parts: list[str | Include] = []
    text = re.sub(_SPLICE, "", _COMMENT_OR_LITERAL.sub(_without_comments, text))
    for line in text.split("\n"):
        if line.lstrip().startswith(("#", "%:")):
            parts += [_LINE_END, *_directive(line), _LINE_END]
        else:
            parts += _TOKEN.findall(line)
    return tuple(parts)


def _without_comments(match: re.Match[str]) -> str:
    """A comment is a space; a raw string's content, which may have line breaks, becomes hexadecimal digits."""
    if match["comment"] is not None:
        return " "
    if match["header"] is not None:
        return f"include {match['header']}"
    if match["raw"] is None:
        return match[0]
    prefix = match[0].partition('"')[0]
    return f'{prefix}"{match["raw"].encode(errors="surrogateescape").hex()}"'


def _directive(line: str) -> Sequence[str | Include]:
    if include := _INCLUDE.match(line):
        return [f"#include {include['header']}" if include["name"] is None else Include(include["name"])]
    if macro := _FUNCTION_MACRO.match(line):
        return [f"#define {macro['name']}(", *_TOKEN.findall(line, macro.end())]
    return _TOKEN.findall(line)


def _sees_positions(of_file: Sequence[str | Include]) -> bool:
    """Whether the compiler sees line numbers or, where a macro stringizes its arguments, white space."""
    if not _POSITIONAL.isdisjoint(of_file):
        return True
    in_macro = False
    for token in of_file if "#" in of_file else ():
        if in_macro and token == "#":
            return True
        if token == _LINE_END or str(token).startswith("#define "):
            in_macro = token != _LINE_END
    return False


def include_options(source: Path) -> list[str]:
    """The compiler's -I options; a file outside the ladder finds the ladder's headers too."""
    folder = kernels_folder()
    return [] if source.resolve().is_relative_to(folder) else [f"-I{folder}"]


def _included(file: Path, name: str) -> Path:
    beside = Path(os.path.normpath(file.parent / name))
    if not beside.is_file() and (of_ladder := kernels_folder() / name).is_file():
        return of_ladder
    return beside
