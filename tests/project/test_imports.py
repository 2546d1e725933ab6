"""Who may import whom: every part only those below it, and reports never an executor."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
LINKED = {"kernels", "cpu_reference", "reports"}  # links in the package to folders of the checkout
# A folder of the package is a part, with everything in it; the other modules form two parts.
BASICS = ["code", "data", "errors", "files", "machine", "messages", "options", "parallel", "paths"]
BASICS += ["precisions", "shapes"]
COMMANDS = ["cards", "ceilings", "compare", "merge", "new", "reference", "run", "assignment", "__main__"]
COMMANDS += ["predict.__main__"]  # which predicts networks, too: parts above the model

# Besides itself, basics, and the package's version.
MAY_IMPORT = {
    "basics": "",
    "kernels": "",
    "compiling": "",
    "cpu_reference": "compiling",
    "records": "kernels",
    "planning": "kernels records",
    "executors": "kernels compiling records planning",
    "measuring": "kernels cpu_reference records planning executors",
    "cli": "kernels records planning executors measuring",
    "own": "kernels executors",
    "predict": "kernels compiling planning records cli",
    "cluster": "kernels cpu_reference records planning executors measuring cli own",
    "tune": "kernels records planning executors measuring cli own predict cluster",
    "profile": "kernels records planning executors measuring cli own",
    "networks": "kernels cpu_reference records planning executors measuring tune cli predict",
    "check": "kernels compiling cpu_reference planning executors measuring profile cli own networks",
    "grade": "kernels compiling cpu_reference records planning executors measuring own check cli",
    "library": "kernels compiling records planning executors tune",
    "accuracy": "kernels cpu_reference records planning executors measuring own cli",
    "commands": (
        "kernels compiling cpu_reference records planning executors measuring tune cluster predict own grade networks "
        "cli"
    ),
    "reports": "kernels records planning predict own grade cli",
}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the package by name."""
    for folder, _, names in os.walk(CHECKOUT / "alexconv", followlinks=True):
        for file in (Path(folder, name) for name in sorted(names) if name.endswith(".py")):
            parts = file.relative_to(CHECKOUT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), file


MODULES = dict(modules())


def part_of(module: str) -> str | None:
    """The part that a module belongs to; None for the package itself."""
    _, _, rest = module.partition(".")
    first = rest if rest in COMMANDS else rest.partition(".")[0]
    alone = {**dict.fromkeys(BASICS, "basics"), **dict.fromkeys(COMMANDS, "commands")}
    return alone.get(first, first) or None


def imported(file: Path) -> set[str]:
    """The package's modules that a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            names |= {f"{node.module}.{name.name}" for name in node.names}
    assert not {name.split(".")[0] for name in names} & LINKED, f"{file}: a name that is importable in a checkout only"
    own = {name for name in names if name.split(".")[0] == "alexconv"}
    return {name if name in MODULES else name.rpartition(".")[0] for name in own}


def allowed(part: str) -> set[str | None]:
    return {None, part, "basics", *MAY_IMPORT[part].split()}


def test_parts_are_layered_with_reports_on_top():
    order = list(TopologicalSorter({part: names.split() for part, names in MAY_IMPORT.items()}).static_order())
    assert set(order) == set(MAY_IMPORT)
    assert {"executors", "measuring", "cpu_reference"}.isdisjoint(allowed("reports"))
    assert all(part == "reports" or "reports" not in allowed(part) for part in MAY_IMPORT)


def test_every_module_belongs_to_a_part_and_every_part_has_modules():
    assert [module for module in MODULES if part_of(module) is None] == ["alexconv"]
    assert {part_of(module) for module in MODULES} == {None, *MAY_IMPORT}
    assert {f"alexconv.{name}" for name in (*BASICS, *COMMANDS)} <= MODULES.keys()


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_a_part_imports_only_what_it_may(part):
    for module, file in MODULES.items():
        if part_of(module) == part:
            other = {name for name in imported(file) if part_of(name) not in allowed(part)}
            assert not other, f"{module} imports {', '.join(sorted(other))}"


@pytest.mark.parametrize("part", MAY_IMPORT)
def test_no_permission_is_unused(part):
    used = {part_of(name) for module, file in MODULES.items() if part_of(module) == part for name in imported(file)}
    assert set(MAY_IMPORT[part].split()) <= used


def test_a_run_loads_no_app_that_it_was_not_asked_for():
    command = "import sys, alexconv.run; print(*(name for name in sys.modules if name.startswith('alexconv.')))"
    loaded = subprocess.check_output([sys.executable, "-c", command], text=True, cwd=CHECKOUT).split()
    apps = {
        "cluster",
        "tune",
        "profile",
        "check",
        "grade",
        "predict",
        "library",
        "accuracy",
        "networks",
        "own",
        "reports",
    }
    of_apps = {name for name in loaded if part_of(name) in apps and MODULES[name].name != "__init__.py"}
    assert of_apps == {"alexconv.cluster.options", "alexconv.own.folders"}, "whose options a run has"
    assert not {"alexconv.measuring.torch_peers", "alexconv.executors.cuda.graphs"}.intersection(loaded)


def test_the_page_on_the_architecture_shows_these_tables():
    page = (CHECKOUT / "docs" / "architecture.md").read_text()
    shown = page.partition("<!-- imports: begin -->\n")[2].partition("<!-- imports: end -->")[0]
    rows = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in shown.splitlines()]
    expected = [[part, ", ".join(names.split())] for part, names in MAY_IMPORT.items()]
    assert rows[2:] == expected
