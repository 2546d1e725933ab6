"""The host executor: compiles a rung's ``.cu`` with the machine's C++ compiler and runs it on the CPU.

For machines without a GPU, for continuous integration and for sanitizers; its times say nothing about a GPU.  How a
kernel is run, what it must keep to and how the result may differ from a GPU's: ``hostcuda/host_cuda.h``.

A cross compiler for another CPU, such as ``CXX=aarch64-linux-gnu-g++``, serves too where QEMU runs that CPU's programs.
"""

import ctypes
import hashlib
import os
import platform
import re
import shlex
import shutil
import struct
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

from alexconv.compiling.compiled import compiled
from alexconv.compiling.sources import include_options, source_digest
from alexconv.compiling.toolchain import (
    CXX_VARIABLE,
    compiler_machine,
    compiler_version,
    emulator,
    failure,
    find_cxx,
    run_compiler,
)
from alexconv.errors import AlexconvError, CompileError, LaunchError, MissingTool
from alexconv.executors.host.apart import run_apart
from alexconv.executors.host.memory import GuardedBuffer, HostBuffer
from alexconv.kernels.bound import LaunchConfig
from alexconv.kernels.geometry import MAX_CONSTANT
from alexconv.kernels.problem import H200, Device
from alexconv.kernels.rung import Dims
from alexconv.machine import cores, cpu_features, cpu_model
from alexconv.paths import cache_dir

MAX_STATIC_SHARED = 48 * 1024  # bytes that a block may declare, on every CUDA GPU

_RUNTIME = Path(__file__).parent / "hostcuda"
_APART = Path(__file__).with_name("apart.cpp")
_HEADER = "host_cuda.h"  # the first thing that a kernel's translation unit reads
_FORWARD, _REVERSE = 0, 1  # the orders that are not seeds
# Entries of a library's section and symbol tables, with the fields read here (64-bit ELF, little-endian).
_SECTION = np.dtype(
    {
        "names": ("type", "flags", "offset", "size", "link"),
        "formats": ("<u4", "<u8", "<u8", "<u8", "<u4"),
        "offsets": (4, 8, 24, 32, 40),
        "itemsize": 64,
    }
)
_SYMBOL = np.dtype(
    {
        "names": ("name", "info", "section", "bytes"),
        "formats": ("<u4", "u1", "<u2", "<u8"),
        "offsets": (0, 4, 6, 16),
        "itemsize": 24,
    }
)
_SYMBOL_TABLE, _WRITABLE, _GLOBAL = 2, 1, 1
_THREAD_LOCAL = 6  # a kind of symbol
_LOCAL = "_ZZ"  # prefix of the mangled name of a function's static variable
# Those of the C++ library, where it is linked statically.
_OF_CXX_LIBRARY = re.compile(
    rf"{_LOCAL}N?K?(St|9__gnu_cxx|10__cxxabiv1|12_GLOBAL__N_1L?(10get_global|16get_locale_mutex|22get_locale_cache_mutex)E)"
)
# Thread-local variables that are no namespace's shared arrays: functions', the run-time's and the C++ library's.
_NOT_SHARED = re.compile(rf"{_LOCAL}|_ZN(9host_cuda|K?St|9__gnu_cxx|10__cxxabiv1)|_ZStL?\d")
_HEADERS_READ: set[Path] = set()  # folders of precompiled headers already checked: their files are large
_READING_HEADERS = threading.Lock()
_ONE_LAUNCH = threading.Lock()  # a launch takes all cores, and the asan build has one copy of shared memory


@dataclass(frozen=True)
class _Build:
    """How kernels are compiled, and the bytes of stack that a thread of a kernel gets.

    ``one_worker``: there is one copy of shared memory, or one log.  ``gcc``: the oldest g++ that has the flags; clang
    has them, too, if it is 0.  ``preloads``: AddressSanitizer's library must be preloaded into the process.
    """

    flags: tuple[str, ...]
    kernel_flags: tuple[str, ...]  # not for the run-time
    stack_bytes: int
    one_worker: bool = True
    gcc: int = 0
    preloads: bool = False

    @property
    def reports_lines(self) -> bool:
        """Whether line numbers of the sources reach the user."""
        return any(flag.startswith("-g") for flag in self.flags)


