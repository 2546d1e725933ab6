"""The driver library called through ctypes: cuda-bindings take longer to convert arguments than a launch takes.

A launch's configuration and parameters stay in memory from call to call; the caller changes the words that differ.
(CUDA driver API, "Execution Control", "Stream Management", "Graph Management".)
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial

from alexconv.errors import LaunchError, MissingTool
from alexconv.kernels.rung import Dims

LIBRARY = "libcuda.so.1"
WORD = 8  # bytes
SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
COOPERATIVE = 2  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
KERNEL_NODE = 0  # CU_GRAPH_NODE_TYPE_KERNEL
ACTIVE = 1  # CU_STREAM_CAPTURE_STATUS_ACTIVE
IMPLICIT = 906  # CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
NO_DESTRUCTOR_SYNC, MOVE = 1, 1  # flags of a user object, and of its retention by a graph
SEMAPHORE_BYTES = 64  # sizeof(sem_t) is 32 or less on Linux


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(Attribute)),
        ("count", ctypes.c_uint),
    )


@cache
def library() -> ctypes.CDLL:
    """The driver library; raises MissingTool."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise MissingTool(f"the NVIDIA driver's library does not load: {error}") from None


def check(status: int, operation: str) -> None:
    """Raises LaunchError for the status of a call that failed."""
    if status:
        name = ctypes.c_char_p()
        library().cuGetErrorName(status, ctypes.byref(name))
        raise LaunchError(f"{operation}: {(name.value or b'status %d' % status).decode()}")


class Words:
    """Parameters in memory, 64 bits each, that launches point to."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = (ctypes.c_int64 * max(len(values), 1))(*values)

    def address(self, place: int) -> int:
        """Address of a word."""
        return ctypes.addressof(self.values) + WORD * place


def launch_config(
    grid: Dims, block: Dims, shared: int, stream: int = 0, *, pdl: bool = False, cooperative: bool = False
) -> Config:
    """A launch's configuration: a programmatic dependent launch, or one whose blocks are all resident, if asked for."""
    config = Config(grid, block, shared, stream, None, 0)
    if pdl or cooperative:
        attribute = Attribute(SERIALIZATION if pdl else COOPERATIVE, 0, (1,))
        config.attributes, config.count = ctypes.pointer(attribute), 1
    return config


def ready_launch(function: int, config: Config, parameters: Sequence[int]) -> Callable[[], int]:
    """The call that enqueues a launch and returns its status; ``parameters`` are the values' addresses."""
    places = (ctypes.c_void_p * len(parameters))(*parameters)
    return partial(library().cuLaunchKernelEx, ctypes.byref(config), ctypes.c_void_p(function), places, None)


class Streams:
    """Queries of the thread's context and of streams; not thread-safe."""

    def __init__(self) -> None:
        self._context, self._number = ctypes.c_void_p(), ctypes.c_ulonglong()
        self._status, self._id, self._graph = ctypes.c_int(), ctypes.c_ulonglong(), ctypes.c_void_p()
        driver = library()
        self._get_context = partial(driver.cuCtxGetCurrent, ctypes.byref(self._context))
        self._get_id, self._get_info = driver.cuStreamGetId, driver.cuStreamGetCaptureInfo_v2
        self._id_to = ctypes.byref(self._number)
        self._nodes, self._count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        outputs = (self._status, self._id, self._graph, self._nodes, self._count)
        self._info_to = tuple(map(ctypes.byref, outputs))

    def context(self) -> int | None:
        """The thread's current context."""
        self._get_context()
        return self._context.value

    def number(self, stream: int) -> int:
        """The stream's ID, unique in the process; handles may be reused.

        Querying it during the stream's capture is an error that invalidates the capture.
        """
        status = self._get_id(ctypes.c_void_p(stream), self._id_to)
        if status:
            check(status, "a stream's ID")
        return self._number.value

    def capture(self, stream: int) -> int:
        """ID of the stream's capture, 0 if none; raises LaunchError if the capture has failed."""
        status = self._get_info(ctypes.c_void_p(stream), *self._info_to)
        if status == IMPLICIT:
            raise LaunchError(
                "the default stream cannot be used while a stream that waits for it is captured: "
                "make the first call before the capture, or capture a non-blocking stream"
            )
        if status:
            check(status, "a stream's capture")
        if self._status.value > ACTIVE:
            raise LaunchError("the stream's capture has failed")
        return self._id.value if self._status.value == ACTIVE else 0

    def graph(self) -> int:
        """The graph of the capture that ``capture`` found last."""
        return self._graph.value or 0

    def follows_kernel(self) -> bool:
        """Whether the next node of the capture found last depends on a single node, a kernel."""
        kind = ctypes.c_int(-1)
        if self._count.value == 1:
            check(library().cuGraphNodeGetType(ctypes.c_void_p(self._nodes[0]), ctypes.byref(kind)), "a graph's node")
        return kind.value == KERNEL_NODE


class Relaxed:
    """Allows allocations, uploads and waits in its block, even while another stream is captured in a strict mode.

    One thread at a time may use an instance.  Synchronizing with a captured stream, or with its context, stays
    forbidden and invalidates the capture.
    """

    def __init__(self) -> None:
        self._mode = ctypes.c_int(RELAXED)  # the thread's own mode while the block runs
        self._exchange = partial(library().cuThreadExchangeStreamCaptureMode, ctypes.byref(self._mode))
        self._exchanged = False

    def __enter__(self) -> None:
        self._exchanged = self._exchange() == 0  # fails before the driver is initialised: then nothing is captured

    def __exit__(self, *_: object) -> None:
        if self._exchanged:
            self._exchange()


class GraphLife:
    """Whether a graph under capture, or an executable graph made from it, still exists.

    A user object of the graph posts a semaphore when the last of them is gone: no Python runs in the driver's thread.
    """

    def __init__(self, graph: int) -> None:
        self._gone, self._posix = False, ctypes.CDLL(None)
        self._semaphore = ctypes.create_string_buffer(SEMAPHORE_BYTES)
        self._posix.sem_init(self._semaphore, 0, 0)
        driver, user_object = library(), ctypes.c_void_p()
        post = ctypes.cast(self._posix.sem_post, ctypes.c_void_p)
        status = driver.cuUserObjectCreate(ctypes.byref(user_object), self._semaphore, post, 1, NO_DESTRUCTOR_SYNC)
        check(status, "a graph")
        check(driver.cuGraphRetainUserObject(ctypes.c_void_p(graph), user_object, 1, MOVE), "a graph's user object")
        _LIVING.append(self)  # keeps the semaphore alive until the driver posts it

    def ended(self) -> bool:
        """Whether it is gone."""
        if not self._gone and self._posix.sem_trywait(self._semaphore) == 0:
            self._gone = True
            _LIVING.remove(self)
        return self._gone


_LIVING: list[GraphLife] = []
