"""Where is this rank, and is it waiting for another? Read from outside the thread that is stuck."""

from __future__ import annotations

import gc
import linecache
import os
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch.distributed as dist

from course_lib.comm import Work
from course_lib.ranks.system.carried import bytes_carried
from course_lib.ranks.system.processes import PROCESSES
from course_lib.trace import Event, Ledger

TORCH = str(Path(dist.__file__).parents[1]) + os.sep
COURSE = str(Path(__file__).parents[2]) + os.sep
LIBRARIES = tuple({sysconfig.get_paths()[name] + os.sep for name in ("stdlib", "purelib")})
TALK = (TORCH + "distributed" + os.sep, COURSE + "comm" + os.sep)
AUTOGRAD = TORCH + "autograd" + os.sep
STARTED = threading.__file__  # the outermost frame of a thread that Python has started


def report(thread: int, ledger: Ledger, foreign: tuple[str, ...] = ()) -> dict[str, Any]:
    """What one thread of this process is doing, as JSON-ready data.

    Args:
        thread: `threading.get_ident()` of the thread that runs the rank's program; native ids are
            looked up from it.
        ledger: the rank's ledger, whose open events say which call is under way.
        foreign: beginnings of paths whose code is not the program's own either.

    Returns:
        `file`, `line`, `source`, `function`: the innermost line that is the program's own;
        `stack`: such lines, outermost first, at most 6; `talking`: whether the thread is inside a
        communication call; `call`, `axis`, `group`, `seq`, `peer`, `shape`, `dtype`: which, as far
        as known;
        `asks`: it asks a GPU again and again whether the call has ended, and so never sleeps long;
        `made`: how many calls on world this rank has begun, as the backend counts them;
        `at`: when this was, on the machine's clock; `carried`: bytes that its connections have;
        `threads`: for each other thread how often it has slept and how long it has worked;
        `runnable`: whether the program would go on if it were given a processor.
    """
    threads, runnable = PROCESSES.threads(thread)
    carried = bytes_carried()
    made = calls_made()
    places, in_library, call = _seen(thread, ledger, foreign)
    stack: list[list[Any]] = [[*place, linecache.getline(*place[:2]).strip()] for place in places]
    inner: list[Any] = stack[-1] if stack else ["", 0, "", ""]
    file, line, function, source = inner
    if not in_library and ".wait(" in source:
        call = {"talking": True, "call": "work.wait()"}
    return {
        "file": file,
        "line": line,
        "source": source,
        "function": function,
        "stack": stack,
        "talking": False,
        "asks": False,
        "call": "",
        "made": made,
        "at": time.monotonic(),
        "carried": carried,
        "threads": threads,
        "runnable": runnable,
        **call,
    }


def _seen(
    thread: int, ledger: Ledger, foreign: tuple[str, ...]
) -> tuple[list[tuple[str, int, str]], bool, dict[str, Any]]:
    """The program's own innermost lines, whether the thread is beyond them, and in which call.

    A frame that is held here keeps its tensors alive when it has ended, and memory may just be
    measured. So no file is read here: that would let the other thread go on meanwhile.
    """
    own, beyond = _parted(_frames_of(thread), foreign)
    places = [(f.f_code.co_filename, _line(f), f.f_code.co_name) for f in own[-6:]]
    return places, bool(beyond), _call(beyond, ledger)


def failed_call(error: BaseException, ledger: Ledger) -> dict[str, Any]:
    """The communication call that an error came out of: some of what `report` tells; {} if none."""
    _, beyond = _parted([frame for frame, _ in traceback.walk_tb(error.__traceback__)])
    found = _call(beyond, ledger)
    parts = ("call", "axis", "group", "seq", "peer", "shape", "dtype")
    return {part: found[part] for part in parts if part in found}


def calls_made() -> int:
    """Calls begun so far on the group of all ranks, as its backend counts them; -1 without one."""
    handle: Any = dist.group.WORLD if dist.is_initialized() else None
    if handle is None:
        return -1
    by_device = [handle._get_backend(device) for device in handle._device_types]
    backends = {id(backend): backend for backend in by_device}  # one may be for several devices
    return sum(int(backend._get_sequence_number_for_group()) for backend in backends.values())


def _frames_of(thread: int) -> list[FrameType]:
    """The frames of a thread, outermost first, and below a backward those of autograd's own.

    The backward of what a GPU computed runs in a thread that autograd has started, with its hooks.
    """
    with _collector_off():
        frames = sys._current_frames()
        # This function's own frame holds `frames`: a circle, which would keep all of them for long.
        del frames[threading.get_ident()]
        chain = _chain(frames.pop(thread, None))
        if not any(frame.f_code.co_filename.startswith(AUTOGRAD) for frame in chain):
            return chain
        others = [_chain(frame) for frame in frames.values()]
        return chain + [f for o in others if o[0].f_code.co_filename != STARTED for f in o]


