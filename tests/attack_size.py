"""How much of what could go on for ever is tried: a part in the suite, all of it by ``make attack``."""

import os

FACTOR = float(os.environ.get("ALEXCONV_ATTACK", 1))  # of the suite's numbers


def examples(in_suite: int) -> int:
    """How many to try, of which the suite tries so many."""
    return max(1, round(in_suite * FACTOR))
