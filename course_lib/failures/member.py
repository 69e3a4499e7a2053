"""A rank of a training that survives: what it does on each word of the coordinator.

Notebook: 17 Training through failures.
Source: torchft's Manager.
Costs a thread that says every few moments that the rank lives.
The production version has one manager a replica group, beside the ranks.

    step    the last step counts, or not; here are its members, and perhaps new connections
    back    go back to the state that was kept last
    leave   you are out: what you are doing does not count; say `hello` to get a state again
    end     say what you have, and end

A mean is applied only when the coordinator says that its step counts: until then any member may
still be lost, and then nobody has made the step. A gradient whose step did not count is kept: the
weights are the same, so it is right for the next attempt.
"""

from __future__ import annotations

import os
import pickle
import socket
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from course_lib.failures.parcel import Parcel, blank, memory, wrap
from course_lib.failures.record import Job
from course_lib.failures.wire import Abandoned, Cable, Wire
from course_lib.ranks.pool.pack import load_object
from course_lib.ranks.start.channel import Channel, ChannelClosed

SIZE = 8  # bytes of the number that opens a stream


class Heal(threading.Thread):
    """Receives a living peer's state, while this rank's main thread takes part in the steps.

    Attributes:
        parcel: the state, once it is whole.
        missed: means of the steps since the peer wrapped it.
    """

    def __init__(self, stream: socket.socket, cable: Cable) -> None:
        super().__init__(daemon=True)
        self.stream, self.cable = stream, cable
        self.parcel: Parcel | None = None
        self.missed: list[torch.Tensor] = []

    def run(self) -> None:
        """Ends with a parcel, or without one if the peer is gone."""
        with self.stream, suppress(OSError, EOFError):
            size = int.from_bytes(self._take(SIZE), "big")
            parcel = blank(bytes(self._take(size)))
            for piece in parcel.pieces():
                self._fill(memory(piece))
            self.parcel = parcel

    def _take(self, size: int) -> bytearray:
        data = bytearray(size)
        self._fill(memoryview(data))
        return data

    def _fill(self, view: memoryview) -> None:
        while view:
            self.cable.wait()
            count = self.stream.recv_into(view)
            if not count:
                raise EOFError("the peer is gone")
            view = view[count:]


def stream_out(parcel: Parcel, stream: socket.socket, cable: Cable) -> None:
    """Sends a parcel to a rank that heals; training goes on meanwhile."""
    with stream, suppress(OSError):
        stream.sendall(len(parcel.form).to_bytes(SIZE, "big") + parcel.form)
        for piece in parcel.pieces():
            cable.wait()
            stream.sendall(memory(piece))


