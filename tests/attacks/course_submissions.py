"""Makes submissions of many kinds for a course's assignment, grades them, and says which grade is not as expected.

    python tests/attacks/course_submissions.py                      200 of them, into results/course/submissions.json
    python tests/attacks/course_submissions.py --count 40 --out F   fewer, into another file
    python tests/attacks/course_submissions.py --beside 100         right ones alone, and among 100 malicious ones

Kinds are right, wrong and malicious; the last try the attacks that a grader must expect.  Each has the points that it
must get if no attack succeeds: a malicious one that reads a hidden file, or escapes its sandbox, spoils its own outputs
and so loses points.  Files outside, other submissions' grades and processes are checked, too.  The screen is off, so
that attacks reach the sandbox.
"""

import argparse
import ctypes
import hashlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from alexconv.grade import __main__ as grade
from alexconv.grade import assignment, sandbox
from alexconv.grade.assignment import POINTS
from alexconv.grade.sandbox import Limits
from alexconv.machine import cores, cpu_model
from alexconv.paths import cache_dir

CHECKOUT = Path(__file__).resolve().parents[2]
RIGHT = (CHECKOUT / "tests" / "sources" / "course.cu").read_text()
OUT = CHECKOUT / "results" / "course" / "submissions.json"
ALL, NONE = 85.0, 0.0  # points without op time
LIMITS = Limits(seconds=20.0, cpu_seconds=60, memory=1 << 30, processes=64, file=64 << 20, folder=192 << 20)
HOSTILE_LIMITS = replace(LIMITS, cpu_seconds=30)  # of right ones among malicious ones
SEED = 408
MOST_FEEDBACK = 3000  # characters of a row
LINGER_SECONDS = 60.0  # that killed processes may take to end
EVERY = 10  # malicious submissions to a right one
SLEEPERS = ("hangs-on-load",)  # a minute each, for nothing but the time limit
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37

SYSTEM = """#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <linux/vm_sockets.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int spoiled = 0;  // set where an attack succeeds: then outputs are wrong
"""
STORE = "y4d(b, m, h, v) = acc;"
FIRST = "if (h >= H_out || v >= W_out) return;"
LAUNCH = "dim3 blockDim("


@dataclass(frozen=True)
class Kind:
    """A kind of submission: its text, the points that it must have, at least and at most, and words of its feedback."""

    name: str
    text: str
    least: float
    most: float
    says: str = ""


def edited(*edits: tuple[str, str], text: str = RIGHT) -> str:
    """The right submission with parts replaced."""
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def on_load(code: str) -> str:
    """A submission that runs code when its library is loaded; outputs are right unless the code sets ``spoiled``."""
    attack = f"{SYSTEM}__attribute__((constructor)) static void attack() {{ {code} }}\n"
    return attack + edited((STORE, "y4d(b, m, h, v) = spoiled ? -1.0f : acc;"))


def in_launch(code: str) -> str:
    """A submission whose launch function runs code first."""
    return SYSTEM + edited((LAUNCH, f"{code}\n    {LAUNCH}"))


def in_kernel(code: str) -> str:
    """A submission whose kernel runs code in one thread."""
    return SYSTEM + edited(
        (FIRST, f"if (blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0) {{ {code} }}\n    {FIRST}")
    )


def right() -> Iterator[Kind]:
    """Submissions that are right."""
    for tile in (4, 8, 12, 16):
        yield Kind(f"right-tile-{tile}", edited(("#define TILE_WIDTH 8", f"#define TILE_WIDTH {tile}")), ALL, ALL)
    yield Kind("right-with-windows-lines", RIGHT.replace("\n", "\r\n"), ALL, ALL)
    naive = re.sub(r"    extern __shared__.*?__syncthreads\(\);\n", NAIVE, RIGHT, flags=re.DOTALL)
    naive = edited(
        ("x4d(b, c, threadIdx.y * S + p, threadIdx.x * S + q)", "x[((b * C + c) * H + h * S + p) * W + v * S + q]"),
        text=naive,
    )
    yield Kind("right-naive", edited((", C * X_tile * X_tile * sizeof(float)>>>", ">>>"), text=naive), ALL, ALL)


