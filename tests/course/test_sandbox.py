"""What a command in the sandbox cannot do, tried with small commands."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alexconv.course import sandbox
from alexconv.course.sandbox import NAMESPACES, SESSION, Limits
from alexconv.errors import MissingTool

LIMITS = Limits(seconds=120.0, memory=256 << 20, processes=20, folder=8 << 20, file=4 << 20, answer=1 << 16)
KINDS = pytest.mark.parametrize("kind", [NAMESPACES, SESSION])
MARK = f"alexconv_sandbox_test_{os.getpid()}"  # in command lines, to find the processes that these tests leave behind
LINGER_SECONDS = 60.0  # that the system may need to end killed processes


def ran(code, kind=NAMESPACES, limits=LIMITS, given=b"", hidden=()):
    """Runs Python code in the sandbox."""
    if kind == NAMESPACES and sandbox.kind() != NAMESPACES:
        pytest.skip("the system gives no user namespaces")
    words = [sys.executable, "-I", "-S", "-c", f"import os, signal, sys, time  # {MARK}\n{code}"]
    return sandbox.run(words, given, limits, {"PATH": "/usr/bin:/bin"}, chosen=kind, hidden=hidden)


def left():
    """Processes of these tests that do not end."""
    deadline = time.monotonic() + LINGER_SECONDS
    while found := subprocess.run(["pgrep", "-f", MARK], capture_output=True, text=True, check=False).stdout:
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return found


@KINDS
def test_a_command_reads_answers_and_ends_with_its_status(kind):
    ended = ran("sys.stdout.write(sys.stdin.read() * 2); sys.exit(3)", kind, given=b"abc" * 5000)
    assert (ended.answer, ended.status, ended.stopped) == (b"abc" * 10000, 3, None)
    assert ended.problem == "its process ends with status 3"
    assert ran("os.kill(os.getpid(), signal.SIGABRT)", kind).problem == "its process ends with SIGABRT"
    assert ran("os._exit(250)", kind).problem == "its process ends with status 250"


def test_files_outside_are_not_there(tmp_path):
    (tmp_path / "secret").write_text("secret")
    paths = [
        str(path) for path in (tmp_path, tmp_path / "secret", Path(__file__), Path.home() / ".ssh", Path.cwd() / "docs")
    ]
    assert ran(f"print(any(map(os.path.exists, {paths!r})))").answer.strip() == b"False"


def test_a_plain_checkout_works_inside():
    checkout = Path(sandbox.__file__).parent.parent.parent
    code = f"""
sys.path[:0] = [{str(checkout)!r}]
from importlib.util import find_spec
print([bool(find_spec(name)) for name in {sandbox.PACKAGES!r}])
"""
    assert ran(code).answer.strip() == b"[True, True, True]"


def test_a_folder_inside_of_what_is_shown_can_be_hidden():
    package = Path(sandbox.__file__).parent
    code = f"print(len(os.listdir({str(package)!r})))"
    assert int(ran(code).answer) > 5
    assert ran(code, hidden=[package]).answer.strip() == b"0"


def test_nothing_outside_of_the_scratch_folder_can_be_written():
    places = ["/", "/usr", "/proc", "/dev", str(Path(sandbox.__file__).parent), sys.prefix]
    code = f"""
for folder in {places!r}:
    try:
        open(folder + "/alexconv-x", "w")
        print("wrote to", folder)
    except OSError:
        pass
open("x", "w").write("x")
print(os.getcwd())
"""
    assert ran(code).answer.strip() == sandbox.SCRATCH.encode()


def test_there_is_no_network_and_no_other_process():
    code = """
import socket
try:
    socket.create_connection(("127.0.0.1", 22), 1)
    print("connected")
except OSError as error:
    print(error.errno)
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")])
"""
    number, processes, capabilities = ran(code).answer.decode().splitlines()
    assert number == "101"  # ENETUNREACH: the loopback device is down
    assert processes == "[1, 2]"
    assert int(capabilities.strip("[]'"), 16) == 0


def test_a_command_cannot_gain_privileges():
    code = """
