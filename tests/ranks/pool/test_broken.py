"""What a cell can do to its ranks: they are mended or renewed, in words, and the next cell runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import cloudpickle
import pytest
import torch

from course_lib.comm import Group
from course_lib.ranks import ForkServer, Pool, RanksError, run_on_ranks
from course_lib.trace import Refusal


@pytest.fixture(scope="module")
def pool(server: ForkServer) -> Iterator[Pool]:
    with Pool(3, server, stall=0.6) as started:
        yield started


def works(pool: Pool) -> None:
    outcome = pool.run_cell("t = torch.ones(1)\ndist.all_reduce(t)\nprint('sum', int(t))")
    assert outcome.verdict == "", outcome.story()
    assert {bytes(text) for text in outcome.output.values()} == {b"sum 3\n"}


def test_a_pasted_script_ends_its_process_group(pool: Pool) -> None:
    pool.push(keep=1)
    outcome = pool.run_cell("dist.barrier()\ndist.destroy_process_group()")
    assert outcome.verdict == ""
    assert outcome.restarted.startswith("The cell has ended the process group of its ranks")
    works(pool)


def test_a_pasted_script_begins_a_process_group(pool: Pool) -> None:
    pool.push(keep=1)
    outcome = pool.run_cell("dist.init_process_group('gloo')")
    assert "Refusal: asked: init_process_group in a cell of %%ranks" in outcome.story()
    assert "torch/distributed/rendezvous" not in outcome.story()
    assert pool.pull("keep") == [1, 1, 1]


@pytest.mark.parametrize("end", ["", "1 / 0"])
def test_a_fork_of_a_rank_does_not_answer_for_it(pool: Pool, end: str) -> None:
    outcome = pool.run_cell(f"import os\nchild = os.fork()\nif not child:\n    pass\n    {end}")
    assert outcome.verdict == ""
    pool.run_cell("os.waitpid(child, 0)")
    works(pool)


def test_an_error_of_ten_million_letters_is_cut(pool: Pool) -> None:
    story = pool.run_cell("raise ValueError('a' + 'z' * 10**7 + 'b')").story()
    assert "ValueError: az" in story and "zb" in story and "more characters" in story
    assert len(story) < 200_000


def test_a_flood_of_displays_is_counted(pool: Pool) -> None:
    cell = "for n in range(105 if rank == 1 else 2):\n    display({'text/html': str(n)})"
    outcome = pool.run_cell(cell)
    by = {rank: [b for who, b in outcome.displays if who == rank] for rank in range(3)}
    assert [len(by[rank]) for rank in range(3)] == [2, 101, 2]
    assert by[1][99] == {"text/html": "99"}
    assert by[1][100] == {"text/plain": "… 5 more displays …"}
    works(pool)


def test_a_value_that_cannot_be_shown(pool: Pool) -> None:
    """The traceback begins in the cell."""
    story = pool.run_cell("class A:\n    def __repr__(self):\n        1 / 0\nA()").story()
    assert "ZeroDivisionError" in story and "show.py" not in story


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("import os\nos.close(1)", b"File number 1 (stdout) was closed"),
        ("import os\nos.dup2(os.open(os.devnull, os.O_WRONLY), 2)", b"File number 2 (stderr)"),
        ("import sys\nsys.stdout = None", b"sys.stdout was closed or None; it is back.\n"),
        ("import sys\nsys.stdout.close()", b"sys.stdout was closed or None; it is back.\n"),
    ],
)
def test_output_is_mended(pool: Pool, harm: str, words: bytes) -> None:
    pool.push(keep=2)
    outcome = pool.run_cell(harm)
    assert all(words in text for text in outcome.output.values()), outcome.output
    works(pool)
    assert pool.pull("keep") == [2, 2, 2]


def test_a_connection_that_the_program_has_closed(pool: Pool) -> None:
    """The ranks cannot meet any more, and are renewed before the next cell needs it."""
    outcome = pool.run_cell(
        "import os, stat\nif rank == 1:\n    for fd in range(3, 64):\n        try:\n"
        "            sock = __import__('socket').socket(fileno=os.dup(fd))\n"
        "            if sock.family.name.startswith('AF_INET'):\n                sock.shutdown(2)\n"
        "            sock.close()\n        except OSError:\n            pass\n"
        "t = torch.ones(1)\ndist.all_reduce(t)"
    )
    assert outcome.verdict, "nothing was closed"
    assert "started again" in outcome.restarted
    works(pool)


def test_a_deadlock_is_called_where_no_file_can_be_opened(pool: Pool) -> None:
    outcome = pool.run_cell(
        "import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "if rank:\n    dist.barrier()"
    )
    assert outcome.verdict == "deadlock", outcome.story()
    assert not any(outcome.output.values()), "a thread of the runtime has died"
    works(pool)


def test_several_threads_pull(pool: Pool) -> None:
    pool.push(keep=3)
    got: list[list[int]] = []

    def pulls() -> None:
        for _ in range(10):
            got.append(pool.pull("keep"))

    threads = [threading.Thread(target=pulls, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert got == [[3, 3, 3]] * 40


def test_several_threads_run_functions_of_one_module(server: ForkServer) -> None:
    """By value, each of them: cloudpickle's list of such modules is one for all threads."""
    got: list[Any] = []

    def runs() -> None:
        with Pool(1, server) as own:
            for _ in range(3):
                got.append(own.run(slept))

    threads = [threading.Thread(target=runs, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert got == [[1]] * 9


def test_a_module_that_the_user_pickles_by_value_stays_so(pool: Pool) -> None:
    own = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(own)
    try:
        assert pool.run(slept) == [3, 3, 3]
        assert __name__ in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(own)


def slept(group: Group) -> int:
    time.sleep(0.1)
    return size_of(group)


def size_of(group: Group) -> int:
    return group.size


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_a_gpu_that_is_not_there(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch, late: float
) -> None:
    """Also where the pool looks late, and finds what the ranks said together with their ends."""
    if torch.cuda.is_available():
        pytest.skip("there is one")
    fork = Pool._fork
    monkeypatch.setattr(Pool, "_fork", lambda pool: (fork(pool), time.sleep(late)))
    with Pool(2, server, device="cuda") as asked, pytest.raises(RanksError) as caught:
        asked.start()
    story = caught.value.outcome.story()
    assert story.startswith("ranks 0 and 1:\nasked: the device cuda\nfound: no GPU")
    assert "Traceback" not in story


def test_a_number_of_ranks_that_is_none(server: ForkServer) -> None:
    with pytest.raises(Refusal, match="asked: 'a' ranks"):
        run_on_ranks(print, "a", server=server)  # type: ignore[arg-type]


# --- sizes ---------------------------------------------------------------------------------------
SIZES = [
    ("dist.all_reduce(torch.ones(20 if rank == 0 else 12))",
     "The sizes differ: rank 0: all_reduce of 20 elements, ranks 1 and 2: of 12."),
    ("comm.all_reduce(torch.ones(20 if rank == 0 else 12), group)",
     "The sizes differ: rank 0: all_reduce of 20 elements, ranks 1 and 2: of 12."),
    ("dist.all_reduce(torch.ones(9, dtype=torch.float64 if rank == 0 else torch.float32))",
     "The sizes differ: rank 0: all_reduce of 9 elements in float64, ranks 1 and 2: of 9 in float"),
    ("x = torch.ones(20 if rank == 0 else 12)\nif rank == 0:\n    dist.send(x, 1)\n"
     "if rank == 1:\n    dist.recv(x, 0)", "(80 bytes came for 48)"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "words"), SIZES)
def test_sizes_that_differ_are_named(pool: Pool, source: str, words: str) -> None:
    outcome = pool.run_cell(source)
    assert outcome.verdict == "died"
    assert words in outcome.story(), outcome.story()
    works(pool)


def test_sizes_are_not_blamed_for_a_rank_that_was_killed(pool: Pool) -> None:
    """It waits for a smaller message than the others when it ends, and rightly so."""
    kill = "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()"
    outcome = pool.run_cell(
        f"import os, signal, threading\nif rank == 1:\n    {kill}\n"
        "    dist.recv(torch.ones(3), 0)\nelse:\n    dist.all_reduce(torch.ones(9))"
    )
    assert outcome.verdict == "died"
    assert "rank 1 was killed by SIGKILL" in outcome.story()
    assert "sizes" not in outcome.story(), outcome.story()
    works(pool)


def test_a_killed_rank_was_last_seen_in_a_line(pool: Pool) -> None:
    kill = "threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGKILL)).start()"
    outcome = pool.run_cell(
        f"import os, signal, threading\nif rank == 1:\n    {kill}\n"
        "    dist.recv(torch.ones(3), 0)\nelse:\n    dist.all_reduce(torch.ones(9))"
    )
    assert "rank 1 was killed by SIGKILL (last seen at line 4: dist.recv" in outcome.story()
    works(pool)


def test_last_words_come_with_the_last_calls(pool: Pool) -> None:
    def differ(group: Group) -> None:
        from course_lib import comm

        comm.barrier(group)
        comm.all_reduce(torch.ones(20 if group.rank == 0 else 12), group)

    with pytest.raises(RanksError) as caught:
        pool.run(differ)
    logs = {log.rank: log for log in caught.value.outcome.flight_logs}
    assert set(logs) == {0, 1, 2}
    assert "killed" in {log.state for log in logs.values()}