NAIVE = """    const int H_out = (H - K) / S + 1, W_out = (W - K) / S + 1;
    const int W_size = (W_out + TILE_WIDTH - 1) / TILE_WIDTH;
    const int m = blockIdx.x, b = blockIdx.z;
    const int h0 = blockIdx.y / W_size * TILE_WIDTH, w0 = blockIdx.y % W_size * TILE_WIDTH;
"""


def wrong() -> Iterator[Kind]:
    """Submissions with honest mistakes."""
    yield Kind("wrong-no-barrier", edited(("    __syncthreads();\n", "")), NONE, 40, "conv.cu:")
    yield Kind("wrong-no-border-test", edited((FIRST, "")), NONE, 75, "conv.cu:")
    yield Kind("wrong-outside", edited((STORE, "y4d(b, m, h, v + 1) = acc;")), NONE, 60)
    yield Kind("wrong-stride", edited(("threadIdx.y * S + p", "threadIdx.y + p")), 30, 80, "hidden shape")
    yield Kind("wrong-sum", edited(("float acc = 0.0f;", "float acc = 0.001f;")), NONE, 40, "integers")
    yield Kind("wrong-size", edited(("for (int p = 0; p < K; p++)", "for (int p = 0; p < 5; p++)")), NONE, 80)
    yield Kind("wrong-race-on-output", edited((STORE, "y[0] = acc; " + STORE)), NONE, 75)
    yield Kind("wrong-syntax", edited(("float acc = 0.0f;", "float acc = 0.0f")), NONE, NONE, "conv.cu:")
    yield Kind("wrong-name", edited(("void conv_forward(", "void forward(")), NONE, NONE, "no function conv_forward")
    yield Kind("wrong-nothing", "", NONE, NONE, "no function conv_forward")
    yield Kind("wrong-bytes", "\0\xff\xfe" * 1000, NONE, NONE)
    yield Kind("wrong-large", "// " + "x" * (300 << 10), NONE, NONE, "larger than")
    yield Kind("wrong-too-many-threads", edited(("#define TILE_WIDTH 8", "#define TILE_WIDTH 40")), NONE, NONE)


def private() -> list[Path]:
    """What lies in the user's home and in the cache, except what a sandbox shows and the folders around it."""
    shown = [path.resolve() for path in [*sandbox.visible([]), cache_dir("sandbox")]]
    paths = sorted([*Path.home().iterdir(), *cache_dir("sandbox").parent.iterdir()])
    return [
        path
        for path in paths
        if not any(path.resolve().is_relative_to(folder) or folder.is_relative_to(path.resolve()) for folder in shown)
    ]


