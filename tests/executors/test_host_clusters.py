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
    const int rank = blockIdx.x % 4, next = (rank + 1) % 4;
    BODY
}
"""
EXCHANGE = """
    memory[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
    cluster_barrier();
    const float4 of_next = load_from_block(memory + 63 - threadIdx.x, next);
    cluster_arrive();
    y[blockIdx.x * 64 + threadIdx.x] = of_next;
    cluster_wait();
"""


def run(tmp_path, body, *, order=0, build="fast", blocks=BLOCKS, cluster=CLUSTER, **more):
    """The outputs of ``body`` and those that an exchange with the next block of the cluster has."""
    source = tmp_path / "kernel.cu"
    source.write_text(f'#include "{FOLDER / "arch" / "cluster.cuh"}"\n{KERNEL.replace("BODY", body)}')
    module = HostRuntime(order=order, build=build, **more).compile(source, shape_macros(CONV), ["kernel"])
    x = np.random.default_rng(1).uniform(-1, 1, (blocks, THREADS, 4)).astype(np.float32)
    placed = [on_device(array) for array in (x, np.full_like(x, np.nan))]
    grid, block, shared = (blocks, 1, 1), (THREADS, 1, 1), THREADS * 16
    launch = LaunchConfig("kernel", ("x", "y"), grid, block, shared, cluster=cluster)
    module.run([(launch, [buffer for buffer, _ in placed])])
    return placed[1][1], np.roll(x.reshape(-1, 4, THREADS, 4), -1, axis=1).reshape(x.shape)[:, ::-1]


@pytest.mark.parametrize("workers", [1, 9])
@pytest.mark.parametrize("order", [0, 1, 7])
def test_blocks_read_each_others_shared_memory(tmp_path, order, workers):
    y, expected = run(tmp_path, EXCHANGE, order=order, workers=workers)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("barrier", ["cluster_barrier();", "cluster_wait();"])
def test_what_a_block_reads_too_early_or_too_late_is_nan(tmp_path, barrier):
    y, _ = run(tmp_path, EXCHANGE.replace(barrier, ""))
    assert np.isnan(y).any()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("cluster_wait();", "waits at its cluster's barrier before it has arrived there, at .*kernel.cu:7"),
        ("cluster_arrive(); cluster_arrive();", "arrives at its cluster's barrier again before it has waited there"),
        ("if (rank > 0) cluster_barrier(); else y[0] = load_from_block(memory, 4);", "no block of the cluster has that"),
        ("y[0] = load_from_block(memory + 64, 1);", "only dynamic shared memory is read in other blocks"),
        ("if (rank == 2 && threadIdx.x == 5) __syncthreads(); cluster_barrier();", "deadlock|divergent"),
    ],
)
def test_misuse_is_named(tmp_path, body, message):
    with pytest.raises(LaunchError, match=message):
        run(tmp_path, body)


def test_threads_that_have_ended_are_not_waited_for(tmp_path):
    y, expected = run(tmp_path, f"if (threadIdx.x >= 32) {{ cluster_arrive(); return; }} {EXCHANGE.replace('63', '31')}")
    np.testing.assert_array_equal(y[:, :32], expected[:, 32:])


def test_a_grid_has_whole_clusters(tmp_path):
    with pytest.raises(LaunchError, match="the grid has no whole number of clusters"):
        run(tmp_path, EXCHANGE, blocks=10)


def test_a_block_alone_finds_its_own_memory(tmp_path):
    """Where one block is watched at a time, and in launches that exchange nothing."""
    y, expected = run(tmp_path, EXCHANGE, cluster=1)
    np.testing.assert_array_equal(y, np.roll(expected.reshape(-1, 4, THREADS, 4), 1, axis=1).reshape(y.shape))
