"""What a result depends on in this project's own Python: the tokens of every definition that its code reaches.

A definition (function, class or constant of a module) reaches those that it names, in its annotations too, by which an
object's methods are reached.  As with kernels' sources, comments, docstrings, white space and line breaks do not count;
and the tokens are the same in every version of Python.
"""

import ast
import hashlib
import tokenize
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

from alexconv.files import read_json, write_json
from alexconv.paths import cache_dir

PACKAGE = "alexconv"
# Not followed, because keys have what they give by value: launches and arrays, what the compiler sees, a point's axes,
# its class.  Modules, packages, and single definitions.
BY_VALUE = (
    "alexconv.kernels",
    "alexconv.compiling",
    "alexconv.planning.points",
    "alexconv.records",
    "alexconv.precisions.PRECISIONS",
)
TRIES = 1000  # of parsing while other threads parse, as the printing of tracebacks does
ELSEWHERE = ""  # the name of a module's statements that define nothing

Definition = tuple[str, str]  # module and name
Row = tuple[int, str]  # a statement's first line, and its tokens


@dataclass(frozen=True)
class Module:
    """The definitions of a module: each one's tokens, and what its statements use."""

    tokens: dict[str, str]
    uses: dict[str, list["Uses"]]
    imports: dict[str, Definition]  # by local name; of a module, its statements that define nothing

    def named_by(self, module: str, name: str) -> Iterator[Definition]:
        """The definitions of this project that one of the module's own names."""
        for uses in self.uses[name]:
            for other in (*uses.names, ELSEWHERE):
                if other in self.tokens:
                    yield module, other
                elif other in self.imports:
                    yield self.imports[other]
            for owner, attribute in uses.attributes:
                imported_module, member = self.imports.get(owner, ("", owner))
                if member == ELSEWHERE:
                    yield imported_module, attribute


def code_of(*objects: Any) -> str:
    """The digest of what classes, with their bases, functions, and the classes of methods reach in this project."""
    return code_digest(
        *(
            (own.__module__, own.__qualname__.partition(".")[0])
            for item in objects
            for own in getattr(item, "__mro__", (item,))
            if own.__module__.startswith(f"{PACKAGE}.")
        )
    )


@cache
def code_digest(*roots: Definition) -> str:
    """The digest of the definitions that these reach, themselves included.

    The cache keeps it for as long as no module of theirs has changed: to make it takes a third of a second.
    """
    path = cache_dir("code") / f"{sha256(roots, source_of(__name__))}.json"
    with suppress(ValueError, KeyError, TypeError, AttributeError):  # of a damaged file, or with a module that is gone
        known = read_json(path) or {}
        if known["sources"] == {module: sha256(source_of(module)) for module in known["sources"]}:
            return str(known["digest"])
    closure, modules = followed(*roots)
    texts = (f"{module} {name}\n{definitions(module).tokens[name]}\n" for module, name in sorted(closure))
    digest = sha256("".join(texts))[:16]
    write_json(path, {"digest": digest, "sources": {module: sha256(source_of(module)) for module in modules}})
    return digest


def sha256(*objects: object) -> str:
    """A digest of texts, or of what prints alike."""
    return hashlib.sha256("\n".join(map(str, objects)).encode()).hexdigest()


def reached(*roots: Definition) -> set[Definition]:
    """These definitions and all that they reach, without those of BY_VALUE."""
    return followed(*roots)[0]


def followed(*roots: Definition) -> tuple[set[Definition], set[str]]:
    """What ``reached`` gives, and the modules that say so."""
    closure: set[Definition] = set()
    modules: set[str] = set()
    left = list(roots)
    while left:
        module, name = left.pop()
        if f"{module}.{name}".startswith(BY_VALUE) or (module, name) in closure:
            continue
        own = definitions(module)
        modules.add(module)
        if name in own.tokens:
            closure.add((module, name))
            left += own.named_by(module, name)
        elif name != ELSEWHERE:
            left.append(own.imports[name])
    return closure, modules


@cache
def definitions(module: str) -> Module:
    """The definitions of one of this project's modules."""
    return definitions_in(source_of(module))


@cache
def definitions_in(source: str) -> Module:
    """The definitions of a module with this text."""
    tree, rows = syntax_tree(source), list(statements(source))
    own = Module({}, {}, {})
    for node in tree.body:
        uses = Uses.of(node)
        own.imports.update(uses.imports)
        first = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
        text = "\n".join(row for line, row in rows if first <= line <= (node.end_lineno or first))
        for name in defined(node):
            own.tokens[name] = own.tokens.get(name, "") + text
            own.uses.setdefault(name, []).append(uses)
    return own