# nvcc fuses multiply-adds too (--fmad=true) and knows neither errno nor traps in its functions.
_FLAGS = (
    *("-std=c++17", "-fPIC", "-fvisibility=hidden"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-Wno-unknown-pragmas"),
)

# The instructions of this machine's CPU, and, for a compiler for another CPU, those of all that run the tests.
_NATIVE = {"aarch64": "-mcpu=native"}  # others: -march=native
_EMULATED = {"aarch64": "-march=armv8.2-a+fp16"}  # every 64-bit Apple and Graviton CPU since 2018 has them

# binutils before 2.41 name the translation unit for the first file of a DWARF 5 table.
_LINES = ("-g1", "-gdwarf-4")

_AS_WRITTEN = ("-O0", "-fno-inline", "-U_FORTIFY_SOURCE")

BUILDS = {
    # Kernels read and write fragments as words and vectors of other types, which nvcc takes as they are meant.
    "fast": _Build(("-O2", "-fno-strict-aliasing"), (), 64 * 1024, one_worker=False),
    # For small layers, which take longer to compile than to compute.
    "unoptimized": _Build(("-O0",), (), 256 * 1024, one_worker=False),
    "asan": _Build(
        ("-O1", "-g1", "-fno-omit-frame-pointer", "-DHOST_CUDA_ASAN"),
        ("-fsanitize=address", "-fsanitize-recover=address", "-Wp,-fsanitize=alignment"),
        256 * 1024,  # every local array has red zones
        preloads=True,
    ),
    "trace": _Build(
        ("-O2", *_LINES, "-DHOST_CUDA_TRACE"),
        (
            "-Wp,-fsanitize=thread",  # for the compiler only: hostcuda/instrumented.cpp replaces its library
            *("-fsanitize-coverage=trace-pc", "-Wno-tsan"),
            # Code stays in source order: the replay relies on it.  What nvcc does, too, is switched on again.
            *("-O1", "-fno-reorder-blocks", "-finline-small-functions", "-fstrict-aliasing", "-ftree-pre"),
            # Loads and stores stay as wide as in the source.
            *("-fno-tree-sra", "-fno-ipa-sra", "-fno-store-merging"),
        ),
        256 * 1024,  # structs stay in memory
        gcc=1,
    ),
    "hazards": _Build(
        ("-O2", *_LINES, "-DHOST_CUDA_HAZARDS"),
        # As above, without what only the replay needs.
        ("-Wp,-fsanitize=thread", "-Wno-tsan", "-O1", "-finline-small-functions", "-fno-tree-sra", "-fno-ipa-sra"),
        256 * 1024,
        gcc=1,
    ),
    "definedness": _Build(
        ("-O2", *_LINES, "-DHOST_CUDA_HAZARDS", "-DHOST_CUDA_DEFINEDNESS"),
        # Local variables stay in memory, each with a pattern until it has a value.
        ("-Wp,-fsanitize=thread", "-Wno-tsan", "-O0", "-ftrivial-auto-var-init=pattern"),
        512 * 1024,  # and so does everything else
        gcc=12,
    ),
}

# g++'s analysis of uninitialised variables, without the optimizations before it that use that a value is undefined.
_ANALYSIS = (
    *("-O1", "-finline-small-functions", "-Wuninitialized", "-Wmaybe-uninitialized", "-fdiagnostics-plain-output"),
    *(
        f"-fno-{name}"
        for name in (
            *("tree-ccp", "tree-fre", "tree-pre", "tree-vrp", "tree-copy-prop", "tree-dominator-opts"),
            *("tree-phiprop", "ssa-phiopt", "tree-sink"),
        )
    ),
)
# What g++, clang or the assembler says of CUDA that has no twin here, and what it is.
_UNKNOWN = tuple(
    (re.compile(words), meaning)
    for words, meaning in (
        (r": Error: |\basm\b|\bconstraint\b|instruction mnemonic", "inline PTX, which has no twin on the CPU"),
        (
            r"conflicting specifiers in declaration of|conflicts with 'extern'|combine with previous 'extern'",
            "extern __shared__ is DYNAMIC_SHARED(type, name) of common/shape.cuh",
        ),
        (
            "standard attributes in middle of decl-specifiers|an attribute list cannot appear here",
            "alignas comes before __shared__ or __device__; __align__ may come after",
        ),
        (r"with 'C' linkage|different language linkage", 'a kernel that the ladder launches is extern "C"'),
        (
            r"fatal error: '?(cuda|cooperative_groups|curand|cub/|cute/|cutlass/|nv/|thrust/|vector_)[\w/]*(\.\w+)?'?"
            r"(:| file)",
            "a header of CUDA's that the host executor does not have",
        ),
        (
            r"'(__|atomic|cuda|make_)\w*' (was not declared|does not name)|identifier '(__|atomic|cuda|make_)\w*'"
            r"|field '__\w+__' declared void|unknown type name '__\w+__'",
            "if it is CUDA's, the host executor does not have it",
        ),
    )
)
_WARNING = re.compile(r"^(.+?):(\d+):\d+: warning: (.*) \[-W(?:maybe-)?uninitialized\]$", re.M)


class _Argument(ctypes.Structure):
    """``host_cuda::Argument`` in launch.h."""

    class _Value(ctypes.Union):
        _fields_ = (("integer", ctypes.c_longlong), ("real", ctypes.c_double))

    _fields_ = (("kind", ctypes.c_int), ("value", _Value))
    INTEGER, REAL = 0, 1


class _Request(ctypes.Structure):
    """``host_cuda::Request`` in launch.h."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("dynamic_shared", ctypes.c_size_t),
        ("workers", ctypes.c_uint),
        ("cancelled", ctypes.c_int),
        ("order", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("argument_count", ctypes.c_uint),
        ("turns", ctypes.c_int),
        ("cluster", ctypes.c_uint),
        ("message", ctypes.c_char * 1024),
    )


class HostModule:
    """A compiled ``.cu``, from HostRuntime.compile, which launches as that run-time says."""

    def __init__(self, runtime: "HostRuntime", path: Path, name: str, entries: Sequence[str]) -> None:
        self.path, self.name, self.entries = path, name, entries
        self._order, self._workers, self._shared = runtime.order, runtime.workers, runtime.shared_per_block
        self._launcher, self._emulator = runtime.launcher(), runtime.emulator
        self._has_red_zones = runtime.build == "asan"
        self._constants: dict[str, GuardedBuffer] = {}
        self._sizes = _symbol_sizes(path)

    @cached_property
    def library(self) -> ctypes.CDLL:
        """The library loaded into this process, for launches in it; raises CompileError."""
        return _loaded(self.path, self.name)

    def static_shared(self, entry: str) -> int:
        """Bytes of shared memory that a block of the kernel declares.

        Arrays that a ``__device__`` function or a namespace declares are counted for every kernel of the file; in
        clang's asan build red zones count too.
        """
        local = {
            name: size
            for name, size in self._sizes.items()
            if name.startswith(_LOCAL) and not _OF_CXX_LIBRARY.match(name)
        }
        shared = _symbol_sizes(self.path, kind=_THREAD_LOCAL)
        in_namespaces = (size for name, size in shared.items() if not _NOT_SHARED.match(name))
        return sum(size for name, size in local.items() if _declaring_kernel(name) in (entry, None)) + sum(
            in_namespaces
        )

    @cached_property
    def constant(self) -> int:
        """Bytes of the file's ``__constant__`` arrays outside of namespaces.

        In clang's asan build red zones count too.
        """
        sizes = _symbol_sizes(self.path, exported=True)
        return sum(size for name, size in sizes.items() if not name.startswith("_"))

    def symbol(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a ``__constant__`` array, to be written before a launch; KeyError if the file has none."""
        if not self._launcher:
            return np.ctypeslib.as_array((ctypes.c_uint8 * self._sizes[name]).in_dll(self.library, name))
        if name not in self._constants:
            self._constants[name] = GuardedBuffer(self._sizes[name], name)
        return self._constants[name].bytes

    def allocate(self, nbytes: int, name: str = "an array") -> HostBuffer:
        """Memory for launches, with a name for messages; raises OutOfMemory."""
        return (GuardedBuffer if self._launcher else HostBuffer)(nbytes, name)

    def launch(
        self,
        entry: str,
        grid: Dims,
        block: Dims,
        dynamic_shared: int,
        arguments: Sequence[HostBuffer | int | float],
        arrays: Sequence[HostBuffer] = (),
    ) -> None:
        """Runs a kernel over the grid and waits for it, as ``run`` does."""
        self.run([(LaunchConfig(entry, (), grid, block, dynamic_shared), arguments)], arrays)

    def run(
        self,
        launches: Sequence[tuple[LaunchConfig, Sequence[HostBuffer | int | float]]],
        arrays: Sequence[HostBuffer] = (),
    ) -> None:
        """Launches kernels with their arguments, one after the other; a pointer is a HostBuffer or an address.

        ``arrays`` own the memory at the addresses.  Raises LaunchError when CUDA's limits forbid a launch, when the
        arguments do not match the kernel's, at a deadlock of its threads, and at a bad access, which in the trace and
        hazards builds may end the process.  After an interrupt (Ctrl-C) the kernel stops at its next barrier or exiting
        thread.
        """
        requests, memory = self._requests(launches)
        values = (value for _, arguments in launches for value in arguments)
        arrays = [*arrays, memory, *(value for value in values if isinstance(value, HostBuffer))]
        entries = [launch.entry for launch, _ in launches]
        # In a separate thread: this one stays free to receive an interrupt.
        with _ONE_LAUNCH, ThreadPoolExecutor(1) as pool:
            try:
                succeeded = pool.submit(self._run, entries, requests, arrays).result()
            except BaseException:  # of an interrupt while the thread starts, too: the kernel may run by then
                for request in requests:
                    request.cancelled = 1
                raise
        if not succeeded:
            messages = (request.message for request in requests)
            raise LaunchError(next(filter(None, messages), b"").decode(errors="replace"))
        for array in arrays:
            array.check()

    def _requests(
        self, launches: Sequence[tuple[LaunchConfig, Sequence[HostBuffer | int | float]]]
    ) -> tuple[list[_Request], HostBuffer]:
        """The requests of launches, in memory that also holds their arguments and the orders of their threads."""
        for launch, _ in launches:
            self._check(launch)
        block_sizes = {prod(launch.block) for launch, _ in launches}
        orders = {threads: _start_order(self._order, threads) for threads in block_sizes}
        packed_arguments = [
            bytes((_Argument * len(arguments))(*map(_argument, arguments))) for _, arguments in launches
        ]
        # Each size is a multiple of what its successors are aligned to.
        parts = [
            bytes((_Request * len(launches))()),
            *packed_arguments,
            *(order.tobytes() for order in orders.values()),
        ]
        content = b"".join(parts)
        memory = self.allocate(len(content))
        memory.bytes[:] = np.frombuffer(content, np.uint8)
        addresses = [memory.pointer + offset for offset in accumulate(map(len, parts), initial=0)]
        order_of = dict(zip(orders, addresses[1 + len(packed_arguments) :], strict=False))
        requests = list((_Request * len(launches)).from_address(addresses[0]))
        for request, (launch, arguments), address in zip(requests, launches, addresses[1:], strict=False):
            request.grid, request.block, request.dynamic_shared = launch.grid, launch.block, launch.dynamic_shared
            request.workers, request.order = self._workers, order_of[prod(launch.block)]
            request.arguments, request.argument_count = address, len(arguments)
            # Of a block's threads in odd orders, its turn ends with each arrival (residents.h, cluster.h).
            request.turns = 1 + self._order % 2 if launch.cooperative or launch.cluster > 1 else 0
            request.cluster = launch.cluster if launch.cluster > 1 else 0
        return requests, memory

    def _run(self, entries: Sequence[str], requests: Sequence[_Request], arrays: Sequence[HostBuffer]) -> bool:
        if self._launcher:
            launches = [(entry, ctypes.addressof(request)) for entry, request in zip(entries, requests, strict=True)]
            shared = [array for array in arrays if isinstance(array, GuardedBuffer)]
            return run_apart(self._launcher, self.path, launches, shared, self._constants, self._emulator)
        functions = [self.library[f"host_cuda_launch_{entry}"] for entry in entries]
        for function in functions:
            function.restype = ctypes.c_bool
        return all(run(ctypes.byref(request)) for run, request in zip(functions, requests, strict=True))

    def _check(self, launch: LaunchConfig) -> None:
        if launch.entry not in self.entries:
            raise LaunchError(f"{self.name} was compiled without the entry point {launch.entry}")
        if problem := launch.outside_limits():
            raise LaunchError(problem)
        if self.constant > MAX_CONSTANT and not self._has_red_zones:
            raise LaunchError(f"{self.name}: {self.constant} bytes of constant memory exceed {MAX_CONSTANT}")
        static, dynamic = self.static_shared(launch.entry), launch.dynamic_shared
        if static > MAX_STATIC_SHARED:
            raise LaunchError(f"{launch.entry}: {static} bytes of static shared memory exceed {MAX_STATIC_SHARED}")
        if dynamic < 0 or static + dynamic > self._shared:
            raise LaunchError(
                f"{launch.entry}: {static} static and {dynamic} dynamic bytes of shared memory, but a block has"
                f" at most {self._shared}"
            )


class HostRuntime:
    """Compiles ``.cu`` files for this machine and runs them on all of its cores.

    ``build`` is ``fast``, ``unoptimized`` (compiled in half the time), ``asan`` (AddressSanitizer, one worker; the
    process must have been started with ``asan_environment()``), ``trace`` (for ``alexconv.profile.trace``), ``hazards``
    or ``definedness`` (for ``alexconv.check.hazards``; one worker and g++, as for ``trace``).  ``order`` says how the
    threads of a block are scheduled: 0 forward, 1 in reverse, any other number seeds a random permutation.  Outputs
    that change with it reveal a missing barrier.  ``workers`` defaults to all cores.  ``device`` gives the limits of a
    block and the macro ``__CUDA_ARCH__``, by which a file chooses what each generation does.  Raises MissingTool
    without a C++ compiler that has the flags or without AddressSanitizer's library.
    """

    name = "host"

    def __init__(
        self, *, build: str = "fast", order: int = 0, workers: int | None = None, device: Device = H200
    ) -> None:
        if build not in BUILDS:
            raise ValueError(f"the builds of the host executor are {', '.join(BUILDS)}, not {build}")
        if order < 0 or (workers is not None and workers < 1):
            raise ValueError(f"an order is 0 or more and workers are 1 or more, not {order} and {workers}")
        self.build, self.order, self._how, self._device = build, order, BUILDS[build], device
        if self._how.one_worker and workers not in (None, 1):
            raise ValueError(f"the {build} build has one worker")
        self.workers = 1 if self._how.one_worker else workers or cores()
        self.cxx = find_cxx()
        self.compiler = compiler_version(self.cxx)
        if self._how.gcc and _is_clang(self.compiler):
            raise MissingTool(f"the {build} build needs g++, not clang ({self.cxx}): set {CXX_VARIABLE}=g++")
        if self._how.gcc > _major(self.compiler):
            raise MissingTool(
                f"the {build} build needs g++ {self._how.gcc} or newer, not {self.compiler}: set {CXX_VARIABLE}"
            )
        self._machine = compiler_machine(self.cxx)
        self.emulator = emulator(self.cxx)  # words before a program for another CPU
        if self.emulator and not self._apart:
            raise _another_machine(build, self.cxx)
        if missing := missing_environment(build):
            words = shlex.join(f"{name}={value}" for name, value in missing.items())
            raise MissingTool(f"the {build} build needs a process that is started with these variables set: {words}")

    @property
    def cpu(self) -> str:
        """What runs the kernels."""
        return f"{self._machine} under QEMU on {cpu_model()}" if self.emulator else cpu_model()

    def describe(self) -> dict[str, object]:
        """Compiler, flags, CPU, workers, build and order, for records."""
        return {
            "compiler": self.compiler,
            "flags": " ".join((*self._flags, *self._kernel_flags)),
            "cpu": self.cpu,
            "workers": self.workers,
            "build": self.build,
            "order": self.order,
        }

    def key(self, source: Path, defines: Mapping[str, int], entries: Sequence[str] = ()) -> str:
        """Digest of all that the compiled library depends on: sources, macros, run-time, compiler, flags, CPU."""
        return source_digest(source, defines, *entries, self._toolchain_key(), exact=self._how.reports_lines)

    def compile(self, source: Path, defines: Mapping[str, int], entries: Sequence[str]) -> HostModule:
        """The file's entry points, ready to launch; compiled unless the cache has them.

        May be called from several threads and processes at once.  Raises CompileError with the compiler's first error.
        """
        return HostModule(self, self.library(source, defines, entries), source.name, entries)

    def library(self, source: Path, defines: Mapping[str, int], entries: Sequence[str]) -> Path:
        """The compiled file, not loaded: loading it would run its static constructors in this process."""
        source = source.resolve()
        key = self.key(source, defines, entries)

        def build(target: Path) -> None:
            headers = [folder for folder in (self._precompiled_headers(), _RUNTIME) if folder]
            paths = [
                *(f"-I{folder}" for folder in headers),
                *include_options(source),
                f"-ffile-prefix-map={source.parent}/=",
            ]
            inputs = ["-x", "c++", "-", "-x", "none", str(self._runtime())]
            link = ["-shared", "-pthread", "-Wl,-Bsymbolic", *fast_linker(self.cxx), "-o", str(target)]
            unit = _translation_unit(source, defines, entries)
            self._run(source.name, [*self._flags, *self._kernel_flags, *paths, *inputs, *link], unit)

        path = cache_dir("host") / f"{source.stem}-{key}.so"
        compiled(path, build)
        return path

    def uninitialised(
        self, source: Path, defines: Mapping[str, int], entries: Sequence[str]
    ) -> list[tuple[str, int, str]]:
        """Local variables that may be read before they have a value, by g++'s analysis: file, line, g++'s words.

        It sees what no build instruments: variables in registers.  Optimizations that it makes first would take an
        undefined value for whatever suits them, and are switched off.  Raises CompileError.
        """
        source = source.resolve()
        flags = (*self._flags, *_ANALYSIS)

        def build(target: Path) -> None:
            words = [*flags, f"-I{_RUNTIME}", *include_options(source), "-S", "-x", "c++", "-", "-o", os.devnull]
            target.write_text(self._run(source.name, words, _translation_unit(source, defines, entries)))

        key = source_digest(source, defines, *entries, self.cxx, self.compiler, *flags, _runtime_digest(), exact=True)
        warnings = compiled(cache_dir("host") / f"{source.stem}-{key}.uninitialised", build).decode()
        return [(Path(file).name, int(line), words) for file, line, words in _WARNING.findall(warnings)]

    def object_file(self, source: Path, target: Path) -> None:
        """Compiles a file alone, as it is written: its object file refers to all that its functions name.

        Raises CompileError.
        """
        words = [*self._flags, *_AS_WRITTEN, f"-I{_RUNTIME}", *include_options(source)]
        unit = _translation_unit(source, {}, ())
        self._run(source.name, [*words, "-c", "-x", "c++", "-", "-o", str(target)], unit)

    def allocate(self, nbytes: int, name: str = "an array") -> HostBuffer:
        """Memory for a kernel's arguments, with a name for messages; raises OutOfMemory."""
        return (GuardedBuffer if self._apart else HostBuffer)(nbytes, name)

    @property
    def _apart(self) -> bool:
        """Whether launches run in separate processes: the other builds find bad accesses, or keep what they saw."""
        return self.build in ("fast", "unoptimized")

    @property
    def shared_per_block(self) -> int:
        """The most shared memory of a block in bytes."""
        return self._device.shared_per_block

    def launcher(self) -> Path | None:
        """The program that runs launches in a separate process, compiled once for all kernels; None in this one."""
        if not self._apart:
            return None

        def build(target: Path) -> None:
            words = ["-std=c++17", "-O2", "-x", "c++", "-", "-ldl", "-o", str(target)]
            self._run("the host executor's launcher", words, unit)

        unit = _APART.read_text()
        key = hashlib.sha256(repr((self.cxx, self.compiler, self._machine, unit)).encode()).hexdigest()[:32]
        path = cache_dir("host") / f"launcher-{key}"
        compiled(path, build, waits=True)
        return path

    @property
    def _flags(self) -> tuple[str, ...]:
        clang = _is_clang(self.compiler)
        shared = ("-shared-libasan",) if self._how.preloads and clang else ()
        # Shared memory and the thread's indices are thread_local: found by TLS descriptors, the default elsewhere,
        # instead of function calls.
        descriptors = ("-mtls-dialect=gnu2",) if self._machine == "x86_64" and not clang else ()
        cpu = _EMULATED.get(self._machine, "") if self.emulator else _NATIVE.get(self._machine, "-march=native")
        stack = f"-DHOST_CUDA_STACK_BYTES={self._how.stack_bytes}"
        return (*_FLAGS, *filter(None, (cpu,)), *self._how.flags, stack, *self._arch, *shared, *descriptors)

    @property
    def _arch(self) -> tuple[str, ...]:
        major, minor = self._device.capability
        return (f"-D__CUDA_ARCH__={100 * major + 10 * minor}",)

    @property
    def _kernel_flags(self) -> tuple[str, ...]:
        frame = self._how.stack_bytes // 2  # one function's; the other half is for those that it calls
        if _is_clang(self.compiler):  # g++'s options for the compiler without a sanitizer's library are not clang's
            own = (flag for flag in self._how.kernel_flags if not flag.startswith("-Wp,"))
            return (*own, f"-Wframe-larger-than={frame}", "-Werror=frame-larger-than")
        return (*self._how.kernel_flags, f"-Werror=frame-larger-than={frame}")

    def _toolchain_key(self) -> str:
        text = repr((self.cxx, self.compiler, self._flags, self._kernel_flags, cpu_features(), _runtime_digest()))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _runtime(self) -> Path:
        """The run-time's object file, compiled once for all kernels."""

        def build(target: Path) -> None:
            unit = "".join(f'#include "{file}"\n' for file in sorted(_RUNTIME.glob("*.cpp")))
            self._run("the host executor's run-time", [*self._flags, "-c", "-x", "c++", "-", "-o", str(target)], unit)

        path = cache_dir("host") / f"runtime-{self._toolchain_key()}.o"
        compiled(path, build, waits=True)
        return path

    def _precompiled_headers(self) -> Path | None:
        """A folder in which g++ finds the run-time's headers precompiled, once for all kernels.

        None for clang, which has another way.  Headers made with other flags would be parsed again from their source.
        """
        if _is_clang(self.compiler):
            return None

        def build(target: Path) -> None:
            header = ["-pthread", "-x", "c++-header", str(_RUNTIME / _HEADER), "-o", str(target)]
            self._run(_HEADER, [*self._flags, *self._kernel_flags, *header], "")

        folder = cache_dir(f"host-headers/{self._toolchain_key()}")
        with _READING_HEADERS:
            if folder not in _HEADERS_READ:
                compiled(folder / f"{_HEADER}.gch", build, waits=True)
                _HEADERS_READ.add(folder)
        return folder

    def _run(self, name: str, arguments: Sequence[str], unit: str) -> str:
        """Runs the compiler and returns its warnings; raises CompileError and MachineFault."""
        try:
            return run_compiler([self.cxx, *arguments], name, cache_dir("host"), unit)
        except CompileError as error:
            raise CompileError(_explained(str(error))) from None


def _explained(error: str) -> str:
    """A compiler's error, with what it is where CUDA has something that the host executor has not."""
    meaning = next((meaning for words, meaning in _UNKNOWN if words.search(error)), None)
    return f"{error} ({meaning}: docs/own-kernels.md#on-a-cpu)" if meaning else error


@cache
def fast_linker(cxx: str) -> tuple[str, ...]:
    """The option that selects the gold linker, where it works: linking is half of a small kernel's compilation."""
    if not shutil.which("ld.gold"):
        return ()
    gold = ("-fuse-ld=gold",)
    try:
        with TemporaryDirectory() as folder:
            trial = [cxx, "-shared", *gold, "-x", "c++", "-", "-o", f"{folder}/trial.so"]
            run_compiler(trial, "a trial", Path(folder), "int linked;")
    except (AlexconvError, OSError):
        return ()
    return gold


def _loaded(path: Path, name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise failure(f"{name} was compiled but cannot be loaded", str(error), path.parent) from None


def asan_loaded() -> bool:
    """Whether this process was started with AddressSanitizer's library."""
    return hasattr(ctypes.CDLL(None), "__asan_init")


def missing_environment(build: str) -> dict[str, str]:
    """The variables that a process has to be started with for a build, if this one was not; raises MissingTool."""
    return asan_environment() if BUILDS[build].preloads and not asan_loaded() else {}


def asan_environment() -> dict[str, str]:
    """Variables to start a process with so that the asan build works in it.

    The C++ library comes along: AddressSanitizer looks for the functions it wraps when the process starts, and without
    them any C++ exception would end it.  Python frees little before it exits, so leaks are not detected; and two
    kernels may have constant arrays of the same name.  Raises MissingTool where the compiler has no such library.
    """
    cxx = find_cxx()
    if compiler_machine(cxx) != platform.machine():
        raise _another_machine("asan", cxx)
    clang = _is_clang(compiler_version(cxx))
    names = (f"libclang_rt.asan-{platform.machine()}.so" if clang else "libasan.so", "libstdc++.so.6")
    libraries = [_library(cxx, name) for name in names]
    return {
        "LD_PRELOAD": ":".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0:detect_odr_violation=0:detect_stack_use_after_return=0",
    }


def _another_machine(build: str, cxx: str) -> MissingTool:
    return MissingTool(f"the {build} build needs a compiler for this machine's CPU, not {cxx}: set {CXX_VARIABLE}")


def _library(cxx: str, name: str) -> str:
    answer = subprocess.run([cxx, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    path = Path(answer.stdout.strip())
    if not path.is_absolute():
        raise MissingTool(f"{cxx} has no {name}; install the compiler's AddressSanitizer library")
    return str(path.resolve())


def _is_clang(version: str) -> bool:
    return "clang" in version


def _major(version: str) -> int:
    """The compiler's version: the first number after what its distributor calls it, in parentheses."""
    number = re.search(r"(?<![\w.])(\d+)\.\d", re.sub(r"\(.*\)", "", version))
    return int(number[1]) if number else 0


def _translation_unit(source: Path, defines: Mapping[str, int], entries: Sequence[str]) -> str:
    """What the compiler reads.  The macros come after the run-time's headers, which may use the same names."""
    lines = [f'#include "{_HEADER}"']
    lines += [f"#define {name} {value}" for name, value in defines.items()]
    lines += [f'#include "{source}"']
    lines += [f"HOST_CUDA_ENTRY({entry})" for entry in entries]
    return "\n".join(lines) + "\n"


@cache
def _runtime_digest() -> str:
    """Of every byte: messages contain the headers' line numbers."""
    digest = hashlib.sha256()
    for file in sorted(_RUNTIME.glob("*.[hc]*")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def _symbol_sizes(path: Path, *, exported: bool = False, kind: int | None = None) -> dict[str, int]:
    """Bytes of every writable variable of a library, or every exported one, or one of a kind, by linker name.

    Raises CompileError if it is no library.
    """
    try:
        data = path.read_bytes()
        (begin,), (count,) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<H", data, 0x3C)
        sections = np.frombuffer(data, _SECTION, count, begin)
        (table,) = sections[sections["type"] == _SYMBOL_TABLE]
        names = sections[table["link"]]["offset"]
        symbols = np.frombuffer(data, _SYMBOL, table["size"] // _SYMBOL.itemsize, table["offset"])
        symbols = symbols[(symbols["bytes"] > 0) & (symbols["section"] < count)]
        symbols = symbols[(symbols["info"] >> 4 == _GLOBAL) | (not exported)]
        symbols = symbols[(symbols["info"] & 0xF == kind) | (kind is None)]
        writable = sections[symbols["section"]]["flags"] & _WRITABLE != 0
        places = ((int(names + symbol["name"]), int(symbol["bytes"])) for symbol in symbols[writable])
        return {data[place : data.index(0, place)].decode(): size for place, size in places}
    except (OSError, ValueError, struct.error) as error:
        raise CompileError(f"{path.name} was compiled but its symbols cannot be read: {error}") from None


def _declaring_kernel(symbol: str) -> str | None:
    """The kernel that a function's static variable belongs to; None if it is a C++ function's.

    The variable ``tile`` of ``extern "C" kernel`` is ``_ZZ6kernelE4tile``; a C++ function has its parameter types
    before the ``E`` (Itanium C++ ABI, mangling of local names).
    """
    match = re.match(rf"{_LOCAL}(\d+)(.*)", symbol)
    if not match:
        return None
    length, rest = int(match[1]), match[2]
    return rest[:length] if rest[length] == "E" else None


@cache
def _start_order(order: int, threads: int) -> npt.NDArray[np.uint32]:
    """Linear thread numbers in the order they start."""
    if order == _FORWARD:
        return np.arange(threads, dtype=np.uint32)
    if order == _REVERSE:
        return np.arange(threads, dtype=np.uint32)[::-1].copy()
    return np.random.default_rng(order).permutation(threads).astype(np.uint32)


def _argument(value: HostBuffer | int | float) -> _Argument:
    if isinstance(value, HostBuffer):
        return _argument(value.pointer)
    if isinstance(value, float | np.floating):
        return _Argument(_Argument.REAL, _Argument._Value(real=value))
    return _Argument(_Argument.INTEGER, _Argument._Value(integer=value))
