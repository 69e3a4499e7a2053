"""A real JupyterLab in a headless Chromium, driven as its reader would: keys, clicks, whole cells.

The server is the project's own; it listens on the loopback alone, has a token and no terminals, and
keeps its settings apart from the reader's. What a page asks of other machines is written down.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.notebook.kernel import TAG, tagged
from course_lib.trace import Refusal

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
)  # fmt: skip
PATIENCE = 300.0  # seconds; a machine may be busy with other things
NOTEBOOK = ".jp-NotebookPanel .jp-Notebook"
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # cells out of sight are there too
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
}
OPTIONS = (
    "--ip=127.0.0.1", "--port=0", "--no-browser", "--expose-app-in-browser",
    "--ServerApp.terminals_enabled=False", "--LabApp.news_url=None",
    "--LabApp.extension_manager=readonly",
)  # fmt: skip
# The notebook in JupyterLab's own model of the page, and what it says of its code cells.
PANEL = "[...window.jupyterapp.shell.widgets('main')].find(w => w.content && w.content.widgets)"
CELLS = f"""() => ({PANEL}).content.widgets.map((cell, index) => ({{
  index, code: cell.model.type === 'code', source: cell.model.sharedModel.getSource(),
  count: cell.model.executionCount || 0, idle: cell.model.executionState !== 'running'
    && !(cell.node.querySelector('.jp-InputPrompt')?.textContent || '').includes('*'),
  raised: !!cell.node.querySelector('[data-mime-type="application/vnd.jupyter.error"]'),
}})).filter(cell => cell.code)"""


class Missing(RuntimeError):
    """The browser, JupyterLab or Playwright is not here; the text says which."""


def browser_path() -> str:
    """The system's Chromium, or the browser that COURSE_CHROMIUM names.

    Raises:
        Missing: there is none.
        Refusal: COURSE_CHROMIUM names one that is not there.
    """
    wanted = os.environ.get("COURSE_CHROMIUM")
    found = next(filter(None, map(shutil.which, [wanted] if wanted else BROWSERS)), None)
    if wanted and not found:
        raise Refusal(
            f"the browser {wanted}, by COURSE_CHROMIUM",
            "no such command",
            "a browser that is named has to be there; without the name the tests are skipped",
        )
    if not found:
        raise Missing(f"no browser: none of {', '.join(BROWSERS)}, and COURSE_CHROMIUM is not set")
    return found


def jupyter_path() -> str:
    """The jupyter beside this Python, or the one that COURSE_JUPYTER names.

    Raises:
        Missing: there is none.
    """
    command = os.environ.get("COURSE_JUPYTER") or str(Path(sys.executable).with_name("jupyter"))
    if not shutil.which(command):
        raise Missing(f"no JupyterLab: there is no {command}; COURSE_JUPYTER may name another")
    return command


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser, as Playwright's object.

    Raises:
        Missing: Playwright or the browser is not here.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Missing("Playwright is not installed; `make browser` installs it") from None
    path = browser_path()
    with sync_playwright() as engine:
        started = engine.chromium.launch(executable_path=path, args=list(FLAGS), timeout=120_000)
        yield started
        started.close()


class Server:
    """A running JupyterLab.

    Args:
        folder: what it shows; notebooks that run may write there.
        home: an empty folder for its settings and its log.

    Attributes:
        url: its address, without the token.
        token: what a browser shows to be let in.
    """

    def __init__(self, folder: Path, home: Path) -> None:
        self.tag, self.token = secrets.token_hex(8), secrets.token_hex(16)
        self.log = home / "jupyter.log"
        for name, values in SETTINGS.items():
            path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))
        places = {
            "JUPYTER_CONFIG_DIR": "config", "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }  # fmt: skip
        env = os.environ | {name: str(home / place) for name, place in places.items()}
        env |= {"JUPYTER_TOKEN": self.token, TAG: self.tag, "COURSE_LIVE": "1"}
        root = ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
        command = [jupyter_path(), "lab", *OPTIONS, *root, f"--ServerApp.root_dir={folder}"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
            )
        self.url = f"http://127.0.0.1:{self._port(home / 'runtime')}"

    def _port(self, runtime: Path) -> int:
        """The port that the server chose and wrote down.

        Raises:
            RuntimeError: it ended, or wrote down nothing in time.
        """
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            for file in runtime.glob("jpserver-*.json"):
                with contextlib.suppress(ValueError):  # half written
                    return int(json.loads(file.read_text())["port"])
            time.sleep(0.05)
        self.process.kill()
        raise RuntimeError(f"JupyterLab did not start:\n{self.log.read_text()[-2000:]}")

    def ask(self, method: str, path: str) -> Any:
        """Asks the server's own interface."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}",
            method=method,
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.loads(answer.read() or "null")

    def below(self) -> list[psutil.Process]:
        """Kernels, ranks and whatever else runs because of this server."""
        return [process for process in tagged(self.tag) if process.pid != self.process.pid]

    def end_kernels(self) -> list[str]:
        """Ends all kernels; returns what still runs some seconds later."""
        for kernel in self.ask("GET", "kernels"):
            self.ask("DELETE", f"kernels/{kernel['id']}")
        return self._left()

    def close(self) -> list[str]:
        """Ends the server as Ctrl+C does, its kernels with it; returns what still ran then."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        left = self._left()
        for process in self.below():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return left

    def _left(self) -> list[str]:
        deadline = time.monotonic() + 30
        while (left := self.below()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return [str(process) for process in left]


class Notebook:
    """A notebook that is open in a page of its own.

    Args:
        browser: of `chromium`.
        server: where it lies.
        path: of the notebook, from the server's folder.

    Attributes:
        page: Playwright's.
        faults: errors on the console, failed requests, and what was asked of other machines.
    """

    def __init__(self, browser: Any, server: Server, path: str) -> None:
        # A context of its own: nothing is remembered of other notebooks.
        self.page = browser.new_context(viewport={"width": 1280, "height": 1000}).new_page()
        self.page.set_default_timeout(1e3 * PATIENCE)
        self.faults: list[str] = []
        self._listen(server.url)
        self.page.goto(f"{server.url}/lab/tree/{path}?token={server.token}&reset")
        self.page.locator(f"{NOTEBOOK} .jp-Cell").first.wait_for()
        idle = f"() => ({PANEL})?.sessionContext?.session?.kernel?.status === 'idle'"
        self.page.wait_for_function(idle)
        self._menu("Edit", "editmenu:clear-all")  # what the notebook was committed with

    def _listen(self, home: str) -> None:
        ours = (home, home.replace("http", "ws", 1), "data:", "blob:")

        def say(text: str) -> None:
            self.faults.append(text[:500])

        page = self.page
        page.on("console", lambda m: say(f"console: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda error: say(f"uncaught: {error}"))
        page.on("requestfailed", lambda r: say(f"failed: {r.url} {r.failure}"))
        page.on("request", lambda r: None if r.url.startswith(ours) else say(f"asked: {r.url}"))
        page.on("websocket", lambda w: None if w.url.startswith(ours) else say(f"asked: {w.url}"))

    def cells(self) -> list[dict[str, Any]]:
        """Of each code cell `index`, `source`, `count`, and whether it is `idle` or `raised`."""
        return list(self.page.evaluate(CELLS))

    def find(self, words: str) -> int:
        """The index of the first code cell with these words in it.

        Raises:
            LookupError: there is none.
        """
        for cell in self.cells():
            if words in cell["source"]:
                return int(cell["index"])
        raise LookupError(f"no code cell has {words!r} in it")

    def cell(self, index: int) -> Any:
        """A cell on the page."""
        return self.page.locator(f"{NOTEBOOK} .jp-Cell").nth(index)

    def output(self, index: int) -> Any:
        """What a cell shows."""
        return self.cell(index).locator(".jp-Cell-outputWrapper .jp-OutputArea").first

    def run(self, words: str) -> int:
        """Runs the first cell with these words, by Shift+Enter, to its end; returns its index."""
        index = self.find(words)
        return self._entered(index)

    def write(self, index: int, source: str) -> None:
        """Types a cell anew, and runs it to its end."""
        self._into(index)
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(source)
        self._entered(index)

    def run_all(self) -> None:
        """Runs all cells from the menu, to the last one or to the first that raises."""
        self._menu("Run", "runmenu:run-all")
        ended = f"({CELLS})().every(c => c.count && c.idle) || ({CELLS})().some(c => c.raised)"
        self.page.wait_for_function(f"() => {ended}", polling=200)

    def close(self) -> None:
        """Closes the page."""
        self.page.context.close()

    def _menu(self, name: str, command: str) -> None:
        self.page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(f"^{name}$")).click()
        self.page.locator(f'.lm-Menu-item[data-command="{command}"]').click()

    def _into(self, index: int) -> None:
        self.cell(index).locator(".jp-InputArea-editor .cm-content").click(
            position={"x": 5, "y": 5}
        )

    def _entered(self, index: int) -> int:
        before = next(cell["count"] for cell in self.cells() if cell["index"] == index)
        self._into(index)
        self.page.keyboard.press("Shift+Enter")
        done = f"() => ({CELLS})().some(c => c.index === {index} && c.count > {before} && c.idle)"
        self.page.wait_for_function(done, polling=100)
        return index