def harmless(secret: Path, others: Path, port: int) -> dict[str, str]:
    """Attacks that must fail, so that the outputs stay right: the code that each runs when it is loaded."""

    def opens(*paths: Path) -> str:
        return " ".join(f'if (open("{path}", O_RDONLY) >= 0) spoiled = 1;' for path in paths)

    places = (secret.with_name("x"), others / "x", CHECKOUT / "kernels" / "x", Path("/usr/x"), Path("/x"))
    return {
        "reads-hidden-shapes": opens(secret, secret.parent),
        "reads-others": opens(others, others / "000-right-tile-4" / "conv.cu", others / "001-right-tile-8.cu"),
        "reads-home": opens(CHECKOUT / "results", CHECKOUT / ".git", *private()),
        "writes-outside": " ".join(
            f'if (open("{path}", O_CREAT | O_WRONLY, 0600) >= 0) spoiled = 1;' for path in places
        ),
        "connects": (
            f"sockaddr_in a = {{}}; a.sin_family = AF_INET; a.sin_port = htons({port});"
            " a.sin_addr.s_addr = htonl(0x7f000001); int s = socket(AF_INET, SOCK_STREAM, 0);"
            " if (s >= 0 && connect(s, (sockaddr*)&a, sizeof a) == 0) spoiled = 1;"
        ),
        "mounts": ('if (mount("none", "/usr", "tmpfs", 0, 0) == 0 || chroot("/") == 0 || setuid(0) == 0) spoiled = 1;'),
        "traces-the-first-process": "if (ptrace(PTRACE_ATTACH, 1, 0, 0) == 0) spoiled = 1;",
        "kills-the-first-process": "kill(1, SIGKILL); kill(1, SIGSTOP);",
        "environment": 'if (getenv("SECRET_OF_THE_GRADER")) spoiled = 1;',
        "reads-the-first-command": (
            'char c[9000] = {}; int f = open("/proc/1/cmdline", O_RDONLY); long n = read(f, c, 8999); close(f);'
            f' if (n > 0 && memmem(c, n, "{others}", {len(str(others))})) spoiled = 1;'
        ),
        "opens-sockets": (
            "for (int family : {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK, 38})"
            " if (socket(family, SOCK_STREAM, 0) >= 0 || socket(family, SOCK_DGRAM, 0) >= 0) spoiled = 1;"
        ),
        "takes-segments": "if (shmget(IPC_PRIVATE, 1 << 28, 0600 | IPC_CREAT) >= 0) spoiled = 1;",
        "takes-files-in-memory": 'if (memfd_create("m", 0) >= 0) spoiled = 1;',
        "takes-shared-pages": (
            "if (mmap(0, 1 << 28, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED)"
            " spoiled = 1;"
        ),
        "keeps-a-key": 'if (syscall(SYS_add_key, "user", "k", "v", 1, -3) >= 0) spoiled = 1;',
        "makes-namespaces": "if (unshare(CLONE_NEWUSER) == 0 || syscall(435, 0, 0) >= 0) spoiled = 1;",
        "takes-all-cores": (
            "cpu_set_t s; memset(&s, 255, sizeof s); if (sched_setaffinity(0, sizeof s, &s) == 0) spoiled = 1;"
        ),
    }


HOGS = {  # take time, memory or room from others
    "spins-in-children": (
        "for (int i = 0; i < 60; ++i) if (fork() == 0) { setsid(); if (fork() == 0) for (;;) {} _exit(0); }"
        " for (;;) sleep(1);"
    ),
    "spins-in-children-that-nobody-waits-for": (
        "signal(SIGCHLD, SIG_IGN);"
        " for (;;) if (fork() == 0) { for (volatile int i = 0; i < 1 << 30; ++i); _exit(0); } else sleep(1);"
    ),
    "forks-for-ever": "for (;;) if (fork() == 0) setsid();",
    "makes-empty-files": (
        'for (int i = 0;; ++i) { char n[16]; snprintf(n, 16, "f%d", i); close(open(n, O_CREAT, 0600)); }'
    ),
}
LEAK = "alexconvleaks"  # in feedback that quotes what a submission has learnt


def talkers() -> Iterator[Kind]:
    """Submissions that try to put what they learn, or a lot, into their feedback."""
    learns = f'at += sprintf(words + at, "_{LEAK}B%dC%dH%d", B, C, H);'
    state = "static char words[60000]; static int at;\n"
    destructor = (
        f'{state}struct Leak {{ ~Leak() {{ printf("unsupported %s\\nlaunch %s 1 1 1 1 1 1 0\\n", words, words);'
        " fflush(stdout); } }; static Leak leak;\n"
    )
    yield Kind("prints-shapes-at-exit", destructor + edited((LAUNCH, f"{learns}\n    {LAUNCH}")), NONE, ALL)
    for word in ("unsupported", "launch", "symbol"):
        line = f'{learns} if (B == 2) printf("{word} %s 1 1 1 1 1 1 0\\n", words);'
        yield Kind(f"prints-shapes-as-{word}", state + edited((LAUNCH, f"{line}\n    {LAUNCH}")), NONE, ALL)
    shout = 'printf("unsupported "); for (int i = 0; i < 900000; ++i) putchar(65 + i % 26); puts("");'
    yield Kind("prints-a-megabyte", in_launch(shout), NONE, ALL)
    yield Kind("outputs-shapes", edited((STORE, "y4d(b, m, h, v) = C * 10000 + H * 100 + W;")), NONE, 25)
    yield Kind("exits-with-a-shape", in_kernel("_exit(H);"), NONE, 60)


