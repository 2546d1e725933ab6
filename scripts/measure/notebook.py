"""Runs examples/first_hour.ipynb from end to end, and writes it with its outputs.

scripts/measure/notebook.py [--out FILE] [NAME=VALUE ...]

The parameters, as Python writes them, replace those of the notebook's first cell.  Needs nbclient and ipykernel.
"""

import argparse
import ast
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parent.parent.parent
NOTEBOOK = ROOT / "examples" / "first_hour.ipynb"
SECONDS = 1800  # for a cell; with a GPU the first run compiles


def with_parameters(source: str, parameters: Iterable[str]) -> str:
    """The cell of parameters with other values, each assigned after its own; an unknown name ends the program."""
    known = {
        name.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign)
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    lines = []
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name not in known:
            raise SystemExit(f"the notebook has no parameter {name}: {', '.join(sorted(known))}")
        lines.append(f"{name} = {ast.literal_eval(value)!r}")
    return "\n".join([source, *lines])


def execute(parameters: Iterable[str] = ()) -> Any:
    """The notebook with the outputs of all its cells; raises nbclient's CellExecutionError for one that fails."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    (first,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    first.source, written = with_parameters(first.source, parameters), first.source
    options = {"timeout": SECONDS, "record_timing": False, "coalesce_streams": True}
    NotebookClient(notebook, resources={"metadata": {"path": ROOT}}, **options).execute()
    first.source = written
    return notebook


def main() -> None:
    """Parses the command line, runs the notebook and writes it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parameters", nargs="*", metavar="NAME=VALUE", help="in place of the notebook's own")
    parser.add_argument("--out", type=Path, default=NOTEBOOK, metavar="FILE", help="the notebook with its outputs")
    options = parser.parse_args()
    notebook = execute(options.parameters)
    notebook.metadata.pop("language_info", None)  # of this machine's Python
    options.out.write_text(nbformat.writes(notebook) + "\n")


if __name__ == "__main__":
    sys.exit(main())
