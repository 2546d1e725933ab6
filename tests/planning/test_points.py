"""What the user asks for becomes exactly the points that it names."""

import re
from dataclasses import replace

import pytest
from points import batch_of, point_of

from alexconv.errors import UsageError
from alexconv.kernels.ladder import ALIASES, ALL_DIRECTIONS, GRADIENTS, LADDER, RUNGS
from alexconv.kernels.problem import H200
from alexconv.planning.peers import TORCH_PEERS
from alexconv.planning.points import (
    ConstantSource,
    PeerPoint,
    Point,
    choose_rungs,
    choose_transfers,
    expand,
    parse_constants,
    parse_directions,
    refuse_unused,
)
from alexconv.planning.transfers import TRANSFERS
from alexconv.records.labels import changed_in, rung_label
from alexconv.records.store import identity
from alexconv.shapes import DIRECTIONS, WORKLOADS

BATCH = batch_of("alexnet", 1, 1)


def names(text: str) -> list[str]:
    return [rung.name for rung, _ in choose_rungs(text)]


def test_rungs_by_name_alias_family_and_all():
    assert names("all") == [rung.name for rung in LADDER]
    assert names("mcpy,direct") == ["direct"]
    assert names("mk,direct-register") == ["channels", "direct-register"]
    assert names("multi") == [rung.name for rung in LADDER if rung.family == "multi"]
    with pytest.raises(UsageError, match="unknown rung 'fast': alexconv run --list"):
        names("fast")
    with pytest.raises(UsageError, match=r"unknown rung 'direc'; did you mean direct or .*[?] alexconv run --list"):
        names("direc")


def test_a_name_that_a_rung_and_a_family_share_is_the_rungs():
    shared = {rung.family for rung in LADDER} & set(RUNGS)
    assert shared == {"igemm"}
    assert names("igemm") == names("ig") == ["igemm"]
    for family in dict.fromkeys(rung.family for rung in LADDER):
        assert names(f"family:{family}") == [rung.name for rung in LADDER if rung.family == family]
    assert names("family:igemm,igemm") == names("family:igemm")
    for abbreviation, name in ALIASES.items():
        assert names(abbreviation) == names(name) == [name]


@pytest.mark.parametrize("typo", ["igem", "igemmm", "famly:igemm", "direc", "half2", "tile5", "wgma", "ig-", "al"])
def test_guesses_for_a_typo_are_distinct(typo):
    with pytest.raises(UsageError, match=r"did you mean ([^?]*)\?") as caught:
        names(typo)
    guesses = re.search(r"did you mean ([^?]*)\?", str(caught.value))[1].split(" or ")
    selections = [tuple((rung.name, transfer) for rung, transfer in choose_rungs(guess)) for guess in guesses]
    assert len(set(selections)) == len(guesses) <= 3


def test_um_is_the_direct_rung_under_the_managed_transfer():
    points = expand([batch_of("alexnet", 2, 1)], choose_rungs("um,mcpy"), choose_transfers("pinned"))
    assert [(point.rung, point.transfer) for point in points] == [("direct", "managed"), ("direct", "pinned")]


def test_transfers():
    assert [t.streams for t in choose_transfers("pinned,streamed,streamed:8")] == [1, 4, 8]
    for bad in ("pined", "streamed:0", "streamed:08", "streamed:x", "pinned:2", ""):
        with pytest.raises(UsageError):
            choose_transfers(bad)


def test_a_constant_without_effect_adds_no_point():
    constants = parse_constants(["COALESCED=0,1"])
    one, two = (
        expand(
            [batch_of("alexnet", layer, 1)],
            choose_rungs("direct-register"),
            choose_transfers("pinned"),
            ConstantSource(constants),
        )
        for layer in (1, 2)
    )
    assert [point.constants["COALESCED"] for point in one] == [0, 1]
    assert len(two) == 1


