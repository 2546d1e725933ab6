"""Every attack that is tried and what catches it: the rows of a table in docs/trust.md.

A test names the attacks that it tries with ``@shows``; each row needs such a test.
"""

from collections.abc import Callable
from typing import TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., None])

CHECK = "the check before timing"
GUARDS = "guard zones around every array"
READ_ONLY = "sums over inputs before and after timing; on the host, inputs are read-only pages"
AUDIT = "inputs whose signs change between launches; sums over outputs after every sample"
RECHECK = "outputs whose bits differ in a timed launch are checked again"
LATE = "waiting for the whole device after the last event"
CLOCKS = "the host's clock against the device's events"
SETTINGS = "settings of the device before and after timing, against the first ones"
KEPT = "making such lines ordinary ones before every sample"
FLOOR = "the least time in which the device can do the arithmetic"
APART = "a process of its own for each launch on the host"
KEYS = "the record's key"
LIMIT = "a time limit for each point"
ALONE = "each file is compiled alone, without device linking"
SAID = "nothing that a kernel prints is read"
LAYOUTS = "peers in both layouts and with both paddings; sequences are compared with the faster one"

CAUGHT_BY = {
    "constant outputs": CHECK,
    "part of y unwritten": CHECK,
    "right on floats alone": CHECK,
    "takes images for repetitions of others": CHECK,
    "skips a channel in one image": CHECK,
    "zeros skipped, and what follows them": CHECK,
    "some images in half precision": CHECK,
    "all images in half precision": CHECK,
    "reads freed or unwritten memory as its output": CHECK,
    "depends on shared memory of an earlier launch": CHECK,
    "stores right after y": GUARDS,
    "stores right before y": GUARDS,
    "stores far from any array": APART,
    "ends its process": APART,
    "changes x": READ_ONLY,
    "changes w": READ_ONLY,
    "changes what was prepared from w": READ_ONLY,
    "right for some launches, then wrong": AUDIT,
    "wrong now and then": AUDIT,
    "skips every second launch": AUDIT,
    "skips all but one launch of a batch": AUDIT,
    "moves the work into the preparation of the filters": AUDIT,
    "skips where y is there already": AUDIT,
    "replays an output by pointer": AUDIT,
    "replays an output by a part of the input": AUDIT,
    "replays an output by content": AUDIT,
    "learns the outputs during warm-up": AUDIT,
    "part of y unwritten once it is timed": AUDIT,
    "half precision once it is timed": RECHECK,
    "works on after the end event": LATE,
    "patches the device's events": CLOCKS,
    "patches the samples": FLOOR,
    "leaves lines in the L2 cache that a flush does not take away": KEPT,
    "leaves clocks, a power limit or a share of the L2 cache set": SETTINGS,
    "another grid under the same name": KEYS,
    "prints a record": SAID,
    "does not end": LIMIT,
    "launches another's kernel": ALONE,
    "slows a peer by a bad layout": LAYOUTS,
}

SHOWN: dict[str, list[str]] = {}


def shows(*attacks: str) -> Callable[[Test], Test]:
    """Marks a test that tries these attacks."""
    assert set(attacks) <= CAUGHT_BY.keys(), attacks

    def mark(test: Test) -> Test:
        for attack in attacks:
            SHOWN.setdefault(attack, []).append(test.__name__)
        return test

    return mark


def cases(table: dict[str, object]) -> pytest.MarkDecorator:
    """A test's parameters ``attack`` and ``cheat``."""
    assert table.keys() <= CAUGHT_BY.keys(), table.keys() - CAUGHT_BY.keys()
    return pytest.mark.parametrize(("attack", "cheat"), table.items(), ids=list(table))
