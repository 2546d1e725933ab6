"""The inside of the sandbox: a script that runs before any code of the project, with the standard library alone.

    python -I -S jail.py SPEC        SPEC is JSON, made by sandbox.py

With namespaces: a process in new user, mount, PID, network, IPC and UTS namespaces whose file system holds the folders
that SPEC names, read-only, a new /proc, a few devices and one folder for temporary files.  The command runs in it as an
ordinary user without capabilities, as a child of the namespace's init process; when init ends, the kernel kills all
others.  Without: a process in its own session, with limits; its descendants are killed at the end.

The exit status is the command's; 128 plus the number of a signal; SETUP_FAILED if the sandbox cannot be made.  Only
then is there a line on standard error: the command's own is discarded.
"""

import ctypes
import json
import os
import platform
import resource
import signal
import sys
from contextlib import suppress
from typing import Any

SETUP_FAILED = 250
NOBODY = 65534
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID = 1, 2
SYS_MOUNT_SETATTR = 442  # on every architecture
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}.get(platform.machine(), 0)
DEVICES = ("null", "zero", "full", "random", "urandom")

Spec = dict[str, Any]
libc = ctypes.CDLL(None, use_errno=True)
said = os.dup(2)  # for this script's messages; the command has no standard error


class Attributes(ctypes.Structure):
    """``struct mount_attr``."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "namespace"))


def checked(result: int, what: str) -> None:
    """Raises OSError for a system call that failed."""
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    words = [None if word is None else word.encode() for word in (source, target, kind, data)]
    checked(libc.mount(*words[:3], ctypes.c_ulong(flags), words[3]), f"mount {target}")


def seal(target: str) -> None:
    """Makes a mount and all below it read-only, without set-user-ID programs."""
    wanted = Attributes(set=MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID)
    path = ctypes.c_char_p(target.encode())
    size = ctypes.c_size_t(ctypes.sizeof(wanted))
    result = libc.syscall(SYS_MOUNT_SETATTR, AT_FDCWD, path, AT_RECURSIVE, ctypes.byref(wanted), size)
    checked(result, f"mount_setattr {target}")


def show(path: str, root: str) -> None:
    """Makes a file, folder or link visible under the new root, at the same path."""
    target = root + path
    if os.path.lexists(target):
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
    mount(path, target, None, MS_BIND | MS_REC)


def furnish(spec: Spec) -> None:
    """Builds the file system and makes it the root."""
    root = spec["root"]
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=755")
    for path in spec["shown"]:
        show(path, root)
        if not os.path.islink(path):
            seal(root + path)
    for path in spec["hidden"]:  # inside a folder that is shown
        if os.path.isdir(root + path):
            mount("tmpfs", root + path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k")
    for path in [f"/dev/{name}" for name in DEVICES]:
        show(path, root)
    os.makedirs(root + "/proc")
    mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    with suppress(OSError), open(root + "/proc/sys/user/max_user_namespaces", "w") as limit:
        limit.write("0")
    scratch = root + spec["scratch"]
    os.makedirs(scratch)
    size = f"size={spec['folder_bytes']},nr_inodes=20000,mode=1777"
    mount("tmpfs", scratch, "tmpfs", MS_NOSUID | MS_NODEV, size)
    mount(None, root, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
    os.chdir(root)
    if SYS_PIVOT_ROOT:
        checked(libc.syscall(SYS_PIVOT_ROOT, b".", b"."), "pivot_root")
        checked(libc.umount2(b".", MNT_DETACH), "umount2")
    else:
        os.chroot(".")
    os.chdir(spec["scratch"])


def limit(spec: Spec) -> None:
    """Sets the limits of this process and its children."""
    limits = {
        "RLIMIT_CPU": spec["cpu_seconds"],
        "RLIMIT_FSIZE": spec["file_bytes"],
        "RLIMIT_NPROC": spec["processes"],
        "RLIMIT_NOFILE": 256,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 1 << 16,
    }
    if spec["address_bytes"]:
        limits["RLIMIT_AS"] = spec["address_bytes"]
    for name, value in limits.items():
        number = getattr(resource, name)
        most = resource.getrlimit(number)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(number, (value, value))


def start(spec: Spec, as_nobody: bool) -> int:
    """Starts the command in its own session; returns its process ID."""
    child = os.fork()
    if not child:
        with guarded():
            os.setsid()
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            if as_nobody:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            limit(spec)
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.execve(spec["command"][0], spec["command"], spec["environment"])
    return child


class guarded:
    """Ends a child process at the end of the block, with a line if it failed."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            os.write(said, f"{error}\n".encode(errors="replace"))
        os._exit(SETUP_FAILED)


