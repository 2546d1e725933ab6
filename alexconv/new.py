"""Writes a folder with a kernel of your own, modelled on a rung.

alexconv new my_conv --like direct-register

The folder has a .cu file, its ladder entry and a README.
"""

import argparse
import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from alexconv.errors import UsageError
from alexconv.files import new_folder
from alexconv.kernels.rung import FOLDER, Rung
from alexconv.options import exits_cleanly, program
from alexconv.own import folders
from alexconv.own.folders import ENTRY_FILE, add_own, ladder_of

MODULE = "alexconv.new"
LIKE = "direct-register"
OF_THE_KERNEL = ("time", "cpu_order")  # what an entry says of its own kernel alone: a changed one differs
# Words of C++ in the spelling of a folder's name, and two functions.
TAKEN = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long main mutable
namespace new noexcept not not_eq nullptr operator or or_eq printf private protected public register reinterpret_cast
requires return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
_INCLUDE = re.compile(r'(#include ")([^"]+)(")')

ENTRY = '''"""The rungs of this folder: what `--ladder` takes.  docs/own-kernels.md says what an entry may have."""

{imports}

RUNGS = (
{entry},
)
'''
REPLACED = """replace(
    ALL_DIRECTIONS.named["{like}"],
    name="{name}",
    alias="{name}",
    parent="{like}",
    file="{file}",
    time=None,
    cpu_order=0,
)"""
README = """# {name}

A kernel of your own, modelled on `{like}`.

| file | contains |
|---|---|
| `{file}` | the kernel: change it |
| `{entry_file}` | its entry: name, launches (grid, block, shared memory), constants |

```
alexconv check {folder}                                          # what is wrong with it, without a GPU
alexconv run --ladder {folder} --rungs {name},{like} --layers 3 --N 1
alexconv profile --ladder {folder} --rungs {name} --layers 3 --lines
alexconv tune --ladder {folder} --rungs {name} --layers 3        # with a GPU, where the entry has constants
alexconv compare before.jsonl after.jsonl --ladder {folder}      # two files that run has written with --out
```

The shape (`C`, `H`, `W`, `M`, `R`, `S`, `U`, `E`, `F`) and the entry's constants are compile-time constants; only the
number of images is known at run time.  Headers of the ladder are found by their path in `kernels/`.
"""


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(prog=program(MODULE), description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("folder", type=Path, help="the new folder; its name is the rung's")
    options.add_argument("--like", default=LIKE, metavar="RUNG", help=f"the rung to start from (default: {LIKE})")
    add_own(options)
    return options


def kernel_source(like: Rung, name: str, folder: str, entries: dict[str, str]) -> str:
    """The rung's file with another name, entry points of other names, and headers by their path in kernels/."""
    source = like.path.read_text()

    def from_kernels(match: re.Match[str]) -> str:
        header = (like.path.parent / match[2]).resolve()
        return match[1] + (str(header.relative_to(FOLDER)) if header.is_relative_to(FOLDER) else match[2]) + match[3]

    source = _INCLUDE.sub(from_kernels, source)
    for old, new in entries.items():
        source = _in_code(rf"\b{old}\b", new, source)
        source = _in_code(rf"\(\s*{old.upper()}\b", f"({new.upper()}", source)
    _, _, rest = source.partition("//\n")
    rest = rest.replace(f"alexconv run --rungs {like.name} ", f"alexconv run --ladder {folder} --rungs {name} ", 1)
    opening = f"// {name}: as {like.name}, until you change it.\n//\n"
    return opening + rest


def _in_code(pattern: str, new: str, source: str) -> str:
    """C++ with what matches a pattern replaced, but for its comments, where a name may be a word of English."""
    return re.sub(rf"//.*|({pattern})", lambda match: new if match[1] else match[0], source)


def entry_source(like: Rung, name: str, file: str, entries: dict[str, str]) -> str:
    """The entry file: the rung's own entry where its ladder spells it out, else a copy with other names."""
    spelled_out = _spelled_out(like)
    if not spelled_out:
        imports = "from dataclasses import replace\n\nfrom alexconv.kernels.ladder import ALL_DIRECTIONS"
        entry = REPLACED.format(like=like.name, name=name, file=file)
        return ENTRY.format(imports=imports, entry=textwrap.indent(entry, "    "))
    module, call, text = spelled_out
    for keyword in call.keywords:
        value = {"alias": name, "parent": like.name, "file": file, "idea": f"as {like.name}, until you change it"}.get(
            keyword.arg or ""
        )
        if value is not None:
            text = text.replace(
                f"{keyword.arg}={ast.get_source_segment(inspect.getsource(module), keyword.value)}",
                f'{keyword.arg}="{value}"',
            )
    text = text.replace(f'"{like.name}"', f'"{name}"', 1)
    for old, new in entries.items():
        text = text.replace(f'Launch("{old}"', f'Launch("{new}"')
    return ENTRY.format(imports=_imports(module, call), entry=textwrap.indent(textwrap.dedent(text), "    "))


def _spelled_out(like: Rung) -> tuple[ModuleType, ast.Call, str] | None:
    """The call ``Rung("name", ...)`` in a family's ladder, if it is written out there, without OF_THE_KERNEL."""
    for path in sorted(FOLDER.glob("*/ladder*.py")):
        module = import_module(f"alexconv.kernels.{path.parent.name}.{path.stem}")
        source = inspect.getsource(module)
        for node in ast.walk(ast.parse(source)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Rung"):
                continue
            first = node.args[0] if node.args else None
            text = ast.get_source_segment(source, node)
            if isinstance(first, ast.Constant) and first.value == like.name and text:
                for keyword in [argument for argument in node.keywords if argument.arg in OF_THE_KERNEL]:
                    node.keywords.remove(keyword)
                    text = re.sub(rf"\n *{re.escape(ast.get_source_segment(source, keyword) or '')},", "", text)
                return module, node, " " * node.col_offset + text
    return None


def _imports(module: ModuleType, call: ast.Call) -> str:
    """Imports of the names that an entry uses, from where its ladder has them or from the ladder itself."""
    used = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)} & set(vars(module))
    places: dict[str, list[str]] = {}
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) in used:
                    text = alias.name + (f" as {alias.asname}" if alias.asname else "")
                    places.setdefault(node.module, []).append(text)
                    used.discard(alias.asname or alias.name)
    if used:
        places[module.__name__] = sorted(used)
    return "\n".join(f"from {place} import {', '.join(sorted(names))}" for place, names in sorted(places.items()))


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the folder; raises UsageError where it exists or a name is invalid."""
    options = parser().parse_args(arguments)
    folder: Path = options.folder
    if not _NAME.fullmatch(folder.name):
        raise UsageError(f"the folder's name is the rung's: lower-case letters, digits, - and _, not {folder.name!r}")
    name = folder.name.replace("_", "-")
    ladder = ladder_of(options)
    like = ladder.named.get(ladder.aliases.get(options.like, options.like))
    if like is None:
        raise UsageError(f"--like: no rung {options.like}; `alexconv run --list` has all")
    if name in {*ladder.named, *ladder.aliases}:
        raise UsageError(f"the ladder already has a rung {name}: choose another folder name")
    kernel = folder.name.replace("-", "_")
    if kernel in TAKEN.split():
        raise UsageError(f"{kernel} is a word of C++ and cannot be a kernel's name: choose another folder name")
    file = f"{kernel}.cu"
    single = len(like.launches) == 1 and not like.prepare
    spelled = _spelled_out(like) is not None
    entries = {like.launches[0].entry: kernel} if single and spelled else {}
    words = {"name": name, "like": like.name, "file": file, "entry_file": ENTRY_FILE, "folder": folder.as_posix()}
    with new_folder(folder):
        (folder / file).write_text(kernel_source(like, name, folder.as_posix(), entries))
        (folder / ENTRY_FILE).write_text(entry_source(like, name, file, entries))
        (folder / "README.md").write_text(README.format(**words))
    folders.rungs_of(folder)  # checks that the folder loads
    print(f"{folder}: {file}, {ENTRY_FILE}, README.md; next: alexconv check {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
