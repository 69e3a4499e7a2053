"""One rank of the notebook: a process that runs cells and functions, and answers where it is."""

from __future__ import annotations

import ast
import builtins
import gc
import io
import linecache
import os
import signal
import sys
import threading
import types
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist

from course_lib import comm
from course_lib.comm import Group, Work
from course_lib.comm.start import choose_backend, choose_device
from course_lib.ranks.pool.pack import Packed, load_object
from course_lib.ranks.rank_process import where
from course_lib.ranks.rank_process.rendezvous import meet
from course_lib.ranks.rank_process.show import mime_bundle, own_line, own_traceback, text_of
from course_lib.ranks.start.channel import Channel, ChannelClosed
from course_lib.trace import Ledger, Witness, flight_log

LAST_CALLS = 16  # in the flight log that a rank tells of itself


def main(args: dict[str, Any], fds: list[int]) -> None:
    """Runs a rank until its channels close.

    Args:
        args: `rank`, `world_size`, `port`, `device` (`auto`, `cpu`, `cuda`), `hosts`.
        fds: the channel for work, the one for questions, the output pipe; on rank 0, the listening
            socket of the store; with several hosts, the network of this rank's.
    """
    network = fds.pop() if args["hosts"] > 1 else None
    worker = Worker(Channel.from_fd(fds[0]), args)
    worker.take_output()
    threading.Thread(
        target=worker.answer, args=(Channel.from_fd(fds[1]),), daemon=True, name="questions"
    ).start()
    worker.join(fds[3] if len(fds) > 3 else None, network)
    worker.serve()


class Worker:
    """The state of one rank.

    Args:
        channel: where work comes from and results go to.
        args: as in `main`.
    """

    def __init__(self, channel: Channel, args: dict[str, Any]) -> None:
        self.channel = channel
        self.rank, self.world_size = args["rank"], args["world_size"]
        self.port, self.hosts = args["port"], args["hosts"]
        self.device = choose_device(args["device"], self.rank, self.world_size)
        self.ledger = Ledger(self.rank)
        self.witness = Witness(self.ledger)
        self.thread = threading.get_ident()
        self.busy = self.sending = self.interrupt_waits = False
        self.module = types.ModuleType("__main__")
        sys.modules["__main__"] = self.module
        signal.signal(signal.SIGINT, self._interrupted)

    # --- start -----------------------------------------------------------------------------------
    def take_output(self) -> None:
        """Makes Python's output streams write to the pipe at once, whole lines at a time."""
        for name, fd in (("stdout", 1), ("stderr", 2)):
            raw = io.FileIO(fd, "w", closefd=False)
            stream = io.TextIOWrapper(
                io.BufferedWriter(raw), "utf-8", "replace", line_buffering=True,
                write_through=name == "stderr",
            )  # fmt: skip
            setattr(sys, name, stream)

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
        self.module.__dict__.update(
            rank=self.rank, world_size=self.world_size, device=self.device, dist=dist,
            torch=torch, group=self.group,
            comm=comm, display=self.display, __builtins__=builtins,
        )  # fmt: skip
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
            try:
                self.interrupt_waits, self.busy = False, True
                handler = getattr(self, f"do_{message['do']}")
                handler(message, raw, fds)
            except ChannelClosed:
                os._exit(0)
            except BaseException as error:  # also SystemExit: a cell must not end the rank
                self.busy = False
                self._reply_error(error)
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
        tree = ast.parse(source, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        # `dont_inherit`: this file's own `from __future__` must not change what a cell means.
        exec(compile(tree, name, "exec", dont_inherit=True), self.module.__dict__)
        if last is not None and not source.rstrip().endswith(";"):
            code = compile(ast.Expression(last.value), name, "eval", dont_inherit=True)
            value = eval(code, self.module.__dict__)
            if value is not None and not isinstance(value, Work):
                self.display(value)
        self._show_figures()
        ledger = self.ledger.to_dict(since) if message.get("ledger") else None
        self._finished(ledger=ledger, prints=self.witness.look())

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
        """
        while True:
            try:
                question, _, _ = questions.receive()
                if question["do"] == "flight":
                    found = flight_log(self.ledger, LAST_CALLS).to_dict()
                elif question["do"] == "calls":
                    found = {"calls": self.witness.calls()}
                else:
                    found = self._where()
                questions.send({"rank": self.rank, "asked": question["asked"], **found})
            except ChannelClosed:
                os._exit(0)

    def _where(self) -> dict[str, Any]:
        return where.report(self.thread, self.ledger) if self.busy else {"talking": False}

    def display(self, value: Any) -> None:
        """Shows a value in the notebook: a picture or HTML if it has one, else its text."""
        bundle = mime_bundle(value)
        if set(bundle) == {"text/plain"}:
            print(bundle["text/plain"])
        else:
            self._flush()
            self.sending = True  # an interrupt must not cut the message: it waits for its end
            self.channel.send({"did": "display", "rank": self.rank, "data": bundle})
            self.sending = False
            if self.interrupt_waits:
                raise KeyboardInterrupt

    def _show_figures(self) -> None:
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is not None and pyplot.get_fignums():
            pyplot.show()

    def _finished(self, packed: Packed | None = None, **more: Any) -> None:
        self._flush()
        self._reply("done", packed, seq=where.calls_made(), **more)

    def _flush(self) -> None:
        with suppress(Exception):  # the program may have closed or replaced them
            sys.stdout.flush()
            sys.stderr.flush()

    def _reply(self, did: str, packed: Packed | None = None, **more: Any) -> None:
        """The last word on a request: an interrupt comes too late from here on."""
        self.busy = False
        message = {"did": did, "rank": self.rank, **more}
        if packed is None:
            self.channel.send(message)
        else:
            packed.send(self.channel, message)

    def _reply_error(self, error: BaseException) -> None:
        self._flush()
        interrupted = isinstance(error, KeyboardInterrupt)
        self._reply(
            "interrupted" if interrupted else "raised", seq=where.calls_made(),
            error=type(error).__name__, text=text_of(error), trace=own_traceback(error),
            line=own_line(error),
        )  # fmt: skip

    def _interrupted(self, number: int, frame: object) -> None:
        if self.sending:
            self.interrupt_waits = True
        elif self.busy:
            raise KeyboardInterrupt
