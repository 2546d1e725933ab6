"""CUDA graphs: what is enqueued on a stream, recorded once and launched again as a whole."""

from collections.abc import Callable
from typing import Any

from alexconv.executors.cuda.bindings import answer, require_bindings


def kernel_names(graph: int) -> list[str]:
    """Names of the kernels of a recording by its handle, in the order of its nodes; raises LaunchError."""
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


class Graph:
    """A recording of what ``enqueue`` puts on a stream, which nothing else may use meanwhile; raises LaunchError."""

    def __init__(self, enqueue: Callable[[], None], stream: Any) -> None:
        self._driver = require_bindings("a CUDA graph")
        self._stream = stream
        # Relaxed: Python may free memory or kernels of others at any time, which would spoil a stricter recording.
        mode = self._driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        answer(self._driver.cuStreamBeginCapture(stream.handle, mode), "beginning of a graph")
        try:
            enqueue()
        finally:
            graph = answer(self._driver.cuStreamEndCapture(stream.handle), "end of a graph")
        self._executable = answer(self._driver.cuGraphInstantiate(graph, 0), "instantiation of a graph")
        answer(self._driver.cuGraphDestroy(graph), "end of a graph")

    def launch(self) -> None:
        """Enqueues the whole recording."""
        answer(self._driver.cuGraphLaunch(self._executable, self._stream.handle), "launch of a graph")

    def close(self) -> None:
        """Gives the recording up; after a fault that took the context there is nothing left to free."""
        self._driver.cuGraphExecDestroy(self._executable)
