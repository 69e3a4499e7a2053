"""What of IPython a cell on ranks can use: programs with `!`, and `%time`."""

from __future__ import annotations

import subprocess
import time
from typing import Any

from course_lib.trace import Refusal


class Shell:
    """What `get_ipython()` gives in a rank; IPython turns `!ls` and `%time f()` into its calls.

    Args:
        names: the cell's variables.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def system(self, command: str) -> None:
        """`!command`: runs it; what it prints is the rank's output."""
        subprocess.run(command, shell=True, check=False)

    def getoutput(self, command: str) -> list[str]:
        """`x = !command`: what it prints, as lines."""
        done = subprocess.run(command, shell=True, check=False, stdout=subprocess.PIPE, text=True)
        return done.stdout.splitlines()

    def run_line_magic(self, name: str, line: str) -> Any:
        """`%time statement`: runs it and prints how long it took.

        Raises:
            Refusal: it is another magic.
        """
        if name != "time":
            raise _only_in_the_notebook(f"%{name}")
        wall, own = time.perf_counter(), time.process_time()
        value = self._value(line)
        wall, own = time.perf_counter() - wall, time.process_time() - own
        print(f"CPU times: {own:.3g} s, wall time: {wall:.3g} s")
        return value

    def _value(self, line: str) -> Any:
        try:
            code = compile(line, "<%time>", "eval")
        except SyntaxError:
            exec(compile(line, "<%time>", "exec"), self._names)
            return None
        return eval(code, self._names)

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """`%%name`: a cell has one such line, and here it is `%%ranks`.

        Raises:
            Refusal: always.
        """
        raise _only_in_the_notebook(f"%%{name}")


def _only_in_the_notebook(magic: str) -> Refusal:
    return Refusal(
        f"{magic} in a cell of %%ranks",
        "`!command` and %time, which work on ranks",
        "other magics are the notebook's own; use them in a cell without %%ranks",
    )
