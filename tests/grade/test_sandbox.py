"""What a command in the sandbox cannot do, tried with small commands."""

import os
import platform
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from processes import running

from alexconv.errors import MissingTool
from alexconv.grade import sandbox, seccomp
from alexconv.grade.sandbox import BUBBLEWRAP, CONTAINER, Limits, Sandbox

LIMITS = Limits(seconds=120.0, memory=256 << 20, processes=20, folder=8 << 20, file=4 << 20, answer=1 << 16)
KINDS = pytest.mark.parametrize("kind", [BUBBLEWRAP, CONTAINER])
ANY_USERS_PYTHON = shutil.which("python3", path="/usr/bin:/bin")  # root's own may lie where others cannot go
MARK = f"alexconv_sandbox_test_{os.getpid()}"  # in command lines, to find the processes that these tests leave behind
LINGER_SECONDS = 60.0  # that the system may need to end killed processes


def ran(code, kind=BUBBLEWRAP, limits=LIMITS, stdin=b"", hidden=(), cpus=()):
    """Runs Python code in the sandbox."""
    python = sys.executable
    if kind == BUBBLEWRAP and (problem := sandbox.missing(BUBBLEWRAP)):
        pytest.skip(problem)
    if kind == CONTAINER and os.geteuid() == 0:
        python = ANY_USERS_PYTHON or pytest.skip("no Python in /usr/bin or /bin that any user can run")
    words = [python, "-I", "-S", "-c", f"import os, signal, sys, time  # {MARK}\n{code}"]
    return Sandbox(kind, hidden=hidden, cpus=cpus).run(words, stdin, limits, {"PATH": "/usr/bin:/bin"})


def left():
    """Processes of these tests that do not end."""
    deadline = time.monotonic() + LINGER_SECONDS
    while (processes := running(MARK)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return processes


@KINDS
def test_a_command_reads_answers_and_ends_with_its_status(kind):
    ended = ran("sys.stdout.write(sys.stdin.read() * 2); sys.exit(3)", kind, stdin=b"abc" * 5000)
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
print([line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]])
print(sorted(int(name) for name in os.listdir("/proc") if name.isdigit()))
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")])
"""
    devices, processes, capabilities = ran(code).answer.decode().splitlines()
    assert devices == "['lo']"
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


SPINNING = {
    "alone": "while True: pass",
    "in a session of its own, without its parent": """
for _ in range(12):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: pass
        os._exit(0)
    os.wait()  # a zombie is one of its processes
time.sleep(10000)
""",
    "one after the other, and nobody waits": """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.5
        while time.process_time() < end: pass
        os._exit(0)
    time.sleep(0.6)
""",
    "one after the other": """
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.02
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
""",
}


@KINDS
@pytest.mark.parametrize("way", SPINNING)
def test_cpu_time_of_all_processes_together_is_limited(way, kind):
    ended = ran(SPINNING[way], kind, replace(LIMITS, cpu_seconds=2))
    assert ended.stopped == "no answer after 2 s of CPU time: does a loop end?"
    assert not left()


@KINDS
def test_waiting_for_work_of_others_is_no_sleep(kind):
    code = """
if os.fork() == 0:
    end = time.process_time() + 3
    while time.process_time() < end: pass
    os._exit(0)
os.wait()
print("done")
"""
    assert ran(code, kind, replace(LIMITS, seconds=1.0)).answer == b"done\n"


def test_a_command_runs_on_its_own_cores_and_cannot_choose_others():
    (first, *_) = os.sched_getaffinity(0)
    code = """
print(sorted(os.sched_getaffinity(0)))
for change in (lambda: os.sched_setaffinity(0, range(64)), lambda: os.nice(-1), lambda: os.setpriority(0, 0, 5)):
    try:
        change()
        print("changed")
    except OSError:
        pass
