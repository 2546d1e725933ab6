"""Points between a command and its workers: plain values, and rungs by their names."""

import pickle
from dataclasses import replace

import pytest
from points import batch_of, peers_together, point_of

from alexconv.cluster.sending import by_name
from alexconv.kernels.ladder import RUNGS


def test_points_arrive_with_the_rungs_that_are_there():
    point = point_of(batch_of("alexnet", 1, 8, "relu"), "direct", {"COALESCED": 1, "THREAD_OUTPUTS": 2})
    arrived = pickle.loads(pickle.dumps(point))
    assert arrived == point
    assert arrived.entry is RUNGS["direct"]
    joint = peers_together((1, 2), 1, "torch-nchw-fp32")
    assert pickle.loads(pickle.dumps(joint)) == joint


def test_a_rung_of_one_machine_does_not_travel():
    own = replace(RUNGS["direct"], file="/home/me/direct.cu")
    with pytest.raises(TypeError, match="the rung direct is on one machine only"):
        by_name(own)
    with pytest.raises(TypeError, match="one machine only"):
        pickle.dumps(point_of(batch_of("alexnet", 1, 1), own))
