"""The installed command: one help for all commands, each with its own."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import alexconv
from alexconv import __main__, __version__
from alexconv.__main__ import COMMANDS, main, summary
from alexconv.records.store import read

HEAVY = {"numpy", "rich", "matplotlib", "h5py", "alexconv.kernels.ladder", *COMMANDS.values()}


def test_every_command_of_the_package_is_listed():
    folder = Path(alexconv.__file__).parent
    files = {path for path in folder.glob("*.py") if '__name__ == "__main__"' in path.read_text()}
    listed = {Path(importlib.import_module(module).__file__) for module in COMMANDS.values()}
    assert files - {Path(__main__.__file__)} == {path for path in listed if path.parent == folder}
    assert "report" in COMMANDS


def test_the_help_has_a_line_for_each_command_and_imports_nothing_heavy():
    script = "import sys; from alexconv.__main__ import parser; print(parser('alexconv').format_help(), *sys.modules)"
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    lines = printed.splitlines()
    for name, module in COMMANDS.items():
        described = importlib.import_module(module).__doc__.partition("\n")[0]
        assert f"  {name:<10} {described}" in lines
        assert described == summary(module)
        assert described.endswith(".")
    assert HEAVY.isdisjoint(lines[-1].split())


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("started", "shown"), [("/usr/bin/alexconv", "alexconv"), ("__main__.py", "python -m alexconv")]
)
def test_a_command_is_named_as_it_was_started(command, started, shown, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", [started, command, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {shown} {command} ")


@pytest.mark.parametrize("command", COMMANDS)
def test_a_module_is_named_as_it_was_started(command, capsys, monkeypatch):
    module = COMMANDS[command].removesuffix(".__main__")
    monkeypatch.setattr("sys.argv", [f"{command}.py", "--help"])
    with pytest.raises(SystemExit):
        importlib.import_module(COMMANDS[command]).main()
    assert capsys.readouterr().out.startswith(f"usage: python -m {module} ")


def test_arguments_and_status_are_those_of_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["alexconv"])
    out = tmp_path / "records.jsonl"
    words = ["run", "--backend", "host", "--rungs", "direct", "--workload", "lenet-70-k5", "--layers", "1"]
    assert main([*words, "--out", str(out)]) == 0
    (command,) = [header["command"] for header in read([out]).headers.values() if header["type"] == "run"]
    assert command.startswith("alexconv run --backend host ")
    assert main(["run", "--workload", "none"]) == 2
    assert "unknown workload" in capsys.readouterr().err


def test_without_a_command_the_help_is_an_error(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["alexconv"])
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["walk"])
    assert ended.value.code == 2
    assert "'walk'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"alexconv {__version__}\n"
