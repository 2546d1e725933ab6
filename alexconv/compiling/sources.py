"""What a compiled kernel depends on: the tokens of its file and of the project headers that it includes.

Keys are made from what the compiler sees (translation phases 1 to 4, ISO C++ [lex.phases]): comments, white space, line
breaks, and the names and folders of headers do not change a key; any changed token does.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from alexconv.paths import kernels_folder

_SPLICE = r"\\[ \t\f\v\r]*\n"  # as g++ and clang take it; nvcc preprocesses with g++
_SPLICES = f"(?:{_SPLICE})*"
_IDENTIFIER = r"(?:[\w$\x80-\U0010ffff]|\\u[0-9a-fA-F]{4}|\\U[0-9a-fA-F]{8})+"
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
_FUNCTION_MACRO = re.compile(rf"{_HASH}define\s+(?P<name>{_IDENTIFIER})\(")
_LINE_END = ""  # before and after a directive; no token is empty
# Identifiers whose meaning depends on where they stand.
_POSITIONAL = frozenset({"__LINE__", "__FILE__", "__builtin_LINE", "__builtin_FILE", "source_location", "assert"})


class Include(NamedTuple):
    """A directive that includes a file with quotes."""

    name: str


def source_digest(path: Path, defines: Mapping[str, int], *more: str, lines: bool = False) -> str:
    """A key that changes with a token of the file or its headers, a macro, or one of ``more`` (flags, version).

    With ``lines``, for builds that report source lines, it changes with every byte and with the files' names too.
    """
    sources = _sources(path)
    exact, of_unit = _unit_digest(path, tuple(sources.values()))
    digest = of_unit.copy()
    if exact or lines:
        exact, digest = True, hashlib.sha256()
        for file, content in sources.items():
            digest.update(file.name.encode() + b"\0" + content + b"\0")
    digest.update(repr((exact, sorted(defines.items()), more)).encode())
    return digest.hexdigest()[:32]


@lru_cache(maxsize=256)
def _unit_digest(path: Path, contents: tuple[bytes, ...]) -> tuple[bool, "hashlib._Hash"]:
    """Whether a file sees positions, and the digest of its tokens, given the contents of ``source_files``."""
    unit = translation_unit(path)
    return _sees_positions(unit), hashlib.sha256("\n".join(unit).encode(errors="surrogateescape"))


def source_files(path: Path) -> list[Path]:
    """The file, then every file that it includes with quotes, each once, as far as they exist.

    Missing includes are left to the compiler to report.
    """
    return list(_sources(path))


def _sources(path: Path) -> dict[Path, bytes]:
    """The same files with their contents."""
    file_contents: dict[Path, bytes] = {}

    def visit(file: Path) -> None:
        file_contents[file] = content = file.read_bytes()
        for include in _includes(content):
            header = _included(file, include)
            if header not in file_contents and header.is_file():
                visit(header)

    if path.is_file():
        visit(path.resolve())
    return file_contents


def translation_unit(path: Path) -> list[str]:
    """The tokens of a file, with those of the files that it includes with quotes in place; none has a line break.

    A repeated include has no tokens, only the file's number in the order of first inclusion.  An include whose name is
    a macro is not followed.
    """
    included: list[Path] = []

    def visit(file: Path) -> Iterator[str]:
        included.append(file)
        for token in _tokens_of(file):
            if isinstance(token, str):
                yield token
                continue
            header = _included(file, token)
            if header in included:
                yield f"#include again {included.index(header)}"
            elif header.is_file():
                yield from visit(header)
            else:
                yield f'#include "{token.name}"'

    return list(visit(path.resolve()))


@lru_cache(maxsize=1024)
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


def _sees_positions(unit: Sequence[str]) -> bool:
    """Whether the compiler sees line numbers or, where a macro stringizes its arguments, white space."""
    if not _POSITIONAL.isdisjoint(unit):
        return True
    in_macro = False
    for token in unit:
        if token.startswith("#define ") or token == _LINE_END:
            in_macro = token != _LINE_END
        elif in_macro and token == "#":
            return True
    return False


def _tokens_of(file: Path) -> tuple[str | Include, ...]:
    return tokens(file.read_bytes().decode(errors="surrogateescape"))


def include_options(source: Path) -> list[str]:
    """The compiler's -I options; a file outside the ladder finds the ladder's headers too."""
    folder = kernels_folder()
    return [] if source.resolve().is_relative_to(folder) else [f"-I{folder}"]


def _included(file: Path, include: Include) -> Path:
    beside, of_ladder = (file.parent / include.name).resolve(), kernels_folder() / include.name
    return of_ladder if of_ladder.is_file() and not beside.is_file() else beside


@lru_cache(maxsize=1024)
def _includes(content: bytes) -> tuple[Include, ...]:
    return tuple(token for token in tokens(content.decode(errors="surrogateescape")) if isinstance(token, Include))
