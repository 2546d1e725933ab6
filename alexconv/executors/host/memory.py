"""Memory that kernels on the CPU work on."""

import ctypes
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from alexconv.errors import LaunchError, OutOfMemory

ALIGNMENT = 256  # bytes, as cudaMalloc gives
GUARD_BYTES = 1 << 16  # before and after a guarded buffer; whole pages
CANARY = 0xA5

_NO_ACCESS, _READ, _READ_WRITE = 0, 1, 3  # PROT_ of mprotect
_FAILED = ctypes.c_void_p(-1).value  # of mmap

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)


class HostBuffer:
    """Memory that a kernel works on: aligned as on a GPU and exactly as long as requested.

    AddressSanitizer's red zone begins right after the last byte.  The memory is freed with the buffer and the last
    array over it.  ``name`` is for messages.  Raises OutOfMemory.
    """

    def __init__(self, nbytes: int, name: str = "an array") -> None:
        address = ctypes.c_void_p()
        if _libc.posix_memalign(ctypes.byref(address), ctypes.c_size_t(ALIGNMENT), ctypes.c_size_t(nbytes)):
            raise no_memory(nbytes)
        memory = (ctypes.c_uint8 * nbytes).from_address(address.value or 0)  # every array over it keeps it alive
        weakref.finalize(memory, _libc.free, address).atexit = False
        self._set(np.ctypeslib.as_array(memory), address.value or 0, name)

    def _set(self, values: npt.NDArray[np.uint8], pointer: int, name: str) -> None:
        self.bytes, self.nbytes, self.pointer, self.name = values, len(values), pointer, name

    def array(self, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """The front of the memory as an array that shares it; TypeError if it is too short."""
        return np.ndarray(shape, dtype, buffer=self.bytes)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Stores in the block are faults, where the memory is guarded."""
        yield

    def check(self) -> None:
        """Raises LaunchError for stores right before or after it, where the memory is guarded."""

    def place(self, address: int) -> str | None:
        """An address in this memory, or near it, in words; else None."""
        offset = address - self.pointer
        return f"in {self.name}" if 0 <= offset < self.nbytes else None


class GuardedBuffer(HostBuffer):
    """The same between guard pages, in a nameless file that a launch in another process maps at the same address.

    The bytes between it and those pages, fewer than ALIGNMENT after the last one, hold a pattern.  ``file`` is the
    file's descriptor, ``base`` its address, ``body`` the bytes between its guards, and ``writable`` whether stores are
    allowed now.
    """

    def __init__(self, nbytes: int, name: str = "an array") -> None:
        aligned = -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.body = max(-(-aligned // mmap.PAGESIZE), 1) * mmap.PAGESIZE
        self.file, self.base, memory = _shared(GUARD_BYTES + self.body + GUARD_BYTES)
        self.writable = True
        whole = np.ctypeslib.as_array(memory)
        first = GUARD_BYTES + self.body - aligned
        self._set(whole[first : first + nbytes], self.base + first, name)
        self._zones = {
            "before": whole[GUARD_BYTES:first],
            "after": whole[first + nbytes : GUARD_BYTES + self.body],
        }
        for zone in self._zones.values():
            zone[:] = CANARY
        _protect(self.base, GUARD_BYTES, _NO_ACCESS)
        _protect(self.base + GUARD_BYTES + self.body, GUARD_BYTES, _NO_ACCESS)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Stores in the block are faults."""
        self.writable = False
        _protect(self.base + GUARD_BYTES, self.body, _READ)
        try:
            yield
        finally:
            _protect(self.base + GUARD_BYTES, self.body, _READ_WRITE)
            self.writable = True

    def check(self) -> None:
        """Raises LaunchError for stores right before or right after it, which are then undone."""
        for where, zone in self._zones.items():
            if (zone != CANARY).any():
                zone[:] = CANARY
                raise LaunchError(f"a kernel stored right {where} {self.name}")

    def place(self, address: int) -> str | None:
        """An address in this memory, or near it, in words; else None."""
        if not 0 <= address - self.base < self.body + 2 * GUARD_BYTES:
            return None
        offset = address - self.pointer
        if offset < 0:
            return f"{-offset} bytes before {self.name}"
        return f"{offset - self.nbytes} bytes after {self.name}" if offset >= self.nbytes else f"in {self.name}"


def no_memory(nbytes: int) -> OutOfMemory:
    """The error of an allocation that failed."""
    return OutOfMemory(f"the host has no {nbytes:,} bytes left for an array")


def _shared(nbytes: int) -> tuple[int, int, ctypes.Array[ctypes.c_uint8]]:
    """A new file's descriptor, its address, and its memory, which every array over it keeps alive, as it does the file.

    The system reserves nothing for the file: more than the machine has is refused here.
    """
    if not 0 <= nbytes <= os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE:
        raise no_memory(nbytes)
    file = _nameless_file(nbytes)
    address = _libc.mmap(None, nbytes, _READ_WRITE, mmap.MAP_SHARED, file, 0)
    if address == _FAILED:
        os.close(file)
        raise no_memory(nbytes)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    weakref.finalize(memory, _release, file, address, nbytes).atexit = False
    return file, address, memory


def _nameless_file(nbytes: int) -> int:
    """A file in memory, or, where a sandbox refuses it, among the temporary files."""
    try:
        file = os.memfd_create("alexconv")
    except OSError:
        file = _temporary_file(nbytes)
    try:
        os.ftruncate(file, nbytes)
    except OSError:
        os.close(file)
        raise no_memory(nbytes) from None
    return file


def _temporary_file(nbytes: int) -> int:
    """A file whose bytes exist, so that a full disk is an error here and no signal later."""
    folder = tempfile.gettempdir()
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise OutOfMemory(f"no memory file for an array, and none in {folder} ({error.strerror}); set TMPDIR") from None
    try:
        os.posix_fallocate(file, 0, nbytes)
    except OSError:
        os.close(file)
        raise no_memory(nbytes) from None
    return file


def _release(file: int, address: int, nbytes: int) -> None:
    _libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))
    os.close(file)


def _protect(address: int, nbytes: int, allowed: int) -> None:
    if _libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(nbytes), allowed):
        raise OutOfMemory("the system has no more memory mappings for a guarded array")
