"""A filter of system calls: what a process that only computes has no need of is refused.

The rules are data (`RULES`); `program` makes of them the little program that the kernel runs at
each call. It sees a call's number and arguments, and nothing that these point to. Source:
docs.kernel.org/userspace-api/seccomp_filter.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable
from typing import NamedTuple

from course_lib.ranks.system.wall.calls import ARCHITECTURES, FIRST_OF_THE_NEWER, NUMBERS

SECCOMP, SET_FILTER, ALL_THREADS = {"x86_64": 317, "aarch64": 277}, 1, 1
NO_NEW_PRIVILEGES = 38  # of prctl; without it only root may install a filter
# Instructions: load a word of the call, compare, mask, return.
LOAD, EQUAL, AT_LEAST, AND, RETURN = 0x20, 0x15, 0x35, 0x54, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # where the word lies; arguments have 8 bytes each
ALLOW, REFUSE = 0x7FFF0000, 0x00050000  # the latter with an error number added
X32 = 0x40000000  # calls of x86_64's other form begin here
ANY = 0xFFFFFFFF

THREAD = 0x00010000  # flag of clone
INTERNET, INTERNET6, NETLINK, STREAM, DATAGRAM = 2, 10, 16, 1, 2
# fcntl: whom a file's signals go to, leases, notices, the size of a pipe
FILE_COMMANDS = (8, 15, 1024, 1026, 1031)
# ioctl: is it a terminal, how large, what is there to read; (not) waiting, closing on exec; a copy.
# Others set flags of files that are open for reading only, or put letters into a terminal.
DEVICE_COMMANDS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x40049409)
INTERFACES = (0x8912, 0x8913, 0x8915, 0x8927, 0x8933, 0x8946)  # ioctl: asks for the network's
BUFFERS = (7, 8, 32, 33)  # setsockopt: bytes that the kernel keeps for a socket
# futex: wakes, or moves, who waits at a word of shared memory, as a file that all may read is.
WAKES = (1, 3, 4, 5, 10, 12)


class Where(NamedTuple):
    """Looks at one argument of a call.

    Attributes:
        argument: which, from 0.
        values: that it is compared with.
        mask: the bits of it that count.
    """

    argument: int
    values: tuple[int, ...]
    mask: int = ANY


class Rule(NamedTuple):
    """Refuses some calls. What no rule refuses is allowed.

    Attributes:
        calls: their names.
        but: allows them where this argument has one of these values.
        only: refuses them only where this argument has one of these values.
        error: what the caller is told; 0 says that it was done, although it was not.
    """

    calls: str
    but: Where | None = None
    only: Where | None = None
    error: int = errno.EPERM


# Rings carry out calls that no filter sees.
RINGS = Rule("io_uring_setup io_uring_enter io_uring_register")


def rules(pid: int, *, tcp: bool) -> tuple[Rule, ...]:
    """What a process may not do that only computes.

    Args:
        pid: its own process id: what it may do to itself, it may not do to others.
        tcp: whether it still needs TCP connections, as torch's process groups do.
    """
    own = Where(0, (pid,))
    near = Where(0, (0, pid))
    return (
        # Threads are allowed. The C library asks for them with clone3, then with clone.
        Rule("clone", but=Where(0, (THREAD,), THREAD)),
        Rule("clone3", error=errno.ENOSYS),
        Rule("fork vfork execve execveat setsid setpgid"),
        Rule("kill tgkill rt_sigqueueinfo rt_tgsigqueueinfo", but=own),
        Rule("tkill pidfd_open pidfd_send_signal pidfd_getfd ptrace kcmp"),
        Rule("process_vm_readv process_vm_writev process_madvise process_mrelease"),
        Rule("prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr", near),
        Rule("migrate_pages move_pages", near),
        # What one process sets for itself, another must not read: it would be a message.
        Rule("sched_getaffinity sched_getscheduler sched_getparam", near, error=errno.ENOSYS),
        Rule("sched_getattr sched_rr_get_interval", near, error=errno.ENOSYS),
        # Not of a whole group or user: what 0 stands for then is more than this process.
        Rule("setpriority getpriority", but=Where(0, (0,))),
        Rule("ioprio_set ioprio_get", but=Where(0, (1,))),
        Rule("setpriority getpriority ioprio_set ioprio_get", but=Where(1, (0, pid))),
        # Living on where the parent has ended; hiding from the judge what it has written.
        Rule("prctl", only=Where(0, (1, 4))),
        Rule("fcntl", only=Where(1, FILE_COMMANDS)),
        Rule("ioctl", Where(1, DEVICE_COMMANDS + (INTERFACES if tcp else ())), error=errno.ENOTTY),
        Rule("setsockopt", only=Where(2, BUFFERS)),
        # An open file on its way through a socket is nobody's: the judge would not find it.
        Rule("sendmsg sendmmsg"),
        # Disk that is taken at once and without writing: a loop would have it all.
        Rule("fallocate", error=errno.EOPNOTSUPP),
        # A file that two processes may only read can still carry what one has to say to the other.
        Rule("flock inotify_init inotify_init1"),
        Rule("futex", only=Where(1, WAKES, 0xFF), error=0),
        *(_TCP if tcp else _NO_NETWORK),
        RINGS,
        Rule("io_setup", error=errno.ENOSYS),  # the whole machine has so many
        Rule("shmget shmat shmctl msgget msgsnd msgrcv msgctl mq_open mq_unlink"),
        Rule("semget semop semctl semtimedop memfd_create memfd_secret"),
        # Landlock does not look at these. Copying a file sets its mode and its date: let it go on.
        # Without a date (0 is no address) it is `touch`, which then makes the file.
        Rule("utimensat", only=Where(2, (0,))),
        Rule("chmod fchmod fchmodat fchmodat2 utime utimes futimesat utimensat", error=0),
        Rule("chown lchown fchown fchownat setxattr lsetxattr fsetxattr setxattrat"),
        Rule("removexattr lremovexattr fremovexattr removexattrat"),
        Rule("name_to_handle_at open_by_handle_at chroot pivot_root mount umount2 move_mount"),
        Rule("open_tree fsopen fsconfig fsmount fspick mount_setattr setns unshare"),
        Rule("bpf perf_event_open userfaultfd add_key request_key keyctl fanotify_init"),
        Rule("clock_settime settimeofday adjtimex clock_adjtime sethostname setdomainname"),
        Rule("setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups"),
        Rule("capset swapon swapoff reboot kexec_load kexec_file_load acct quotactl quotactl_fd"),
        Rule("init_module finit_module delete_module syslog ioperm iopl vhangup"),
    )


_STREAM = Rule("socketpair", but=Where(1, (STREAM,), 0xF))  # a connected pair can reach nobody else
_NO_NETWORK = (Rule("socket connect bind listen"), _STREAM)
# gloo asks for the network's devices, by netlink.
_TCP = (
    Rule("socket", but=Where(0, (INTERNET, INTERNET6, NETLINK))),
    Rule("socket", only=Where(1, (DATAGRAM,), 0xF)),
    _STREAM,
)


def program(wanted: Iterable[Rule]) -> bytes:
    """The filter's instructions, 8 bytes each, for this processor."""
    parts = []
    for rule in wanted:
        block = _block(rule)
        for name in rule.calls.split():
            if name in NUMBERS:
                parts += [_step(EQUAL, NUMBERS[name], 0, len(block)), *block]
    architecture, _ = ARCHITECTURES[platform.machine()]
    head = [
        _step(LOAD, ARCHITECTURE),
        _step(EQUAL, architecture, 1, 0),
        _step(RETURN, REFUSE | errno.EPERM),
        _step(LOAD, NUMBER),
        _step(AT_LEAST, X32, 0, 1),
        _step(RETURN, REFUSE | errno.EPERM),
    ]
    newer = [
        # What nobody here has looked at; the C library then does it the older way.
        _step(AT_LEAST, FIRST_OF_THE_NEWER, 0, 1),
        _step(RETURN, REFUSE | errno.ENOSYS),
    ]
    return b"".join([*head, *parts, *newer, _step(RETURN, ALLOW)])


