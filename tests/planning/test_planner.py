"""Memory is planned before it is allocated (promise 3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alexconv.executors import choose_executor
from alexconv.kernels.bound import BoundRung
from alexconv.kernels.ladder import GRADIENTS, LADDER, RUNGS
from alexconv.kernels.problem import Problem
from alexconv.planning.planner import DoesNotFit, plan, plan_on
from alexconv.shapes import WGRAD, WORKLOADS, Conv

MIB = 2**20
LAYERS = [(name, number) for name, workload in WORKLOADS.items() for number in range(1, len(workload.layers) + 1)]


@given(
    st.sampled_from(LAYERS),
    st.sampled_from(LADDER),
    st.integers(1, 2048),
    st.integers(1, 1000 * MIB),
    st.integers(1, 4),
    st.integers(1, 8),
)
def test_pieces_cover_the_batch_once_and_fit(layer, rung, N, budget, copies, at_least):
    conv = WORKLOADS[layer[0]].layer(layer[1])
    constants = rung.resolve(conv, {})
    try:
        cut = plan(BoundRung(rung, conv, constants), N, budget, copies, at_least)
    except DoesNotFit:
        raised = {c.name: c.ceiling(Problem(conv)) for c in rung.constants if c.ceiling}
        assert BoundRung(rung, conv, constants | raised).device_bytes(1, copies) > budget
        return
    assert [image for first, last in cut.pieces for image in range(first, last)] == list(range(N))
    assert max(last - first for first, last in cut.pieces) == cut.images_per_piece
    assert BoundRung(rung, conv, cut.constants).device_bytes(cut.images_per_piece, copies) == cut.device_bytes <= budget
    if at_least <= N and N % at_least == 0:
        assert len(cut.pieces) >= at_least


def test_multi_kernel_layer_4_at_128_needs_what_the_study_says():
    conv, rung = WORKLOADS["alexnet"].layer(4), RUNGS["channels"]
    constants = rung.resolve(conv, {})
    assert BoundRung(rung, conv, constants).scratch_bytes(128) == 384 * 128 * 384 * 13 * 13 * 4
    assert plan(BoundRung(rung, conv, constants), 128, 80 * 2**30).pieces == [(0, 128)]
    assert len(plan(BoundRung(rung, conv, constants), 128, 8 * 2**30).pieces) == 2


def test_micro_batches_with_shared_scratch_fit_in_one_piece():
    conv, rung = WORKLOADS["alexnet"].layer(1), RUNGS["wgmma-window-scaled"]
    constants = rung.resolve(conv, {"MICRO_BATCH": 32})
    budget = BoundRung(rung, conv, constants).device_bytes(128)
    assert len(plan(BoundRung(rung, conv, constants), 128, budget).pieces) == 1
    assert len(plan(BoundRung(rung, conv, constants), 128, budget - 1).pieces) == 2


def test_a_small_budget_raises_the_channels_of_a_block():
    conv, rung = WORKLOADS["alexnet"].layer(2), RUNGS["channels"]
    cut = plan(BoundRung(rung, conv, rung.resolve(conv, {})), 128, 64 * MIB)
    assert cut.constants["CHANNELS"] == 2
    assert cut.device_bytes <= 64 * MIB


def test_a_budget_of_zero_is_not_the_default_budget():
    conv, rung = WORKLOADS["alexnet"].layer(3), RUNGS["direct"]
    with pytest.raises(DoesNotFit, match=r"the budget is 0\.0"):
        plan_on(choose_executor("host"), BoundRung(rung, conv, rung.resolve(conv, {})), 1, budget=0)


def test_an_error_gives_needed_memory_and_budget():
    conv, rung = WORKLOADS["alexnet"].layer(1), RUNGS["direct"]
    with pytest.raises(DoesNotFit, match=r"one image needs 1\.8 MiB of device memory, the budget is 1\.0"):
        plan(BoundRung(rung, conv, rung.resolve(conv, {})), 1, MIB)


# Of an H200's memory two such arrays of fp16 take half.
MANY, PLANE = 43000, Conv(C=8, H=224, W=224, M=8, R=3, S=3, top=1, bottom=1, left=1, right=1)


@pytest.mark.parametrize(
    "rung", [rung for rung in LADDER if rung.numbers_pixels and "padding" in rung.takes], ids=lambda rung: rung.name
)
def test_a_launch_has_no_more_pixels_than_its_kernels_number(rung):
    bound = BoundRung(rung, PLANE, rung.resolve(PLANE, {}, MANY))
    if reason := bound.refusal():
        pytest.skip(reason)
    piece = plan(bound, MANY, 1 << 40).images_per_piece
    launches = bound.micro_batches(piece)
    assert piece == MANY and sum(images for _, images in launches) == MANY
    assert max(images for _, images in launches) * 226 * 226 < 2**31
    assert all(first % 32 == 0 for first, _ in launches)


def test_a_sum_over_more_pixels_than_a_kernel_numbers_is_refused():
    rung, conv = GRADIENTS.named["wgrad-wgmma-half"], PLANE.toward(WGRAD)
    bound = BoundRung(rung, conv, rung.resolve(conv, {}, MANY))
    with pytest.raises(DoesNotFit, match=f"wgrad of {MANY} images is one launch, which takes [0-9]+ at most"):
        plan(bound, MANY, 1 << 40)
    assert plan(bound, MANY // 2, 1 << 40).images_per_piece == MANY // 2


def test_rows_of_a_tensor_map_are_those_of_all_groups():
    rung, conv = RUNGS["wgmma-window-half"], Conv(C=128, H=64, W=64, M=128, R=3, S=3, groups=2)
    most = BoundRung(rung, conv, rung.resolve(conv, {})).most_images
    assert most and 2 * most * conv.H * conv.W < 2**31 < 3 * most * conv.H * conv.W
