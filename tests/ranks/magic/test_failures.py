"""The failure table: what goes wrong in a cell, in a real kernel on real ranks."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from course_lib.ranks.system.processes import LINUX

sys.path.insert(0, str(Path(__file__).parents[1]))
kernels = importlib.import_module("kernels")


@pytest.fixture(scope="module")
def kernel() -> Iterator[Any]:
    """A kernel with four ranks, shared by the tests of this file."""
    started = kernels.Kernel()
    assert started.run("%ranks 4").status == "ok"
    yield started
    started.close()
    assert kernels.gone_within(started.tag, 5) == []


def works_again(kernel: Any, world_size: int = 4) -> None:
    """The next cell runs on all ranks, and they can talk."""
    answer = kernel.run(
        f"%%ranks {world_size}\nt = torch.ones(1)\ndist.all_reduce(t)\nprint('sum', int(t))"
    )
    assert answer.status == "ok", answer.text
    assert f"sum {world_size}" in answer.text


def at(seconds: float, act: Callable[[], None]) -> Callable[[float], None]:
    """A tick that acts once, after some seconds."""
    done = []

    def tick(now: float) -> None:
        if now >= seconds and not done:
            done.append(True)
            act()

    return tick


def test_one_rank_raises(kernel: Any) -> None:
    answer = kernel.run("%%ranks\nkeep = 7\nif rank == 2:\n    raise ValueError('the fault')")
    assert answer.status == "error"
    assert "rank 2:" in answer.text
    assert "line 4" in answer.text
    assert "ValueError: the fault" in answer.text
    assert "course_lib" not in answer.text, "a frame of the runtime is in the reader's traceback"
    assert kernel.run("pull('keep')").text == "[7, 7, 7, 7]", "the ranks lost their variables"


def test_one_rank_raises_before_a_collective(kernel: Any) -> None:
    answer = kernel.run("%%ranks\nif rank == 1:\n    1 / 0\ndist.barrier()")
    assert answer.status == "error"
    assert "rank 1 raised an exception before" in " ".join(answer.text.split())
    assert "ZeroDivisionError" in answer.text
    assert "Ranks 0, 2 and 3 wait in barrier" in answer.text
    works_again(kernel)


def test_sys_exit_ends_the_cell_not_the_rank(kernel: Any) -> None:
    before = kernel.run("%%ranks\nimport os, sys\nprint(os.getpid())").text
    answer = kernel.run("%%ranks\nif rank == 0:\n    sys.exit(3)")
    assert answer.status == "error"
    assert "SystemExit: 3" in answer.text
    assert kernel.run("%%ranks\nprint(os.getpid())").text == before


def test_os_exit(kernel: Any) -> None:
    answer = kernel.run("%%ranks\nimport os\nif rank == 3:\n    os._exit(5)\ndist.barrier()")
    assert answer.status == "error"
    assert "rank 3 exited with code 5" in answer.text
    works_again(kernel)


def test_sigkill_of_a_rank_in_a_cell(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks\nimport os, signal\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "dist.barrier()"
    )
    assert answer.status == "error"
    assert "rank 1 was killed by SIGKILL" in answer.text
    assert "RuntimeError" not in answer.text, "the others' echoes hide the cause"
    works_again(kernel)


def test_sigkill_of_a_rank_between_cells(kernel: Any) -> None:
    pids = kernel.run("%%ranks\nimport os\nprint(os.getpid())").text
    os.kill(int(pids.splitlines()[2].split()[-1]), signal.SIGKILL)
    time.sleep(0.3)
    answer = kernel.run("%%ranks\nprint('fine')")
    assert answer.status == "ok", answer.text
    assert "ranks 0–3 │ fine" in answer.text
    assert "Rank 2 was killed by SIGKILL since the last cell" in answer.text
    assert "variables are gone" in answer.text


def test_mismatched_collectives(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks\nfrom course_lib import comm\nt = torch.ones(3)\nif rank == 2:\n"
        "    comm.broadcast(t, 0, group)\nelse:\n    comm.all_reduce(t, group)"
    )
    assert answer.status == "error"
    assert "ranks 0, 1 and 3 in all_reduce" in answer.text
    assert "rank 2 in broadcast" in answer.text
    assert "line 5: comm.broadcast(t, 0, group)" in answer.text
    works_again(kernel)


def test_skipped_collective(kernel: Any) -> None:
    answer = kernel.run("%%ranks\nt = torch.ones(3)\nif rank != 0:\n    dist.all_reduce(t)")
    assert answer.status == "error"
    assert "Ranks 1–3 wait in all_reduce" in answer.text
    assert "rank 0 finished without making that call" in " ".join(answer.text.split())
    works_again(kernel)


def test_tensors_of_different_shapes(kernel: Any) -> None:
    answer = kernel.run("%%ranks\nt = torch.ones(3 if rank == 1 else 5)\ndist.broadcast(t, 0)")
    assert answer.status == "error"
    assert "a message did not fit its tensor, so the shapes of the ranks differ" in answer.text
    works_again(kernel)


def test_interrupt_while_the_ranks_start(spares_of: Callable[[int], list[int]]) -> None:
    fresh = kernels.Kernel()
    try:
        answer = fresh.run("%ranks 3", tick=at(0.1, fresh.interrupt))
        assert answer.text == "Interrupted."
        works_again(fresh, 3)
        there = {process.pid for process in fresh.processes()}
        spares = {spare for pid in there for spare in spares_of(pid)}
        guards = int(LINUX)
        assert len(there - spares) == 5 + guards, "kernel, preloaded process, three ranks, guard"
    finally:
        fresh.close()
    assert kernels.gone_within(fresh.tag, 5) == []


def test_output_without_end(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks --timeout 1\nimport subprocess, time\n"
        "if rank == 0:\n    p = subprocess.Popen(['yes'])\ntime.sleep(60)"
    )
    assert "Time is up" in answer.text
    assert len(answer.text) < 100_000
    works_again(kernel)


def test_everybody_sends(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks\nfrom course_lib import comm\nt = torch.ones(1 << 20)\n"
        "comm.send(t, group.next, group)\ncomm.recv(t, group.previous, group)"
    )
    assert answer.status == "error"
    assert "Everybody sends and nobody receives" in answer.text
    works_again(kernel)


def test_a_slow_rank_is_no_deadlock(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks\nimport time\nif rank == 1:\n    time.sleep(5)\ndist.barrier()\nprint('met')"
    )
    assert answer.status == "ok", answer.text
    assert "ranks 0–3 │ met" in answer.text


def test_out_of_step_without_waiting(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks\nt = torch.ones(3)\nif rank == 0:\n    dist.all_reduce(t, async_op=True)"
    )
    assert answer.status == "error"
    assert "different numbers of collective calls" in answer.text
    works_again(kernel)


def test_messages_between_some_ranks_are_no_mismatch(kernel: Any) -> None:
    kernel.run("%%ranks 4\nkeep = 5")
    answer = kernel.run(
        "%%ranks\nt = torch.ones(2)\nif rank == 0:\n    dist.send(t, 1)\n"
        "elif rank == 1:\n    dist.recv(t, 0)"
    )
    assert answer.status == "ok", answer.text
    assert kernel.run("pull('keep')").text == "[5, 5, 5, 5]"
    works_again(kernel)


def test_interrupt_of_a_running_cell(kernel: Any) -> None:
    kernel.run("%%ranks\nkeep = rank")
    answer = kernel.run(
        "%%ranks\nimport time\nwhile True:\n    time.sleep(0.01)", tick=at(1, kernel.interrupt)
    )
    assert answer.status == "error"
    assert "Interrupted" in answer.text
    assert "line 4: time.sleep(0.01)" in answer.text
    assert kernel.run("pull('keep')").text == "[0, 1, 2, 3]", "an interrupt lost the variables"


def test_interrupt_of_a_deadlocked_cell(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks\nif rank == 0:\n    dist.recv(torch.ones(3), 1)", tick=at(0.8, kernel.interrupt)
    )
    assert answer.status == "error"
    assert "Interrupted" in answer.text
    assert "rank 0  waits in recv from rank 1" in answer.text
    works_again(kernel)


def test_time_limit(kernel: Any) -> None:
    answer = kernel.run("%%ranks --timeout 1\nimport time\ntime.sleep(60)")
    assert answer.status == "error"
    assert "Time is up" in answer.text
    works_again(kernel)


def test_many_lines(kernel: Any) -> None:
    answer = kernel.run("%%ranks\nfor i in range(100_000):\n    print(i)")
    assert answer.status == "ok"
    assert "ranks 0–3 │ 0\n" in answer.text
    assert "ranks 0–3 │ 99999" in answer.text
    assert "99,750 more lines" in answer.text
    assert kernel.run("output(3).count('\\n')").text == "100000", "output was lost"


def test_progress_bar(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks\nfrom tqdm import tqdm\nfor i in tqdm(range(20), ncols=60):\n    pass"
    )
    assert answer.status == "ok"
    assert answer.text.count("20/20") in range(1, 5), "a bar is one line, not one for each step"
    assert "0/20 " not in answer.text.replace("20/20 ", "")


def test_output_appears_while_the_cell_runs(kernel: Any) -> None:
    answer = kernel.run("%%ranks\nimport time\nprint('early')\ntime.sleep(1.5)\nprint('late')")
    first = next(content for _, kind, content in answer.messages if "data" in content)
    assert first["data"]["text/plain"] == "ranks 0–3 │ early"
    assert answer.text == "ranks 0–3 │ early\nranks 0–3 │ late"


def test_figure_in_a_rank(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks --only 1\nimport matplotlib.pyplot as plt\nlines = plt.plot([1, 2])"
    )
    assert answer.status == "ok", answer.text
    assert answer.mimes().count("image/png") == 1


def test_functions_and_classes_of_earlier_cells(kernel: Any) -> None:
    kernel.run("%%ranks\ndef f():\n    return 1\n\nclass Model(torch.nn.Linear):\n    pass")
    answer = kernel.run("%%ranks\nmodel = Model(2, 2)\nprint(f(), type(model).__name__)")
    assert "ranks 0–3 │ 1 Model" in answer.text
    kernel.run("%%ranks\ndef f():\n    return 2")
    assert "ranks 0–3 │ 2" in kernel.run("%%ranks\nprint(f())").text
    source = kernel.run("%%ranks\nimport inspect\nprint(inspect.getsource(f))").text
    assert "return 2" in source


def test_values_travel_both_ways(kernel: Any) -> None:
    kernel.run("import torch\nhere = torch.arange(300_000.)\npush(x=here, g=lambda v: v * 2)")
    kernel.run("%%ranks\ny = g(x) + rank")
    answer = kernel.run("ys = pull('y')\n[float(y[-1]) for y in ys]")
    assert answer.text == "[599998.0, 599999.0, 600000.0, 600001.0]"
    assert kernel.run("pull('rank + 1', rank=2)").text == "3"


@pytest.mark.slow
def test_two_notebooks_do_not_meet(kernel: Any) -> None:
    other = kernels.Kernel()
    try:
        other.run("%%ranks 2\nwho = 'other'")
        kernel.run("%%ranks 4\nwho = 'mine'")
        assert other.run("pull('who')").text == "['other', 'other']"
        assert kernel.run("pull('who')").text == "['mine', 'mine', 'mine', 'mine']"
    finally:
        other.close()
    assert kernels.gone_within(other.tag, 5) == []


@pytest.mark.slow
def test_killed_kernel_leaves_nothing() -> None:
    victim = kernels.Kernel()
    victim.run("%%ranks 3\nimport subprocess\np = subprocess.Popen(['sleep', '600'])")
    assert len(victim.processes()) >= 8  # kernel, preloaded process, 3 ranks, 3 sleepers
    os.kill(victim.pid, signal.SIGKILL)
    assert kernels.gone_within(victim.tag, 3) == []


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("%%ranks 0\n1", "the number of ranks must be 1 to 64, not '0'"),
        ("%%ranks x\n1", "the number of ranks must be 1 to 64, not 'x'"),
        ("%%ranks 4 --only 9\n1", "asked: a cell of ranks [9]\nfound: ranks 0 to 3"),
        ("%%ranks --only a\n1", "ranks are numbers like 0,2, not 'a'"),
        ("%%ranks --timeout soon\n1", "is a number of seconds, up to 1,000,000, not 'soon'"),
        ("%%ranks --frobnicate\n1", "--frobnicate\nwhy: it is written %%ranks ["),
        ("%%ranks four\n1", "or %%ranks --cluster 64x8xH100"),
        ("%%ranks 'open\n1", "No closing quotation"),
        ("%ranks 65", "the number of ranks must be 1 to 64, not '65'"),
        ("pull('nothing_here')", "NameError: name 'nothing_here' is not defined"),
        ("pull('rank', rank=7)", "asked: a value of ranks [7]\nfound: ranks 0 to 3"),
        ("timeline()", "was run without --ledger"),
        ("flight_logs()", "in the last %%ranks cell no rank had to be stopped"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_in_a_few_words(kernel: Any, cell: str, sentence: str) -> None:
    kernel.run("%%ranks 4\nkeep = 1")
    answer = kernel.run(cell)
    assert answer.status == "error"
    assert sentence in answer.text
    assert answer.text.count("asked: ") <= 1
    assert "course_lib" not in answer.text, "a traceback of ours"
    assert kernel.run("pull('keep')").text == "[1, 1, 1, 1]", "something was lost"


def test_syntax_error_names_the_line(kernel: Any) -> None:
    answer = kernel.run("%%ranks\nx = 1\nif x:\nprint(x)")
    assert answer.status == "error"
    assert "line 4" in answer.text
    assert "course_lib" not in answer.text


def test_expected_failure_lets_the_notebook_go_on(kernel: Any) -> None:
    answer = kernel.run("%%ranks --expect-failure\nif rank == 0:\n    dist.barrier()")
    assert answer.status == "ok"
    assert "Deadlock. Rank 0 waits in barrier" in answer.text
    answer = kernel.run("%%ranks --expect-failure\npass")
    assert answer.status == "error"
    assert "expected to fail, and every rank finished" in answer.text


def test_a_hung_cell_leaves_its_flight_logs(kernel: Any) -> None:
    kernel.run(
        "%%ranks 2 --expect-failure\n"
        "if rank == 0:\n    comm.broadcast(torch.ones(3), 0, group)\n"
        "comm.all_reduce(torch.ones(3), group)"
    )
    answer = kernel.run(
        "from course_lib.trace import find_desync\n"
        "print([len(log.records) for log in flight_logs()])\n"
        "print(find_desync(flight_logs()).text)"
    )
    assert answer.text.splitlines() == [
        "[1, 1]",
        "Call 0 on world [0, 1] is not the same everywhere: rank 0 called broadcast; "
        "rank 1 called all_reduce.",
    ]


@pytest.mark.slow
def test_torchrun_cell(kernel: Any) -> None:
    answer = kernel.run(
        "%%torchrun 2\nimport os\nimport torch.distributed as dist\n"
        "dist.init_process_group('gloo')\nprint(dist.get_rank(), os.environ['WORLD_SIZE'])"
    )
    assert answer.status == "ok", answer.text
    assert answer.text == "rank 0 │ 0 2\nrank 1 │ 1 2"
    answer = kernel.run("%%torchrun 1\nraise ValueError('in the script')")
    assert answer.status == "error"
    plain = re.sub(r"\x1b\[[\d;]*m", "", answer.text)  # from 3.13 on, Python colours tracebacks
    assert "ValueError: in the script" in plain


def test_ledger_under_a_cell(kernel: Any) -> None:
    answer = kernel.run(
        "%%ranks 4 --ledger\nfrom course_lib import comm\ncomm.all_reduce(torch.ones(1000), group)"
    )
    line = next(line for line in answer.text.splitlines() if line.startswith("all_reduce"))
    assert line.split() == ["all_reduce", "world", "1", "4,000", "6,000", "2(N-1)/N·S", "6,000"]
    assert kernel.run("timeline().sent()").text == "[6000, 6000, 6000, 6000]"


def test_syntax_of_ipython_in_a_cell(kernel: Any) -> None:
    answer = kernel.run("%%ranks\n%time n = 7\n!echo shell\nx = !echo lines\nprint(n, x)")
    assert answer.status == "ok", answer.text
    assert "wall time" in answer.text
    assert "ranks 0–3 │ shell" in answer.text
    assert "ranks 0–3 │ 7 ['lines']" in answer.text
    answer = kernel.run("%%ranks\n\n%matplotlib inline")
    assert "asked: %matplotlib in a cell of %%ranks" in answer.text
    assert "line 3" in answer.text


def test_a_traceback_names_the_cell_by_its_number_and_no_file_of_ours(kernel: Any) -> None:
    answer = kernel.run("%%ranks\nx = (")
    shown = next(content for _, kind, content in answer.messages if kind == "execute_input")
    assert f"Cell In[{shown['execution_count']}]" in answer.text
    assert "ast.py" not in answer.text
    assert "was never closed" in answer.text


def test_an_interrupted_torchrun_keeps_what_was_printed(kernel: Any) -> None:
    def tick(now: float) -> None:
        if kernel_says.exists() and not pressed:
            pressed.append(now)
            kernel.interrupt()

    pressed: list[float] = []
    kernel_says = Path(kernel.run("import tempfile; print(tempfile.mkdtemp())").text.strip()) / "go"
    answer = kernel.run(
        f"%%torchrun 2\nimport os, pathlib, time\nprint('early', os.environ['RANK'])\n"
        f"time.sleep(1)\npathlib.Path('{kernel_says}').touch()\ntime.sleep(600)",
        timeout=200, tick=tick,
    )  # fmt: skip
    kernel_says.unlink()
    kernel_says.parent.rmdir()
    assert answer.status == "error"
    assert "rank 0 │ early 0" in answer.text
    assert answer.text.splitlines()[-1] == "Interrupted."
    assert "Traceback" not in answer.text


def test_a_folder_for_temporary_files_that_is_gone(kernel: Any) -> None:
    kernel.run("import tempfile; tempfile.tempdir = '/nowhere'")
    answer = kernel.run("%%torchrun 2\nprint('early')")
    kernel.run("tempfile.tempdir = None")
    assert answer.text.startswith("asked: run a script under torchrun in /nowhere")


def test_what_a_call_on_ranks_prints_is_shown(kernel: Any) -> None:
    cell = "def speak(group):\n    print('here', group.rank)\nrun_on_ranks(speak, 2)"
    answer = kernel.run(cell)
    assert "rank 0 │ here 0\nrank 1 │ here 1" in answer.text
    assert kernel.run("output(1)").text == "'here 1\\n'"
    assert "ran on ranks 0 and 1" in kernel.run("output(9)").text
    assert "here 0" in kernel.run(cell.replace("print(", "1 / print(")).text, "before it failed"


@pytest.mark.parametrize("magic", ["ranks", "torchrun", "grade"])
def test_a_magic_below_the_first_line_is_told_where_to_stand(kernel: Any, magic: str) -> None:
    answer = kernel.run(f"a = 1\n%%{magic} 2\nprint(a)")
    assert f"%%{magic} is for a whole cell" in answer.text


@pytest.mark.parametrize("name", ["3", "''", "None"])
def test_a_value_without_a_name(kernel: Any, name: str) -> None:
    assert "a name is text, as in pull('loss')" in kernel.run(f"pull({name})").text


def test_a_torchrun_cell_shows_what_is_printed_while_it_runs(kernel: Any) -> None:
    cell = "%%torchrun 2\nimport time\nprint('begun')\ntime.sleep(4)\nprint('done')"
    answer = kernel.run(cell)
    shown = [
        content["data"]["text/plain"] for _, _, content in answer.messages if "data" in content
    ]
    assert shown[-1] == "ranks 0–1 │ begun\nranks 0–1 │ done", answer.text
    assert "ranks 0–1 │ begun" in shown[:-1], "it came only at the end"


def test_a_torchrun_cell_says_with_which_code_a_rank_ended(kernel: Any) -> None:
    """The other rank, which torchrun then ends by SIGTERM, is not to blame."""
    answer = kernel.run(
        "%%torchrun 2\nimport os, sys, time\n"
        "sys.exit(3) if os.environ['RANK'] == '1' else time.sleep(100)"
    )
    assert answer.text.strip() == "torchrun exited with code 1 (rank 1 exited with code 3)"


def test_closed_file_numbers_are_told_in_a_line(kernel: Any) -> None:
    answer = kernel.run("%%ranks 4\nimport os\nos.closerange(3, 64)")
    assert "closed file numbers that its rank needs" in answer.text
    assert "worker.py" not in answer.text
    works_again(kernel)