def install(wanted: Iterable[Rule]) -> None:
    """Filters the calls of all threads of this process, for good.

    Raises:
        OSError: the kernel refuses.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    code = program(wanted)
    steps = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: how many instructions, and where they are
    head = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(steps))
    )
    number = SECCOMP[platform.machine()]
    if library.syscall(number, SET_FILTER, ALL_THREADS, head) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def available() -> bool:
    """Whether this kernel filters calls, and this processor's numbers are known."""
    if not hasattr(os, "fork") or platform.system() != "Linux" or not NUMBERS:
        return False
    # A filter that is nowhere: EFAULT tells that there could be one.
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall(SECCOMP[platform.machine()], SET_FILTER, 0, None)
    return ctypes.get_errno() in (errno.EFAULT, errno.EACCES)


def _block(rule: Rule) -> list[bytes]:
    """What is done at one of the rule's calls: it is refused, or goes on to the next rule."""
    refuse = _step(RETURN, REFUSE | rule.error)
    test = rule.but or rule.only
    if test is None:
        return [refuse]
    *others, last = test.values
    far, near = (len(others) + 1, (1, 0)) if rule.but else (len(others), (0, 1))
    return [
        _step(LOAD, ARGUMENTS + 8 * test.argument),
        _step(AND, test.mask),
        *(_step(EQUAL, value, far - n, 0) for n, value in enumerate(others)),
        _step(EQUAL, last, *near),
        refuse,
        _step(LOAD, NUMBER),
    ]


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    """`struct sock_filter`: an instruction, and how many to skip after a comparison."""
    return struct.pack("HBBI", code, if_so, if_not, value)
