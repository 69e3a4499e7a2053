"""JupyterLab as `make lab` starts it: what lessons link to can be opened there."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120.0  # seconds; it takes four where nothing else runs


def served(runtime: Path) -> tuple[dict[str, Any], str]:
    """What the server has written down of itself, and the page that a browser is to open."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        pages = [path.read_text() for path in runtime.glob("jpserver-file-to-run-*-open.html")]
        if pages and pages[0]:  # it is written after the other
            (info,) = runtime.glob("jpserver-*.json")
            return dict(json.loads(info.read_text())), pages[0]
        time.sleep(0.1)
    raise AssertionError("JupyterLab did not start")


def test_make_lab_serves_the_files_that_lessons_link_to(tmp_path: Path) -> None:
    make = ["make", "--no-print-directory", "-n", "lab"]
    shown = subprocess.run(make, cwd=ROOT, capture_output=True, text=True).stdout
    (line,) = [line for line in shown.splitlines() if "jupyter lab" in line]
    command = shlex.split(line)
    notebook = command[-1]
    assert (ROOT / notebook).is_file()
    env = os.environ | {"JUPYTER_RUNTIME_DIR": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path)}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--no-browser", "--port=0"], cwd=ROOT, env=env, stdout=log, stderr=log
        )
    try:
        found, page = served(tmp_path)
        assert Path(found["root_dir"]) == ROOT
        assert f"/lab/tree/{notebook}?" in page
        links = re.findall(r"\]\(\.\./([\w/.]+)", (ROOT / notebook).read_text())
        address = f"{found['url']}api/contents/{links[0]}?content=0&token={found['token']}"
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            assert json.load(answer)["path"] == links[0]
    finally:
        server.terminate()
        server.wait(30)
