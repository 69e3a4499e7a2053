"""One rank of the notebook: a process that runs cells and functions, and answers where it is."""

from __future__ import annotations

import builtins
import gc
import linecache
import os
import signal
import sys
import threading
import types
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist

from course_lib import comm
from course_lib.comm import Group, Work
from course_lib.comm.start import choose_backend, choose_device
from course_lib.ranks.pool.pack import Packed, load_object
from course_lib.ranks.rank_process import show, where
from course_lib.ranks.rank_process.last_words import LastWords
from course_lib.ranks.rank_process.output import Output
from course_lib.ranks.rank_process.rendezvous import meet, refuse_second
from course_lib.ranks.rank_process.shell import Shell
from course_lib.ranks.rank_process.source import named_in, run_source
from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.spmd.record import Recorder
from course_lib.trace import Ledger, Refusal, Witness, flight_log

LAST_CALLS = 16  # in the flight log that a rank tells of itself


def main(args: dict[str, Any], fds: list[int]) -> None:
    """Runs a rank until its channels close.

    Args:
        args: `rank`, `world_size`, `port`, `device` (`auto`, `cpu`, `cuda`), `hosts`.
        fds: the channel for work, the one for questions, the output pipe; on rank 0, the listening
            socket of the store; with several hosts, the network of this rank's.
    """
    network = fds.pop() if args["hosts"] > 1 else None
    channel = Channel.from_fd(fds[0])
    try:
        worker = Worker(channel, fds[2], args)
    except Refusal as error:
        words = {"error": "Refusal", "text": str(error), "trace": str(error), "line": 0}
        channel.send({"did": "raised", "rank": args["rank"], "called": {}, **words})
        return
    worker.output.take()
    threading.Thread(
        target=worker.answer, args=(Channel.from_fd(fds[1]),), daemon=True, name="questions"
    ).start()
    worker.join(fds[3] if len(fds) > 3 else None, network)
    worker.serve()