@dataclass(frozen=True)
class Uses:
    """What a statement refers to: names, attributes of names, and imports from this project by local name."""

    names: set[str]
    attributes: set[Definition]
    imports: dict[str, Definition]

    @classmethod
    def of(cls, statement: ast.AST) -> "Uses":
        """Everything in a statement, and in annotations that are texts."""
        uses, left = cls(set(), set(), {}), [statement]
        while left:
            for node in ast.walk(left.pop()):
                if isinstance(node, ast.Name):
                    uses.names.add(node.id)
                elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                    uses.attributes.add((node.value.id, node.attr))
                elif isinstance(node, ast.ImportFrom):
                    uses.imports.update(imported(node))
                annotations = getattr(node, "annotation", None), getattr(node, "returns", None)
                for part in (part for annotation in annotations if annotation for part in ast.walk(annotation)):
                    if isinstance(part, ast.Constant) and isinstance(part.value, str):
                        left.append(syntax_tree(part.value, "eval"))
        return uses


def syntax_tree(source: str, mode: str = "exec") -> Any:
    """The syntax tree.

    Threads share the recursion depth of CPython 3.11's AST constructor, which fails where two of them are at work
    (python/cpython#106905); it begins anew the next time.
    """
    for _ in range(TRIES):
        with suppress(SystemError):
            return ast.parse(source, mode=mode)
    return ast.parse(source, mode=mode)


def source_of(module: str) -> str:
    """A module's text."""
    return path_of(module).read_text(encoding="utf-8")


@cache
def path_of(module: str) -> Path:
    """A module's file."""
    spec = find_spec(module)
    assert spec and spec.origin, module
    return Path(spec.origin)


def imported(node: ast.ImportFrom) -> Iterator[tuple[str, Definition]]:
    """The local names of an import from this project, and what they name."""
    if node.module and node.module.partition(".")[0] == PACKAGE:
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            yield alias.asname or alias.name, (inner, ELSEWHERE) if is_module(inner) else (node.module, alias.name)


def is_module(name: str) -> bool:
    """Whether a dotted name is a module of this project, not a definition of one."""
    parent, _, last = name.rpartition(".")
    file = path_of(parent)
    return file.name == "__init__.py" and any(
        (file.parent / path).is_file() for path in (f"{last}.py", f"{last}/__init__.py")
    )


def defined(node: ast.stmt) -> list[str]:
    """The names that a statement of a module defines; ELSEWHERE for one that acts, none for imports and docstrings."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ):
        return []
    targets = [part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
    return targets if isinstance(node, ast.Assign | ast.AnnAssign) and targets else [ELSEWHERE]


def statements(source: str) -> Iterator[Row]:
    """The tokens of a source's statements, each with its depth; statements that are only texts are left out."""
    depth, words, first = 0, list[str](), 0
    for kind, text, line in words_of(source):
        if kind == tokenize.INDENT:
            depth += 1
        elif kind == tokenize.DEDENT:
            depth -= 1
        elif kind == tokenize.NEWLINE:
            if any(not word.lstrip("rRbBuU").startswith(('"', "'")) for word in words):
                yield first, " ".join((str(depth), *words))
            words = []
        elif text:
            first = first if words else line
            words.append(text)


def words_of(source: str) -> Iterator[tuple[int, str, int]]:
    """Tokens: kind, text and line.  A formatted string, which newer versions of Python take apart, is one."""
    lines, open_strings, begin = source.split("\n"), 0, (0, 0)
    for token in tokenize.generate_tokens(StringIO(source).readline):
        kind = tokenize.tok_name[token.type]
        if kind in ("FSTRING_START", "TSTRING_START"):
            begin = begin if open_strings else token.start
            open_strings += 1
        elif kind in ("FSTRING_END", "TSTRING_END"):
            open_strings -= 1
            if not open_strings:
                yield tokenize.STRING, between(lines, begin, token.end), begin[0]
        elif not open_strings and token.type not in (tokenize.COMMENT, tokenize.NL):
            yield token.type, token.string.strip("\r\n") if kind == "NEWLINE" else token.string, token.start[0]


def between(lines: list[str], begin: tuple[int, int], end: tuple[int, int]) -> str:
    """The text between two places, each a line and a column."""
    (first, left), (last, right) = begin, end
    rows = lines[first - 1 : last]
    rows[-1] = rows[-1][:right]
    return "\n".join([rows[0][left:], *rows[1:]])
