"""Planted bugs that checks have missed: the verification of a run must notice each."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ladders import planted
from points import point_of

from alexconv.check import kinds
from alexconv.executors import choose_executor
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Rung
from alexconv.measuring.runner import Runner, Settings
from alexconv.planning.points import Batch
from alexconv.shapes import Conv

SHAPES = {
    "deep": Conv(C=256, H=7, W=6, M=8, R=3, S=3),
    "wide": Conv(C=32, H=9, W=12, M=24, R=3, S=3, pad=1),
    "square": Conv(C=6, H=15, W=15, M=4, R=7, S=7),
    "odd": Conv(C=5, H=14, W=11, M=3, R=4, S=3),
    "one tile": kinds.SHAPES[2],
    "one channel": kinds.SHAPES[0],
    "narrow groups": next(conv for conv in kinds.SHAPES if 1 < conv.groups < conv.C),
}


@dataclass(frozen=True)
class Mutant:
    """A text in a rung's file or headers, and its replacement."""

    rung: str
    right: str
    wrong: str
    shape: str = "wide"
    N: int = 3
    constants: dict[str, int] = field(default_factory=dict)


TAP = "w[(c * R + r) * S + s], sum);"
STORED = "vector_start(i)) = outputs[i];"
TRUNCATED = ", ".join(f"__uint_as_float(__float_as_uint(outputs[i].{part}) & 0xffffe000u)" for part in "xyzw")
SPLIT = {"SPLITS": 2, "CHANNELS": 16}
# Bugs that the largest error on uniform data does not tell from rounding; the exact check does.
MISSED = {
    "tiled-half2 without its last channel": Mutant("tiled-half2", "c < C; ++c", "c < C - 1; ++c", "deep", 1),
    "channels-half without its last channel": Mutant(
        "channels-half", "c < end_channel()", "c < end_channel() - (end_channel() == C)", "deep", 1
    ),
    "a tap of one filter in half": Mutant(
        "direct-half", TAP, f"m == 3 && c == 100 && r + s == 0 ? __half(0.0f) : {TAP}", "deep", 1
    ),
    "no rounding to tf32": Mutant("mma-tf32", "*at = to_tf32(__uint_as_float(*at));", "", N=1),
    "partial sums with a half's significant bits": Mutant(
        "mma-tf32", STORED, f"vector_start(i)) = make_float4({TRUNCATED});", N=1, constants=SPLIT
    ),
    "the exponent of image 0 for all": Mutant("wgmma-scaled", "load_now(exponents + n)", "load_now(exponents)"),
    "an arrival counter that wraps late": Mutant(
        "mma-tf32", "/ WARP, SPLIT_BLOCKS - 1);", "/ WARP, SPLIT_BLOCKS);", constants=SPLIT
    ),
    "an arrival counter that wraps early": Mutant(
        "mma-tf32", "/ WARP, SPLIT_BLOCKS - 1);", "/ WARP, SPLIT_BLOCKS - 2);", "deep", 2, {"SPLITS": 4, "CHANNELS": 16}
    ),
}
# Bugs that square shapes, one image or the usual constants hide.
HIDDEN = {
    "one step of a filter's load": Mutant(
        "shared-output-tile",
        "for (int i = thread; i < R * S; i += THREADS) filter[i]",
        "if (const int i = thread; i < R * S) filter[i]",
        "square",
        constants={"TILE": 6},
    ),
    "R and S swapped": Mutant(
        "direct-register",
        "DIVISOR(R, CONV_R); DIVISOR(S, CONV_S)",
        "DIVISOR(R, CONV_S); DIVISOR(S, CONV_R)",
        "odd",
    ),
    "H and W swapped": Mutant(
        "direct-register", "NUMBER(H, CONV_H); NUMBER(W, CONV_W)", "NUMBER(H, CONV_W); NUMBER(W, CONV_H)", "odd"
    ),
    "E and F swapped": Mutant("direct-filter-shared", "y[e * F + f] = sum", "y[f * E + e] = sum", "odd"),
    "an image's offset": Mutant("direct-register", "(size_t)n * C * H * W", "(size_t)n * C * H", "odd"),
}
# Bugs at values about the powers of two where a rung changes how it computes, or at a faint value in the last place.
FAINT = "for (int i = threadIdx.x; i < OF(Pairs, STRONG_FLAGS); i += THREADS)\n            faint"
EDGES = {
    "a faint pixel in the last place": Mutant("mma-split", FAINT, FAINT.replace("FLAGS)", "FLAGS) - 1"), "one tile"),
    "the usual power up to 2^6": Mutant("wgmma-scaled", "MOST = bits_of_power(5)", "MOST = bits_of_power(6)"),
    "half of fp16's least number is zero": Mutant("mma-scaled", "LEAST_HALF = -24", "LEAST_HALF = -25", "one channel"),
}
# Products of an infinity with a zero that fills the last step along K.
FILLED = {
    "a filter's value beyond the last tap": Mutant(
        "direct-groups-mma-half", "m < GROUP_M && k < K", "m < GROUP_M && k <= K", "narrow groups"
    ),
    "a pixel in place of zeros beyond the last tap": Mutant(
        "direct-groups-mma", "under[half] + at, !beyond", "under[half] + (beyond ? 0 : at), true", "narrow groups"
    ),
}


