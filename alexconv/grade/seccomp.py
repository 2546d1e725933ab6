"""The filter of system calls of sandboxes, as the BPF program that ``bwrap --seccomp`` loads.

A compiler and a kernel need files, memory and processes.  What else the system offers is refused: sockets, memory that
belongs to no process or file (System V segments, memfd, shared anonymous mappings), other processes' memory, keys,
namespaces, mounts, choosing cores or priorities, and everything newer than Linux 5.0 but a few calls.
"""

import errno
import platform
import struct

from alexconv.errors import MissingTool

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_REFUSED = {  # numbers on x86_64 and aarch64 (include/uapi/asm-generic/unistd.h)
    "socket": (41, 198),
    "socketpair": (53, 199),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
}
_CLONE, _MMAP = (56, 220), (9, 222)
_NAMESPACES = 0x7E020000  # flags of clone: CLONE_NEW*
_SHARED_ANONYMOUS = 0x21  # flags of mmap: MAP_SHARED and MAP_ANONYMOUS
# From 424 on numbers are the same everywhere: close_range, pidfd_open, faccessat2, epoll_pwait2, futex_waitv.
_FIRST_NEW, _NEW = 424, (434, 436, 439, 441, 449)
_X32 = 0x40000000  # bit of the numbers of x86_64's other ABI

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _AND, _RETURN = 0x20, 0x15, 0x35, 0x54, 0x06  # BPF operations on 32-bit words
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000


def program() -> bytes:
    """The filter for this machine; raises MissingTool for a CPU that it does not know."""
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        raise MissingTool(f"the sandbox has no filter of system calls for {machine}: grade on x86_64 or aarch64")
    column = list(_AUDIT_ARCH).index(machine)
    refused = [numbers[column] for numbers in _REFUSED.values()]
    return b"".join(
        [
            *(
                _operation(_LOAD, _ARCH),
                _operation(_IF_EQUAL, _AUDIT_ARCH[machine], skip=1),
                _operation(_RETURN, _KILL),
            ),
            _operation(_LOAD, _NUMBER),
            *(_operation(_IF_AT_LEAST, _X32, skip_else=1), _operation(_RETURN, _KILL)),
            *(_if_number(number, _ALLOW) for number in _NEW),
            # As an older kernel answers: programs then use the calls that came before.
            *(_operation(_IF_AT_LEAST, _FIRST_NEW, skip_else=1), _operation(_RETURN, _ERROR | errno.ENOSYS)),
            *(_if_number(number, _ERROR | errno.EPERM) for number in refused),
            *_if_flags(_CLONE[column], 0, _NAMESPACES, whole=False),
            *_if_flags(_MMAP[column], 3, _SHARED_ANONYMOUS, whole=True),
            _operation(_RETURN, _ALLOW),
        ]
    )


def _operation(code: int, value: int, skip: int = 0, skip_else: int = 0) -> bytes:
    """A ``struct sock_filter``: operations to skip where a comparison holds, or does not."""
    return struct.pack("=HBBI", code, skip, skip_else, value)


def _if_number(number: int, answer: int) -> bytes:
    return _operation(_IF_EQUAL, number, skip_else=1) + _operation(_RETURN, answer)


def _if_flags(number: int, argument: int, flags: int, *, whole: bool) -> list[bytes]:
    """Refuses a call with any of these flags in the low half of an argument, or with the ``whole`` of them."""
    return [
        _operation(_IF_EQUAL, number, skip_else=5),
        _operation(_LOAD, _ARGUMENTS + 8 * argument),
        _operation(_AND, flags),
        *([_operation(_IF_EQUAL, flags, skip_else=1)] if whole else [_operation(_IF_EQUAL, 0, skip=1)]),
        _operation(_RETURN, _ERROR | errno.EPERM),
        _operation(_LOAD, _NUMBER),
    ]
