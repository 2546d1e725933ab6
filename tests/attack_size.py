"""How much of what could go on for ever is tried, and what came of it.

The suite tries a part.  ``make attack`` tries ALEXCONV_ATTACK times as much, and keeps the counts in the file that
ALEXCONV_ATTACK_RECORD names, of which a table in docs/trust.md is made.
"""

import json
import os
from pathlib import Path

FACTOR = float(os.environ.get("ALEXCONV_ATTACK", 1))  # of the suite's numbers
RECORD = os.environ.get("ALEXCONV_ATTACK_RECORD")


def examples(in_suite: int) -> int:
    """How many to try, of which the suite tries so many."""
    return max(1, round(in_suite * FACTOR))


def keep(what: str, tried: int, bad: str, count: int = 0) -> None:
    """Notes how often something was tried, and how often the bad thing happened."""
    if RECORD:
        with Path(RECORD).open("a") as file:
            file.write(json.dumps({"what": what, "tried": tried, "bad": bad, "count": count}) + "\n")