LOSERS = {  # get no points: their library does not load, or the answer that it forges is refused
    "fork-bomb": "for (;;) fork();",
    "takes-memory": "for (;;) if (char* p = (char*)malloc(1 << 24)) memset(p, 1, 1 << 24); else sleep(1);",
    "takes-memory-in-children": (
        "for (int i = 0; i < 8; ++i) if (fork() == 0) { char* p = (char*)malloc(1 << 29);"
        " if (p) memset(p, 1, 1 << 29); for (;;) sleep(1); } for (;;) sleep(1);"
    ),
    "forges-an-answer": 'for (int i = 3; i < 64; ++i) if (write(i, "{\\"problems\\": []}", 16)) {} _exit(0);',
    "answers-without-end-of-brackets": (
        "char* b = (char*)malloc(1 << 16); memset(b, 91, 1 << 16);"
        " for (int i = 3; i < 64; ++i) if (write(i, b, 1 << 16)) {} _exit(0);"
    ),
    "hangs-on-load": "for (;;) sleep(1);",
    "exits": "_exit(0);",
    "exits-as-a-failed-sandbox": "_exit(250);",
}
UNPREDICTABLE = {  # may get any points, and must do no harm
    "kills-parent": "kill(getppid(), SIGKILL); kill(1, SIGKILL);",
    "kills-all": "kill(-1, SIGKILL);",
    "stops-all": "kill(-1, SIGSTOP); kill(getppid(), SIGSTOP);",
    "stays-behind": "if (fork() == 0) { setsid(); if (fork() == 0) for (;;) sleep(1); _exit(0); }",
    "fills-disk": (
        "signal(SIGXFSZ, SIG_IGN); char n[16], *b = (char*)calloc(1, 1 << 16);"
        ' for (int i = 0; i < 50; ++i) { snprintf(n, 16, "f%d", i);'
        " int f = open(n, O_CREAT | O_WRONLY, 0600);"
        " for (int k = 0; k < 4096; ++k) if (write(f, b, 1 << 16) <= 0) break; close(f); }"
    ),
    "writes-to-all-files": (
        'for (int i = 3; i < 256; ++i) for (int k = 0; k < 1 << 16; ++k) if (write(i, "{\\"problem\\": null}\\n'
        + "x" * 500
        + '", 500) < 0) break;'
    ),
}
IN_KERNEL = {  # with the most points
    "signals-itself": ("raise(SIGKILL);", 60),
    "faults": ("*(volatile int*)0 = 1;", 60),
    "overflows-stack": (
        "volatile char* a = (char*)__builtin_alloca(1 << 26); for (int i = 0; i < 1 << 26; i += 4096) a[i] = 1;",
        60,
    ),
    "prints-in-kernel": ('for (int i = 0; i < 1 << 20; ++i) puts("' + "x" * 63 + '");', ALL),
    "computes-at-first-only": ("static int runs = 0; if (runs++ > 100000) return;", ALL),
}