import ctypes
libc = ctypes.CDLL(None)
print(libc.setuid(0) if os.getuid() else -1, libc.unshare(0x10000000), libc.chroot(b"/"))
print(libc.mount(b"x", b"/usr", b"tmpfs", 0, 0), libc.ptrace(16, 1, 0, 0))
"""
    assert ran(code).answer.split() == [b"-1"] * 5


@KINDS
def test_time_is_limited(kind):
    ended = ran("signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(10000)", kind, Limits(seconds=0.7))
    assert "no answer after 0.7 s" in str(ended.stopped)
    assert not left()


@KINDS
def test_a_sandbox_stopped_during_its_creation_leaves_nothing(kind):
    for milliseconds in range(0, 60, 4):
        assert ran("time.sleep(10000)", kind, Limits(seconds=milliseconds / 1000)).stopped
    assert not left()


@KINDS
def test_processes_that_a_command_starts_end_with_it(kind):
    code = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(10000)
        os._exit(0)
"""
    assert ran(code, kind).status == 0
    assert not left()


@KINDS
def test_memory_of_all_processes_together_is_limited(kind):
    code = """
for _ in range(4):
    if os.fork() == 0:
        x = b"x" * (100 << 20)
        time.sleep(10000)
time.sleep(10000)
"""
    assert "more than 256 MiB of memory" in str(ran(code, kind).stopped)
    assert not left()


def test_processes_files_and_output_are_limited():
    forks = """
n = 0
try:
    while n < 100:
        n += 1
        if os.fork() == 0:
            time.sleep(10000)
except OSError:
    print(n)
"""
    assert int(ran(forks).answer) <= LIMITS.processes
    fills = """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
written = 0
try:
    for number in range(10):
        with open(str(number), "wb", buffering=0) as file:
            for _ in range(100):
                try:
                    written += file.write(b"x" * (1 << 16))
                except OSError as error:
                    if error.errno == 28:
                        raise
                    break
except OSError:
    pass
print(written)
"""
    assert int(ran(fills).answer) <= LIMITS.folder
    ended = ran("while True: os.write(1, b'x' * 65536)")
    assert "output exceeds" in str(ended.stopped)
    assert len(ended.answer) <= LIMITS.answer


def test_no_signal_reaches_the_first_process_of_a_namespace():
    code = """
for process, number in ((1, 9), (1, 15), (1, 19), (-1, 9)):
    try:
        os.kill(process, number)
    except OSError:
        pass
print("on")
"""
    assert ran(code).answer.strip() == b"on"


def test_a_command_that_stops_its_watchdog_ends_in_time(monkeypatch):
    monkeypatch.setattr(sandbox, "GRACE_SECONDS", 200.0)
    start = time.monotonic()
    assert ran("os.kill(os.getppid(), signal.SIGSTOP)", SESSION, Limits(seconds=0.7)).stopped
    assert time.monotonic() - start < sandbox.GRACE_SECONDS
    assert not left()


def test_a_sandbox_that_cannot_be_made_is_one_line(monkeypatch):
    monkeypatch.setattr(sandbox, "visible", lambda shown: [Path("/no such folder")])
    with pytest.raises(MissingTool, match=r"no sandbox: .*/no such folder"):
        ran("print(1)")


def test_a_compiler_may_lie_anywhere_and_shows_nothing_of_its_user(tmp_path, monkeypatch):
    folder, home = tmp_path / "gcc" / "lib" / "gcc" / "x86_64-linux-gnu" / "13", tmp_path / "home"
    for each in (folder, tmp_path / "gcc" / "include", home):
        each.mkdir(parents=True)
    cxx = tmp_path / "g++"
    libraries = f"{folder}/../../../../../gcc/include:{tmp_path}:/no/such/folder"
    cxx.write_text(
        f'#!/bin/sh\necho "install: {folder}/"\necho "programs: ={home}:/usr/bin"\necho "libraries: ={libraries}"\n'
    )
    cxx.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CXX", str(cxx))
    assert sandbox.compiler(str(cxx)) == [cxx, folder, Path("/usr/bin"), tmp_path / "gcc" / "include"]
    assert {cxx, folder, tmp_path / "gcc" / "include"} <= set(sandbox.visible([]))


def test_a_library_s_folder_is_visible_unless_the_user_s_own_or_a_shown_one_lies_in_it(tmp_path, monkeypatch):
    library, home, data = (tmp_path / name for name in ("library", "home", "data"))
    for folder in (library, home / "user", data / "shown"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home / "user"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (library, home, data))))
    found = sandbox.visible([data / "shown"])
    assert {library, data / "shown"} <= set(found)
    assert not {home, data} & set(found)