def test_bad_constants_are_usage_errors():
    for text in ("NOPE=1", "COALESCED", "COALESCED=x", "THREAD_OUTPUTS=1,2147483648"):
        with pytest.raises(UsageError):
            parse_constants([text])
    with pytest.raises(UsageError, match="COALESCED of direct is 0, 1, not 2"):
        expand([BATCH], choose_rungs("direct"), choose_transfers("pinned"), ConstantSource({"COALESCED": [2]}))


def test_values_of_a_constant_named_twice_add_up():
    chosen = parse_constants(["TILE=16,8", "COALESCED=0", "TILE=8,32"])
    assert chosen == {"TILE": [16, 8, 32], "COALESCED": [0]}


def test_a_constant_that_no_rung_has_is_a_usage_error():
    rungs, transfers = choose_rungs("direct,tiled"), choose_transfers("pinned")
    constants = parse_constants(["TILE=8"])
    refuse_unused(constants, expand([BATCH], rungs, transfers, ConstantSource(constants)))
    with pytest.raises(UsageError, match="TILE: no constant of direct"):
        refuse_unused(constants, expand([BATCH], rungs[:1], transfers, ConstantSource(constants)))


def test_labels_name_what_differs_from_the_default():
    conv = WORKLOADS["alexnet"].layer(1)
    direct = RUNGS["direct"]
    assert rung_label(direct, direct.resolve(conv, {}), conv) == "direct"
    assert rung_label(direct, direct.resolve(conv, {"COALESCED": 0}), conv) == "direct [COALESCED=0]"


def test_changed_constants_do_not_depend_on_current_defaults():
    source = ConstantSource({"COALESCED": (0,)})
    (point,) = expand([BATCH], choose_rungs("direct"), choose_transfers("pageable"), source)
    record = {"point": point.axes(), "changed": point.changed()}
    assert record["changed"] == ["COALESCED"]
    assert changed_in(record) == {"COALESCED": 0}
    assert changed_in(record | {"changed": []}) == {}
    del record["changed"]  # as in versions without the field
    assert changed_in(record) == {"COALESCED": 0}


def test_defaults_are_those_of_the_device_and_count_as_unchanged():
    device = replace(H200, multiprocessors=100)
    rungs, transfers = choose_rungs("wgmma-half"), choose_transfers("pageable")
    batches = [batch_of("alexnet", 2, 32)]
    (point,) = expand(batches, rungs, transfers, ConstantSource(device=device))
    assert 100 in point.constants.values()
    assert point.changed() == []
    assert "device" not in point.axes()
    (elsewhere,) = expand(batches, rungs, transfers)
    assert 132 in elsewhere.constants.values()
    assert replace(point, device=H200).changed() != []


def test_directions_choose_rungs_and_make_problems():
    def of_directions(*directions):
        return [rung.name for rung, _ in choose_rungs("all", directions=directions)]

    assert of_directions(*DIRECTIONS) == list(ALL_DIRECTIONS.named)
    assert of_directions() == list(LADDER.named)
    assert of_directions("wgrad") == [rung.name for rung in GRADIENTS if rung.direction == "wgrad"]
    assert names("wgrad-direct,direct") == ["wgrad-direct", "direct"]
    batch = batch_of("alexnet", 3, 2)
    forward, wgrad = expand([batch], choose_rungs("direct,wgrad-direct"), [TRANSFERS["pageable"]])
    assert (forward.batch, forward.direction, wgrad.direction) == (batch, "forward", "wgrad")
    assert Point.from_axes(wgrad.axes()) == wgrad
    assert wgrad.label() == "alexnet layer 3 N=2 wgrad-direct pageable"
    assert PeerPoint(wgrad.batch, TORCH_PEERS[0]).label().endswith("pageable wgrad")
    with pytest.raises(UsageError, match="unknown direction backward: choose from forward, dgrad, wgrad"):
        parse_directions("wgrad,backward")


def test_points_of_older_records_are_forward():
    axes = point_of(batch_of("alexnet", 3, 2), "direct").axes()
    older = {name: value for name, value in axes.items() if name not in ("data", "direction")}
    assert identity(older) == identity(axes)
    assert Point.from_axes(older).direction == "forward"
    assert identity({**axes, "direction": "dgrad"}) != identity(axes)
