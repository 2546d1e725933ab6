"""What the checks of ``alexconv check`` ask for before they run a kernel."""

import json
from contextlib import suppress
from dataclasses import replace

from alexconv.check import __main__ as check
from alexconv.check import kinds
from alexconv.errors import LaunchError, UsageError
from alexconv.kernels.ladder import ALL_DIRECTIONS, LADDER


class Opened(Exception):
    """In place of a run."""


def test_no_array_of_a_check_is_larger_than_what_it_may_write(monkeypatch):
    plans = []

    def opened(executor, cut, *arrays):
        plans.append(cut)
        raise Opened

    monkeypatch.setattr(kinds, "open_rung", opened)
    for rung in (rung for rung in LADDER if not rung.gpu_only and rung.dtype == "float32"):
        for conv in (conv for conv in kinds.SHAPES if kinds.taken(rung, conv)):
            with suppress(Opened):
                kinds.wrong_at_edges(rung, conv)
    assert {cut.bound.conv for cut in plans} == set(kinds.SHAPES)
    for cut in plans:
        sizes = cut.bound.piece_bytes(cut.images_per_piece)
        assert max(sizes.values()) <= kinds.FILE_BYTES, (cut.bound.rung.name, sizes)


def test_each_rung_takes_one_of_the_shapes():
    for rung in ALL_DIRECTIONS:
        assert rung.gpu_only or any(kinds.taken(rung, conv.toward(rung.direction)) for conv in kinds.SHAPES), rung.name


def test_what_is_found_before_a_launch_fails_is_told(monkeypatch, tmp_path):
    def find(rung, shapes):
        yield "a race"
        raise LaunchError("a deadlock")

    monkeypatch.setitem(kinds.KINDS, "races", kinds.Kind("", find))
    monkeypatch.setattr(kinds.resource, "setrlimit", lambda limit, values: None)
    kinds.run_one(["races", "direct-register", str(tmp_path / "answer")])
    assert json.loads((tmp_path / "answer").read_text()) == ["a race", "a deadlock"]


def test_a_kernel_that_does_not_compile_costs_a_line(tmp_path):
    source = tmp_path / "broken.cu"
    source.write_text('extern "C" __global__ void broken(const float* x, const float* w, float* y) { y[0] = 1 }\n')
    rung = replace(LADDER.named["direct-register"], name="broken", file=str(source))
    rung = replace(rung, launches=(replace(rung.launches[0], entry="broken"),))
    (problem,) = kinds.all_of(lambda: kinds.correct(rung, kinds.SHAPES))
    assert problem.startswith("broken.cu:1:")


def test_a_check_that_a_network_s_kernel_does_not_have_is_refused(capsys):
    assert check.main(["persistent-half", "--kinds", "races,exact"]) == UsageError.exit_status
    expected = "error: persistent-half has no check races, exact: choose from correct, addresses, async"
    assert capsys.readouterr().err.strip() == expected
