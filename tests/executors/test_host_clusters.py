"""Clusters on the host executor: blocks that wait for each other and read each other's shared memory."""

import numpy as np
import pytest
from test_host_executor import on_device

from alexconv.errors import LaunchError
from alexconv.executors.host.runtime import HostRuntime
from alexconv.kernels.bound import LaunchConfig
from alexconv.kernels.rung import FOLDER, shape_macros
from alexconv.shapes import Conv

CONV = Conv(1, 3, 3, M=1, R=2, S=2)  # for the headers' macros
THREADS, BLOCKS, CLUSTER = 64, 12, 4
KERNEL = """
extern "C" __global__ void CLUSTER_DIMS(4) kernel(const float4* x, float4* y)
{
    DYNAMIC_SHARED(float4, memory);
    Mbarrier* const arrived = (Mbarrier*)(memory + 64);
    const int thread = threadIdx.x, rank = blockIdx.x % 4, next = (rank + 1) % 4;
    BODY
}
"""
BEGIN = """
    if (thread == 0) {
        mbarrier_init(arrived, 1);
        cluster_init_fence();
        mbarrier_arrive_expect_tx(arrived, 1024);
    }
    cluster_arrive();
"""
EXCHANGE = f"""{BEGIN}
    const float4 own = x[blockIdx.x * 64 + thread];
    cluster_wait();
    store_to_block(memory + 63 - thread, own, arrived, next);
    mbarrier_wait(arrived, 0);
    y[blockIdx.x * 64 + thread] = memory[thread];
"""


def run(tmp_path, body, *, order=0, blocks=BLOCKS, cluster=CLUSTER, **more):
    """The outputs of ``body``, and those of a block that has what the one before it in the cluster stores there."""
    source = tmp_path / "kernel.cu"
    source.write_text(f'#include "{FOLDER / "arch" / "cluster.cuh"}"\n{KERNEL.replace("BODY", body)}')
    module = HostRuntime(order=order, **more).compile(source, shape_macros(CONV), ["kernel"])
    x = np.random.default_rng(1).uniform(-1, 1, (blocks, THREADS, 4)).astype(np.float32)
    placed = [on_device(array) for array in (x, np.full_like(x, np.nan))]
    launch = LaunchConfig("kernel", ("x", "y"), (blocks, 1, 1), (THREADS, 1, 1), (THREADS + 1) * 16, cluster=cluster)
    module.run([(launch, [buffer for buffer, _ in placed])])
    return placed[1][1], before(x)[:, ::-1]


def before(values):
    """Each block's values are those of the one before it in its cluster."""
    return np.roll(values.reshape(-1, CLUSTER, *values.shape[1:]), 1, axis=1).reshape(values.shape)


@pytest.mark.parametrize("workers", [1, 9])
@pytest.mark.parametrize("order", [0, 1, 7])
def test_blocks_read_each_others_shared_memory(tmp_path, order, workers):
    y, expected = run(tmp_path, EXCHANGE, order=order, workers=workers)
    np.testing.assert_array_equal(y, expected)


def test_what_comes_before_a_block_begins_is_lost(tmp_path):
    with pytest.raises(LaunchError, match="the barrier is not initialised"):
        run(tmp_path, EXCHANGE.replace("cluster_wait();", ""))


def test_no_block_ends_before_it_has_what_others_store(tmp_path):
    with pytest.raises(LaunchError, match="that block of the cluster has ended"):
        run(tmp_path, EXCHANGE.replace("mbarrier_wait(arrived, 0);", ""))


def test_threads_that_have_ended_are_not_waited_for(tmp_path):
    ending = "if (thread >= 32) { cluster_arrive(); return; }"
    y, expected = run(tmp_path, ending + EXCHANGE.replace("1024", "512").replace("63", "31"))
    np.testing.assert_array_equal(y[:, :32], expected[:, 32:])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("cluster_wait();", "waits at its cluster's barrier before it has arrived there, at .*kernel.cu:8"),
        ("cluster_arrive(); cluster_arrive();", "arrives at its cluster's barrier again before it has waited there"),
        ("store_to_block(memory, x[0], arrived, 4);", "no block of the cluster has that rank"),
        ("store_to_block(memory + 65, x[0], arrived, 1);", "only dynamic shared memory is written in other blocks"),
        (
            "if (rank == 2 && thread == 5) __syncthreads(); cluster_barrier();",
            "deadlock: waits at .*kernel.cu:8 for arr",
        ),
        (EXCHANGE.replace("1024", "1040"), "deadlock: waits at .* for a barrier's phase, which lacks .* 16 bytes"),
    ],
)
def test_misuse_is_named(tmp_path, body, message):
    with pytest.raises(LaunchError, match=message):
        run(tmp_path, body)


def test_a_grid_has_whole_clusters(tmp_path):
    with pytest.raises(LaunchError, match="the grid has no whole number of clusters"):
        run(tmp_path, EXCHANGE, blocks=10)


def test_a_block_alone_gets_its_own_parts(tmp_path):
    """In launches that store nothing to other blocks, and where one block is watched at a time."""
    y, expected = run(tmp_path, EXCHANGE, cluster=1)
    np.testing.assert_array_equal(before(y), expected)