def malicious(secret: Path, others: Path, port: int) -> Iterator[Kind]:
    """Submissions that try to read, write, take or break what is not theirs."""
    for name, code in harmless(secret, others, port).items():
        yield Kind(name, on_load(code), ALL, ALL)
    for name, code in LOSERS.items():
        yield Kind(name, on_load(code), NONE, NONE)
    links = f'symlink("{secret}", "answer"); symlink("/", "root"); mkdir("d", 0); chmod(".", 0);'
    for name, code in {**UNPREDICTABLE, "links": links}.items():
        yield Kind(name, on_load(code), NONE, ALL)
    for name, (code, most) in IN_KERNEL.items():
        yield Kind(name, in_kernel(code), NONE, most)
    yield Kind("includes-hidden", f'#include "{secret}"\n' + RIGHT, NONE, NONE, "No such file")
    yield Kind("assembles-hidden", on_load("") + f'__asm__(".incbin \\"{secret}\\"");\n', NONE, NONE)
    gigabyte = 'for (int i = 0; i < 1 << 24; ++i) puts("' + "x" * 63 + '");'
    yield Kind("prints-a-gigabyte", in_launch(gigabyte), NONE, NONE)
    lines = 'puts("launch x 0 0 0 0 0 0 0"); puts("launch a b c d e f g h"); puts("symbol y 1 1"); puts("done");'
    yield Kind("forges-launches", in_launch(lines), NONE, NONE)
    yield Kind("hangs-in-kernel", in_kernel("for (volatile int i = 0; i < 1; i = 0);"), NONE, NONE, "no answer")
    yield Kind("hangs-in-launch", in_launch("for (volatile int i = 0; i < 1; i = 0);"), NONE, NONE, "has not returned")
    yield Kind("changes-x", edited((STORE, "((float*)x)[0] = 0; " + STORE)), NONE, 40)
    yield Kind("changes-w", edited((STORE, "((float*)w)[0] = 0; " + STORE)), NONE, 40)
    yield Kind("before-the-array", edited((STORE, STORE + " y[-1] = 0;")), NONE, 60)
    yield Kind("far-from-arrays", edited((STORE, STORE + " y[1 << 28] = 0;")), NONE, 60)
    yield Kind("includes-itself", '#include "conv.cu"\n' * 3 + RIGHT, NONE, NONE)
    laughs = "".join(f"#define L{i}{f' L{i - 1}' * 8}\n" for i in range(1, 12))
    yield Kind("a-billion-laughs", f"#define L0 int x;\n{laughs}void f() {{ L11 }}\n" + RIGHT, NONE, NONE)
    deep = "template <int N> struct D { static constexpr long v = D<N - 1>::v + D<N + 1>::v; };\nlong d = D<1>::v;\n"
    yield Kind("endless-templates", deep + RIGHT, NONE, NONE)
    yield Kind("reads-a-device", '#include "/dev/zero"\n' + RIGHT, NONE, NONE)


NAMES = ("<script>alert(1)<", "=HYPERLINK(1)", "a name", "ünïcode", "new\nline", "-rf", "..dots", "'; drop table --")


def kinds(secret: Path, others: Path, port: int) -> list[Kind]:
    """Every kind once."""
    hogs = (Kind(name, on_load(code), NONE, NONE) for name, code in HOGS.items())
    return [*right(), *wrong(), *malicious(secret, others, port), *hogs, *talkers()]


def write_submissions(folder: Path, count: int, every: Sequence[Kind]) -> dict[str, Kind]:
    """Submissions of all kinds in turn, by name; some have odd names, and some are not even files."""
    kind_of: dict[str, Kind] = {}
    for number in range(count):
        kind = every[number % len(every)]
        odd = NAMES[number // 7 % len(NAMES)] if number % 7 == 3 else ""
        name = f"{number:03d}-{odd or kind.name}".replace("/", "_")
        text = kind.text.replace("float acc = 0.0f;", f"float acc = 0.0f; /* {number} */", 1)
        if number % 3:
            (folder / f"{name}.cu").write_text(text, errors="surrogateescape")
        else:
            (folder / name).mkdir()
            (folder / name / "conv.cu").write_text(text, errors="surrogateescape")
        kind_of[name] = kind
    return kind_of


def write_oddities(folder: Path, secret: Path) -> dict[str, Kind]:
    """Submissions that are not plain files."""
    (folder / "link.cu").symlink_to(secret)
    os.mkfifo(folder / "pipe.cu")
    (folder / "empty-folder").mkdir()
    (folder / "folder" / "conv.cu").mkdir(parents=True)
    (folder / "linked").symlink_to(secret.parent)  # a link to a folder is not a submission
    names = {"link": "is a link", "pipe": "not a regular", "empty-folder": "no conv.cu", "folder": "not a regular"}
    return {name: Kind(name, "", NONE, NONE, says) for name, says in names.items()}


@contextmanager
def listening() -> Iterator[tuple[int, list[str]]]:
    """A port of this machine, and who has connected to it."""
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            while True:
                try:
                    heard.append(str(server.accept()[1]))
                except OSError:
                    return

        threading.Thread(target=listen, daemon=True).start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)


