"""Runs a command that executes untrusted code, and takes a bounded answer from it.

Two kinds.  ``bubblewrap``: the command sees the compiler, Python and the project, read-only, and a folder in memory for
temporary files: no other process, no network, no other file; a filter refuses system calls that it does not need
(seccomp.py).  ``container``: the machine is a container that holds nothing worth protecting; commands run in it with
limits, and their descendants are killed at the end.

What ends a command is its own doing alone: the CPU time of all its processes, the time that all of them sleep, their
memory, their output.  So points do not depend on what else the machine does.
"""

import ctypes
import json
import os
import re
import resource
import secrets
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic

from alexconv.compiling.toolchain import find_cxx
from alexconv.errors import MissingTool
from alexconv.grade import seccomp
from alexconv.grade.watch import (
    Watch,
    children_of_this_process,
    descendants,
    memory_of,
    memory_of_files,
    threads_of,
)
from alexconv.paths import CACHE_VARIABLE, PACKAGES, package_folder

BUBBLEWRAP, CONTAINER = "bubblewrap", "container"
WORKER = "alexconv.grade.worker"  # the module that does a job
SCRATCH = "/scratch"  # in bubblewrap, the folder for temporary files
LOOKS_SECONDS = 0.05  # between checks of time and memory
GRACE_SECONDS = 10.0  # for the system to end killed processes
CPU_GRACE_SECONDS = 5  # so that what polls the time says why a process ends, and not the system
TRIAL_SECONDS = 120.0  # for a trial command: a busy host must not seem to lack namespaces
BACKSTOP = 10  # of the time limits: a wall time for a command that uses little of its CPU time and never sleeps
MESSAGE_BYTES = 2000
CHUNK = 1 << 16
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
DEVICES = ("null", "full", "random", "urandom")  # no zero: mapped, it is memory of no process
INSTALL = "install bubblewrap (Debian and Ubuntu: apt install bubblewrap)"
ALLOW = (
    "allow user namespaces (sysctl kernel.unprivileged_userns_clone=1; Ubuntu:"
    " kernel.apparmor_restrict_unprivileged_userns=0) or grade as root"
)
_PR_SET_CHILD_SUBREAPER = 36
_LARGEST_USER = 1 << 31


@dataclass(frozen=True)
class Limits:
    """A command's limits, for all its processes together except ``file``.

    ``memory`` includes files in memory, ``answer`` is for its standard output; bytes.
    """

    seconds: float = 60.0  # that all its processes sleep
    cpu_seconds: int = 60
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


