"""Digests of the project's own Python: what they depend on, and that nothing which runs is left out."""

import ast
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import CodeType, FrameType

import pytest
from edited_code import edit_code, forget_code
from points import batch_of

from alexconv import code
from alexconv.code import BY_VALUE, code_of, definitions, definitions_in, reached, statements
from alexconv.cpu_reference.cache import CachedReference
from alexconv.executors.host.executor import HostExecutor
from alexconv.kernels.ladder import RUNGS
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.points import Point

TEXT = '''
"""A module."""
import os
LIMIT = 3  # of a thing

@decorated
def f(x: int, y="a") -> str:
    """A function."""
    if x:
        return f"{x!r:>{LIMIT}} {y} {f'{x}'}"
    return rb"x"[0] + {
        1: 2, 3: 4}[x]
'''
SAME = """
import os  # another comment
LIMIT   =   3


@decorated
def f(x: int, y="a") -> str:
        # the same
        if x:
            return f"{x!r:>{LIMIT}} {y} {f'{x}'}"

        return rb"x"[0] + {1: 2,
                           3: 4}[x]
"""
ROWS = [
    "0 import os",
    "0 LIMIT = 3",
    "0 @ decorated",
    '0 def f ( x : int , y = "a" ) -> str :',
    "1 if x :",
    "2 return f\"{x!r:>{LIMIT}} {y} {f'{x}'}\"",
    '1 return rb"x" [ 0 ] + { 1 : 2 , 3 : 4 } [ x ]',
]
OTHER = [
    ("LIMIT = 3", "LIMIT = 4"),
    ('"a"', '"b"'),
    ("{x!r", "{x!s"),
    ("        return f", "    return f"),
    ("3: 4", "4: 3"),
]


@pytest.mark.parametrize("text", [TEXT, SAME])
def test_the_tokens_of_statements_are_the_same_in_every_python(text: str) -> None:
    assert [row for _, row in statements(text)] == ROWS


@pytest.mark.parametrize(("before", "after"), OTHER)
def test_every_token_and_the_depth_of_a_statement_count(before: str, after: str) -> None:
    assert before in TEXT
    assert [row for _, row in statements(TEXT.replace(before, after))] != ROWS


def test_what_a_definition_names_is_reached_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "alexconv.first": """
            from alexconv import second
            from alexconv.third import Kept as Other, unused
            from typing import TYPE_CHECKING
            if TYPE_CHECKING:
                from alexconv.third import Annotated
            TABLE = {"a": 1}
            start()
            def root(x: "list[Annotated]"):
                from alexconv.third import late
                return second.member + TABLE[x] + late() + Other.make()
            def other(): ...
        """,
        "alexconv.second": "from alexconv.third import deep\nmember = deep()\nunread = 1",
        "alexconv.third": "class Kept: ...\nclass Annotated: ...\ndef late(): ...\ndef deep(): ...\nunused = 0",
    }
    monkeypatch.setattr(code, "source_of", lambda name: dedent(sources[name]))
    monkeypatch.setattr(code, "is_module", sources.__contains__)
    forget_code()
    names = reached(("alexconv.first", "root"))
    forget_code()
    assert names == {
        *(("alexconv.first", name) for name in ("", "root", "TABLE")),
        ("alexconv.second", "member"),
        *(("alexconv.third", name) for name in ("Kept", "Annotated", "late", "deep")),
    }


def functions_called(work: Callable[[], object]) -> set[tuple[str, str]]:
    """The project's own functions and classes that run, except on behalf of what keys have by value.

    Each is a module, and a name in the module.
    """
    calls: set[tuple[str, str]] = set()
    aside = (*BY_VALUE, code.__name__)

    def note(frame: FrameType, event: str, _: object) -> None:
        module, name = module_of(frame), name_of(frame.f_code)
        if event == "call" and module.startswith("alexconv.") and not name.startswith(("<", "__")):
            caller: FrameType | None = frame
            while caller and not module_of(caller).startswith(aside):
                caller = caller.f_back
            if not caller:
                calls.add((module, name))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return calls


def module_of(frame: FrameType) -> str:
    """The module that a function is of."""
    return str(frame.f_globals.get("__name__", ""))


def name_of(called: CodeType) -> str:
    """The definition of a module that a function is, or is a part of."""
    return called.co_qualname.partition(".")[0]


@pytest.mark.parametrize("data", ["uniform", "non-finite"])
def test_everything_that_runs_for_a_verdict_is_in_its_key(data: str, fresh_cache: Path) -> None:
    """No function of this project runs that keys have neither by its code nor by value."""
    rung = RUNGS["mma-half"]
    point = Point.with_defaults(batch_of("lenet-70-k5", 2, 3, data), rung)
    executor = HostExecutor()
    runner = Runner(executor, [point], Settings(baseline=False))
    statuses: list[str] = []

    def verify() -> None:
        facts = runner.measured(point, runner.plan(point), runner.layer(point))
        statuses.append(facts["status"])

    ran = functions_called(verify)
    assert statuses == ["ok"]
    known = reached(
        *((value.__module__, value.__name__) for value in (Runner, HostExecutor, executor.opens["pageable"]))
    )
    assert ran <= known, ran - known
    assert len(ran & known) > 40, "a verdict needs more functions than that"
    assert ("alexconv.planning.checks", "errors") in ran


def test_bases_and_functions_count_and_classes_from_elsewhere_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(HostExecutor):
        """A test's."""

    assert code_of(Own) == code_of(HostExecutor) != code_of(CachedReference) != code_of(statements)
    before = code_of(Own)
    edit_code(monkeypatch, "alexconv.executors.host.executor", "MEMORY_SHARE = 0.5", "MEMORY_SHARE = 0.6")
    assert code_of(Own) != before
    forget_code()


def test_a_stored_digest_serves_until_a_source_changes_or_it_is_damaged(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_code()
    before = code_of(HostExecutor)
    (stored,) = (cache / "code").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(code, "followed", None)  # the sources are not read for their definitions again
        code.code_digest.cache_clear()
        assert code_of(HostExecutor) == before
    edit_code(monkeypatch, "alexconv.executors.host.executor", "MEMORY_SHARE = 0.5", "MEMORY_SHARE = 0.6")
    edited = code_of(HostExecutor)
    assert edited != before
    stored.write_text(stored.read_text().replace(edited, before))
    forget_code()
    assert code_of(HostExecutor) == edited
    forget_code()


def test_every_name_of_every_module_can_be_followed() -> None:
    folder = Path(code.__file__).parent
    for part in ("measuring", "planning", "executors/host", "executors/cuda", "cpu_reference"):
        for file in sorted((folder / part).glob("*.py")):
            module = f"alexconv.{part.replace('/', '.')}.{file.stem}"
            if file.stem != "__init__" and not module.startswith(BY_VALUE):
                for name in definitions(module).tokens:
                    assert (module, name) in reached((module, name))


def test_a_module_is_parsed_again_where_another_thread_disturbs_the_parser(monkeypatch) -> None:
    """It did in 4 of 2,347 parses by two threads, with a callback of the garbage collector that lets threads switch."""
    whole, parse, failures = definitions("alexconv.run"), ast.parse, [3]

    def disturbed(*arguments, **options):
        if failures[0]:
            failures[0] -= 1
            raise SystemError("AST constructor recursion depth mismatch (before=69, after=67)")
        return parse(*arguments, **options)

    monkeypatch.setattr(ast, "parse", disturbed)
    assert definitions_in.__wrapped__(code.source_of("alexconv.run")) == whole
    assert not failures[0]
