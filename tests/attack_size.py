"""How much of what could go on for ever is tried, and what came of it.

The suite tries a share.  ``make attack`` tries ALEXCONV_ATTACK shares, tests of their own that may run beside each
other, and keeps the counts in the file that ALEXCONV_ATTACK_RECORD names, of which a table in docs/trust.md is made.
"""

import json
import os
import random
from pathlib import Path

import pytest

FACTOR = float(os.environ.get("ALEXCONV_ATTACK", 1))  # of the suite's numbers
RECORD = os.environ.get("ALEXCONV_ATTACK_RECORD")


def shares(each: int = 1) -> pytest.MarkDecorator:
    """Has a test run once in the suite; else ``each`` times for what is one time the suite's, numbered by ``share``."""
    return pytest.mark.parametrize("share", range(1 if FACTOR <= 1 else round(each * FACTOR)))


def drawing(share: int) -> random.Random:
    """What a share draws from: the same each time in the suite; in ``make attack`` new, with its seed in the output."""
    seed = share if FACTOR <= 1 else random.SystemRandom().getrandbits(32)
    print(f"drawn from seed {seed}")
    return random.Random(seed)


def keep(what: str, tried: int, bad: str, count: int = 0) -> None:
    """Notes how often something was tried, and how often the bad thing happened."""
    if RECORD:
        with Path(RECORD).open("a") as file:
            file.write(json.dumps({"what": what, "tried": tried, "bad": bad, "count": count}) + "\n")
