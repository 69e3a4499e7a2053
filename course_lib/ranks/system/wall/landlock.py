"""Landlock: a Linux process gives up, for good, every file that it does not name.

The kernel checks the file itself, not its path, so links, descriptors, memory maps and code in C
make no difference. What it does not check is looking at a file's size and date, and changing
its mode or owner; `seccomp.py` refuses the latter. Source: docs.kernel.org/userspace-api/landlock.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

CREATE, ADD_RULE, RESTRICT = 444, 445, 446  # the three calls, with the same number everywhere
VERSION = 1  # flag of CREATE: only say which version of Landlock there is
PATH_BENEATH = 1  # kind of rule: a file, or a folder with all below it

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << n for n in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK = (1 << n for n in range(6, 12))
MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = (1 << n for n in range(12, 16))
# How many of these rights each version of Landlock knows.
KNOWN = {1: 13, 2: 14, 3: 15, 4: 15}
ALL = 16
BIND_TCP, CONNECT_TCP = 1, 2  # from version 4 on
ABSTRACT_SOCKETS, SIGNALS = 1, 2  # from version 6 on: to processes outside

LIBRARY = ctypes.CDLL(None, use_errno=True)

ON_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # what a file can have
READ = READ_FILE | READ_DIR
# No links, pipes or devices: whoever reads the folder afterwards would follow them, or wait.
WRITE = READ | WRITE_FILE | TRUNCATE | REMOVE_FILE | REMOVE_DIR | MAKE_REG | MAKE_DIR | REFER


class RulesetAttr(ctypes.Structure):
    """`struct landlock_ruleset_attr`: what is refused where no rule allows it."""

    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class PathBeneathAttr(ctypes.Structure):
    """`struct landlock_path_beneath_attr`: what one file or folder is allowed."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def version() -> int:
    """The version of Landlock in this kernel; 0 if it has none, or it is switched off."""
    try:
        return max(0, _call(CREATE, None, 0, VERSION))
    except OSError:
        return 0


def restrict(rules: Iterable[tuple[str, int]], *, tcp: bool) -> None:
    """Confines this thread, and all that it starts from now on.

    Args:
        rules: a path, and what it is allowed; what does not exist is left out.
        tcp: whether TCP connections are allowed.

    Raises:
        OSError: the kernel refuses.
    """
    known = version()
    handled = (1 << KNOWN.get(known, ALL)) - 1
    network = BIND_TCP | CONNECT_TCP if known >= 4 and not tcp else 0
    attributes = RulesetAttr(handled, network, ABSTRACT_SOCKETS | SIGNALS if known >= 6 else 0)
    size = 8 if known < 4 else 16 if known < 6 else 24
    ruleset = _call(CREATE, ctypes.byref(attributes), size, 0)
    try:
        for path, rights in rules:
            with suppress(FileNotFoundError, NotADirectoryError):
                _allow(ruleset, path, rights & handled)
        _call(RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= ON_FILE
        rule = PathBeneathAttr(rights, place)
        _call(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: Any) -> int:
    result: int = LIBRARY.syscall(number, *arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
