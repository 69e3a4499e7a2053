"""RESULTS.md: one section a benchmark, with the command and the machine that made it."""

from __future__ import annotations

from pathlib import Path

import torch

from course_lib.ranks.hosts.recorded import machine_words

RESULTS = Path(__file__).with_name("RESULTS.md")
TITLE = """# Results

Ours beside the tools that readers would use instead, measured in the same run on the same machine.
Ratio = ours / peer, below 1 is better. Times differ from machine to machine and from hour to hour;
ratios much less. Each section was written by the command in it.
"""


def machine() -> str:
    """Cores, memory and versions; no names and no paths."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{machine_words()}, {', '.join(gpus) or 'no GPU'}"


def write(name: str, about: str, table: str, path: Path = RESULTS) -> None:
    """Replaces the section of one benchmark, or adds it; the others stay as they are.

    Args:
        name: the benchmark.
        about: what is compared and how.
        table: its rows as Markdown.
        path: the file.
    """
    sections = read(path)
    command = f"python -m benchmarks {name} --write"
    sections[name] = f"{about.strip()}\n\n`{command}` on {machine()}.\n\n{table}\n"
    parts = [f"## {key}\n\n{sections[key]}" for key in sorted(sections)]
    path.write_text("\n".join([TITLE, *parts]))


def read(path: Path = RESULTS) -> dict[str, str]:
    """The sections there are: name to text."""
    if not path.exists():
        return {}
    sections = {}
    for part in path.read_text().split("\n## ")[1:]:
        name, _, text = part.partition("\n")
        sections[name.strip()] = text.strip() + "\n"
    return sections
