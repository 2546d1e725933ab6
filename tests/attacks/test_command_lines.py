"""Random words after every command: an exit status, no traceback, and nothing runs by mistake."""

from importlib import import_module

import pytest
from attack_size import FACTOR, keep, shares
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alexconv.__main__ import COMMANDS

ABSENT = "absent"
# Arguments that keep each command from starting hours of work: a dry run, an absent GPU, an unknown name.
ENDED_BY = {
    "run": ["--dry-run", "--backend", "host"],
    "compare": [],
    "profile": ["--backend", "cuda"],
    "tune": ["--backend", "cuda"],
    "accuracy": ["--backend", "cuda"],
    "ceilings": [],
    "cards": ["--gpu", ABSENT],
    "report": [],
    "predict": ["--gpu", ABSENT],
    "check": ["--kinds", ABSENT],
    "new": ["--like", ABSENT],
    "assignment": ["--study", ABSENT],
    "grade": [ABSENT, ABSENT],
    "merge": [ABSENT],
    "reference": ["--workload", ABSENT],
    "warm": ["--arch", ABSENT],
}


def test_every_command_is_tried() -> None:
    assert ENDED_BY.keys() == COMMANDS.keys()


OPTIONS = (
    *("--layers", "--N", "--rungs", "--workload", "--transfer", "--precision", "--set", "--memory-budget", "--seconds"),
    *("--seed", "--study", "--mix", "--out", "--time-limit", "--host-order", "--device", "--figure", "--margin", "-o"),
    *("--tuned", "--together", "--verify-only", "--json", "--verbose", "--resume", "--blocks", "--data", "--trials"),
)
VALUES = st.one_of(
    st.sampled_from(
        ["1-5", "1,3", "all", "direct", "tiled,wgmma", "lenet-70-k5", "fp32,half", "TILE=8,16", "64MiB", "/"]
    ),
    st.sampled_from(
        ["", "-1", "0", "1e308", "nan", "infGB", "10" * 50, "1:2:x1", "3-1", "=", "TILE=", "..", "\udcff", "%s"]
    ),
    st.text(max_size=8),
    st.integers().map(str),
)
WORDS = st.lists(st.one_of(st.sampled_from(OPTIONS), VALUES), max_size=6)


@shares()
@pytest.mark.parametrize("command", ENDED_BY)
def test_random_arguments_give_an_exit_status_of_0_1_or_2(
    command: str,
    share: int,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    main, folder = import_module(COMMANDS[command]).main, tmp_path_factory.mktemp("words")
    monkeypatch.chdir(folder)
    tried = 0

    @given(WORDS)
    @settings(max_examples=10, deadline=None, derandomize=FACTOR <= 1, suppress_health_check=list(HealthCheck))
    def try_them(words: list[str]) -> None:
        nonlocal tried
        tried += 1
        try:
            status = main([*words, *ENDED_BY[command]])
        except SystemExit as end:
            status = end.code
        assert status in (0, 1, 2), words

    try_them()
    capfd.readouterr()
    keep("command lines of random words", tried, "tracebacks")
