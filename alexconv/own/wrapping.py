"""Wraps a plain CUDA file with a course's host function as a rung.

``ece408``: a host function ``conv_forward(y, x, w, B, M, C, H, W, K, S)`` of device pointers and sizes that launches
the file's kernels.  It runs on the CPU, once for each shape and number of images, against a header that records its
launches (``course.h``): grid, block, shared memory and arguments.  The rung replays them, so the kernels are verified,
checked, timed and profiled like any rung's.

The file is translated line by line, so that compilers report the student's lines: ``k<<<grid, block>>>(...)`` becomes a
macro, and ``__global__`` functions become device functions that the rung's entry points call.
"""

import hashlib
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from alexconv.errors import UsageError
from alexconv.executors.host.runtime import HostRuntime
from alexconv.files import contents
from alexconv.kernels.problem import Problem
from alexconv.kernels.rung import BATCH, Array, Dims, Launch, Rung
from alexconv.own import SIGNATURE, SIGNATURES
from alexconv.paths import cache_dir
from alexconv.shapes import Conv

FUNCTION = "conv_forward"
SECONDS = 20  # of CPU time that the launch code may take
SLEEP_SECONDS = 180  # that it may take in all, on a busy machine
OUTPUT_BYTES = 1 << 20  # that it may print
MOST_LAUNCHES = 64
FLOAT_BYTES = 4
PROBE = Conv(C=3, H=12, W=12, M=5, R=3, S=3)  # the shape whose launches and arguments define the rung
POINTERS = {1 << 32: "y", 2 << 32: "x", 3 << 32: "w"}
HEADER = Path(__file__).with_name("course.h")

_LAUNCH = re.compile(r"\b(\w+)\s*(<[^<>;{}]*>)?\s*<<<(.*?)>>>\s*\((.*?)\)\s*;", re.DOTALL)
_KERNEL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)")
_BOUNDS = re.compile(r"__launch_bounds__\s*\([^)]*\)")
_DYNAMIC = re.compile(r"\bextern\s+__shared__\s+([\w ]+?)\s+(\w+)\s*\[\s*\]\s*;")
_SHADOWS = re.compile(r"\bdim3\s+(?:\w+\s*(?:\([^()]*\))?\s*,\s*)*(gridDim|blockDim|threadIdx|blockIdx)\b")
_ONLY_HOST = re.compile(r'^\s*#\s*include\s*[<"](?:cuda_runtime\.h|cuda\.h|gpu-new-forward\.h|gpu-utils\.h)[>"]', re.M)

# What course.h writes.
_LAUNCH_LINE = re.compile(r"launch (\w+)((?: \d{1,18}){7})((?: (?:i-?\d{1,19}|p\d{1,20}|f[-+.\w]{1,30}))*)", re.ASCII)
_ALLOCATE_LINE = re.compile(r"allocate (\d{1,20}) (\d{1,18})", re.ASCII)
_SYMBOL_LINE = re.compile(r"symbol (\w+) (\d{1,18}) (\d{1,20}) (\d{1,18}) (\d{1,18})", re.ASCII)
_UNSUPPORTED_LINE = re.compile(r"unsupported (cudaMemcpy|cudaMemset)", re.ASCII)


@dataclass(frozen=True)
class RecordedLaunch:
    """A launch that the code makes: kernel, geometry, and its arguments in course.h's notation."""

    kernel: str
    grid: Dims
    block: Dims
    shared: int
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Recording:
    """What the launch code does for a shape: launches, allocations by address, the constant that has the filters."""

    launches: tuple[RecordedLaunch, ...]
    allocations: tuple[tuple[int, int], ...]
    symbol: str | None


def wrapped(file: Path, signature: str) -> Rung:
    """The rung of a file; raises UsageError, with the line, for what is missing or not supported."""
    if signature not in SIGNATURES:
        raise UsageError(f"--signature is one of {', '.join(SIGNATURES)}, not {signature}")
    if not file.is_file():
        raise UsageError(f"--kernel: no file {file}")
    text = file.read_text(errors="replace")
    library = launch_code(text, file)

    @cache
    def recording_of(conv: Conv, images: int) -> Recording:
        return understood(tell(library, [(conv, images)], file)[0], conv, file)

    return rung_of(text, file, recording_of)