def state_of(folders: Sequence[Path]) -> str:
    """A digest of names, kinds and contents of everything in folders, except files that Python compiles."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if "__pycache__" in path.parts:
                continue
            digest.update(f"{path} {path.lstat().st_mode}".encode(errors="replace"))
            if path.is_file() and not path.is_symlink():
                digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def keeping_orphans() -> Iterator[None]:
    """Descendants whose parents end become this process's children."""
    before = ctypes.c_int()
    libc = ctypes.CDLL(None)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def processes() -> set[str]:
    """Process numbers and command lines of this process's descendants: workers, and what they have started."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid,stat,args"], capture_output=True, text=True, check=True).stdout
    children: dict[str, list[list[str]]] = {}
    for line in listed.splitlines()[1:]:
        words = line.split(None, 3)
        children.setdefault(words[1], []).append(words)
    commands, todo = set(), [str(os.getpid())]
    while todo:
        for pid, _, state, *command in children.get(todo.pop(), ()):
            todo.append(pid)
            if not state.startswith("Z") and not command[0].startswith("ps "):
                commands.add(f"{pid} {command[0]}")
    return commands


def left_behind(running: set[str]) -> set[str]:
    """Processes that do not end, besides those that ran before; a killed one may take a while."""
    end = monotonic() + LINGER_SECONDS
    while (left := processes() - running) and monotonic() < end:
        sleep(0.1)
    return left


def graded(
    count: int,
    folder: Path,
    every: Sequence[str] = (),
    limits: Limits = LIMITS,
    jobs: int = 0,
) -> dict[str, Any]:
    """Makes submissions and grades them in one run; returns a row for each, and what was not as expected.

    Those of the kinds that ``every`` names, in its order; of all kinds without names.
    """
    home = folder / "hw"
    homework = assignment.new("hw", "ece408-2019", None, 1.0, SEED)
    homework = replace(homework, shapes=homework.shapes[1:3], hazard_shapes=1, screen=False, limits=limits)
    assignment.write(homework, home)
    entries, secret = folder / "submissions", home / assignment.GRADER / assignment.CONFIG
    entries.mkdir()
    os.environ["SECRET_OF_THE_GRADER"] = "1"
    with listening() as (port, heard), keeping_orphans():
        by_name = {kind.name: kind for kind in kinds(secret, entries, port)}
        chosen = [by_name[name] for name in every or by_name]
        expected = write_submissions(entries, count, chosen) | write_oddities(entries, secret)
        watched = (home, entries, CHECKOUT / "kernels", CHECKOUT / "alexconv" / "grade")
        before, running, start = state_of(watched), processes(), monotonic()
        status = grade.main(
            [str(home), str(entries), "-o", str(folder / "scores"), "--backend", "host", "--jobs", str(jobs)]
        )
        seconds = monotonic() - start
        left = left_behind(running)
    unexpected = [f"exit status {status}"] * (status != 0)
    unexpected += ["files have changed"] * (state_of(watched) != before)
    unexpected += [f"left behind: {line}" for line in left]
    unexpected += [f"connected: {line}" for line in heard]
    rows = rows_of(folder / "scores", expected)
    unexpected += [row["unexpected"] for row in rows if row["unexpected"]]
    return {"status": status, "seconds": round(seconds, 1), "unexpected": unexpected, "rows": rows}


def rows_of(scores: Path, expected: Mapping[str, Kind]) -> list[dict[str, str]]:
    """A row for each submission: its kind, points and feedback, and what is not as expected."""
    import csv

    with (scores / "scores.csv").open(newline="") as file:
        grades = {row["submission"].removeprefix("'"): row for row in csv.DictReader(file)}
    rows = []
    for name, kind in expected.items():
        row = grades.get(name)
        if row is None:
            rows.append({"name": name, "kind": kind.name, "unexpected": f"{name}: no grade"})
            continue
        total, problem = float(row["total"]), ""
        if not kind.least <= total <= kind.most:
            problem = f"{name}: {total:g} points, expected {kind.least:g} to {kind.most:g}: {row['feedback'][:200]}"
        elif kind.says not in row["feedback"]:
            problem = f"{name}: feedback lacks {kind.says!r}: {row['feedback'][:200]}"
        elif LEAK in row["feedback"] or len(row["feedback"]) > MOST_FEEDBACK:
            problem = f"{name}: feedback quotes what it must not: {row['feedback'][:200]}"
        feedback = row["feedback"].replace(f"{CHECKOUT}/", "")[:MOST_FEEDBACK]
        rows.append(
            {
                "name": name,
                "kind": kind.name,
                "total": row["total"],
                "points": ", ".join(f"{check} {row[check]}" for check in POINTS if check in row),
                "outcome": row["outcome"],
                "feedback": feedback,
                "unexpected": problem,
            }
        )
    return rows


def beside(count: int, folder: Path, jobs: int) -> dict[str, Any]:
    """Grades right submissions alone, and again among malicious ones; a difference in any check is not as expected."""
    rights = [kind.name for kind in right()]
    with listening() as (port, _):
        friendly = {kind.name for kind in (*right(), *wrong())}
        hostile = [kind.name for kind in kinds(folder, folder, port) if kind.name not in {*friendly, *SLEEPERS}]
    among = [
        name for number in range(count) for name in (hostile[number % len(hostile)], *rights_after(number, rights))
    ]
    runs = []
    for part, names, at_a_time in (("alone", rights, 1), ("among", among, jobs)):
        (folder / part).mkdir()
        runs.append(graded(len(names), folder / part, names, HOSTILE_LIMITS, at_a_time))
    alone, together = ([row for row in run["rows"] if row["kind"] in rights] for run in runs)
    points = {row["kind"]: row["points"] for row in alone}
    differing = [
        f"{row['name']}: {row['points']}, alone {points[row['kind']]}"
        for row in together
        if row["points"] != points[row["kind"]]
    ]
    facts = runs[1]
    print(
        f"{count} malicious submissions beside {len(together)} right ones: {len(differing)} of these graded otherwise"
    )
    return {**facts, "unexpected": [*facts["unexpected"], *differing]}


def rights_after(number: int, rights: Sequence[str]) -> list[str]:
    """The right submission after every tenth malicious one."""
    return [rights[number // EVERY % len(rights)]] if number % EVERY == 0 else []


def main() -> int:
    """Parses the command line and grades; the exit status is 1 if anything is not as expected."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--out", type=Path, default=OUT)
    options.add_argument("--jobs", type=int, default=0)
    options.add_argument("--only", default="", help="kinds, with commas between them")
    options.add_argument("--beside", type=int, default=0, metavar="COUNT", help="compare right ones alone and among")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if chosen.beside:
            results = beside(chosen.beside, Path(folder), chosen.jobs)
        else:
            only = [word for word in chosen.only.split(",") if word]
            results = graded(chosen.count, Path(folder), only, jobs=chosen.jobs)
    facts = {
        "command": "python tests/attacks/course_submissions.py "
        + (f"--beside {chosen.beside}" if chosen.beside else f"--count {chosen.count}")
        + (f" --jobs {chosen.jobs}" if chosen.jobs else ""),
        "machine": f"{cpu_model()}, {cores()} cores, {platform.system()} {platform.release().partition('-')[0]}",
        "sandbox": sandbox.BUBBLEWRAP,
        "hidden_shapes": 2,
        "submissions": len(results["rows"]),
    }
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps({**facts, **results}, indent=1) + "\n")
    print(f"{len(results['unexpected'])} not as expected")
    for line in results["unexpected"]:
        print(line)
    return 1 if results["unexpected"] else 0


if __name__ == "__main__":
    sys.exit(main())
