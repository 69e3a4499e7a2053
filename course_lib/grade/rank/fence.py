"""What a learner's code may use while it is graded: time, memory, files, processes, network."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

PROCESS = (
    "os.fork",
    "os.forkpty",
    "os.posix_spawn",
    "os.exec",
    "os.system",
    "os.spawn",
    "subprocess.Popen",
    "pty.spawn",
)
CHANGES = ("os.remove", "os.rename", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
OTHERS = re.compile(r"/proc/([0-9]+)/(?:task/[0-9]+/)?(mem|maps|environ|fd|stack|syscall)\b")


class Refused(PermissionError):
    """Something that an answer may not do.

    Args:
        kind: one of `faults.KINDS`.
        message: what was refused and why.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Fence:
    """An audit hook that refuses processes, the outer network and changes to the course itself.

    Args:
        protected: folders in which nothing may be changed.
        hidden: files, and folders from which nothing may be read.
        writable: the folders in which files may be written; anywhere else is refused.

    Attributes:
        tampering: what was tried against the grader, in sentences.
    """

    def __init__(
        self, protected: Iterable[str], hidden: Iterable[str], writable: Iterable[str]
    ) -> None:
        self._protected = tuple(str(Path(p).resolve()) + os.sep for p in protected)
        self._hidden = tuple(str(Path(p).resolve()) + os.sep for p in hidden)
        self._writable = (*(str(Path(p).resolve()) + os.sep for p in writable), "/dev/null/")
        self.tampering: list[str] = []

    def close(self) -> None:
        """From now on, for the rest of this process, the fence stands."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            self._opened(args)
        elif event in CHANGES:
            for path in args[:2]:
                self._changed(path)
        elif event in PROCESS:
            raise Refused("process", f"{event} refused: an answer may not start processes")
        elif event in ("socket.connect", "socket.sendto", "socket.bind"):
            self._connected(args[1])
        elif event == "socket.getaddrinfo":
            self._connected(args)
        elif event in ("os.kill", "os.killpg") and args[0] not in (os.getpid(), 0):
            self._tamper(f"tried to send signal {args[1]} to another process")

    def _opened(self, args: tuple[Any, ...]) -> None:
        path, _, flags = args
        found = OTHERS.match(_plain(path)) if isinstance(path, (str, bytes)) else None
        if found and int(found[1]) != os.getpid():
            self._tamper(f"tried to open the {found[2]} of another process")
        if isinstance(flags, int) and flags & WRITING:
            self._changed(path)
        elif self._hidden and isinstance(path, (str, bytes)) and self._lies_in(path, self._hidden):
            raise Refused("tampering", self._note(f"tried to read {_short(path)}"))

    def _changed(self, path: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        if self._lies_in(path, self._protected):
            self._tamper(f"tried to change {_short(path)}")
        if not self._lies_in(path, self._writable):
            raise Refused("refused", f"writing {_short(path)}: it is not in the working folder")

    @staticmethod
    def _lies_in(path: Any, folders: tuple[str, ...]) -> bool:
        return (os.path.realpath(os.fsdecode(path)) + os.sep).startswith(folders)

    @staticmethod
    def _connected(address: Any) -> None:
        host = address[0] if isinstance(address, tuple) else ""
        if host and not str(host).startswith(("127.", "::1", "localhost")):
            raise Refused("network", f"connection to {host} refused: ranks have their group")

    def _tamper(self, what: str) -> None:
        raise Refused("tampering", self._note(what))

    def _note(self, what: str) -> str:
        self.tampering.append(what)
        return what


def _plain(path: str | bytes) -> str:
    """An absolute path without dots, whose links are not followed: those of /proc lead nowhere."""
    text = os.path.abspath(os.fsdecode(path))
    return text.replace("/proc/self/", f"/proc/{os.getpid()}/")


def _short(path: Any) -> str:
    """The path, or the last parts of a long one: those that do not differ between machines."""
    whole = Path(os.fsdecode(path))
    return str(whole) if len(whole.parts) < 5 else "/".join(("...", *whole.parts[-3:]))


class Seal:
    """Remembers what some modules define, to tell afterwards what was replaced in them.

    Args:
        modules: modules whose functions, classes and methods must stay what they are.
    """

    def __init__(self, modules: Iterable[ModuleType]) -> None:
        self._modules = list(modules)
        self._before = self._look()

    def broken(self) -> list[str]:
        """Names that now mean something else, as sentences."""
        now = self._look()
        return [
            f"replaced {name}" for name, thing in self._before.items() if now.get(name) is not thing
        ]

    def _look(self) -> dict[str, Callable[..., Any]]:
        found = {}
        for module in self._modules:
            for name, thing in list(vars(module).items()):
                if callable(thing):
                    found[f"{module.__name__}.{name}"] = thing
                is_class = issubclass(type(thing), type)  # isinstance would wake up torch's proxies
                if is_class and thing.__module__.startswith("course_lib"):
                    for part, method in list(vars(thing).items()):
                        if callable(method):
                            found[f"{module.__name__}.{name}.{part}"] = method
        return found