def with_bug(mutant: Mutant, folder: Path) -> Rung:
    return planted(mutant.rung, mutant.right, mutant.wrong, folder)


def recorded(rung: Rung, mutant: Mutant) -> dict:
    """The record of a run of the rung on the mutant's shape."""
    batch = Batch("mutants", 1, SHAPES[mutant.shape], mutant.N)
    point = point_of(batch, rung, rung.resolve(batch.conv, mutant.constants))
    return Runner(choose_executor("host"), [point], Settings(baseline=False)).record(point)


@pytest.mark.parametrize("name", MISSED)
def test_a_bug_that_the_largest_error_misses_is_caught(tmp_path, name):
    record = recorded(with_bug(MISSED[name], tmp_path), MISSED[name])
    assert record["error"]["scaled"] <= record["error"]["tolerance"]
    assert record["status"] == "wrong"
    assert record["exact"]["wrong"] > 0
    assert "not exact on integers" in record["reason"]


@pytest.mark.parametrize("name", HIDDEN)
def test_a_bug_that_usual_shapes_and_constants_hide_is_caught_on_others(tmp_path, name):
    assert recorded(with_bug(HIDDEN[name], tmp_path), HIDDEN[name])["status"] == "wrong"


def assert_caught(mutant, folder, wrong_at, words):
    """A check of one shape says what is wrong with a mutant, and nothing of its rung."""
    conv = SHAPES[mutant.shape]
    assert words in str(wrong_at(with_bug(mutant, folder), conv))
    assert wrong_at(RUNGS[mutant.rung], conv) is None


@pytest.mark.parametrize("name", EDGES)
def test_a_bug_at_the_edge_of_a_range_is_caught_by_check(tmp_path, name):
    assert_caught(EDGES[name], tmp_path, kinds.wrong_at_edges, "values about powers of two")


@pytest.mark.parametrize("name", FILLED)
def test_an_infinity_times_a_zero_beyond_the_last_tap_is_caught_by_check(tmp_path, name):
    assert_caught(FILLED[name], tmp_path, kinds.wrong_at_infinities, "misplaced")


@pytest.mark.parametrize(
    "mutant", {(m.rung, m.shape): m for m in (*MISSED.values(), *HIDDEN.values())}.values(), ids=str
)
def test_the_rungs_without_bugs_pass(mutant):
    record = recorded(RUNGS[mutant.rung], mutant)
    assert record["status"] == "ok", record["reason"]
    assert record["exact"] == {"images": mutant.N, "wrong": 0}