def status_of(child: int, status: int) -> int:
    """A wait status as an exit status."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def reap(child: int) -> int:
    """Waits for this child, and reaps others that end before it; returns its exit status."""
    while True:
        ended, status = os.wait()
        if ended == child:
            return status_of(child, status)


def first_process(spec: Spec, as_nobody: bool) -> int:
    """Starts the namespace's init process, whose end kills all others; returns its process ID."""
    child = os.fork()
    if not child:
        with guarded():
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            furnish(spec)
            os._exit(reap(start(spec, as_nobody)))
    return child


def mapped(as_root: bool, told: int, wait: int) -> None:
    """Enters the namespaces; the parent maps their users if it is root, else this process does."""
    user, group = os.geteuid(), os.getegid()
    checked(libc.unshare(NAMESPACES), "unshare")
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if as_root:
        os.write(told, b"!")
        if os.read(wait, 1) != b"!":
            os._exit(SETUP_FAILED)
        return
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def isolated(spec: Spec) -> int:
    """Runs the command in new namespaces."""
    as_root = os.geteuid() == 0
    wait_map, tell_map = os.pipe()
    wait_new, tell_new = os.pipe()
    child = os.fork()
    if not child:
        with guarded():
            os.close(tell_map)  # so that the wait for the parent ends when the parent does
            os.close(wait_new)
            mapped(as_root, tell_new, wait_map)
            os.close(wait_map)
            os.close(tell_new)
            os._exit(reap(first_process(spec, as_root)))
    requested = ends_on_request(child)
    os.close(tell_new)
    if as_root and os.read(wait_new, 1):
        try:
            for name in ("uid_map", "gid_map"):
                with open(f"/proc/{child}/{name}", "w") as file:
                    file.write(f"0 0 1\n{NOBODY} {NOBODY} 1\n")
            os.write(tell_map, b"!")
        except OSError:
            if not requested:
                raise
    status = reap(child)
    with suppress(ChildProcessError):
        while True:
            os.wait()  # the namespace's init process, if its parent was killed
    return status


def ends_on_request(child: int) -> list[int]:
    """Unblocks SIGTERM, which kills the child and adds it to the returned list."""
    killed: list[int] = []

    def kill(*_: object) -> None:
        killed.append(child)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGTERM, kill)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    return killed


def tasks_of(user: int) -> int:
    """The user's threads now: RLIMIT_NPROC counts them all."""
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def descendants() -> list[int]:
    """Children of this process, and theirs."""
    found, todo = [], [os.getpid()]
    while todo:
        parent = todo.pop()
        with suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{task}/children") as file:
                    children = [int(word) for word in file.read().split()]
                found += children
                todo += children
    return found


def apart(spec: Spec) -> int:
    """Runs the command in its own session, and kills its descendants when it ends."""
    child = start({**spec, "processes": spec["processes"] + tasks_of(os.getuid())}, False)
    ends_on_request(child)
    status = reap(child)
    with suppress(ChildProcessError):
        while True:
            for each in descendants():
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGKILL)
            os.wait()
    return status


def confine() -> int:
    """Runs what SPEC says; returns the exit status."""
    spec = json.loads(sys.argv[1])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until there is a child to kill
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        return isolated(spec) if spec["isolated"] else apart(spec)
    except OSError as error:
        os.write(said, f"{error}\n".encode(errors="replace"))
        return SETUP_FAILED


if __name__ == "__main__":
    sys.exit(confine())
