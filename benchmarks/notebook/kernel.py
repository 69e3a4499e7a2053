"""A real Jupyter kernel driven from outside, and timed as its reader feels it.

A cell's time runs from the request to both the reply and the word that the kernel is idle again.
"""

from __future__ import annotations

import os
import queue
import secrets
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psutil
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

TAG = "COURSE_BENCHMARK_TAG"


class CellFailed(RuntimeError):
    """A cell that was to succeed did not."""


@dataclass
class Answer:
    """What one cell gave.

    Attributes:
        seconds: from the request to the reply and to idle, whichever came last.
        ok: whether the kernel said so.
        text: all text that it showed, tracebacks included.
    """

    seconds: float = 0.0
    ok: bool = False
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Kernel:
    """One kernel; every process under it carries a tag, so that all are found and none is left.

    Args:
        python: the interpreter it runs in.
        env: environment variables on top of this process's own.
    """

    def __init__(self, python: str, env: dict[str, str]) -> None:
        self.tag = secrets.token_hex(8)
        self.manager = KernelManager()
        argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self.manager._kernel_spec = KernelSpec(argv=argv, display_name="", language="python")
        nowhere = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.manager.start_kernel(env={**os.environ, **env, TAG: self.tag}, **nowhere)
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(
        self, source: str, timeout: float = 120, tick: Callable[[float], None] | None = None
    ) -> Answer:
        """Runs a cell.

        Args:
            source: the cell.
            timeout: seconds.
            tick: called about every 10 ms, with the seconds since the request.

        Raises:
            TimeoutError: no end in time.
        """
        answer, begin = Answer(), time.perf_counter()
        ident = self.client.execute(source, allow_stdin=False)
        while not self._idle(ident, answer, 0.01 if tick else 0.5):
            now = time.perf_counter() - begin
            if tick:
                tick(now)
            if now > timeout:
                raise TimeoutError(f"no end after {timeout:g} s of\n{source}\n{answer.text}")
        reply = self.client.get_shell_msg(timeout=10)
        while reply["parent_header"].get("msg_id") != ident:
            reply = self.client.get_shell_msg(timeout=10)
        answer.seconds, answer.ok = time.perf_counter() - begin, reply["content"]["status"] == "ok"
        return answer

    def must(self, source: str, timeout: float = 120) -> Answer:
        """Runs a cell that has to succeed.

        Raises:
            CellFailed: it did not.
        """
        answer = self.run(source, timeout)
        if not answer.ok:
            raise CellFailed(f"{source}\n{answer.text[-2000:]}")
        return answer

    def _idle(self, ident: str, answer: Answer, wait: float) -> bool:
        """Takes one message of the cell; whether it was the last."""
        try:
            message = self.client.get_iopub_msg(timeout=wait)
        except queue.Empty:
            return False
        if message["parent_header"].get("msg_id") != ident:
            return False
        content = message["content"]
        answer.parts.append(_text(message["msg_type"], content))
        return content.get("execution_state") == "idle"

    def interrupt(self) -> None:
        """What the stop button does."""
        self.manager.interrupt_kernel()

    def processes(self) -> list[psutil.Process]:
        """What runs under this kernel, without the kernel itself."""
        provisioner: Any = self.manager.provisioner  # jupyter_client does not declare `process`
        mine = int(provisioner.process.pid)
        return [process for process in tagged(self.tag) if process.pid != mine]

    def memory(self) -> float:
        """MB that those processes hold; a page that several share counts once (PSS)."""
        total = 0.0
        for process in self.processes():
            try:
                total += process.memory_full_info().pss / 1e6
            except psutil.NoSuchProcess:
                continue
        return total

    def close(self) -> None:
        """Ends the kernel, and what it left running."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        deadline = time.monotonic() + 3
        while (left := tagged(self.tag)) and time.monotonic() < deadline:
            time.sleep(0.05)
        for process in left:
            process.kill()

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _text(kind: str, content: dict[str, Any]) -> str:
    if kind == "stream":
        return str(content["text"])
    if kind == "error":
        return "\n".join(content["traceback"]) + "\n"
    return str(content.get("data", {}).get("text/plain", "")) + "\n" if "data" in content else ""


def tagged(tag: str) -> list[psutil.Process]:
    """The living processes whose environment has this tag."""
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get(TAG) == tag:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
