"""Records of older versions keep their meaning when a rung or a constant gets another name."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from alexconv.kernels.common.planes import THREAD_OUTPUTS
from alexconv.kernels.ladder import RUNGS
from alexconv.kernels.rung import Rung
from alexconv.planning import points
from alexconv.planning.points import choose_rungs, parse_constants
from alexconv.planning.transfers import TRANSFERS
from alexconv.records import names, store
from alexconv.tune.search import axes

POINT = {"workload": "alexnet", "layer": 2, "N": 1, "rung": "naive", "transfer": "pageable", "precision": "fp32"}


@pytest.fixture
def renamed(monkeypatch, change_ladder):
    """The ladder as if ``direct`` had been ``naive``, and its THREAD_OUTPUTS had been PER_THREAD."""
    direct = RUNGS["direct"]
    constants = tuple(
        replace(constant, formerly=("PER_THREAD",)) if constant.name == "THREAD_OUTPUTS" else constant
        for constant in direct.constants
    )
    renamed = replace(direct, constants=constants, formerly=("naive",))
    change_ladder(renamed, former={"naive": "direct"})
    monkeypatch.setattr("alexconv.planning.points.LADDER", (renamed,))


def test_an_old_record_is_read_with_current_names(renamed, tmp_path):
    old = {
        "schema": 1,
        "type": "point",
        "key": "k",
        "status": "ok",
        "point": {**POINT, "constants": {"PER_THREAD": 2, "COALESCED": 1}},
        "planned_constants": {"PER_THREAD": 2, "COALESCED": 1},
        "changed": ["PER_THREAD"],
    }
    (tmp_path / "old.jsonl").write_text(json.dumps(old) + "\n")
    (record,) = store.read([tmp_path / "old.jsonl"]).points
    assert record["point"] == {**POINT, "rung": "direct", "constants": {"THREAD_OUTPUTS": 2, "COALESCED": 1}}
    assert (record["planned_constants"], record["changed"]) == (
        {"THREAD_OUTPUTS": 2, "COALESCED": 1},
        ["THREAD_OUTPUTS"],
    )


def test_layers_in_one_graph_are_renamed_too(renamed):
    layer = {"layer": 2, "rung": "naive", "constants": {"PER_THREAD": 1}, "pieces": 1}
    old = {"point": {**POINT, "rung": "naive-together", "constants": {}}, "layers": [layer]}
    new = names.in_present_names(old)
    assert new["point"]["rung"] == "direct-together"
    assert new["layers"] == [{**layer, "rung": "direct", "constants": {"THREAD_OUTPUTS": 1}}]


def test_a_profile_is_read_with_current_names(renamed, tmp_path):
    old = {"schema": 1, "type": "profile", "key": "k", "point": {**POINT, "constants": {"PER_THREAD": 2}}}
    (tmp_path / "old.jsonl").write_text(json.dumps(old) + "\n")
    profile = store.read([tmp_path / "old.jsonl"]).headers["k"]
    assert profile["point"] == {**POINT, "rung": "direct", "constants": {"THREAD_OUTPUTS": 2}}


def test_current_names_and_unknown_rungs_stay():
    for rung, constants in (("direct", {"THREAD_OUTPUTS": 2}), ("torch-nchw-fp32", {}), ("gone", {"X": 1})):
        record = {"point": {**POINT, "rung": rung, "constants": constants}, "changed": list(constants)}
        assert names.in_present_names(record) == record


def test_old_names_serve_on_the_command_line(renamed):
    assert [rung.name for rung, _ in choose_rungs("naive")] == ["direct"]
    assert parse_constants(["PER_THREAD=1,2"]) == {"THREAD_OUTPUTS": [1, 2]}


def test_a_constants_name_is_resolved_for_each_rung(monkeypatch, change_ladder):
    direct, other = RUNGS["direct"], RUNGS["direct-register"]
    still = replace(other, constants=(replace(THREAD_OUTPUTS, name="OUTPUTS", formerly=()),))
    change_ladder(still)
    monkeypatch.setattr(points, "LADDER", (direct, still))
    chosen = parse_constants(["OUTPUTS=3"])
    rungs: list[tuple[Rung, str | None]] = [(direct, None), (still, None)]
    first, second = points.expand("alexnet", [3], [1], rungs, [TRANSFERS["pageable"]], chosen)
    assert (first.constants["THREAD_OUTPUTS"], second.constants["OUTPUTS"]) == (3, 3)
    points.refuse_unused(chosen, [first])
    assert axes(first, [], chosen) == {"THREAD_OUTPUTS": (3,)}


def former_entries(rung):
    """Names that its kernels no longer have; a kernel that is gone keeps its name."""
    return {name for launch in (*rung.prepare, *rung.launches) for name in launch.formerly}


OWN_KERNELS = {"course"}  # of docs/own-kernels.md
OTHER_LINES = {"attacks.jsonl", "mutants.jsonl", "mutants-2.jsonl"}  # one outcome of a test or mutant per line
OLDER = {"h200-contenders.jsonl"}  # some points are older than a constant of their rung
RESULTS = sorted(
    path
    for path in (Path(__file__).resolve().parent.parent.parent / "results").glob("**/*.jsonl")
    if path.name not in OTHER_LINES
)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_measured_record_has_current_names(path):
    found = store.read([path])
    assert found.unreadable == []
    lines = [line for line in path.read_text().splitlines() if json.loads(line)["type"] == "point"]
    assert len(found.points) == len(lines)
    for record in found.points:
        for point in record.get("layers", [record["point"]]):
            if not point["rung"].startswith(("torch-", "cudnn-")) and point["rung"] not in OWN_KERNELS:
                rung = RUNGS[point["rung"]]
                names = {constant.name for constant in rung.constants}
                assert set(point["constants"]) == names or (path.name in OLDER and set(point["constants"]) < names)
                launched = point["launches"] if "layer" in point and "launches" in point else record.get("launches", [])
                assert not {launch["entry"] for launch in launched} & former_entries(rung)
    for header in found.headers.values():
        if "point" in header:  # profiles may be older than a constant
            point = header["point"]
            assert set(point["constants"]) <= {constant.name for constant in RUNGS[point["rung"]].constants}
            assert header.get("entry") not in former_entries(RUNGS[point["rung"]])
        assert header.get("rung") in {None, *RUNGS}


def test_an_ambiguous_former_name_is_resolved_by_the_rung():
    old = {"point": {**POINT, "rung": "igemm-even", "constants": {"BLOCKS": 2, "SLOTS": 264}}}
    igemm = {**POINT, "rung": "igemm-stream-k", "constants": {"BLOCKS_PER_SM": 2, "SLOTS": 264}}
    assert names.in_present_names(old)["point"] == igemm
    old = {"point": {**POINT, "rung": "wgmma-tf32", "constants": {"BLOCKS": 132}}}
    assert names.in_present_names(old)["point"] == {**POINT, "rung": "wgmma-scaled", "constants": {"GRID_BLOCKS": 132}}


def test_kernels_in_records_get_current_names(tmp_path):
    launches = [{"entry": entry, "grid": [1, 1, 1]} for entry in ("prepare_filters", "igemm_even", "add_parts")]
    constants = {"LEAST_STEPS": 8, "SLOTS": 264}
    layer = {"layer": 1, "rung": "igemm-even", "constants": constants, "launches": launches}
    now = ["prepare_filters", "igemm_stream_k", "igemm_stream_k_fixup"]
    sequence = {"point": {**POINT, "rung": "igemm-even-together", "constants": {}}, "layers": [layer], "launches": []}
    for old in ({"point": {**POINT, "rung": "igemm-stream-k", "constants": constants}, "launches": launches}, sequence):
        new = names.in_present_names(old)
        found = new["layers"][0] if "layers" in old else new
        assert [launch["entry"] for launch in found["launches"]] == now
        assert [launch["grid"] for launch in found["launches"]] == [[1, 1, 1]] * 3
        assert (found if "layers" in old else found["point"])["constants"] == {"LEAST_K_TILES": 8, "SLOTS": 264}
    damaged = {"point": {**POINT, "constants": {}}, "launches": [7, {}, {"entry": None}]}
    assert names.in_present_names(damaged)["launches"] == damaged["launches"]
    profile = {"schema": 1, "type": "profile", "key": "k", "entry": "add_parts"}
    profile["point"] = {**POINT, "rung": "igemm-even", "constants": constants}
    (tmp_path / "old.jsonl").write_text(json.dumps(profile) + "\n")
    assert store.read([tmp_path / "old.jsonl"]).headers["k"]["entry"] == "igemm_stream_k_fixup"