def launch_code(text: str, file: Path) -> Path:
    """The library that records the launches of a file's code, compiled and not loaded; raises UsageError."""
    if not re.search(rf"\b{FUNCTION}\s*\(", text):
        raise UsageError(f"{file}: no function {SIGNATURES[SIGNATURE]}")
    translated = translate(text, file)
    recording = _folder(translated) / file.name
    _write(recording, translated + RECORDING)
    return HostRuntime().library(recording, {}, ())


def rung_of(text: str, file: Path, recording_of: Callable[[Conv, int], Recording]) -> Rung:
    """The rung of a file; ``recording_of`` has its launches for a shape and a number of images.  Raises UsageError."""
    name = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "kernel"
    translated, first = translate(text, file), recording_of(PROBE, 1)
    source = _folder(translated) / f"{file.stem}-rung.cu"
    _write(source, translated + entry_points(file, first, recording_of(PROBE, 2), parameters(text)))
    return _rung(name, source, recording_of, first, file)


def _folder(translated: str) -> Path:
    folder = cache_dir("own") / hashlib.sha256(translated.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    return folder


def _write(path: Path, text: str) -> None:
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)


RECORDING = f"""
#line 1 "the launch code"
extern "C" __attribute__((visibility("default"))) void alexconv_record(int B, int M, int C, int H, int W, int K, int S)
{{
    {FUNCTION}(reinterpret_cast<float*>(std::size_t(1) << 32), reinterpret_cast<float*>(std::size_t(2) << 32),
                 reinterpret_cast<float*>(std::size_t(3) << 32), B, M, C, H, W, K, S);
    std::printf("done\\n");
    std::fflush(stdout);
}}
"""


def translate(text: str, file: Path) -> str:
    """The file translated for g++ and nvcc: with its own line numbers, and launches that can be recorded."""

    def same_lines(match: re.Match[str], new: str) -> str:
        return new + "\n" * (match[0].count("\n") - new.count("\n"))

    def launch(match: re.Match[str]) -> str:
        if match[2]:
            line = text.count("\n", 0, match.start()) + 1
            raise UsageError(f"{file}:{line}: {match[1]}{match[2]}: kernel templates are not supported")
        values = f", {match[4].strip()}" if match[4].strip() else ""
        return same_lines(match, f"ALEXCONV_LAUNCH({match[1]}, ({match[3]}){values});")

    text = renamed(text.removeprefix("\ufeff"))  # a byte order mark is one at a file's start alone
    text = _ONLY_HOST.sub(lambda match: same_lines(match, ""), text)
    text = _LAUNCH.sub(launch, text)
    text = _DYNAMIC.sub(lambda match: f"ALEXCONV_DYNAMIC_SHARED({match[1]}, {match[2]});", text)
    text = _BOUNDS.sub(lambda match: same_lines(match, ""), text)
    text = re.sub(r"\b__global__\b", "__device__", text)
    return f'#include "{HEADER}"\n#line 1 "{file.name}"\n{text}'


def renamed(text: str) -> str:
    """The text with other names for variables of the launch code that shadow CUDA's own, such as gridDim."""
    while match := _SHADOWS.search(text):
        depth, end = 0, match.start()
        while end < len(text) and depth >= 0:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        block = re.sub(rf"\b{match[1]}\b", f"{match[1]}_", text[match.start() : end])
        text = text[: match.start()] + block + text[end:]
    return text


def parameters(text: str) -> dict[str, list[str]]:
    """The parameter types of each kernel of the file."""
    return {
        match[1]: [re.sub(r"\s*\b\w+\s*$", "", part.strip()) for part in match[2].split(",")]
        for match in _KERNEL.finditer(text)
    }


# The object file of this has references to all kernels, and no constructor of the C++ library's own.
_NO_STREAMS = """#include <istream>
#define _GLIBCXX_IOSTREAM 1
namespace std { extern istream cin; extern ostream cout, cerr, clog; }
"""