class Member:
    """One rank.

    Args:
        rank: its number.
        job: newly made.
        control: to the coordinator.
        beat: seconds between two heartbeats.
        kept: where checkpoints go: a file's name, "" for memory, or None if there are none.
    """

    def __init__(self, rank: int, job: Job, control: Channel, beat: float, kept: str | None):
        self.rank, self.job, self.control, self.beat = rank, job, control, beat
        self.cable, self.lock, self.worked = Cable(), threading.Lock(), time.monotonic()
        self.file = Path(kept) if kept else None
        self.kept = wrap(job.state()) if kept == "" else None
        self.wire: Wire | None = None
        self.heal: Heal | None = None
        self.pending: torch.Tensor | None = None
        self.done: tuple[int, float, torch.Tensor] | None = None  # batch, loss, gradient

    def run(self) -> None:
        """Until the coordinator says `end`, or is gone."""
        threading.Thread(target=self._live, daemon=True).start()
        step = -1
        if self.file is not None and self.file.exists():
            step, parcel = pickle.loads(self.file.read_bytes())
            self.job.load(parcel.opened())
        self.say(say="hello", step=step)
        while True:
            message, files = self.hear()
            match message["do"]:
                case "step":
                    self.step(message, files)
                case "back":
                    assert self.kept is not None
                    self.job.load(self.kept.opened())
                    self.pending = self.done = None
                case "leave":
                    self.leave()
                case "end":
                    self.settle(message)
                    parcel = wrap(self.job.state())
                    with self.lock:
                        self.control.send({"say": "end"}, pickle.dumps(parcel))
                    return

    # --- talking to the coordinator --------------------------------------------------------------
    def say(self, **message: Any) -> None:
        """Tells the coordinator, once the cable is whole."""
        self.cable.wait()
        with self.lock:
            self.control.send(message)

    def hear(self) -> tuple[dict[str, Any], list[int]]:
        """The coordinator's next word."""
        while True:
            self.alive()
            self.cable.wait()
            with suppress(TimeoutError):
                message, _, files = self.control.receive(self.beat)
                return message, files

    def alive(self) -> None:
        """This rank's main thread gets on."""
        self.worked = time.monotonic()

    def _live(self) -> None:
        """The thread that says so; without a coordinator there is nothing left to live for."""
        try:
            while True:
                if not self.cable.cut:
                    with self.lock:
                        idle = time.monotonic() - self.worked
                        self.control.send({"say": "beat", "idle": idle})
                time.sleep(self.beat)
        except (ChannelClosed, OSError):
            os._exit(1)  # the main thread may hang

    # --- a step ----------------------------------------------------------------------------------
    def step(self, message: dict[str, Any], files: list[int]) -> None:
        """Settles the last step, and makes the next."""
        self.settle(message)
        self.connect(message, files)
        heal, own = self.heal, message["batches"].get(str(self.rank))
        if heal is not None and heal.parcel is not None:
            self.catch_up(heal)
        assert self.wire is not None
        try:
            loss, gradient = self.gradient(own) if own is not None else (0.0, self.job.weights())
            order = sorted(message["batches"], key=message["batches"].__getitem__)
            members = message["members"]
            self.pending = self.wire.mean(gradient, self.rank, [int(r) for r in order], members)
        except Abandoned:
            self.wire.close()
            return
        whole = self.heal is None
        again = not whole and heal is not None and not heal.is_alive() and heal.parcel is None
        self.say(say="done", attempt=message["attempt"], loss=loss, whole=whole, again=again)

    def settle(self, message: dict[str, Any]) -> None:
        """The last step counts: its mean is applied, or waits until there are weights for it."""
        mean, self.pending = self.pending, None
        if not message["counts"] or mean is None:
            return
        if self.heal is not None:
            self.heal.missed.append(mean)
        else:
            self.job.apply(mean)
            self.done = None
        if message["keep"]:
            self.keep(message["keep"])

    def connect(self, message: dict[str, Any], files: list[int]) -> None:
        """New connections, if there are new members; streams from and to those that heal."""
        sockets = [socket.socket(fileno=file) for file in files]
        if message["peers"]:
            if self.wire is not None:
                self.wire.close()
            peers = dict(zip(message["peers"], sockets, strict=False))
            self.wire = Wire(peers, self.control, self.cable, self.alive)
        elif message["alone"]:
            self.wire = Wire({}, self.control, self.cable, self.alive)
        for stream, gives in zip(sockets[len(message["peers"]) :], message["gives"], strict=True):
            stream.setblocking(True)
            if gives:
                given = wrap(self.job.state()), stream, self.cable
                threading.Thread(target=stream_out, args=given, daemon=True).start()
            else:
                self.heal = Heal(stream, self.cable)
                self.heal.start()

    def gradient(self, batch: int) -> tuple[float, torch.Tensor]:
        """Of a batch at these weights; computed once."""
        if self.done is None or self.done[0] != batch:
            self.done = batch, *self.job.gradient(batch)
        return self.done[1:]

    def catch_up(self, heal: Heal) -> None:
        """The peer's state has arrived: applies the means that were collected meanwhile."""
        assert heal.parcel is not None
        self.job.load(heal.parcel.opened())
        if self.kept is not None:
            self.kept = heal.parcel  # all have just gone back to it
        for mean in heal.missed:
            self.job.apply(mean)
        self.heal = self.done = None

    def leave(self) -> None:
        """Others have gone on without this rank: nothing that it has is of use."""
        if self.wire is not None:
            self.wire.close()
        self.heal = self.pending = self.done = None
        self.say(say="hello", step=-1)

    def keep(self, step: int) -> None:
        """A checkpoint: in memory, or a file that is replaced as a whole."""
        parcel = wrap(self.job.state())
        if self.file is None:
            self.kept = parcel
        elif self.rank == 0:
            making = self.file.with_suffix(".tmp")
            making.write_bytes(pickle.dumps((step, parcel)))
            making.replace(self.file)


def main(args: dict[str, Any], fds: list[int]) -> None:
    """What runs in the process of a rank."""
    torch.set_num_threads(1)
    control = Channel.from_fd(fds[0])
    with suppress(ChannelClosed):
        try:
            make = load_object(*control.receive())
            Member(args["rank"], make(), control, args["beat"], args["kept"]).run()
        except Exception as error:
            if isinstance(error, ChannelClosed):
                raise
            control.send({"say": "failed", "why": traceback.format_exc()})
