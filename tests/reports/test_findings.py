"""Titles state what their figures show."""

from alexconv.records.statistics import Summary
from alexconv.reports.charts import Dot, Duel, Line, Stack, Step
from alexconv.reports.elements import shown
from alexconv.reports.findings import (
    batching,
    by_panel,
    climb,
    copies,
    duels_won,
    extent,
    fastest,
    leap,
    titled,
    wins,
)
from alexconv.reports.published import value
from alexconv.reports.style import ON_COLOUR, darkened, look


def ms(value: float) -> Summary:
    return Summary(value, value, value, 10)


def dot(label: str, here: float | None, there: float | None = None) -> Dot:
    return Dot(label, look("direct"), None if here is None else ms(here), there)


def test_the_fastest_row_stands_beside_the_study_s() -> None:
    rows = [dot("a", 1.0, 3.0), dot("b", 2.0, 1.0), dot("c", None, 2.0)]
    assert fastest(rows) == "b is fastest, in the study a"
    assert fastest(rows, least=True) == "a is fastest, in the study b"
    assert fastest(rows[:1], "most on {}") == "most on a, as in the study"
    assert fastest([dot("a", 1.0)]) == "a is fastest"
    assert fastest([dot("a", None, 1.0)]) == ""
    assert titled("Fig. 3a", "") == "Fig. 3a"


def test_panels_that_agree_are_told_once() -> None:
    one, two = [dot("a *", 1.0), dot("b", 2.0)], [dot("a *", 3.0), dot("b", 2.0)]
    assert by_panel([("layer 1, N=1", one), ("layer 2, N=1", one)]) == "a is fastest"
    assert by_panel([("layer 1, N=1", one), ("layer 2, N=1", two)]) == "layer 1, a is fastest; layer 2, b is fastest"


def test_shares_of_copies() -> None:
    bars = [
        Stack("a", look("direct"), ms(3.0), {"h2d": 0.5, "d2h": 0.5}),
        Stack("b", look("direct"), ms(1.0), {"h2d": 1.0}),
    ]
    assert copies(bars) == "copies take 25 to 50 % of the time"
    assert copies([]) == ""
    assert extent([2.2, 2.4], "×") == "2×"


def test_a_ladder_s_fastest_rung_next_to_its_first() -> None:
    steps = [Step(name, look(name), ms(time), None) for name, time in (("direct", 8.0), ("igemm", 2.0), ("tiled", 4.0))]
    assert climb(steps) == "igemm is fastest, 4.00× faster than direct"
    assert climb(steps[:1]) == ""


def test_the_largest_step_of_a_waterfall() -> None:
    times = [("direct", 8.0, None), ("tiled", 4.0, 8.0), ("igemm", 1.0, 4.0), ("mma-half", 3.0, None)]
    steps = [Step(name, look(name), ms(own), parent) for name, own, parent in times]
    assert leap(steps) == "the largest step is igemm, 4.00× faster than its parent"
    assert leap(steps[:1]) == ""


def test_duels_are_won_against_the_peer_s_faster_layout() -> None:
    rows = [
        Duel(label, look("igemm"), ours, {"nchw": nchw, "nhwc": 2.0}, "nchw")
        for label, ours, nchw in (("1", 1.0, None), ("2", 1.5, 1.0), ("3", None, 1.0))
    ]
    assert duels_won([("fp32", rows)]) == "ours is faster on 1 of 2 rows"
    assert duels_won([]) == ""


def test_what_a_large_batch_saves() -> None:
    lines = [
        Line("slow", look("direct"), [1, 32], [ms(3.0), ms(2.0)]),
        Line("fast", look("igemm"), [1, 32], [ms(4.0), ms(1.0)]),
        Line("grey", look("tiled"), [1, 32], [ms(0.2), ms(0.1)], quiet=True),
    ]
    assert batching(lines) == "an image takes 4× less at N=32 than at N=1 with fast"
    assert batching(lines[2:]) == ""


def test_wins_are_counted_by_place() -> None:
    rows = [("a", "1", ms(1.0)), ("b", "1", ms(2.0)), ("a", "2", ms(3.0)), ("b", "2", None)]
    assert wins(rows) == "b is faster on 1 of 2 layers; a is faster on 1 of 2 layers"


def test_published_numbers_have_the_digits_that_were_printed() -> None:
    assert shown(value("alexnet", 1, 32, "memcpy", "memcpy_time")) == "14"
    assert shown(value("alexnet", 2, 1, "cpu-serial", "cpu_time")) == "3.8"
    assert shown(value("alexnet", 1, 128, "cpu-serial", "cpu_time")) == "100"


def test_colours_of_a_dark_page() -> None:
    assert darkened("#ffffff") < darkened("#e3e3e3") < darkened("#777777") < darkened("#000000")
    assert darkened("#88ccee") == "#88ccee"
    assert darkened(ON_COLOUR) == darkened("#ffffff"), "dark on a light colour stays dark"
    assert int(darkened("#332288")[1:3], 16) > 0x60
