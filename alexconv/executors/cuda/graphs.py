"""CUDA graphs, captured from a stream."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from alexconv.executors.cuda.bindings import answer, require_bindings


def kernel_names(graph: int) -> list[str]:
    """Names of a captured graph's kernels, in node order; raises LaunchError."""
    driver = require_bindings("a CUDA graph")
    status, _, count = driver.cuGraphGetNodes(graph, 0)
    status, nodes, _ = driver.cuGraphGetNodes(graph, count)
    answer((status,), "nodes of a graph")
    names = []
    for node in nodes:
        kind = answer(driver.cuGraphNodeGetType(node), "a node of a graph")
        if kind == driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL:
            launch = answer(driver.cuGraphKernelNodeGetParams(node), "a kernel of a graph")
            named = driver.cuFuncGetName(launch.func) if int(launch.func) else driver.cuKernelGetName(launch.kern)
            names.append(answer(named, "a kernel's name").decode())
    return names


@contextmanager
def gc_paused() -> Iterator[None]:
    """Pauses garbage collection in the block, in all threads: unloading kernels synchronizes with the device."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Graph:
    """A graph captured from what ``enqueue`` puts on a stream that nothing else uses; raises LaunchError."""

    def __init__(self, enqueue: Callable[[], None], stream: Any) -> None:
        self._driver = require_bindings("a CUDA graph")
        self._stream = stream
        # Relaxed: another thread may free memory at any time, which would invalidate a stricter capture.
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        with gc_paused():
            answer(self._driver.cuStreamBeginCapture(stream.handle, mode), "beginning of a graph")
            try:
                enqueue()
            finally:
                graph = answer(self._driver.cuStreamEndCapture(stream.handle), "end of a graph")
        self._executable = answer(self._driver.cuGraphInstantiate(graph, 0), "instantiation of a graph")
        answer(self._driver.cuGraphDestroy(graph), "end of a graph")

    def launch(self) -> None:
        """Launches the graph."""
        answer(self._driver.cuGraphLaunch(self._executable, self._stream.handle), "launch of a graph")

    def close(self) -> None:
        """Destroys the executable graph."""
        self._driver.cuGraphExecDestroy(self._executable)