def environment() -> dict[str, str]:
    """A worker's environment: of this process's variables only those that locate the compilers and libraries.

    A worker imports the project from where this process has it, whichever other one its Python has installed.
    """
    passed = ("PATH", "CXX", "NVCC", "CUDA_HOME", "LD_LIBRARY_PATH")
    folders = [str(package_folder(PACKAGES[0]).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    fixed = {"LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(folders)}
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**{name: os.environ[name] for name in passed if name in os.environ}, **fixed, **threads}


@cache
def missing(chosen: str) -> str | None:
    """Why there is no such sandbox here, and what to do, in one line; None if there is."""
    if chosen == BUBBLEWRAP and not shutil.which("bwrap"):
        return f"submissions are untrusted: {INSTALL}"

    def problem(*words: str) -> str | None:
        ended = Sandbox(chosen).attempt([sys.executable, *words], b"", Limits(TRIAL_SECONDS), environment())
        return ended.failure or ended.problem

    if not (unimported := problem("-P", "-c", f"import {WORKER}")):
        return None
    if not (reason := problem("-I", "-S", "-c", "")):
        return f"{sys.executable} cannot import {WORKER} in a sandbox ({unimported}): install alexconv for all users"
    if chosen == BUBBLEWRAP:
        return f"bubblewrap makes no sandbox here ({reason.splitlines()[-1]}): {ALLOW}"
    return f"submissions run as another user, who cannot run {sys.executable}: install alexconv where all users can"


def protections(chosen: str) -> str:
    """The protections of a kind of sandbox, in one line."""
    if chosen == BUBBLEWRAP:
        return "sandbox: bubblewrap (no network, no other process or file visible), limits on time, memory, processes"
    return (
        "sandbox: NONE but this container, one submission at a time: submissions can read its files and use its"
        " network; time, memory, processes and file sizes are limited"
    )


@dataclass(frozen=True)
class Sandbox:
    """What confines an untrusted command.

    In bubblewrap it may read the folders ``shown`` in addition to the system's; ``hidden`` ones are empty, wherever
    they are.  It runs on ``cpus`` alone, and cannot choose others; on all if there are none.  Without
    ``address_space``, memory is only polled: AddressSanitizer needs a large address space.
    """

    kind: str
    shown: Sequence[Path] = ()
    hidden: Sequence[Path] = ()
    cpus: Sequence[int] = ()
    address_space: bool = True

    def run(self, command: Sequence[str], stdin: bytes, limits: Limits, environment: Mapping[str, str]) -> Ended:
        """Runs a command and returns its standard output; raises MissingTool if the sandbox cannot be made."""
        ended = self.attempt(command, stdin, limits, environment)
        if ended.failure:
            raise MissingTool(f"no sandbox: {ended.failure}")
        return ended

    def attempt(self, command: Sequence[str], stdin: bytes, limits: Limits, environment: Mapping[str, str]) -> Ended:
        """The same; its ``failure`` says why the sandbox cannot be made."""
        with tempfile.TemporaryDirectory(prefix="alexconv-") as folder:
            scratch = SCRATCH if self.kind == BUBBLEWRAP else folder
            variables = {**environment, "HOME": scratch, "TMPDIR": scratch, CACHE_VARIABLE: f"{scratch}/cache"}
            user = own_user()
            limited = [*as_user(user), *with_limits(limits, user, self.kind, self.address_space), *command]
            pinned = [_tool("taskset"), "-c", ",".join(map(str, self.cpus))] if self.cpus else []
            if self.kind == CONTAINER:
                if user:
                    os.chown(folder, user, user)
                with _adopting() as started_before:
                    child = _started([*pinned, *limited], variables, folder)
                    return _attend(child, stdin, limits, started_before, None)
            arguments = bubblewrap_arguments(variables, limits, visible(self.shown), self.hidden)
            with _files(seccomp.program(), *arguments) as (filter_, words, status):
                options = ["--seccomp", filter_, "--json-status-fd", status, "--args", words]
                tool = [*scope(limits, len(self.cpus)), *pinned, _tool("bwrap"), *map(str, options), "--", *limited]
                child = _started(tool, _bus(), folder, (filter_, words, status))
                return _attend(child, stdin, limits, None, status)


def own_user() -> int:
    """A user for a command that root runs, whom no other command has; 0 for others, who cannot change users."""
    if os.geteuid():
        return 0
    first, _, count = map(int, Path("/proc/self/uid_map").read_text().splitlines()[-1].split())
    most = min(first + count, _LARGEST_USER)
    return most // 2 + secrets.randbelow(most // 2)


def as_user(user: int) -> list[str]:
    """The words before a command that is to run as another user, without privileges."""
    if not user:
        return []
    return [
        _tool("setpriv"),
        f"--reuid={user}",
        f"--regid={user}",
        "--clear-groups",
        "--inh-caps=-all",
        "--no-new-privs",
    ]


def with_limits(limits: Limits, user: int, chosen: str, address_space: bool) -> list[str]:
    """The words before a command that the system is to limit: what it can limit for a process, and for a user."""
    shared_user = chosen == CONTAINER and not user
    wanted = {
        "cpu": limits.cpu_seconds + CPU_GRACE_SECONDS,
        "fsize": limits.file,
        "nproc": limits.processes + (threads_of(os.geteuid()) if shared_user else 0),
        "nofile": 256,
        "core": 0,
        "memlock": 1 << 16,
        **({"as": 2 * limits.memory} if address_space else {}),
    }
    words = [_tool("prlimit")]
    for name, value in wanted.items():
        most = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
        words.append(f"--{name}={value if most == resource.RLIM_INFINITY else min(value, most)}")
    return [*words, "--"]


def bubblewrap_arguments(
    variables: Mapping[str, str], limits: Limits, shown: Sequence[Path], hidden: Sequence[Path]
) -> list[str]:
    """What bubblewrap builds: namespaces, a file system of its own, and an environment."""
    words = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL", "--clearenv"]
    words += ["--unshare-user"] if os.geteuid() else ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    folders = {parent: None for path in shown for parent in reversed(path.parents[:-1])}
    for folder in (*folders, "/dev"):
        words += ["--perms", "0755", "--dir", str(folder)]
    for path in shown:
        link = path.is_symlink()
        words += ["--symlink", str(path.readlink()), str(path)] if link else ["--ro-bind", str(path), str(path)]
    for folder in hidden:  # inside a folder that is shown
        if folder.is_dir() and any(folder.is_relative_to(path) for path in shown):
            words += ["--size", "4096", "--tmpfs", str(folder), "--remount-ro", str(folder)]
    for name in DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    words += ["--proc", "/proc", "--perms", "1777", "--size", str(limits.folder), "--tmpfs", SCRATCH]
    words += ["--remount-ro", "/", "--chdir", SCRATCH]
    for name, value in variables.items():
        words += ["--setenv", name, value]
    return words


@cache
def _scopes() -> list[str]:
    """The words with which systemd runs a command in a control group of its own; none where it does not."""
    words = ["systemd-run", *(["--user"] if os.geteuid() else []), "--scope", "--quiet", "--collect"]
    if not shutil.which(words[0]):
        return []
    with suppress(subprocess.TimeoutExpired):
        trial = [*words, "-p", "MemoryMax=1G", "-p", "TasksMax=64", "true"]
        if subprocess.run(trial, capture_output=True, timeout=TRIAL_SECONDS, check=False).returncode == 0:
            return words
    return []


def scope(limits: Limits, cpus: int) -> list[str]:
    """The words before a command that systemd is to limit, where it does: the system then enforces what is polled."""
    if not (words := _scopes()):
        return []
    bounds = [f"MemoryMax={limits.memory + limits.folder}", "MemorySwapMax=0", f"TasksMax={limits.processes + 16}"]
    bounds += [f"CPUQuota={100 * cpus}%"] if cpus else []
    return [*words, *(word for bound in bounds for word in ("-p", bound)), "--"]


def _bus() -> dict[str, str]:
    """Of this process's environment only what systemd-run and the search for programs need."""
    names = ("PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")
    return {name: os.environ[name] for name in names if name in os.environ}


def _tool(name: str) -> str:
    path = shutil.which(name)
    if not path:
        raise MissingTool(f"no {name}: {INSTALL if name == 'bwrap' else 'install util-linux'}")
    return path


@contextmanager
def _files(program: bytes, *arguments: str) -> Iterator[tuple[int, int, int]]:
    """Open files for bubblewrap: its filter, its arguments, and one for its status."""
    with tempfile.TemporaryFile() as filter_, tempfile.TemporaryFile() as words, tempfile.TemporaryFile() as status:
        filter_.write(program)
        words.write(b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
        for file in (filter_, words):
            file.seek(0)
        yield filter_.fileno(), words.fileno(), status.fileno()


@contextmanager
def _adopting() -> Iterator[set[int]]:
    """Descendants whose parents end become this process's children; yields the children that it has before."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield children_of_this_process()
    finally:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _started(
    words: Sequence[str], environment: Mapping[str, str], folder: str, files: Sequence[int] = ()
) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=dict(environment),
        pass_fds=files,
        start_new_session=True,
    )


def _attend(
    child: "subprocess.Popen[bytes]",
    content: bytes,
    limits: Limits,
    started_before: set[int] | None,
    status: int | None,
) -> Ended:
    """Feeds a child's input, reads its output, and stops it when it exceeds its limits.

    ``started_before`` are this process's children that are none of the command's; with None all of the command's
    processes descend from the child.  ``status`` is the file to which bubblewrap writes.
    """
    assert child.stdin and child.stdout and child.stderr
    answer, messages, stopped = bytearray(), bytearray(), None
    guard, left = _Guard(child, limits, started_before, status), memoryview(content)
    os.set_blocking(child.stdin.fileno(), False)
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(child.stdin, selectors.EVENT_WRITE)
            ready.register(child.stdout, selectors.EVENT_READ, answer)
            ready.register(child.stderr, selectors.EVENT_READ, messages)
            while not stopped and any(key.data is answer for key in ready.get_map().values()):
                ended, events = child.poll() is not None, ready.select(LOOKS_SECONDS)
                if ended and all(key.fileobj is child.stdin for key, _ in events):
                    break  # what it has started keeps its output open
                for key, _ in events:
                    if key.fileobj is child.stdin:
                        written = _write(child.stdin.fileno(), left[:CHUNK])
                        left = left[max(written, 0) :]
                        if not left or written < 0:
                            ready.unregister(child.stdin)
                            child.stdin.close()
                        continue
                    part = os.read(key.fd, CHUNK)
                    if not part:
                        ready.unregister(key.fileobj)
                    elif key.data is answer or len(messages) < MESSAGE_BYTES:
                        key.data.extend(part)
                stopped = guard.excess(len(answer))
        while not stopped and child.poll() is None:  # it has closed its output
            with suppress(subprocess.TimeoutExpired):
                child.wait(LOOKS_SECONDS)
            stopped = guard.excess(0)
    finally:
        guard.end()
    code = child.returncode if status is None else _reported(status, "exit-code")
    if code is None and not stopped:
        reason = messages.decode(errors="replace").strip() or f"bubblewrap ends with status {child.returncode}"
        return Ended(b"", child.returncode, failure=reason)
    code = child.returncode if code is None else code
    return Ended(bytes(answer[: limits.answer]), 128 - code if code < 0 else code, stopped)


def _reported(file: int, name: str) -> int | None:
    """A number that bubblewrap has written to its status file, or None."""
    for line in os.pread(file, CHUNK, 0).splitlines():
        with suppress(ValueError):
            facts = json.loads(line)
            if name in facts:
                return int(facts[name])
    return None


def _write(descriptor: int, part: memoryview) -> int:
    """Writes to a pipe; returns the bytes that it took, or -1 if its reader is gone."""
    try:
        return os.write(descriptor, part)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return -1


class _Guard:
    """Watches a child and all processes of its command, and ends them."""

    def __init__(
        self, child: "subprocess.Popen[bytes]", limits: Limits, started_before: set[int] | None, status: int | None
    ) -> None:
        self.child, self.limits, self.started_before, self.status = child, limits, started_before, status
        self.watch = Watch()
        self.end_of_wall_time = monotonic() + BACKSTOP * (limits.seconds + limits.cpu_seconds)

    def excess(self, answered: int) -> str | None:
        """The limit that the command exceeds, in words, or None."""
        limits = self.limits
        processes = self.watch.look({self.child.pid, *self._adopted()})
        if self.watch.asleep_seconds > limits.seconds:
            return f"no answer after {limits.seconds:g} s without work: does a thread wait for memory?"
        if self.watch.cpu_seconds > limits.cpu_seconds:
            return f"no answer after {limits.cpu_seconds:g} s of CPU time: does a loop end?"
        if monotonic() > self.end_of_wall_time:
            return "no answer in time: does a loop end?"
        if answered > limits.answer:
            return f"its output exceeds {limits.answer} bytes"
        first = None if self.status is None else _reported(self.status, "child-pid")
        files = memory_of_files(first, SCRATCH, limits.folder) if first else 0
        if memory_of(processes, files, limits.memory) > limits.memory:
            return f"it takes more than {limits.memory >> 20} MiB of memory"
        return None

    def _adopted(self) -> set[int]:
        if self.started_before is None:
            return set()
        return children_of_this_process() - self.started_before - {self.child.pid}

    def end(self) -> None:
        """Ends the child and its descendants; returns when they have ended."""
        if self.started_before is None:
            self._end_namespace()
        else:
            self._end_all()
        with suppress(subprocess.TimeoutExpired):
            self.child.wait(GRACE_SECONDS)
        for pipe in (self.child.stdin, self.child.stdout, self.child.stderr):
            if pipe:
                with suppress(OSError):
                    pipe.close()

    def _end_namespace(self) -> None:
        """Kills bubblewrap and what it has started: with the namespace's first process, the system ends all others.

        Bubblewrap is stopped first, so that it starts no process that outlives it: it may be about to.
        """
        if self.child.poll() is None:
            os.kill(self.child.pid, signal.SIGSTOP)
            os.waitid(os.P_PID, self.child.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            for process in list(descendants([self.child.pid])):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

    def _end_all(self) -> None:
        """Kills all processes of a command that has no namespace, until none is left."""
        deadline = monotonic() + GRACE_SECONDS
        while monotonic() < deadline:
            roots = self._adopted() | ({self.child.pid} if self.child.poll() is None else set())
            if not roots:
                return
            for process in descendants(roots):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            for process in roots - {self.child.pid}:
                with suppress(ChildProcessError):
                    os.waitpid(process, os.WNOHANG)


def visible(shown: Sequence[Path]) -> list[Path]:
    """The folders and files that a command in bubblewrap sees: system, compiler, Python, project and ``shown``.

    A folder of PYTHONPATH is left out if it contains the user's home or one of ``shown``: other users may not be able
    to traverse the folders between.
    """
    python = [Path(sys.prefix), Path(sys.base_prefix)]
    packages = [package_folder(name) for name in PACKAGES]
    toolkit = [Path(os.environ[name]) for name in ("CUDA_HOME",) if os.environ.get(name)]
    own = {packages[0].parent, Path.cwd()}  # never as a whole
    named = map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    inner = [folder.resolve() for folder in (Path.home(), *shown)]
    libraries = [
        path
        for path in named
        if path.absolute() not in own and not any(folder.is_relative_to(path.resolve()) for folder in inner)
    ]
    candidates = [*map(Path, SYSTEM), *compiler(find_cxx()), *toolkit, *python, *packages, *libraries, *shown]
    paths = {path.absolute() for path in candidates if path.exists()}
    paths |= {path.resolve() for path in paths if path.is_symlink()}  # as an environment may be
    visible_paths: list[Path] = []
    for path in sorted(paths, key=lambda path: len(path.parts)):
        if not any(path.is_relative_to(outer) and not outer.is_symlink() for outer in visible_paths):
            visible_paths.append(path)
    return visible_paths


@cache
def compiler(cxx: str) -> list[Path]:
    """A compiler with the folders of its programs, libraries and headers, which may be anywhere.

    None of them contains the user's home.
    """
    output = subprocess.run([cxx, "-print-search-dirs"], capture_output=True, text=True, check=False).stdout
    words = re.findall(r"^(?:install: |programs: =|libraries: =)(.*)$", output, re.MULTILINE)
    folders = [
        Path(os.path.normpath(word)) for line in words for word in line.split(os.pathsep) if word.startswith("/")
    ]
    for folder in list(folders):
        prefix, gcc, _ = str(folder).partition("/lib/gcc/")
        folders += [Path(prefix, "include"), Path(prefix, "libexec", "gcc")] if gcc else []
    own = Path.home()
    folders = [path for path in dict.fromkeys(folders) if path.is_dir() and not own.is_relative_to(path.resolve())]
    links = [parent for path in folders for parent in (path, *path.parents) if parent.is_symlink()]  # shown as links
    return list(dict.fromkeys([Path(cxx).resolve(), *links, *(path.resolve() for path in folders)]))
