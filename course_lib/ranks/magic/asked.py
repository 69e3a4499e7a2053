"""What the line of a magic asks for, as data, and what a pool of that form is called."""

from __future__ import annotations

import argparse
import shlex
import textwrap
from typing import NamedTuple, NoReturn

from course_lib.trace import Refusal

LONGEST_LINE = 80  # letters of a magic's line that are repeated
MOST_SIMULATED = 1_000_000
LONGEST_TIME = 1_000_000  # seconds; the system's own clocks of a wait end not much later


class Form(NamedTuple):
    """What a pool is like: so many ranks, on so many hosts, with links of so many Mbit/s."""

    world_size: int
    hosts: int = 1
    mbit: float | None = None

    def changed(self, asked: argparse.Namespace) -> Form:
        """As asked for: what is left out stays, but N alone means N on one host."""
        world = self.world_size if asked.world_size is None else asked.world_size
        if asked.world_size is not None and asked.hosts is None and asked.mbit is None:
            return Form(world)
        hosts = self.hosts if asked.hosts is None else asked.hosts
        mbit = self.mbit if asked.mbit is None and hosts != 1 else asked.mbit
        return Form(world, hosts, mbit)

    def words_after(self, before: Form) -> str:
        """`From 4 to 2 ranks`; with the hosts, if there are or were several."""
        if self.hosts == before.hosts == 1:
            return f"From {before.world_size} to {self.world_size} ranks"
        return f"From {before} to {self}"

    def __str__(self) -> str:
        count = "1 rank" if self.world_size == 1 else f"{self.world_size} ranks"
        if self.hosts == 1:
            return count
        return f"{count} on {self.hosts} hosts at {self.mbit:g} Mbit/s"


class Parser(argparse.ArgumentParser):
    """Refuses what it cannot read, and never exits."""

    def form(self) -> str:
        """How the line is written, in one line."""
        return " ".join(self.format_usage().removeprefix("usage: ").split())

    def read(self, line: str) -> argparse.Namespace:
        """What the line asks for.

        Raises:
            Refusal: it cannot be understood.
        """
        try:
            return self.parse_args(shlex.split(line, comments=True))
        except ValueError as error:
            asked = textwrap.shorten(f"{self.prog} {line}", LONGEST_LINE)
            raise Refusal(asked, str(error), f"it is written {self.form()}") from None

    def error(self, message: str) -> NoReturn:
        """Raises ValueError, where argparse would end the process."""
        raise ValueError(message.partition(": ")[2] if message.startswith("argument") else message)


def _is_number(text: str) -> bool:
    """Whether it is a whole number as one writes it; `int` also takes ٣, 1_0 and a book of 9s."""
    return text.isascii() and text.isdigit() and len(text) <= 9


def _short(text: str) -> str:
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}..."


def _world_size(text: str) -> int:
    if not _is_number(text) or not 1 <= int(text) <= 64:
        message = f"the number of ranks must be 1 to 64, not {_short(text)}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def _rank_list(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(map(_is_number, parts)):
        raise argparse.ArgumentTypeError(f"ranks are numbers like 0,2, not {_short(text)}")
    return [int(part) for part in parts]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_TIME:
        message = f"a time limit is a number of seconds, up to {LONGEST_TIME:,}, not {_short(text)}"
        raise argparse.ArgumentTypeError(message)
    return seconds


def _hosts(text: str) -> int:
    if not _is_number(text):
        raise argparse.ArgumentTypeError(f"the number of hosts is a number, not {_short(text)}")
    return int(text)


def _mbit(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        message = f"the speed of a link is a number of Mbit/s, not {_short(text)}"
        raise argparse.ArgumentTypeError(message) from None


def pool_parser(prog: str) -> Parser:
    """What `%ranks` and `%%ranks` have in common: which ranks there are to be."""
    parser = Parser(prog=prog, add_help=False)
    parser.add_argument("world_size", nargs="?", type=_world_size, metavar="N")
    parser.add_argument("--hosts", type=_hosts, metavar="H")
    parser.add_argument("--mbit", type=_mbit, metavar="M")
    return parser


def cell_parser() -> Parser:
    """What `%%ranks` takes."""
    parser = pool_parser("%%ranks")
    parser.add_argument("--only", type=_rank_list, metavar="0,2")
    parser.add_argument("--timeout", type=_seconds, metavar="S")
    parser.add_argument("--ledger", action="store_true")
    parser.add_argument("--types", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--expect-failure", action="store_true")
    forms = f"{parser.form()} or {simulated_parser().form()}"
    parser.usage = forms.replace("%", "%%")  # argparse fills in what follows a single one
    return parser


def _simulated_size(text: str) -> int:
    if not _is_number(text) or not 1 <= int(text) <= MOST_SIMULATED:
        message = f"simulated ranks are 1 to {MOST_SIMULATED:,}, not {_short(text)}"
        raise argparse.ArgumentTypeError(message)
    return int(text)


def simulated_parser() -> Parser:
    """What `%%ranks N --cluster 64x8xH100` takes."""
    parser = Parser(prog="%%ranks", add_help=False)
    parser.add_argument("world_size", type=_simulated_size, metavar="N")
    parser.add_argument("--cluster", required=True, metavar="64x8xH100")
    parser.add_argument("--equal", default="", metavar="pp8,dp8*,tp8*")
    parser.add_argument("--ledger", action="store_true")
    parser.set_defaults(types=False)
    parser.add_argument("--expect-failure", action="store_true")
    return parser


def torchrun_parser() -> Parser:
    """What `%%torchrun` takes."""
    parser = Parser(prog="%%torchrun", add_help=False)
    parser.add_argument("world_size", nargs="?", type=_world_size, metavar="N", default=2)
    parser.add_argument("--timeout", type=_seconds, metavar="S")
    return parser
