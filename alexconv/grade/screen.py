"""What a submission may use: an allow-list of the compiler's own tokens, and of what its object file refers to.

The compiler preprocesses the file alone, without its headers and with no macro defined but the file's own; what comes
out is screened, and is what all later steps compile.  So no condition, macro or spelling can show the screen another
program than the one that runs, or tell the machine that checks it from the one that times it.

Tokens show attributes, assembly, pragmas and the names of compilers and of the host executor.  What functions of the
system it calls, and whether anything of it runs when it is loaded, shows the object file.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from alexconv.compiling.toolchain import find_cxx, first_error
from alexconv.errors import CompileError
from alexconv.own.wrapping import FUNCTION

CPLUSPLUS = ("cmath", "math.h", "cstdio", "stdio.h", "iostream", "cstdlib", "stdlib.h", "algorithm", "cassert")
CUDA = ("cuda_runtime.h", "cuda.h", "gpu-new-forward.h", "gpu-utils.h", "cuda_fp16.h", "mma.h")
HEADERS = (*CPLUSPLUS, *CUDA)
TARGETS = ("__CUDA_ARCH__", "__CUDACC__", "__NVCC__", "NVCC", "__GNUC__", "__clang__", "HOST_CUDA")
MOST_PROBLEMS = 20
MOST_EXPANSIONS = 16  # of one macro into another
MOST_BYTES = 1 << 22  # of a preprocessed file

_TOKEN = re.compile(
    r"(?P<name>[A-Za-z_]\w*)|(?P<number>\.?[0-9](?:[eEpP][+-]|'\w|[\w.])*)"
    r'|(?P<text>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|(?P<sign>[][{}()<>;:,.?~!+*/%^&|=-])|(?P<other>\S)',
    re.ASCII,
)
_MARKER = re.compile(r'# (\d+) "((?:\\.|[^"\\])*)"((?: \d)*)')
_DEFINED = re.compile(r"#(?:define ([A-Za-z_]\w*)(?: (\S+))?$|define\b|undef\b)")
_UNROLL = re.compile(r"#pragma\s+unroll\b\s*\(?\s*(\w*)\s*\)?\s*$")
_ERROR = re.compile(r"(?P<place>[^:\n]+:\d+):(?:\d+:)? (?:fatal )?error: (?P<what>.*)")
_POISONED = re.compile(r"attempt to use poisoned \W(\w+)\W")
_ABSENT = re.compile(r"(.*): [^:]*irectory$|\W?#include\W? nested")  # the header and why it cannot be opened, or itself

# Names that the C++ standard reserves, of which these are CUDA's.
_RESERVED = re.compile(r"__|_[A-Z]")
_ROUNDED = r"(?:_r[nzud])?"
_CUDA_NAMES = re.compile(
    r"__(?:(?:global|device|host|shared|constant|restrict|forceinline|noinline|launch_bounds|grid_constant|align)__"
    r"|restrict|syncthreads(?:_(?:count|and|or))?|syncwarp|activemask|func__"
    r"|(?:shfl(?:_up|_down|_xor)?|any|all|ballot|match_any|match_all|reduce_\w+)_sync"
    r"|threadfence(?:_block|_system)?|ldg|ldc[agsv]|popc(?:ll)?|clz(?:ll)?|ffs(?:ll)?|brev(?:ll)?|byte_perm"
    rf"|u?mul24|u?mul(?:64)?hi|[fd](?:add|sub|mul|div|rcp|sqrt){_ROUNDED}|fmaf?{_ROUNDED}|fdividef|saturatef"
    rf"|(?:exp|exp10|log|log2|log10|sin|cos|tan|pow|sincos)f|(?:u?int|u?ll|float|double)(?:2|_as_)\w+"
    rf"|half2?(?:2\w+)?|floats?2half2?{_ROUNDED}|float22half2_rn|halves2half2|(?:low|high)s?2\w+"
    r"|h(?:add|sub|mul|div|fma|neg|abs|max|min|eq|ne|lt|le|gt|ge|isnan|isinf)2?(?:_rn|_sat|_relu)?)"
)
_REFUSED_NAMES = re.compile(
    r"asm|thread_local|import|module|export|co_\w+|course|host_cuda\w*|HOST_CUDA\w*|alexconv\w*|ALEXCONV\w*|LADDER_\w*"
)
_OF_C = re.compile(  # of mathematics, and the others
    r"""(?:
    abs|acos|acosh|asin|asinh|atan|atan2|atanh|cbrt|ceil|copysign|cos|cosh|erf|erfc|exp|exp10|exp2|expm1|fabs|
    fdim|floor|fma|fmax|fmin|fmod|frexp|hypot|ilogb|ldexp|lgamma|llrint|llround|log|log10|log1p|log2|logb|
    lrint|lround|modf|nan|nearbyint|nextafter|pow|remainder|remquo|rint|round|scalbn|sin|sincos|sinh|sqrt|tan|
    tanh|tgamma|trunc
    )f?|
    printf|puts|putchar|putc|fputc|fputs|fprintf|fwrite|fflush|snprintf|sprintf|vprintf|stdout|stderr|memcpy|
    memmove|memset|memcmp|strlen|strcmp|malloc|calloc|free|aligned_alloc|exit|abort|__assert_fail|
    __stack_chk_fail|labs|llabs|rand|srand|qsort|__tls_get_addr|_GLOBAL_OFFSET_TABLE_|__cxa_guard_acquire|
    __cxa_guard_release|__cxa_guard_abort|__cxa_pure_virtual|_Unwind_Resume|__gxx_personality_v0
    """,
    re.VERBOSE,
)
_OF_CPLUSPLUS = re.compile(  # operators of std::cout, new and delete, and what CUDA's functions become
    r"_ZNSols|_ZStls|_ZSt4(?:cout|cerr|clog)|_ZSt4endl|_ZSt5flush|_ZNSo(?:3put|5flush|5write)|_ZNSt8ios_base"
    r"|_ZSt9terminatev|_Zn[wa]m|_Zd[la]Pv|_ZT[HW]?N9host_cuda|_ZN9host_cuda|_ZSt\d+__throw_|_ZSt24__throw"
)
_RAW = ("R", "LR", "uR", "UR", "u8R")
_HOST_FUNCTION = ('"C"', "void", FUNCTION)
_DIGRAPHS = (("[", "["), ("<", ":"), ("<", "%"))  # of attributes, the others spell brackets
_DYNAMIC = re.compile(r"_GLOBAL__sub_I_|__static_initialization|_Z41__static_init")


@dataclass(frozen=True)
class Preprocessed:
    """A file's text after the preprocessor, line for line, and the problems that its directives have."""

    text: str
    problems: tuple[str, ...]


