"""Words that a submission may not use: a convolution needs none of them, tricks do.

The sandbox is the protection; this answers immediately, with a line, and keeps a file from telling the machine that
checks it from the one that times it.
"""

import re
from collections.abc import Iterator

CPLUSPLUS = ("cmath", "math.h", "cstdio", "stdio.h", "iostream", "cstdlib", "stdlib.h", "algorithm", "cassert")
CUDA = ("cuda_runtime.h", "cuda.h", "gpu-new-forward.h", "gpu-utils.h", "cuda_fp16.h", "mma.h")
HEADERS = (*CPLUSPLUS, *CUDA)
_INCLUDE = re.compile(r"\s*(?:#|%:|\?\?=)\s*(include\w*|embed|import)\b\s*(.*)")
_NAME = re.compile(r'[<"]([^<>"]*)[>"]')
_CONDITION = re.compile(r"\s*(?:#|%:|\?\?=)\s*(?:ifn?def|if|elif)\b.*\b(__\w+|NVCC|HOST_\w+)")
_WORDS = re.compile(
    r"\b(__?asm__?|asm|__attribute__?_?|constructor|destructor|__has_\w+|HOST_CUDA\w*|host_cuda|ALEXCONV_\w*|LADDER_\w*"
    r"|__CUDA\w*_?_|__GNUC\w*__|__NVCC__|system|popen|exec[lv]p?e?|v?fork|clone|syscall|dlopen|dlsym|ptrace|mmap"
    r"|socket|getenv|setenv|fopen|freopen|fread|fwrite|ifstream|ofstream|fstream|filesystem|pthread\w*|kill|sigaction)\b"
)


def problems(text: str, file: str) -> Iterator[str]:
    """A line for each word or header that a submission may not use, with its place."""
    code = without_comments(text)
    for number, line in enumerate(code.splitlines(), 1):
        if match := _INCLUDE.match(line):
            name = _NAME.match(match[2])
            if match[1] != "include" or not name or name[1] not in HEADERS:
                yield f"{file}:{number}: includes {match[2].strip()[:60] or match[1]}; allowed are {', '.join(HEADERS)}"
            continue
        if match := _CONDITION.match(line):
            yield f"{file}:{number}: depends on {match[1]}: a submission must be the same program everywhere"
        elif match := _WORDS.search(line):
            yield f"{file}:{number}: a submission may not use {match[1]}"


def without_comments(text: str) -> str:
    """The text with comments and strings blanked and continued lines joined; each line keeps its number."""
    blank = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)

    def replaced(match: re.Match[str]) -> str:
        line_start = text.rfind("\n", 0, match.start()) + 1
        in_include = _INCLUDE.match(text[line_start : match.end()])
        return match[0] if in_include and match[0][0] == '"' else " " + "\n" * match[0].count("\n")

    lines: list[str] = []
    held, owed = "", 0
    for line in blank.sub(replaced, text).split("\n"):
        if line.endswith("\\"):
            held, owed = held + line[:-1], owed + 1
            continue
        lines += [held + line, *[""] * owed]
        held, owed = "", 0
    return "\n".join([*lines, *([held] if held else [])])