def as_written(text: str, file: Path) -> Path:
    """The file to compile to an object file that refers to all that kernels and launch code name."""
    translated = translate(text, file)
    kernels = "".join(f"void* const alexconv_uses_{name} = (void*)&{name};\n" for name in parameters(text))
    source = _folder(translated) / f"{file.stem}-as-written.cu"
    _write(source, _NO_STREAMS + translated + RECORDING + kernels)
    return source


TELLING = """
import ctypes, os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
seconds, most = int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_CPU)[1]
seconds = seconds if most == resource.RLIM_INFINITY else min(seconds, most)
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
record = ctypes.CDLL(sys.argv[1]).alexconv_record
for number, sizes in enumerate(sys.argv[3:]):
    file = os.open(str(number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.close(file)
    record(*map(int, sizes.split(",")))
"""  # each call's output goes to a separate file of at most OUTPUT_BYTES


def tell(library: Path, cases: Sequence[tuple[Conv, int]], file: Path) -> list[list[str]]:
    """The launch code's output for each shape and number of images, from a separate process; raises UsageError."""
    sizes = [(images, conv.M, conv.C, conv.H, conv.W, conv.R, conv.U) for conv, images in cases]
    shapes = [",".join(map(str, numbers)) for numbers in sizes]
    words = [sys.executable, "-I", "-S", "-c", TELLING, str(library), str(SECONDS), *shapes]
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                words,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SLEEP_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(f"{file}: {FUNCTION} has not returned after {SLEEP_SECONDS} s") from None
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise UsageError(f"{file}: {FUNCTION} has not returned after {SECONDS} s")
        outputs = []
        for number in range(len(cases)):
            text = (contents(Path(folder) / str(number)) or b"")[:OUTPUT_BYTES].decode(errors="replace")
            outputs.append(text.splitlines())
    if done.returncode or not all("done" in lines for lines in outputs):
        raise UsageError(f"{file}: {FUNCTION} ends with status {done.returncode} instead of returning")
    return outputs


def understood(lines: list[str], conv: Conv, file: Path) -> Recording:
    """Parses the lines that course.h writes for a shape; the file's own output is ignored."""
    launches: list[RecordedLaunch] = []
    allocations: list[tuple[int, int]] = []
    symbol = None
    for line in lines:
        if match := _LAUNCH_LINE.fullmatch(line):
            numbers = [int(word) for word in match[2].split()]
            grid, block = tuple(numbers[:3]), tuple(numbers[3:6])
            launches.append(RecordedLaunch(match[1], grid, block, numbers[6], tuple(match[3].split())))  # type: ignore[arg-type]
        elif match := _ALLOCATE_LINE.fullmatch(line):
            allocations.append((int(match[1]), int(match[2])))
        elif match := _SYMBOL_LINE.fullmatch(line):
            if symbol not in (None, match[1]):
                raise UsageError(
                    f"{file}: cudaMemcpyToSymbol copies to {symbol} and {match[1]}: one array is supported"
                )
            symbol = match[1]
            size, address, nbytes, offset = (int(number) for number in match.groups()[1:])
            filters = FLOAT_BYTES * prod(conv.w_shape())
            if POINTERS.get(address) != "w" or (nbytes, offset) != (filters, 0):
                raise UsageError(
                    f"{file}: cudaMemcpyToSymbol({symbol}, ...) must copy the filters, here {filters} bytes"
                    f" to its start, not {nbytes} to byte {offset}"
                )
            if size < nbytes:
                raise UsageError(f"{file}: {symbol} has {size} bytes, and the filters {nbytes}")
        elif match := _UNSUPPORTED_LINE.fullmatch(line):
            raise UsageError(f"{file}: {FUNCTION} calls {match[1]}, which is not supported")
    if len(launches) > MOST_LAUNCHES:
        raise UsageError(f"{file}: {FUNCTION} launches {len(launches)} kernels, more than {MOST_LAUNCHES}")
    if not launches:
        raise UsageError(f"{file}: {FUNCTION} launches no kernel")
    return Recording(tuple(launches), tuple(allocations), symbol)


