"""The installed command ``alexconv``, whose first argument names what to do: ``alexconv run --layers 1-5``."""

import argparse
import ast
import importlib
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from alexconv import __version__
from alexconv.errors import UsageError
from alexconv.options import exits_cleanly

# The core's commands are modules, an app's is its folder's.
COMMANDS = {
    "run": "alexconv.run",
    "tune": "alexconv.tune.__main__",
    "profile": "alexconv.profile.__main__",
    "predict": "alexconv.predict.__main__",
    "check": "alexconv.check.__main__",
    "new": "alexconv.new",
    "assignment": "alexconv.assignment",
    "grade": "alexconv.grade.__main__",
    "compare": "alexconv.compare",
    "merge": "alexconv.merge",
    "report": "alexconv.reports.__main__",
    "reference": "alexconv.reference",
    "accuracy": "alexconv.accuracy.__main__",
    "ceilings": "alexconv.ceilings",
    "cards": "alexconv.cards",
    "warm": "alexconv.library.__main__",
}


def summary(module: str) -> str:
    """The first line of a module's docstring, read without importing the module."""
    spec = find_spec(module)
    source = Path(spec.origin).read_text() if spec and spec.origin else ""
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def parser(program: str) -> argparse.ArgumentParser:
    """The command's own options, and its commands with a line each."""
    commands = "\n".join(f"  {name:<10} {summary(module)}" for name, module in COMMANDS.items())
    options = argparse.ArgumentParser(
        prog=program,
        usage=f"{program} [-h] [--version] COMMAND ...",
        description="A study framework for convolution kernels on GPUs, checked against a CPU reference.\n"
        "A rung is one kernel variant: a .cu file and its entry in the ladder (alexconv run --list).",
        epilog=f"commands:\n{commands}\n\n{program} COMMAND --help shows the options of a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("command", nargs="?", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    options.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options.add_argument("--version", action="version", version=f"alexconv {__version__}")
    return options


@exits_cleanly
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command that the first argument names on the other arguments; returns its exit status."""
    program = "python -m alexconv" if Path(sys.argv[0]).name == "__main__.py" else "alexconv"
    options = parser(program)
    chosen = options.parse_args(arguments)
    if chosen.command is None:
        options.print_help(sys.stderr)
        return UsageError.exit_status
    sys.argv = [f"{program} {chosen.command}", *chosen.arguments]  # the command's usage line shows it
    status: int = importlib.import_module(COMMANDS[chosen.command]).main()
    return status


if __name__ == "__main__":
    sys.exit(main())