def preprocessed(text: str, file: str, folder: Path) -> Preprocessed:
    """The file with its macros expanded and its allowed includes left; ``folder`` is for temporary files.

    Raises CompileError for what the preprocessor refuses.
    """
    headers = folder / "headers"
    headers.mkdir()
    for name in HEADERS:
        (headers / name).touch()
    poison = folder / "poison.h"
    poison.write_text(f"#pragma GCC poison {' '.join(TARGETS)}\n")
    words = [find_cxx(), "-E", "-dD", "-undef", "-nostdinc", "-std=c++17", "-x", "c++", f"-I{headers}"]
    words += ["-include", str(poison), "-fno-diagnostics-color", file]
    (folder / file).write_text(text)
    done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        messages = done.stderr.decode(errors="replace")
        if problems := list(dict.fromkeys(_refused_directives(messages, file))):
            return Preprocessed("", tuple(problems[:MOST_PROBLEMS]))
        raise CompileError(first_error(messages))
    if len(done.stdout) > MOST_BYTES:
        raise CompileError(f"{file}: larger than {MOST_BYTES >> 20} MiB after the preprocessor")
    return _rebuilt(done.stdout.decode(errors="replace"), file, str(headers))


def _refused_directives(messages: str, file: str) -> Iterator[str]:
    for match in _ERROR.finditer(messages):
        if poisoned := _POISONED.match(match["what"]):
            yield f"{match['place']}: depends on {poisoned[1]}: a submission must be the same program everywhere"
        elif absent := _ABSENT.match(match["what"]):
            yield f"{match['place']}: includes {absent[1] or 'itself'}; allowed are {', '.join(HEADERS)}"


