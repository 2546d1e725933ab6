"""Stand-ins for a GPU, its driver and torch, which record what the library enqueues."""

import ctypes
import gc
import subprocess
import sys
import weakref
from collections import defaultdict
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from alexconv.compiling.toolchain import find_cxx
from alexconv.executors.cuda import kernels, native
from alexconv.kernels.problem import H200
from alexconv.library import devices, gradients, operation, outputs, packets, routes, workspaces

MOST_PARAMETERS, CONTEXT = 12, 5  # as in driver_stand_in.cpp
SOURCE = Path(__file__).with_name("driver_stand_in.cpp")


class Noted(ctypes.Structure):
    """A launch as the stand-in records it."""

    _fields_ = (
        *(("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint)),
        *(("dependent", ctypes.c_uint), ("stream", ctypes.c_longlong), ("function", ctypes.c_longlong)),
        ("words", ctypes.c_longlong * MOST_PARAMETERS),
    )


def compiled_driver(folder):
    """The stand-in for libcuda, compiled."""
    path = folder / "libcuda.so"
    subprocess.run([find_cxx(), "-shared", "-fPIC", "-O1", "-pthread", "-o", path, SOURCE], check=True)
    return path


class Bindings:
    """cuda-bindings' driver, as far as workspaces need it, with increasing addresses of memory."""

    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)

    # Allowed to every thread while another captures in global mode; all others are treated as unsafe.
    SAFE = ("cuCtxGetCurrent", "cuEventRecord", "cuStreamWaitEvent")
    ON_STREAMS = ("cuEventRecord", "cuStreamWaitEvent", "cuMemsetD8Async", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")

    def __init__(self, library):
        self.calls, self.next, self.allocated, self._library = [], 1 << 20, {}, library
        self.invalidations = []

    def call(self, name, *arguments):
        """Notes a call; one that a capture forbids invalidates it (CUDA C++ Programming Guide, "Stream Capture")."""
        self.calls.append((name, *arguments))
        assert ctypes.c_longlong.in_dll(self._library, "context").value == CONTEXT, f"{name} without the context"
        capturing, mode = (ctypes.c_int.in_dll(self._library, name) for name in ("capturing", "mode_now"))
        implicit = ctypes.c_longlong.in_dll(self._library, "implicit").value
        if not capturing.value:
            return
        of_context = name == "cuCtxSynchronize"
        unsafe = name not in self.SAFE and mode.value != native.RELAXED
        stream = arguments[0 if name == "cuStreamWaitEvent" else -1] if name in self.ON_STREAMS else None
        if of_context or unsafe or (implicit and stream in workspaces.UNCAPTURED):
            self.invalidations.append(name)
            capturing.value = 2

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.call(name, *arguments)
            return 0, 7

        return call

    def cuMemAlloc(self, nbytes):
        self.call("cuMemAlloc", nbytes)
        self.next += 1 << 32
        self.allocated[self.next] = nbytes
        return 0, self.next

    def cuMemFree(self, address):
        self.call("cuMemFree", address)
        del self.allocated[address]
        return (0,)

    def cuPointerGetAttribute(self, kind, address):
        return 0, 0


class Kernels(kernels.Kernels):
    """The kernels of a rung: each entry point has a number; ``unload`` is called as the driver's are unloaded."""

    def __init__(self, numbers, unload):
        self._numbers = numbers
        weakref.finalize(self, unload, 8).atexit = False

    def function(self, entry, shared):
        return self._numbers.setdefault(entry, len(self._numbers) + 100)


class Executor(workspaces.LibraryExecutor):
    """An H200 that compiles nothing; ``bindings`` are the machine's."""

    measures, device, name, toolkit = True, H200, "cuda", "stand-in"

    def __init__(self, number, bindings):
        self._bindings, self._kernels = bindings, weakref.WeakValueDictionary()
        self.numbers = {}
        self.gpu = SimpleNamespace(
            arch="90a",
            has_pdl=True,
            properties=H200,
            memory_bytes=140 << 30,
            context=SimpleNamespace(current=self._current, number=CONTEXT),
            stream=SimpleNamespace(handle=9),
            load=lambda cubin: Kernels(self.numbers, self._unload),
        )
        self.loaded = 0

    @contextmanager
    def _current(self):
        now = ctypes.c_longlong.in_dll(self._bindings._library, "context")
        before, now.value = now.value, CONTEXT
        yield
        now.value = before

    def leave(self):
        pass

    def unsuited(self, rung):
        return "has its filters in constant memory" if rung.constant_symbol else None

    def header(self):
        return {"backend": "stand-in", "name": "H200"}

    def key(self, bound):
        return repr((bound.rung.name, sorted(bound.macros.items())))

    def memory_budget(self):
        return 100 << 30

    def build(self, bound):
        pass

    def _loaded(self, bound):
        self.loaded += 1
        return self.gpu.load(b"")

    def _unload(self, module):
        with self._current():
            self._bindings.cuCtxSynchronize()
            self._bindings.cuModuleUnload(module)


class Gpu(workspaces.Gpu):
    """A GPU with all kernels compiled, unless a test sets ``building``; with ``built``, those for every shape too."""

    building, built = None, False

    def is_built(self, bound):
        return self.built

    def build_for_every_shape(self, precision):
        pass

    def build(self, bound):
        return None if bound.dynamic else self.building

    def any_shape(self):
        return self._any_kernels

    @cached_property
    def _any_kernels(self):
        return defaultdict(lambda: self.executor.gpu.load(b""))


class Machine:
    """Puts the stand-in GPU in its place, and reads what it launched."""

    def __init__(self, path, monkeypatch):
        monkeypatch.setattr(native, "LIBRARY", str(path))
        native.library.cache_clear()
        self.library = ctypes.CDLL(str(path))
        self.bindings = Bindings(self.library)
        self.library.reset()
        monkeypatch.setattr(workspaces, "require_bindings", lambda what: self.bindings)
        monkeypatch.setattr("alexconv.library.arrays.import_bindings", lambda: None)
        monkeypatch.setattr(workspaces, "LibraryExecutor", partial(Executor, bindings=self.bindings))
        monkeypatch.setattr(workspaces, "TensorMaps", Maps)
        monkeypatch.setattr(packets, "ready_launch", padded)
        self.gpu = Gpu(0)
        monkeypatch.setattr(devices, "started", {0: self.gpu})
        for cache in (
            routes.chosen,
            routes.candidates,
            routes.route_of,
            operation.cached_operation,
            outputs.allocator,
            gradients.started,
            gradients.waited_for,
        ):
            cache.cache_clear()

    def close(self):
        """Forgets the stand-in, so that the machine's own driver is loaded again; no call may have broken a capture."""
        gc.collect()  # what tests left in cycles is freed by the stand-in
        native.library.cache_clear()
        assert not self.bindings.invalidations, self.bindings.invalidations

    def variable(self, name, kind=ctypes.c_int):
        return kind.in_dll(self.library, name)

    def launched(self):
        """Launches since the last call: entry point, stream, first words of the parameters, grid, dependence."""
        count, notes = self.variable("launches"), (Noted * 256).in_dll(self.library, "noted")
        names = {number: entry for entry, number in self.gpu.executor.numbers.items()}
        launches = [SimpleNamespace(entry=names[n.function], stream=n.stream, words=list(n.words), grid=tuple(n.grid),
                                    dependent=n.dependent) for n in notes[: count.value]]  # fmt: skip
        count.value = 0
        return launches


def padded(function, config, parameters):
    """A launch with as many parameters as the stand-in reads."""
    return native.ready_launch(function, config, [*parameters, *[parameters[-1]] * (MOST_PARAMETERS - len(parameters))])


class Maps:
    """Tensor maps, whose address is the array's plus one; each is uploaded to separate memory."""

    def __init__(self, memory):
        self.places, self.memory = {}, memory

    def __len__(self):
        return len(self.places)

    def address(self, stream, tensor_map, p, array):
        if (tensor_map.name, p.N, array) not in self.places:
            memory = self.memory.allocate(128)
            self.memory.upload(memory.address, np.zeros(128, np.uint8), stream)
        return self.places.setdefault((tensor_map.name, p.N, array), array + 1)


class Cuda(NamedTuple):
    """torch.device."""

    type: str = "cuda"
    index: int = 0


DEVICE = Cuda()


class Size(tuple):
    """torch.Size."""


class Tensor:
    """A torch tensor on GPU 0, as far as calls read it."""

    __module__ = "torch"
    layout = "strided"
    requires_grad = False

    def __init__(self, shape, address=1 << 40, dtype="float32", strides=None):
        self.shape, self.dtype, self.address = Size(shape), dtype, address
        self.strides = strides or tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
        self.device = DEVICE

    def stride(self):
        return self.strides

    def get_device(self):
        return 0

    def data_ptr(self):
        return self.address

    def is_neg(self):
        return False

    def numel(self):
        return int(np.prod(self.shape))

    def __len__(self):
        return self.shape[0]

    def new_empty(self, *shape):
        return Tensor(shape, sys.modules["torch"].allocate(), self.dtype)

    def to(self, dtype):
        return Tensor(self.shape, sys.modules["torch"].allocate(), dtype, self.strides)

    def float(self):
        return self.to("float32")

    def permute(self, order):
        return Tensor([self.shape[i] for i in order], self.address, self.dtype, tuple(self.strides[i] for i in order))


class Torch:
    """torch with one stream at a time and increasing addresses of new tensors, each allocated by the driver."""

    strided, float32, float16 = "strided", "float32", "float16"
    Tensor = Tensor
    compiler = SimpleNamespace(is_compiling=lambda: False)
    autograd = SimpleNamespace(forward_ad=SimpleNamespace(_current_level=-1))

    def __init__(self, monkeypatch):
        self.stream, self.address, self.bindings = 0, 1 << 44, None
        guards = SimpleNamespace(_empty_strided_cuda=self.quickly_empty)
        self._C = SimpleNamespace(
            _cuda_getCurrentRawStream=lambda number: self.stream,
            _dynamo=SimpleNamespace(guards=guards),
            _is_tracing=lambda: False,
            _len_torch_dispatch_stack=lambda: 0,
            _functorch=SimpleNamespace(peek_interpreter_stack=lambda: None),
        )
        self.cuda = SimpleNamespace(current_stream=lambda number: SimpleNamespace(cuda_stream=self.stream))
        monkeypatch.setitem(sys.modules, "torch", self)

    def is_grad_enabled(self):
        return True

    def is_autocast_enabled(self, kind):
        return False

    def quickly_empty(self, shape, strides, dtype):
        assert type(shape) is type(strides) is tuple, "torch takes no other sequence here"
        return self.empty_strided(shape, strides, dtype, None)

    def allocate(self):
        if self.bindings:
            self.bindings.call("cuMemAlloc", 0)  # as where torch's cache has no block
        self.address += 1 << 32
        return self.address

    def empty(self, shape, dtype, device):
        return Tensor(shape, self.allocate(), dtype)

    def empty_strided(self, shape, strides, dtype, device):
        return Tensor(shape, self.allocate(), dtype, strides)
