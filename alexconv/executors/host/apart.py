"""Launches in separate processes: a kernel with a bad address ends its own process, not the caller's.

Such a process is a small program that maps the arrays' files: forking the caller, which may be large, would cost many
times more.
"""

import ctypes
import errno
import os
import select
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from alexconv.compiling.toolchain import failure
from alexconv.errors import LaunchError
from alexconv.executors.host.memory import GUARD_BYTES, GuardedBuffer

BUSY_SECONDS = 60.0  # for a compiler started while the launcher was being written to close its copy of the file
SIGNALS_MS = 200  # how often Python looks at signals while a launch runs
ATTEMPTS = 10  # to start a process with all addresses of the arrays free: nearly every one has them

_SUCCEEDED, _OCCUPIED, _NOT_LOADED = 0, 2, 3  # exit status in apart.cpp


class _Fault(ctypes.Structure):
    """``Fault`` in apart.cpp."""

    _fields_ = (
        ("signal", ctypes.c_int),
        ("launch", ctypes.c_uint),
        ("address", ctypes.c_ulong),
        ("message", ctypes.c_char * 1024),
    )


def run_apart(
    launcher: Path,
    library: Path,
    launches: Sequence[tuple[str, int]],
    arrays: Sequence[GuardedBuffer],
    constants: Mapping[str, GuardedBuffer],
    emulator: Sequence[str] = (),
) -> bool:
    """Whether launches succeed, one after the other, in a separate process; the first failure ends them.

    A launch is an entry point and the address of its request, which lies in one of the ``arrays``, as does everything
    that kernels access.  ``constants`` are written before the first.  ``emulator`` are the words before a program of
    another CPU.  Raises LaunchError for a launch that does not finish, CompileError or MachineFault for a library that
    cannot be loaded.
    """
    shared = GuardedBuffer(ctypes.sizeof(_Fault))
    fault = _Fault.from_address(shared.pointer)
    mapped = {array.file: array for array in (shared, *arrays, *constants.values())}
    lines = [
        f"array {array.file} {array.base} {GUARD_BYTES} {array.body} {int(array.writable)}" for array in mapped.values()
    ]
    lines.append(f"fault {shared.pointer}")
    lines += [f"constant {name} {array.pointer} {array.nbytes}" for name, array in constants.items()]
    lines += [f"launch host_cuda_launch_{entry} {request}" for entry, request in launches]
    text = "".join(f"{line}\n" for line in lines).encode() + b"\0"
    job = GuardedBuffer(len(text))
    job.bytes[:] = bytearray(text)
    command = [*emulator, str(launcher), str(library), str(job.file), str(job.pointer - job.base)]
    for _ in range(ATTEMPTS):
        status = end_of(_started(command, [job.file, *mapped]))
        if not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == _OCCUPIED):
            break
    else:
        raise LaunchError(f"{launches[0][0]}: the system cannot map the arrays of a launch")
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _NOT_LOADED:
        reason = fault.message.decode(errors="replace")
        raise failure(f"{library.name} was compiled but cannot be loaded", reason, library.parent)
    number = fault.signal or (os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)
    if not number:
        return os.WEXITSTATUS(status) == _SUCCEEDED
    (entry, _), name = launches[fault.launch], signal.Signals(number).name
    if fault.signal not in (signal.SIGSEGV, signal.SIGBUS):
        why = ": an integer divided by zero?" if number == signal.SIGFPE else ""
        raise LaunchError(f"{entry}: the kernel's process ended with {name}{why}")
    places = filter(None, (array.place(fault.address) for array in arrays))
    raise LaunchError(f"{entry}: bad access ({name}) {next(places, f'at {fault.address:#x}')}")


def _started(command: list[str], files: Sequence[int]) -> int:
    """The process of a command, which inherits ``files``.

    SIGINT is blocked in it: an interrupt from the keyboard is the caller's to handle.
    """
    inherited = [(os.POSIX_SPAWN_DUP2, file, file) for file in files]
    blocked, end = signal.pthread_sigmask(signal.SIG_BLOCK, ()), monotonic() + BUSY_SECONDS
    while True:
        try:
            return os.posix_spawn(
                command[0], command, os.environ, file_actions=inherited, setsigmask=[*blocked, signal.SIGINT]
            )
        except OSError as error:
            if error.errno != errno.ETXTBSY or monotonic() > end:
                raise LaunchError(f"cannot start a process for a launch: {error}") from None
            sleep(0.01)


def end_of(child: int) -> int:
    """Waits for a process and returns its status; an interrupt just before the wait ends it soon, too."""
    with suppress(OSError, AttributeError):  # of a system or Python without process file descriptors
        watched = os.pidfd_open(child)
        try:
            waiting = select.poll()
            waiting.register(watched, select.POLLIN)
            while not waiting.poll(SIGNALS_MS):
                pass
        finally:
            os.close(watched)
    return os.waitpid(child, 0)[1]