"""
    assert ran(code, cpus=(first,)).answer.decode() == f"[{first}]\n"


@KINDS
def test_a_sandbox_stopped_during_its_creation_leaves_nothing(kind, monkeypatch):
    monkeypatch.setattr(sandbox, "BACKSTOP", 1)
    for milliseconds in range(0, 60, 4):
        assert ran("time.sleep(10000)", kind, Limits(seconds=milliseconds / 1000, cpu_seconds=0)).stopped
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
    ended = ran(code, kind)
    assert (ended.status, ended.stopped) == (0, None)
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


def test_files_in_memory_count_as_memory():
    code = "[open(f'{i:04}', 'wb').write(b'x' * (1 << 20)) for i in range(200)]; time.sleep(10000)"
    ended = ran(code, limits=replace(LIMITS, memory=100 << 20, folder=300 << 20))
    assert ended.stopped == "it takes more than 100 MiB of memory"


REFUSED = {
    "a segment": "libc.shmget(0, 4096, 0o1600)",
    "a file in memory": "libc.memfd_create(b'x', 0)",
    "a queue": "libc.msgget(0, 0o1600)",
    "semaphores": "libc.semget(0, 1, 0o1600)",
    "shared pages": "-1 if libc.mmap(None, 4096, 3, 0x21, -1, 0) == ctypes.c_void_p(-1).value else 0",
    "pages of a device": "os.open('/dev/zero', os.O_RDWR)",
    "a socket": "max(libc.socket(family, kind, 0) for family in range(1, 46) for kind in (1, 2, 3, 5))",
    "a pair of sockets": "libc.socketpair(1, 1, 0, (ctypes.c_int * 2)())",
    "a trace": "libc.ptrace(0, 0, 0, 0)",
    "a namespace": "max(libc.unshare(flag) for flag in (0x10000000, 0x20000, 0x40000000, 0x2000000))",
    "a process in a namespace": "libc.syscall(CLONE, 0x10000000 | 17, 0, 0, 0, 0)",
    "clone3": "libc.syscall(435, 0, 0)",
    "io_uring": "libc.syscall(425, 1, (ctypes.c_char * 120)())",
    "mounting": "libc.syscall(428, -100, b'/', 0)",
    "a secret": "libc.syscall(447, 0)",
}


@pytest.mark.parametrize("what", REFUSED)
def test_system_calls_that_a_kernel_does_not_need_are_refused(what):
    clone = seccomp._CLONE[platform.machine() == "aarch64"]
    code = f"""
import ctypes
CLONE = {clone}
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
try:
    print({REFUSED[what]})
except OSError:
    print(-1)
"""
    assert ran(code).answer == b"-1\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86_64 has a second ABI with the same calls")
def test_calls_of_another_abi_end_the_process():
    ended = ran("import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 41, 1, 1, 0); print('on')")
    assert (ended.answer, ended.problem) == (b"", "its process ends with SIGSYS")


def test_the_filter_is_for_this_machine_s_cpu(monkeypatch):
    programs = {}
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr(platform, "machine", lambda name=machine: name)
        programs[machine] = seccomp.program()
        assert len(programs[machine]) % 8 == 0
    assert programs["x86_64"] != programs["aarch64"]
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(MissingTool, match="no filter of system calls for riscv64"):
        seccomp.program()


def test_the_first_process_tells_no_path_of_the_grader(tmp_path):
    hidden = tmp_path / "grader"
    hidden.mkdir()
    code = "print(open('/proc/1/cmdline').read(), *map(lambda f: f + open('/proc/1/' + f).read(), ('comm',)))"
    answer = ran(code, hidden=[hidden]).answer.decode()
    assert str(tmp_path) not in answer
    assert str(Path(sandbox.__file__).parent) not in answer


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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a submission as another user")
def test_in_a_container_root_s_files_and_processes_are_out_of_reach(tmp_path):
    (tmp_path / "grader.json").write_text("hidden")
    (tmp_path / "grader.json").chmod(0o600)
    code = f"""
for attempt in (lambda: os.kill(os.getppid(), 9), lambda: open({str(tmp_path / "grader.json")!r})):
    try:
        attempt()
        print("done")
    except OSError:
        pass
