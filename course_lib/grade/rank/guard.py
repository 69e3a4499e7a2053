"""Functions that refuse an answer's calls, and no others.

A function's code is replaced, and not its name: whoever has the function, out of a module, a list
of all objects or a wrapper, has the one that refuses. Whose call it is, the stack says: the nearest
frame of the answer, of the library, of torch or of a suite. What lies between, such as `map`, a
wrapper or code without a file, calls for one of these.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch

LIBRARIES = tuple(
    os.path.join(place, "")
    for place in (Path(__file__).resolve().parents[2], os.path.dirname(torch.__file__))
)


class Callers:
    """Tells an answer's calls from those of the code around it.

    Args:
        answer: the answer's file, as its frames name it.
        suites: folders of the code that calls the answer.
    """

    def __init__(self, answer: str, suites: Sequence[str]) -> None:
        self._answer, self._ours = answer, (*LIBRARIES, *suites)

    def is_answers(self, frame: FrameType | None) -> bool:
        """Whether what goes on in a frame goes on for the answer.

        A stack without any of these files is that of a thread, which somebody has begun for a
        function alone: the library begins none with a function that an answer may not call.
        """
        while frame is not None:
            name = frame.f_code.co_filename
            if name == self._answer:
                return True
            if name.startswith(self._ours):
                return False
            frame = frame.f_back
        return True


def guard(thing: Any, callers: Callers, refuse: Callable[[], object]) -> None:
    """From now on, a function refuses the answer's calls; of a class, its making does.

    Args:
        thing: a function or a class of Python's.
        callers: says whose call it is.
        refuse: raises.
    """
    function = vars(thing).get("__init__") if isinstance(thing, type) else thing
    while isinstance(function, FunctionType):
        wrapped = getattr(function, "__wrapped__", None)
        _guard_function(function, callers, refuse)
        function = wrapped


def _guard_function(function: FunctionType, callers: Callers, refuse: Callable[[], object]) -> None:
    inner = FunctionType(
        function.__code__, function.__globals__, "inner", None, function.__closure__
    )
    inner.__defaults__, inner.__kwdefaults__ = function.__defaults__, function.__kwdefaults__

    def checked(args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        if callers.is_answers(sys._getframe(2)):  # 1 is the stub
            refuse()
        return inner(*args, **words)

    function.__code__ = _calling(checked, function)


def _calling(checked: Callable[..., Any], function: FunctionType) -> Any:
    """Code for a function that hands its arguments on; the constant in it is what it calls."""

    def stub(*args: Any, **words: Any) -> Any:
        return "checked".__call__(args, words)  # type: ignore[operator]

    code = stub.__code__
    return code.replace(
        co_consts=tuple(checked if each == "checked" else each for each in code.co_consts),
        co_name=function.__code__.co_name,
        co_filename=function.__code__.co_filename,
        co_freevars=function.__code__.co_freevars,
    )