def _rebuilt(output: str, file: str, headers: str) -> Preprocessed:
    """The preprocessor's output with every token on the line of the file where it was written."""
    lines: dict[int, str] = {}
    macros: dict[str, str] = {}
    problems: list[str] = []
    number, inside = 0, False
    for line in output.splitlines():
        if marker := _MARKER.match(line):
            name, entered = marker[2], " 1" in marker[3]
            if entered and inside and not name.startswith(f"{headers}/"):
                problems.append(f"{file}:{number}: includes {name}; allowed are {', '.join(HEADERS)}")
            elif entered and inside:
                lines[number] = f"#include <{name.removeprefix(f'{headers}/')}>"
            inside = name == file
            number = int(marker[1]) if inside else number
            continue
        if not inside:
            continue
        if defined := _DEFINED.match(line):
            macros |= {defined[1]: defined[2] or ""} if defined[1] else {}
        elif unroll := _UNROLL.match(line):
            lines[number] = f'{lines.get(number, "")} _Pragma("unroll {_value(unroll[1], macros)}")'
        elif line.startswith("#") and line.split() != ["#pragma", "once"]:
            problems.append(f"{file}:{number}: a submission may not use {line.strip()}")
        elif line.strip() and not line.startswith("#"):
            lines[number] = f"{lines[number]} {line}" if number in lines else line
        number += 1
    text = "".join(f"{lines.get(place, '')}\n" for place in range(1, max(lines, default=0) + 1))
    return Preprocessed(text, tuple(problems[:MOST_PROBLEMS]))


def _value(name: str, macros: dict[str, str]) -> str:
    """What macros make of a name: compilers expand them in this pragma, the preprocessor does not."""
    for _ in range(MOST_EXPANSIONS):
        name = macros.get(name, name)
    return name


def token_problems(text: str, file: str) -> Iterator[str]:
    """A line for each token of a preprocessed file that a submission may not use, with its place."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#include <"):
            continue
        code = line.replace('_Pragma("unroll', '("')
        tokens = [*((match.lastgroup or "", match[0]) for match in _TOKEN.finditer(code)), ("", ""), ("", ""), ("", "")]
        for place, (kind, token) in enumerate(tokens[:-3]):
            if _refuses(kind, token, tokens[place + 1 : place + 4]):
                yield f"{file}:{number}: a submission may not use {token}{'[' if token == '[' else ''}"
                break


def _refuses(kind: str, token: str, following: Sequence[tuple[str, str]]) -> bool:
    """Whether a token, with the ones after it, has no place in a submission."""
    next_kind, follower = following[0]
    if kind == "name":
        if token == "extern":
            return follower != "__shared__" and tuple(word for _, word in following) != _HOST_FUNCTION
        if _RESERVED.match(token):
            return not _CUDA_NAMES.fullmatch(token)
        raw = follower.startswith('"') and token in _RAW  # it may span lines
        return raw or bool(_REFUSED_NAMES.fullmatch(token))
    if kind == "text":
        return next_kind == "name"  # an operator of the submission's own
    return kind == "other" or (token, follower) in _DIGRAPHS


def reference_problems(object_file: Path, text: str, file: str) -> Iterator[str]:
    """A line for each function or variable of the system that an object file refers to and may not."""
    words = ["nm", "--format=posix", str(object_file)]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise CompileError(f"{file}: its object file cannot be read: {first_error(done.stderr)}")
    symbols = [line.split() for line in done.stdout.splitlines()]
    if any(_DYNAMIC.match(words[0]) for words in symbols):
        yield f"{file}: a global object must be initialised by a constant: nothing may run when the file is loaded"
    yield from _references((words[0] for words in symbols if words[1] in "Uwv"), text, file)


def _references(names: Iterable[str], text: str, file: str) -> Iterator[str]:
    places: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for token in _TOKEN.finditer(line):
            places.setdefault(token[0], f":{number}")
    for name in names:
        if not _OF_C.fullmatch(name) and not _OF_CPLUSPLUS.match(name):
            yield f"{file}{places.get(name, '')}: a submission may not use {name}"
