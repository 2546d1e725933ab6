"""The package imports alike from a checkout, an editable install and a wheel, and each has all its files."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from alexconv import __version__

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PACKAGES = {  # folder in the checkout: folder installed
    "alexconv": "alexconv",
    "kernels": "alexconv/kernels",
    "cpu_reference": "alexconv/cpu_reference",
    "reports": "alexconv/reports",
}
NO_TRACE = shutil.ignore_patterns("__pycache__", ".*", "*~", "*.egg-info")

PROBE = """
import importlib, importlib.util, json
names = ["alexconv", "alexconv.executors", "alexconv.kernels", "alexconv.cpu_reference", "alexconv.reports"]
from alexconv.kernels.ladder import LADDER
print(json.dumps({
    "files": {name: importlib.import_module(name).__file__ for name in names},
    "kernels": [str(rung.path) for rung in LADDER],
    "version": importlib.import_module("alexconv").__version__,
    "bare": [name for name in ("kernels", "cpu_reference", "reports") if importlib.util.find_spec(name)],
    "twice": [name for name in ("alexconv", "results", "tests") if importlib.util.find_spec("alexconv." + name)],
}))
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment that has this one's dependencies but not its alexconv."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin/python"

    @property
    def site_packages(self) -> Path:
        major, minor = sys.version_info[:2]
        return self.folder / f"lib/python{major}.{minor}/site-packages"

    def install(self, *what: str | Path) -> None:
        """Installs without touching a network or another environment's alexconv."""
        options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed")
        run(sys.executable, "-m", "pip", "--python", self.python, "install", *options, *what)


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Standard output of a command that sees no Python settings but the given ones."""
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    settings |= {"PYTHONDONTWRITEBYTECODE": "1", **variables}
    done = subprocess.run(command, cwd=cwd, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout: builds leave files behind, and stale ones must not get into a wheel."""
    copy = tmp_path_factory.mktemp("sources")
    for folder in PACKAGES:
        shutil.copytree(CHECKOUT / folder, copy / folder, symlinks=True, ignore=NO_TRACE)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", target, sources)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    fresh = Environment(tmp_path / "venv")
    venv.create(fresh.folder, symlinks=True)
    # Python does not run the .pth files of a folder that a .pth file names: an editable alexconv there stays hidden.
    (fresh.site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return fresh


@pytest.fixture(scope="module")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("sdist")
    hook = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", hook, target, cwd=sources)
    (built,) = target.iterdir()
    return built


@pytest.mark.parametrize("way", ["checkout", "editable", "sdist", "wheel"])
def test_imports_from_anywhere(
    way: str, sources: Path, environment: Environment, request: pytest.FixtureRequest
) -> None:
    variables, root = {}, sources
    if way == "checkout":
        variables["PYTHONPATH"] = str(sources)
    elif way == "editable":
        environment.install("--editable", sources)
    else:
        environment.install(request.getfixturevalue(way))
        root = environment.site_packages

    elsewhere = environment.folder.parent
    facts = json.loads(run(environment.python, "-c", PROBE, cwd=elsewhere, **variables))

    for module, file in facts["files"].items():
        assert Path(file) == root.joinpath(*module.split("."), "__init__.py"), "import path and disk path differ"
    assert facts["kernels"]
    for file in facts["kernels"]:
        assert Path(file).is_relative_to(root)
        assert Path(file).is_file()
    assert facts["version"] == __version__
    assert facts["twice"] == []
    if way != "checkout":
        assert facts["bare"] == []
        installed = environment.folder / "bin/alexconv"
        assert run(installed, "--version", cwd=elsewhere) == f"alexconv {__version__}\n"
        assert run(installed, "report", "--help", cwd=elsewhere).startswith("usage: alexconv report ")


def test_wheel_has_every_file_and_no_other(sources: Path, wheel: Path) -> None:
    expected = {
        f"{installed}/{file.relative_to(sources / folder)}"
        for folder, installed in PACKAGES.items()
        for file in (sources / folder).rglob("*")
        if file.is_file() and file.suffix != ".md"
    }
    metadata = f"alexconv-{__version__}.dist-info/"
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if not name.startswith(metadata)}
    assert packed == expected
    assert "alexconv/py.typed" in packed


def test_the_same_sources_make_the_same_wheel(sources: Path, tmp_path: Path) -> None:
    """With SOURCE_DATE_EPOCH (reproducible-builds.org) in place of the files' times."""
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    wheels = []
    for when in (1, 2):
        copy = tmp_path / str(when) / "sources"
        shutil.copytree(sources, copy, symlinks=True, ignore=shutil.ignore_patterns("build", "*.egg-info"))
        for file in copy.rglob("*"):
            os.utime(file, (10**9 * when, 10**9 * when))
        target = tmp_path / f"wheel{when}"
        command = (sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", target, copy)
        run(*command, SOURCE_DATE_EPOCH="1700000000")
        wheels.append(next(target.iterdir()).read_bytes())
    assert wheels[0] == wheels[1]
