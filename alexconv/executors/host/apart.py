"""Launches in processes of their own: a kernel with a bad address ends its process and not the caller's."""

import ctypes
import os
import select
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from alexconv.errors import LaunchError
from alexconv.executors.host.memory import GuardedBuffer, HostBuffer

LOADER = threading.Lock()  # of the dynamic loader: no process is started while a library is being loaded

SIGNALS_MS = 200  # how often Python looks at signals while a launch runs

Start = Callable[..., int]  # launch_apart in apart.cpp


class Launch(ctypes.Structure):
    """``Launch`` in apart.cpp: an entry point, and the address of its request, which lies in memory that both share."""

    _fields_ = (("run", ctypes.c_void_p), ("request", ctypes.c_void_p))


class _Fault(ctypes.Structure):
    """``Fault`` in apart.cpp."""

    _fields_ = (("signal", ctypes.c_int), ("launch", ctypes.c_uint), ("address", ctypes.c_ulong))


def run_apart(start: Start, launches: Sequence[Launch], names: Sequence[str], arrays: Sequence[HostBuffer]) -> bool:
    """Whether launches succeed, one after the other, in a process of their own; none follows one that fails.

    ``names`` are those of their entry points, ``arrays`` those that tell where a bad address is.  Raises LaunchError
    for a launch that does not come to its end.
    """
    shared = GuardedBuffer(ctypes.sizeof(_Fault))
    fault = _Fault.from_address(shared.pointer)
    with LOADER:
        child = start((Launch * len(launches))(*launches), len(launches), ctypes.byref(fault))
    if child < 0:
        raise LaunchError(f"{names[0]}: the system starts no process for a launch")
    status = end_of(child)
    number = fault.signal or (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)
    if not number:
        return os.WEXITSTATUS(status) == 0
    entry, name = names[fault.launch], signal.Signals(number).name
    if fault.signal not in (signal.SIGSEGV, signal.SIGBUS):
        raise LaunchError(f"{entry}: the kernel's process ended with {name}")
    places = filter(None, (array.place(fault.address) for array in arrays))
    raise LaunchError(f"{entry}: bad access ({name}) {next(places, f'at {fault.address:#x}')}")


def end_of(child: int) -> int:
    """Waits for a process and returns its status; an interrupt that comes just before the wait ends it soon, too."""
    with suppress(OSError, AttributeError):  # of systems, or a Python, without file descriptors of processes
        watched = os.pidfd_open(child)
        try:
            waiting = select.poll()
            waiting.register(watched, select.POLLIN)
            while not waiting.poll(SIGNALS_MS):
                pass
        finally:
            os.close(watched)
    return os.waitpid(child, 0)[1]
