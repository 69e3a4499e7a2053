"""A real Jupyter kernel, driven from outside as JupyterLab does it."""

from __future__ import annotations

import os
import queue
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from jupyter_client.manager import KernelManager

ROOT = Path(__file__).resolve().parents[2]


WAITS = "Waiting for "  # said on a busy machine, whose import of torch takes long


@dataclass
class Answer:
    """What one cell gave: its status, seconds, and every output message with its time."""

    status: str = ""
    seconds: float = 0.0
    messages: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text shown at the end, in order; a display that was updated stands once."""
        parts: dict[str, str] = {}
        for at, (_, kind, content) in enumerate(self.messages):
            key = content.get("transient", {}).get("display_id") or str(at)
            if kind == "stream" and content["text"].startswith(WAITS):
                continue
            if kind == "stream":
                parts[key] = content["text"]
            elif kind == "error":
                parts[key] = "\n".join(content["traceback"])
            elif "data" in content:
                parts[key] = content["data"].get("text/plain", "")
        return "\n".join(part.rstrip("\n") for part in parts.values())

    def mimes(self) -> list[str]:
        """MIME types of everything displayed."""
        return [m for _, _, content in self.messages for m in content.get("data", {})]


class Kernel:
    """One kernel, with the course loaded; every process under it carries a tag."""

    def __init__(self, load: bool = True) -> None:
        self.tag = secrets.token_hex(8)
        self.manager = KernelManager(kernel_name="python3")
        env = {
            **os.environ,
            "COURSE_TEST_TAG": self.tag,
            "COURSE_LIVE": "1",
            "PYTHONPATH": str(ROOT),
        }
        self.manager.start_kernel(env=env, cwd=str(ROOT))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        if load:
            assert self.run("%load_ext course_lib").status == "ok"

    def run(
        self, source: str, timeout: float = 60, tick: Callable[[float], None] | None = None
    ) -> Answer:
        """Runs a cell; `tick(seconds)` is called every 20 ms while it runs."""
        answer, begin = Answer(), time.monotonic()
        ident = self.client.execute(source, store_history=True, allow_stdin=False)
        while True:
            answer.seconds = time.monotonic() - begin
            if answer.seconds > timeout:
                raise TimeoutError(f"no end after {timeout} s; so far:\n{answer.text}")
            if tick is not None:
                tick(answer.seconds)
            try:
                message = self.client.get_iopub_msg(timeout=0.02 if tick else 1.0)
            except queue.Empty:
                continue
            if message["parent_header"].get("msg_id") != ident:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            answer.messages.append((time.monotonic() - begin, kind, content))
        reply = self.client.get_shell_msg(timeout=10)
        while reply["parent_header"].get("msg_id") != ident:
            reply = self.client.get_shell_msg(timeout=10)
        answer.status, answer.seconds = reply["content"]["status"], time.monotonic() - begin
        return answer

    def interrupt(self) -> None:
        """What the stop button does."""
        self.manager.interrupt_kernel()

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.process.pid)

    def processes(self) -> list[psutil.Process]:
        """Every live process that was started under this kernel, itself included."""
        return tagged(self.tag)

    def close(self) -> None:
        """Ends the kernel as JupyterLab does."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def tagged(tag: str) -> list[psutil.Process]:
    """Live processes whose environment carries a tag."""
    found = []
    for process in psutil.process_iter():
        try:
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get("COURSE_TEST_TAG") == tag:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def gone_within(tag: str, seconds: float) -> list[psutil.Process]:
    """Waits until no process with that tag is left; returns those that are after `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := tagged(tag)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left
