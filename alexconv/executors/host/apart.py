"""Launches in processes of their own: a kernel with a bad address ends its process and not the caller's."""

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Sequence

from alexconv.errors import LaunchError
from alexconv.executors.host.memory import GuardedBuffer, HostBuffer

LOADER = threading.Lock()  # of the dynamic loader: no process is started while a library is being loaded

Start = Callable[..., int]  # launch_apart in apart.cpp


class _Fault(ctypes.Structure):
    """``Fault`` in apart.cpp."""

    _fields_ = (("signal", ctypes.c_int), ("address", ctypes.c_ulong))


def run_apart(
    start: Start, launch: Callable[..., bool], request: ctypes.Structure, arrays: Sequence[HostBuffer]
) -> bool:
    """Whether a launch succeeds in a process of its own; the request lies in memory that both share.

    ``arrays`` are those whose names tell where a bad address is.  Raises LaunchError for a launch that does not come
    to its end.
    """
    shared = GuardedBuffer(ctypes.sizeof(_Fault))
    fault = _Fault.from_address(shared.pointer)
    with LOADER:
        child = start(launch, ctypes.byref(request), ctypes.byref(fault))
    if child < 0:
        raise LaunchError("the system starts no process for a launch")
    _, status = os.waitpid(child, 0)
    number = fault.signal or (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)
    if not number:
        return os.WEXITSTATUS(status) == 0
    name = signal.Signals(number).name
    if fault.signal not in (signal.SIGSEGV, signal.SIGBUS):
        raise LaunchError(f"the kernel's process ended with {name}")
    places = filter(None, (array.place(fault.address) for array in arrays))
    raise LaunchError(f"bad access ({name}) {next(places, f'at {fault.address:#x}')}")
