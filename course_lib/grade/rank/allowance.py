"""What of the course's library and of torch an answer may use; all else is refused by its name.

The answer's module has an `__import__` of its own, so what the library itself imports, and when, is
none of its business. What that brings of the library is a view: a module in which the rest is not
to be had. What is not allowed refuses the answer's calls as well (`guard.py`): who has gone round
the import has got the thing, and not what it does.
"""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib.util import find_spec
from types import FunctionType, ModuleType
from typing import Any, NoReturn

from course_lib.grade.rank.fence import Refused
from course_lib.grade.rank.guard import Callers, guard

LIBRARY = "course_lib"


def _room(name: str) -> str:
    """The second part of a full name such as `course_lib.comm.send`."""
    return name.split(".")[1]


def _is_room(name: str) -> bool:
    """Whether a module's full name is that of a room of the library, and not of the grader's."""
    return name.startswith(f"{LIBRARY}.") and _room(name) != "grade"


def _is_module(parent: ModuleType, name: str) -> bool:
    """Whether a full name is that of a module inside a package."""
    return hasattr(parent, "__path__") and find_spec(name) is not None


class Allowance:
    """What one answer may use.

    Args:
        path: the answer's file, as its frames name it.
        library: rooms of the library (`comm`), and single names in others (`data.shard_indices`).
        own: names that the answer has to write itself, although they lie in such a room
            (`comm.copy_to_group`) or in torch (`torch.nn.SyncBatchNorm`).
        said: the sentence that says so to the learner.
        suites: folders of the code that calls the answer.
    """

    def __init__(
        self,
        path: str,
        library: Sequence[str],
        own: Sequence[str],
        said: str,
        suites: Sequence[str] = (),
    ) -> None:
        self._path, self._library, self._said = path, library, said
        self._callers = Callers(path, suites)
        self._rooms = {entry.partition(".")[0] for entry in library}
        self._own, self._public = own, cache(self._look_up)
        self._import_module = importlib.import_module

    # --- imports ---------------------------------------------------------------------------------
    def hand_to(self, module: ModuleType) -> None:
        """From now on, what this module's code imports is what it may use."""
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": self._import}
        importlib.import_module = self._by_name
        importlib.__import__ = self._by_statement

    def _import(
        self,
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """An import statement in the answer."""
        if level or name.partition(".")[0] != LIBRARY:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        inner = self.view(name, fromlist or ())
        return inner if fromlist else self.view(LIBRARY)

    def _by_statement(self, name: str, *rest: Any, **words: Any) -> Any:
        """In place of `importlib.__import__`."""
        return (self._import if self._asked_by_answer() else __import__)(name, *rest, **words)

    def _by_name(self, name: str, package: str | None = None) -> ModuleType:
        """In place of `importlib.import_module`."""
        if name.partition(".")[0] == LIBRARY and self._asked_by_answer():
            return self.view(name)
        return self._import_module(name, package)

    def _asked_by_answer(self) -> bool:
        """Whether the function that calls this was called from the answer's file."""
        return sys._getframe(2).f_code.co_filename == self._path

    # --- what may be used ------------------------------------------------------------------------
    def view(self, module: str, wanted: Sequence[str] = ()) -> ModuleType:
        """The library's module of that full name, as far as it may be used.

        Args:
            module: the name.
            wanted: what is to be taken from it, for the words of a refusal.

        Raises:
            Refused: it lies in a room of which nothing may be used.
        """
        if not self._enters(module):
            self.refuse(".".join([module, *(name for name in wanted[:1] if name != "*")]))
        return View(self._import_module(module), self)

    def may_use(self, name: str) -> bool:
        """Whether the thing of the library that has this full name may be used."""
        module, _, short = name.rpartition(".")
        if not self._enters(name):
            return False
        thing = getattr(self._import_module(module), short)
        return not callable(thing) or any(thing is each for each in self._public(_room(name)))

    def _enters(self, name: str) -> bool:
        """Whether anything may be used of the room in which a full name lies."""
        return name == LIBRARY or _room(name) in self._rooms

    def _look_up(self, room: str) -> list[Any]:
        """What of a room may be used: of a whole room, all that it shows."""
        module = self._import_module(f"{LIBRARY}.{room}")
        names = list(getattr(module, "__all__", ())) if room in self._library else []
        names += [entry.partition(".")[2] for entry in self._library if _room(f".{entry}") == room]
        return [
            vars(module)[name]
            for name in names
            if name in vars(module) and f"{room}.{name}" not in self._own
        ]

    def refuse(self, name: str) -> NoReturn:
        """Raises what the card then says.

        Raises:
            Refused: always.
        """
        raise Refused("borrowed", f"{name}\n{self._said}")

    # --- calls -----------------------------------------------------------------------------------
    def guard(self) -> None:
        """From now on, what the answer may not use refuses its calls, however it has come to it."""
        for name, thing in (*self._of_torch(), *self._of_library()):
            guard(thing, self._callers, partial(self.refuse, name))
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any, target: Any = None) -> None:
        """As a finder of modules: refuses the answer those of the library that are not loaded yet.

        Raises:
            Refused: the answer asks, and not the library.
        """
        if name.partition(".")[0] == LIBRARY and self._callers.is_answers(sys._getframe(1).f_back):
            self.refuse(name)

    def _of_torch(self) -> Iterator[tuple[str, Any]]:
        for name in (each for each in self._own if each.startswith("torch.")):
            place, _, short = name.rpartition(".")
            yield name, getattr(self._import_module(place), short)

    def _of_library(self) -> Iterator[tuple[str, FunctionType]]:
        """The functions that rooms show to everybody, as far as they are loaded."""
        rooms = {name for name in sys.modules if name.count(".") == 1 and _is_room(name)}
        for room in sorted(rooms):
            module = sys.modules[room]
            for name in getattr(module, "__all__", ()):
                full, thing = f"{room}.{name}", vars(module).get(name)
                if isinstance(thing, FunctionType) and not self.may_use(full):
                    yield full, thing


class View(ModuleType):
    """A module of the library as an answer sees it.

    Args:
        real: the module.
        allowance: says what of it may be used.
    """

    def __init__(self, real: ModuleType, allowance: Allowance) -> None:
        super().__init__(real.__name__, real.__doc__)
        vars(self).update(_real=real, _allowance=allowance)

    def __getattr__(self, name: str) -> Any:
        """What the module has under that name.

        Raises:
            Refused: an answer may not use it.
        """
        real, allowance = vars(self)["_real"], vars(self)["_allowance"]
        full = f"{real.__name__}.{name}"
        if name == "__all__":
            return [each for each in real.__all__ if allowance.may_use(f"{real.__name__}.{each}")]
        if not name.startswith("__"):
            if isinstance(vars(real).get(name, real), ModuleType) and _is_module(real, full):
                return allowance.view(full)
            if not allowance.may_use(full):
                allowance.refuse(full)
        return getattr(real, name)

    def __dir__(self) -> list[str]:
        """All its names, also those that are not allowed."""
        return dir(vars(self)["_real"])

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets it in the module itself, where the seal sees it."""
        setattr(vars(self)["_real"], name, value)