@contextmanager
def _collector_off() -> Iterator[None]:
    """Python's garbage collector does not start meanwhile, in any thread.

    Python makes the objects for another thread's frames when they are asked for. If that starts a
    collection, a finalizer may let the other thread go on, and the frame that was just being read
    is gone: `f_back` was once seen to give a bool.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _chain(frame: FrameType | None) -> list[FrameType]:
    """The frames of a thread, outermost first."""
    chain = []
    while isinstance(frame, FrameType):
        chain.append(frame)
        frame = frame.f_back
    return chain[::-1]


def _parted(
    chain: list[FrameType], foreign: tuple[str, ...] = ()
) -> tuple[list[FrameType], list[FrameType]]:
    """The program's own frames, and those beyond the last of them."""
    own = [frame for frame in chain if not _is_library(frame.f_code.co_filename, foreign)]
    return own, chain[chain.index(own[-1]) + 1 :] if own else chain


def _is_library(path: str, foreign: tuple[str, ...]) -> bool:
    return path.startswith((TORCH, COURSE, *LIBRARIES, *foreign, "<frozen", "<string>"))


def _line(frame: FrameType) -> int:
    """Its line; 0 where Python has none, as between two lines of a thread that runs on."""
    return frame.f_lineno or 0


# --- which call ----------------------------------------------------------------------------------
def _call(beyond: list[FrameType], ledger: Ledger) -> dict[str, Any]:
    """The communication call that the thread is in, from the frames beyond its own code."""
    event = _event_waited_for(beyond, ledger)
    if event is not None:
        work = _work_waited_for(beyond)
        return {
            # What a GPU has not begun yet waits for its own work, and for no other rank.
            "talking": work is None or work.has_begun, "asks": work is not None and work.asks,
            "call": event.label, "axis": event.axis, "group": list(event.group),
            "seq": event.seq, "peer": event.peer, "shape": list(event.shape), "dtype": event.dtype,
        }  # fmt: skip
    for frame in beyond:
        if frame.f_code.co_filename.startswith(TALK[0]) and not _is_plumbing(frame):
            return {"talking": True, **_torch_call(frame)}
    if any(frame.f_code.co_filename.startswith(AUTOGRAD) for frame in beyond):
        return {"talking": True, "call": "backward"}
    if any(frame.f_code.co_filename.startswith(TALK) for frame in beyond):
        return {"talking": True, "call": "torch.distributed"}
    return {}


def _work_waited_for(beyond: list[FrameType]) -> Work | None:
    """The work whose `wait` the thread is in; None if it is in none."""
    # To ask a frame for its locals copies them, and so keeps its tensors alive: only this one's.
    waits = [frame for frame in beyond if frame.f_code is Work.wait.__code__]
    return waits[-1].f_locals["self"] if waits else None


def _event_waited_for(beyond: list[FrameType], ledger: Ledger) -> Event | None:
    """The ledger's event behind the innermost frame of comm; None if no frame is there."""
    for frame in reversed(beyond):
        if frame.f_code.co_filename.startswith(TALK[1]):
            work = frame.f_locals.get("self")
            event = getattr(work, "event", None) or frame.f_locals.get("event")
            if isinstance(event, Event):
                return event
    waiting = [e for e in ledger.open_events() if e.parent < 0]
    in_comm = any(frame.f_code.co_filename.startswith(TALK[1]) for frame in beyond)
    return waiting[-1] if waiting and in_comm else None


def _is_plumbing(frame: FrameType) -> bool:
    return frame.f_code.co_name == "wrapper" or frame.f_code.co_name.startswith("_")


def _torch_call(frame: FrameType) -> dict[str, Any]:
    """What a frame of torch.distributed says about the call: its name and its arguments."""
    given = frame.f_locals
    found: dict[str, Any] = {"call": frame.f_code.co_name, "peer": -1}
    with suppress(Exception):
        handle: Any = given.get("group") or dist.group.WORLD
        found["group"] = dist.get_process_group_ranks(handle)
        found["axis"] = "world" if handle is dist.group.WORLD else ""
        if "group" in given:  # a call on a group: new_group, for one, is not counted
            found["seq"] = handle._get_sequence_number_for_group() - 1
    with suppress(Exception):
        peers = [given[name] for name in ("dst", "src", "group_dst", "group_src") if name in given]
        found["peer"] = next((peer for peer in peers if isinstance(peer, int)), -1)
    tensor: Any = next((given[n] for n in ("tensor", "input_tensor", "input") if n in given), None)
    if hasattr(tensor, "shape"):
        found["shape"] = list(tensor.shape)
        found["dtype"] = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
    return found