print(os.getuid() > 0, os.getgroups())
"""
    assert ran(code, CONTAINER).answer == b"True []\n"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A folder of programs before the system's own, and no memory of what these can do."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(name, script):
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    for cached in (sandbox.missing, sandbox._scopes):
        cached.cache_clear()
    yield write
    for cached in (sandbox.missing, sandbox._scopes):
        cached.cache_clear()


def test_what_a_system_without_sandboxes_needs_is_one_line(system, monkeypatch):
    system("bwrap", "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    problem = sandbox.missing(BUBBLEWRAP)
    assert "No permissions to create new namespace" in problem
    assert "allow user namespaces" in problem
    assert "\n" not in problem
    sandbox.missing.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert sandbox.missing(BUBBLEWRAP).endswith("apt install bubblewrap)")


def test_workers_import_the_running_project_though_their_python_has_another(monkeypatch, tmp_path):
    checkout = Path(sandbox.__file__).parent.parent.parent
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert sandbox.environment()["PYTHONPATH"] == str(checkout)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert sandbox.environment()["PYTHONPATH"] == f"{checkout}{os.pathsep}{tmp_path}"


def test_a_sandbox_whose_python_cannot_import_the_project_is_one_line(system, monkeypatch):
    ran("")  # skips where there is no sandbox
    sandbox.missing.cache_clear()
    monkeypatch.setattr(sandbox, "environment", dict)
    monkeypatch.setattr(sandbox, "WORKER", "alexconv.grade.no_worker")
    problem = sandbox.missing(BUBBLEWRAP)
    assert "cannot import alexconv.grade.no_worker in a sandbox (its process ends with status 1)" in problem
    assert "\n" not in problem


def test_where_systemd_makes_control_groups_it_limits_the_command(system, tmp_path):
    """A stand-in: this machine may not run systemd."""
    system("systemd-run", f'echo "$@" >> {tmp_path}/words; while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
    assert sandbox.scope(LIMITS, 1) == []  # its trial has no "--", and so fails
    sandbox._scopes.cache_clear()
    words = "while [ $# != 0 ]; do case $1 in -p) shift 2;; -*) shift;; *) break;; esac; done"
    system("systemd-run", f'echo "$@" >> {tmp_path}/words; {words}; exec "$@"')
    (first, *_) = os.sched_getaffinity(0)
    assert ran("print(1)", cpus=(first,)).answer == b"1\n"
    limits = (tmp_path / "words").read_text()
    assert f"MemoryMax={LIMITS.memory + LIMITS.folder}" in limits
    assert "MemorySwapMax=0" in limits
    assert f"TasksMax={LIMITS.processes + 16}" in limits
    assert "CPUQuota=100%" in limits


def test_a_sandbox_that_cannot_be_made_is_one_line(monkeypatch):
    assert ran("print(1)").answer == b"1\n"
    monkeypatch.setattr(sandbox, "visible", lambda shown: [Path("/no such folder")])
    with pytest.raises(MissingTool, match=r"no sandbox: .*/no such folder"):
        ran("print(1)")


def test_a_compiler_may_lie_anywhere_and_shows_nothing_of_its_user(tmp_path, monkeypatch):
    folder, home = tmp_path / "gcc" / "lib" / "gcc" / "x86_64-linux-gnu" / "13", tmp_path / "home"
    for directory in (folder, tmp_path / "gcc" / "include", home):
        directory.mkdir(parents=True)
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


def test_an_environment_behind_a_link_is_visible(tmp_path, monkeypatch):
    (tmp_path / "environment").mkdir()
    (tmp_path / ".venv").symlink_to("environment")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    assert {tmp_path / ".venv", tmp_path / "environment"} <= set(sandbox.visible([]))


def test_a_library_s_folder_is_visible_unless_the_user_s_own_or_a_shown_one_lies_in_it(tmp_path, monkeypatch):
    library, home, data = (tmp_path / name for name in ("library", "home", "data"))
    for folder in (library, home / "user", data / "shown"):
        folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home / "user"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (library, home, data))))
    folders = sandbox.visible([data / "shown"])
    assert {library, data / "shown"} <= set(folders)
    assert not {home, data} & set(folders)
