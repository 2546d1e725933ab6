"""How much the open-ended tests try, and what they found.

The suite tries one share.  ``make attack`` tries ALEXCONV_ATTACK shares, as separate tests that may run in parallel,
and appends the counts to the file ALEXCONV_ATTACK_RECORD, the source of a table in docs/trust.md.
"""

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FACTOR = float(os.environ.get("ALEXCONV_ATTACK", 1))  # times the suite's numbers
RECORD = os.environ.get("ALEXCONV_ATTACK_RECORD")


def shares(trials: int = 1) -> pytest.MarkDecorator:
    """Runs a test once in the suite and ``trials`` times per share in ``make attack``, numbered by ``share``."""
    return pytest.mark.parametrize("share", range(1 if FACTOR <= 1 else round(trials * FACTOR)))


def in_turn(cases: Sequence[Any], place: int, of: int = 1) -> list[Any]:
    """``of`` of the cases in the suite, others for the next place, and all of them in ``make attack``."""
    if FACTOR > 1:
        return [*cases]
    first = place * of % max(1, len(cases))
    return [*cases[first:], *cases[:first]][:of]


def drawing(share: int) -> random.Random:
    """Random numbers of a share: always the same in the suite; new in ``make attack``, with the seed in the output."""
    seed = share if FACTOR <= 1 else random.SystemRandom().getrandbits(32)
    print(f"drawn from seed {seed}")
    return random.Random(seed)


def keep(what: str, tried: int, bad: str, count: int = 0) -> None:
    """Records how often something was tried, and how often it went wrong."""
    if RECORD:
        with Path(RECORD).open("a") as file:
            file.write(json.dumps({"what": what, "tried": tried, "bad": bad, "count": count}) + "\n")