class Worker:
    """The state of one rank.

    Args:
        channel: where work comes from and results go to.
        output: the pipe that leads what is printed to the notebook.
        args: as in `main`.
    """

    def __init__(self, channel: Channel, output: int, args: dict[str, Any]) -> None:
        self.channel, self.output = channel, Output(output)
        self.rank, self.world_size = args["rank"], args["world_size"]
        self.port, self.hosts = args["port"], args["hosts"]
        self.device = choose_device(args["device"], self.rank, self.world_size)
        self.ledger = Ledger(self.rank)
        self.witness = Witness(self.ledger)
        self.pid, self.thread = os.getpid(), threading.get_ident()
        self.busy = self.sending = self.interrupt_waits = False
        self.requests = self.unwanted = 0  # how many have come; the one that was interrupted last
        self.module = types.ModuleType("__main__")
        sys.modules["__main__"] = self.module
        signal.signal(signal.SIGINT, self._interrupted)

    # --- start -----------------------------------------------------------------------------------
    def join(self, listen_fd: int | None, network: int | None) -> None:
        """Meets the other ranks, and reports that this one is ready."""
        os.environ["MPLBACKEND"] = "module://course_lib.ranks.magic.figures"
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        backend = choose_backend(self.device, self.world_size)
        meet(
            self.rank, self.world_size, self.port, listen_fd, backend,
            hosts=self.hosts, network=network,
        )  # fmt: skip
        self.group = Group.world(self.ledger, self.device)
        self._meet_on_gpus()  # NCCL takes a second to connect: here, and not in the first cell
        shell = Shell(self.module.__dict__)
        self.module.__dict__.update(
            rank=self.rank, world_size=self.world_size, device=self.device, dist=dist,
            torch=torch, group=self.group,
            comm=comm, display=self.display, get_ipython=lambda: shell, __builtins__=builtins,
        )  # fmt: skip
        self.everybody = dist.group.WORLD
        dist.init_process_group = refuse_second(dist.init_process_group)
        self.last_words = LastWords(self._abort)
        self._reply("ready", pid=os.getpid(), device=str(self.device), backend=backend)

    def _meet_on_gpus(self) -> None:
        if self.group.has_nccl:  # in a book of its own, which nobody reads
            comm.all_reduce(torch.zeros(1, device=self.device), Group.world(device=self.device))

    # --- work ------------------------------------------------------------------------------------
    def serve(self) -> None:
        """Carries out what comes over the channel, one thing after another, until it closes."""
        while True:
            try:
                message, raw, fds = self.channel.receive()
            except ChannelClosed:
                os._exit(0)
            if message["do"] == "stop":
                os._exit(0)
            self.requests += 1
            try:
                self._carry_out(message, raw, fds)
            except ChannelClosed:
                os._exit(0)
            except BaseException as error:  # also SystemExit: a cell must not end the rank
                self._tell(error)

    def _tell(self, error: BaseException) -> None:
        try:
            self._reply_error(error)
        except OSError:  # the cell has closed the channel's file number, of which all else is told
            os.write(1, b"The cell has closed file numbers that its rank needs.\n")
            os._exit(1)

    def _carry_out(self, message: dict[str, Any], raw: bytes, fds: list[int]) -> None:
        """Does one thing; it is not busy any more when an error leaves this function."""
        try:
            self.interrupt_waits, self.busy = False, True
            if self.unwanted == self.requests:
                raise KeyboardInterrupt
            getattr(self, f"do_{message['do']}")(message, raw, fds)
        finally:
            self.busy = False

    def do_cell(self, message: dict[str, Any], raw: bytes, fds: list[int]) -> None:
        """Runs the source of a cell; its last expression is shown, as in a notebook."""
        source, name = message["source"], message["name"]
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        if message.get("ledger"):
            gc.collect()  # models of earlier cells, whose hooks go in circles, are held no more
        since = self.ledger.place()
        self.ledger.peak = dict(self.ledger.held)
        record = Recorder(self.ledger) if message.get("types") else None
        with record or nullcontext():
            self._run(source, name)
        show.show_figures()
        ledger = self.ledger.to_dict(since) if message.get("ledger") else None
        types = record.to_dict(named_in(source, self.module.__dict__), name) if record else None
        self._finished(ledger=ledger, types=types, prints=self.witness.look())

    def _run(self, source: str, name: str) -> None:
        value = run_source(source, name, self.module.__dict__)
        if value is not None and not isinstance(value, Work):
            self.display(value)

    def do_call(self, message: dict[str, Any], raw: bytes, fds: list[int]) -> None:
        """Calls a function with the group of all ranks, and sends back what it returns."""
        function, args = load_object(message, raw, fds)
        value = function(self.group, *args)
        with Packed(value) as packed:
            self._finished(packed, prints=self.witness.look())

    def do_pull(self, message: dict[str, Any], raw: bytes, fds: list[int]) -> None:
        """Sends back the value of an expression over the rank's variables."""
        code = compile(
            message["name"], f"Cell asking for {message['name']!r}", "eval", dont_inherit=True
        )
        value = eval(code, self.module.__dict__)
        with Packed(value) as packed:
            self._finished(packed)

    def do_push(self, message: dict[str, Any], raw: bytes, fds: list[int]) -> None:
        """Sets variables."""
        self.module.__dict__.update(load_object(message, raw, fds))
        self._finished()

    def do_meet(self, message: dict[str, Any], raw: bytes, fds: list[int]) -> None:
        """Meets the other ranks once: a rank that is at another collective call never comes."""
        dist.barrier()
        self._meet_on_gpus()  # a call that was interrupted may still block them
        self._finished()

    # --- answers ---------------------------------------------------------------------------------
    def answer(self, questions: Channel) -> None:
        """Answers questions from a thread of its own; ends the rank with the kernel.

        `where` is asked now and then while a cell takes long; `flight`, for the last calls, once
        when ranks had to be given up; `calls`, for those of a cell, if ranks may have disagreed.
        `interrupt` ends what the rank was told to do by that request.
        """
        answers = {"where": self._where, "flight": self._flight, "calls": self._calls}
        while True:
            try:
                question, _, _ = questions.receive()
                if question["do"] == "interrupt":
                    self._interrupt(question["request"])
                    continue
                found = answers[question["do"]]()
                questions.send({"rank": self.rank, "asked": question["asked"], **found})
            except ChannelClosed:
                os._exit(0)

    def _interrupt(self, request: int) -> None:
        """Ends a request, unless it is answered already, or has not come yet: then it never begins.

        Under load a signal of another process may come after the next request has begun.
        """
        self.unwanted = request
        if self.busy and request == self.requests:
            signal.pthread_kill(self.thread, signal.SIGINT)

    def _flight(self) -> dict[str, Any]:
        return flight_log(self.ledger, LAST_CALLS).to_dict()

    def _calls(self) -> dict[str, Any]:
        return {"calls": self.witness.calls()}

    def _abort(self) -> None:
        """A library ends this process: says where it was, if that can be said at once."""
        told = {"where": where.report(self.thread, self.ledger), "flight": self._flight()}
        self.channel.send({"did": "aborts", "rank": self.rank, **told}, timeout=0)

    def _where(self) -> dict[str, Any]:
        return where.report(self.thread, self.ledger) if self.busy else {"talking": False}

    def display(self, value: Any) -> None:
        """Shows a value in the notebook: a picture or HTML if it has one, else its text."""
        bundle = show.mime_bundle(value)
        if set(bundle) == {"text/plain"}:
            print(bundle["text/plain"])
        else:
            self.output.flush()
            self.sending = True  # an interrupt must not cut the message: it waits for its end
            self.channel.send({"did": "display", "rank": self.rank, "data": bundle})
            self.sending = False
            if self.interrupt_waits:
                raise KeyboardInterrupt

    def _finished(self, packed: Packed | None = None, **more: Any) -> None:
        self.output.flush()
        self._reply("done", packed, seq=where.calls_made(), broken=self._broken(), **more)

    def _broken(self) -> str:
        """What the program has done to this rank so that it can run no other; "" if nothing."""
        if dist.group.WORLD is self.everybody:
            return ""
        return "The cell has ended the process group of its ranks (destroy_process_group)"

    def _reply(self, did: str, packed: Packed | None = None, **more: Any) -> None:
        """The last word on a request: an interrupt comes too late from here on."""
        if os.getpid() != self.pid:  # a fork of the rank has come to the end of the cell as well
            os._exit(0)
        self.busy = False
        message = {"did": did, "rank": self.rank, **more}
        if packed is None:
            self.channel.send(message)
        else:
            packed.send(self.channel, message)

    def _reply_error(self, error: BaseException) -> None:
        self.output.flush()
        self.witness.look()  # what has failed is over: the next call is compared without it
        interrupted = isinstance(error, KeyboardInterrupt)
        self._reply(
            "interrupted" if interrupted else "raised", seq=where.calls_made(),
            broken=self._broken(), called=where.failed_call(error, self.ledger),
            error=type(error).__name__, text=show.text_of(error), trace=show.own_traceback(error),
            line=show.own_line(error),
        )  # fmt: skip

    def _interrupted(self, number: int, frame: object) -> None:
        if self.sending:
            self.interrupt_waits = True
        elif self.busy:
            raise KeyboardInterrupt
