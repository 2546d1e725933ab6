"""Runs a command that executes untrusted code, and takes a bounded answer from it.

Two kinds.  ``namespaces``: the command sees the compiler, Python and the project, read-only, and a folder in memory for
temporary files: no other process, no network, no other file.  ``session``, on a system without user namespaces: limits,
and its descendants are killed at the end, but files and the network stay open to it.  Both limit time, memory,
processes, the size of files and the size of the answer.
"""

import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic

from alexconv.compiling.toolchain import find_cxx
from alexconv.errors import MissingTool
from alexconv.paths import CACHE_VARIABLE, PACKAGES, package_folder

JAIL = Path(__file__).with_name("jail.py")
NAMESPACES, SESSION = "namespaces", "session"
SCRATCH = "/scratch"  # in namespaces, the folder for temporary files
LOOKS_SECONDS = 0.05  # between checks of time and memory
GRACE_SECONDS = 10.0  # for the kernel to end a namespace
TRIAL_SECONDS = 120.0  # for a trial command: a busy host must not seem to lack namespaces
MESSAGE_BYTES = 2000
CHUNK = 1 << 16
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")


@dataclass(frozen=True)
class Limits:
    """A command's limits.  ``memory`` is for all its processes together, ``answer`` for its standard output; bytes."""

    seconds: float = 60.0
    cpu_seconds: int = 60  # of a process
    memory: int = 2 << 30
    processes: int = 96  # threads included
    file: int = 256 << 20  # bytes of each
    folder: int = 512 << 20  # bytes of all
    answer: int = 64 << 20


@dataclass(frozen=True)
class Ended:
    """A command's output and how it ended: its exit status, or why it was stopped.

    ``failure`` is why the sandbox could not be made and the command has not run.
    """

    answer: bytes
    status: int
    stopped: str | None = None
    failure: str | None = None

    @property
    def problem(self) -> str | None:
        """What went wrong, in words, or None."""
        if self.stopped or not self.status:
            return self.stopped
        if self.status > 128:
            with suppress(ValueError):
                return f"its process ends with {signal.Signals(self.status - 128).name}"
        return f"its process ends with status {self.status}"


@cache
def kind() -> str:
    """The best kind that this system supports."""
    ended = _run(NAMESPACES, ["/bin/sh", "-c", "exit 7"], b"", Limits(TRIAL_SECONDS), {}, (), ())
    return NAMESPACES if ended.status == 7 else SESSION


def protections(chosen: str) -> str:
    """The protections of a kind of sandbox, in one line."""
    if chosen == NAMESPACES:
        return (
            "sandbox: namespaces (no network, no other process or file visible), limits on time, memory, processes and"
            " files"
        )
    return (
        "sandbox: WEAK. This system has no user namespaces: submissions run with your rights, can read your files and"
        " use the network; time, memory, processes and file sizes are limited"
    )


def run(
    command: Sequence[str],
    given: bytes,
    limits: Limits,
    environment: Mapping[str, str],
    *,
    chosen: str,
    shown: Sequence[Path] = (),
    hidden: Sequence[Path] = (),
    address_space: bool = True,
) -> Ended:
    """Runs a command with ``given`` on standard input and returns its standard output.

    In namespaces it may read the folders ``shown`` in addition to the system's; ``hidden`` ones are empty, wherever
    they are.  Without ``address_space``, memory is only polled: AddressSanitizer needs a large address space.  Raises
    MissingTool if the sandbox cannot be made.
    """
    ended = _run(chosen, command, given, limits, environment, shown, hidden, address_space)
    if ended.failure:
        raise MissingTool(f"no sandbox: {ended.failure}")
    return ended


def _run(
    chosen: str,
    command: Sequence[str],
    given: bytes,
    limits: Limits,
    environment: Mapping[str, str],
    shown: Sequence[Path],
    hidden: Sequence[Path],
    address_space: bool = True,
) -> Ended:
    with tempfile.TemporaryDirectory(prefix="alexconv-") as folder:
        root, outside = Path(folder) / "root", Path(folder) / "scratch"
        root.mkdir()
        outside.mkdir()
        scratch = SCRATCH if chosen == NAMESPACES else str(outside)
        spec = {
            "isolated": chosen == NAMESPACES,
            "root": str(root),
            "scratch": scratch,
            "shown": [str(path) for path in visible(shown)],
            "hidden": [str(path.resolve()) for path in hidden],
            "command": list(command),
            "environment": {**environment, "HOME": scratch, "TMPDIR": scratch, CACHE_VARIABLE: f"{scratch}/cache"},
            "cpu_seconds": limits.cpu_seconds,
            "file_bytes": limits.file,
            "folder_bytes": limits.folder,
            "processes": limits.processes,
            "address_bytes": 2 * limits.memory if address_space else 0,
        }
        words = [sys.executable, "-I", "-S", str(JAIL), json.dumps(spec)]
        child = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=outside,
            start_new_session=True,
        )
        return _attend(child, given, limits)