def entry_points(file: Path, one: Recording, two: Recording, types: dict[str, list[str]]) -> str:
    """The rung's entry points: one for each launch, with the arguments that the launch code passes."""
    if [launch.kernel for launch in one.launches] != [launch.kernel for launch in two.launches]:
        raise UsageError(f"{file}: {FUNCTION} launches different kernels for one image and for two")
    text = '\n#line 1 "the entry points"\n'
    for number, (launch, again) in enumerate(zip(one.launches, two.launches, strict=True)):
        if launch.kernel not in types:
            raise UsageError(f"{file}: launches {launch.kernel}, which is not a __global__ void function of the file")
        values = []
        for place, (value, other) in enumerate(zip(launch.arguments, again.arguments, strict=True)):
            if value.startswith("p"):
                values.append(f"({types[launch.kernel][place]}){_pointer(int(value[1:]), one, file)}")
            elif value != other:
                if (value, other) != ("i1", "i2"):
                    raise UsageError(
                        f"{file}: argument {place + 1} of {launch.kernel} depends on the batch size but is not it"
                    )
                values.append(f"({types[launch.kernel][place]}){BATCH}")
            elif value.startswith("f"):
                values.append(f"{value[1:]}f" if "." in value else f"{value[1:]}.0f")
            else:
                values.append(f"LADDER_ARGUMENT_{number}_{place}")
        scratch = "".join(f", float* {name}" for name in scratch_names(one))
        text += (
            f'extern "C" __global__ void launch_{number}(float* y, const float* x, const float* w{scratch}, long long'
            f" {BATCH})\n{{\n    {launch.kernel}({', '.join(values)});\n}}\n"
        )
    return text


def scratch_names(recording: Recording) -> list[str]:
    """Names of the arrays that the code allocates."""
    return [f"scratch_{number}" for number in range(len(recording.allocations))]


def _pointer(address: int, recording: Recording, file: Path) -> str:
    if address in POINTERS:
        return POINTERS[address]
    for name, (first, nbytes) in zip(scratch_names(recording), recording.allocations, strict=True):
        if first <= address < first + nbytes:
            return f"((char*){name} + {address - first})"
    raise UsageError(f"{file}: a kernel's pointer is not y, x, w or from cudaMalloc")


def _rung(
    name: str, source: Path, recording_of: Callable[[Conv, int], Recording], first: Recording, file: Path
) -> Rung:
    """The rung whose functions query the launch code."""

    def refuses(p: Problem) -> str | None:
        if p.conv.R != p.conv.S:
            return "the signature has one size for a filter's rows and columns"
        try:
            here = recording_of(p.conv, p.N)
        except UsageError as error:
            return str(error)
        if [recorded.kernel for recorded in here.launches] != [recorded.kernel for recorded in first.launches]:
            return "launches different kernels for this shape than for small ones"
        if here.symbol != first.symbol:
            return "copies the filters to a constant array for some shapes only"
        return None

    def launch(number: int) -> Launch:
        return Launch(
            f"launch_{number}",
            ("y", "x", "w", *scratch_names(first), BATCH),
            lambda p: recording_of(p.conv, p.N).launches[number].grid,
            lambda p: recording_of(p.conv, p.N).launches[number].block,
            lambda p: recording_of(p.conv, p.N).launches[number].shared,
        )

    def argument(number: int, place: int) -> Callable[[Problem], int]:
        return lambda p: int(recording_of(p.conv, 1).launches[number].arguments[place][1:])

    def array(number: int) -> Callable[[Problem], tuple[int, ...]]:
        return lambda p: (-(-recording_of(p.conv, p.N).allocations[number][1] // FLOAT_BYTES),)

    return Rung(
        name,
        alias=name,
        idea=f"{file.name}, wrapped",
        family="own",
        parent=None,
        file=str(source),
        launches=tuple(launch(number) for number in range(len(first.launches))),
        sizes=tuple(
            (f"ARGUMENT_{number}_{place}", argument(number, place))
            for number, recorded in enumerate(first.launches)
            for place, value in enumerate(recorded.arguments)
            if value.startswith("i")
        ),
        scratch=tuple(Array(name, array(number)) for number, name in enumerate(scratch_names(first))),
        refuses=refuses,
        constant_symbol=first.symbol,
    )