def _attend(child: "subprocess.Popen[bytes]", given: bytes, limits: Limits) -> Ended:
    """Feeds a child's input, reads its output, and stops it when it exceeds its limits."""
    assert child.stdin and child.stdout and child.stderr
    answer, messages, stopped = bytearray(), bytearray(), None
    end, left = monotonic() + limits.seconds, memoryview(given)
    os.set_blocking(child.stdin.fileno(), False)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(child.stdin, selectors.EVENT_WRITE)
            ready.register(child.stdout, selectors.EVENT_READ, answer)
            ready.register(child.stderr, selectors.EVENT_READ, messages)
            while any(key.data is answer for key in ready.get_map().values()):
                for key, _ in ready.select(LOOKS_SECONDS):
                    if key.fileobj is child.stdin:
                        written = _write(child.stdin.fileno(), left[:CHUNK])
                        left = left[written:]
                        if not left or written < 0:
                            ready.unregister(child.stdin)
                            child.stdin.close()
                        continue
                    said = os.read(key.fd, CHUNK)
                    if not said:
                        ready.unregister(key.fileobj)
                    elif key.data is answer or len(messages) < MESSAGE_BYTES:
                        key.data.extend(said)
                stopped = _excess(child.pid, len(answer), end, limits)
                if stopped:
                    break
        if not stopped:
            stopped = _last(child, end, limits)
    finally:
        _stop(child)
    failure = messages.decode(errors="replace").strip() or None
    return Ended(bytes(answer[: limits.answer]), child.returncode, stopped, failure)


def _write(descriptor: int, part: memoryview) -> int:
    """Writes to a pipe; returns the bytes that it took, or -1 if its reader is gone."""
    try:
        return os.write(descriptor, part)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return -1


def _last(child: "subprocess.Popen[bytes]", end: float, limits: Limits) -> str | None:
    """Waits, within its limits, for a child that has closed its output."""
    while True:
        try:
            child.wait(LOOKS_SECONDS)
            return None
        except subprocess.TimeoutExpired:
            if stopped := _excess(child.pid, 0, end, limits):
                return stopped


def _excess(root: int, said: int, end: float, limits: Limits) -> str | None:
    """The limit that a process and its descendants exceed, in words, or None."""
    if monotonic() > end:
        return f"no answer after {limits.seconds:g} s: does a loop end? does a thread wait for memory?"
    if said > limits.answer:
        return f"its output exceeds {limits.answer} bytes"
    if memory_of(root) > limits.memory:
        return f"it takes more than {limits.memory >> 20} MiB of memory"
    return None


def memory_of(root: int) -> int:
    """Bytes of resident memory of a process and its descendants; a shared page counts for each of them."""
    page = os.sysconf("SC_PAGE_SIZE")
    total, todo = 0, [root]
    while todo:
        process = todo.pop()
        with suppress(OSError, ValueError):
            total += int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page
            for task in Path(f"/proc/{process}/task").iterdir():
                todo += [int(word) for word in (task / "children").read_text().split()]
    return total


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """Ends a child and its descendants; returns when it has ended."""
    for kill, number in ((os.kill, signal.SIGTERM), (os.killpg, signal.SIGKILL)):
        if child.poll() is None:
            with suppress(ProcessLookupError):
                kill(child.pid, number)
                kill(child.pid, signal.SIGCONT)  # it may have been stopped
            with suppress(subprocess.TimeoutExpired):
                child.wait(GRACE_SECONDS)
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe:
            with suppress(OSError):
                pipe.close()


def visible(shown: Sequence[Path]) -> list[Path]:
    """The folders and files that a command in namespaces sees: system, compiler, Python, project and ``shown``.

    A folder of PYTHONPATH is left out if it contains the user's home or one of ``shown``: other users may not be able
    to traverse the folders between.
    """
    python = [Path(sys.prefix), Path(sys.base_prefix)]
    packages = [package_folder(name) for name in PACKAGES]
    toolkit = [Path(os.environ[name]) for name in ("CUDA_HOME",) if os.environ.get(name)]
    packages.append(packages[0].parent / "pyproject.toml")  # identifies a plain checkout
    own = {packages[0].parent, Path.cwd()}  # never as a whole
    named = map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    inner = [each.resolve() for each in (Path.home(), *shown)]
    libraries = [
        path
        for path in named
        if path.absolute() not in own and not any(each.is_relative_to(path.resolve()) for each in inner)
    ]
    asked = [*map(Path, SYSTEM), *compiler(find_cxx()), *toolkit, *python, *packages, *libraries, *shown]
    found: list[Path] = []
    for path in sorted({path.absolute() for path in asked if path.exists()}, key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(outer) and not outer.is_symlink() for outer in found):
            found.append(path)
    return found


@cache
def compiler(cxx: str) -> list[Path]:
    """A compiler with the folders of its programs, libraries and headers, which may be anywhere.

    None of them contains the user's home.
    """
    said = subprocess.run([cxx, "-print-search-dirs"], capture_output=True, text=True, check=False).stdout
    words = re.findall(r"^(?:install: |programs: =|libraries: =)(.*)$", said, re.MULTILINE)
    found = [Path(os.path.normpath(word)) for line in words for word in line.split(os.pathsep) if word.startswith("/")]
    for folder in list(found):
        prefix, gcc, _ = str(folder).partition("/lib/gcc/")
        found += [Path(prefix, "include"), Path(prefix, "libexec", "gcc")] if gcc else []
    own = Path.home()
    folders = [path for path in dict.fromkeys(found) if path.is_dir() and not own.is_relative_to(path.resolve())]
    links = [each for path in folders for each in (path, *path.parents) if each.is_symlink()]  # shown as links
    return list(dict.fromkeys([Path(cxx).resolve(), *links, *(path.resolve() for path in folders)]))
