"""The pool: values travel whole, errors are told apart, and it always works again."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

from course_lib import comm
from course_lib.comm import Group
from course_lib.ranks import ForkServer, Pool, RanksError, run_on_ranks
from course_lib.trace import Refusal


@pytest.fixture(scope="module")
def pool(server: ForkServer) -> Iterator[Pool]:
    """Two ranks, shared by the tests that leave them well."""
    with Pool(2, server, stall=0.6) as started:
        yield started


def world_sum(group: Group) -> float:
    tensor = torch.ones(1)
    comm.all_reduce(tensor, group)
    return float(tensor)


def works(pool: Pool) -> None:
    assert pool.run(world_sum) == [pool.world_size] * pool.world_size


def gone_within(pids: list[int], seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(psutil.pid_exists, pids))


@contextmanager
def interrupt_after(seconds: float) -> Iterator[None]:
    """Ctrl-C in this process."""
    before = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- functions -----------------------------------------------------------------------------------
def test_results_come_in_rank_order(pool: Pool) -> None:
    assert pool.run(lambda group, a, b: (group.rank, group.size, a + b), 1, 2) == [
        (0, 2, 3),
        (1, 2, 3),
    ]


def test_functions_go_by_value_with_what_they_need(pool: Pool) -> None:
    factor = torch.full((3,), 2.0)

    class Scaler:
        def __call__(self, value: int) -> float:
            return float(factor.sum()) * value

    def scaled(group: Group) -> tuple[float, str]:
        return Scaler()(group.rank), helper()

    assert pool.run(scaled) == [(0.0, "of this module"), (6.0, "of this module")]


def helper() -> str:
    return "of this module"


def test_a_partial_function_takes_no_library_along(pool: Pool) -> None:
    """`functools.partial` says that it is of `functools`, which ranks have already."""
    assert pool.run(partial(lambda factor, group: factor * group.rank, 3)) == [0, 3]
    assert pool.run(attrgetter("size")) == [2, 2]


def test_an_error_on_one_rank(pool: Pool) -> None:
    def fails(group: Group) -> None:
        if group.rank == 1:
            raise KeyError("the fault")

    pool.push(keep=5)
    with pytest.raises(RanksError, match="KeyError: 'the fault'") as caught:
        pool.run(fails)
    assert {r: rep["state"] for r, rep in caught.value.outcome.reports.items()} == {
        0: "finished", 1: "raised",
    }  # fmt: skip
    assert "rank 1:" in str(caught.value)
    assert "rank 0" not in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))  # as it leaves a process of its own
    assert str(again) == str(caught.value) and again.outcome.verdict == "raised"
    assert pool.pull("keep") == [5, 5], "an error in one call must not cost the variables"
    works(pool)


def test_an_error_that_all_have_is_told_once(pool: Pool) -> None:
    def fails(group: Group) -> None:
        raise ValueError("everywhere the same")

    with pytest.raises(RanksError) as caught:
        pool.run(fails)
    assert str(caught.value).count("Traceback") == 1
    assert "ranks 0 and 1:" in str(caught.value)


def test_an_error_that_cannot_even_be_printed(pool: Pool) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def fails(group: Group) -> None:
        if group.rank == 0:
            raise Unprintable

    pool.push(keep=6)
    with pytest.raises(RanksError, match="Unprintable"):
        pool.run(fails)
    assert pool.pull("keep") == [6, 6]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_a_program_ends_only_the_call(pool: Pool, error: BaseException) -> None:
    kind = type(error)
    works(pool)
    pids = pool.pids

    def ends(group: Group) -> None:
        raise kind(3)

    with pytest.raises(RanksError):
        pool.run(ends)
    assert pool.pids == pids
    works(pool)


# --- values --------------------------------------------------------------------------------------
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.float8_e5m2, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32,
    torch.int64, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


def test_tensors_of_every_dtype_travel_both_ways(pool: Pool) -> None:
    sent = {str(d): torch.arange(7).reshape(7, 1).expand(7, 3).to(d) for d in DTYPES}
    pool.push(sent=sent)
    for got in pool.pull("sent"):
        for name, tensor in sent.items():
            assert got[name].dtype == tensor.dtype
            assert got[name].shape == (7, 3)
            assert torch.equal(got[name].to(torch.complex128), tensor.to(torch.complex128)), name
            assert got[name].data_ptr() % max(8, tensor.itemsize) == 0, "not aligned"


@pytest.mark.filterwarnings("ignore")  # torch: they are deprecated
def test_a_quantized_tensor_travels_both_ways(pool: Pool) -> None:
    """Its bytes are no numbers: making a tensor of them alone ends the process."""
    sent = torch.quantize_per_tensor(torch.tensor([0.5, -1.0]), 0.5, 0, torch.qint8)
    pool.push(quantized=sent)
    assert [got.dequantize().tolist() for got in pool.pull("quantized")] == [[0.5, -1.0]] * 2


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (5, 1, 2)])
def test_shapes(pool: Pool, shape: tuple[int, ...]) -> None:
    pool.push(x=torch.ones(shape, dtype=torch.float64))
    for got in pool.pull("x"):
        assert got.shape == shape
        assert got.dtype == torch.float64
        assert torch.equal(got, torch.ones(shape, dtype=torch.float64))


def test_views_travel_as_what_they_show(pool: Pool) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    z = torch.tensor([1 + 2j, 3 - 4j])
    views = [base.t(), base[::2, 1::3], base[:, 2], base.flip(0), z.conj(), z.conj().imag]
    pool.push(views=views)
    for got in pool.pull("views"):
        assert all(torch.equal(a, b) for a, b in zip(got, views, strict=True))


def test_parameters_gradients_and_ties(pool: Pool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model[1].weight = model[0].weight
    model[1].bias.requires_grad_(False)
    pool.push(model=model, leaf=torch.ones(2, requires_grad=True))
    got, leaf = pool.pull("(model, leaf * 2)")[1]
    assert isinstance(got[0].weight, torch.nn.Parameter)
    assert got[0].weight is got[1].weight, "a tied parameter came apart"
    assert [p.requires_grad for p in got.parameters()] == [True, True, False]
    assert torch.equal(got[0].weight, model[0].weight)
    assert leaf.requires_grad
    assert torch.equal(leaf.detach(), torch.full((2,), 2.0))
    assert pool.pull("type(model[0].weight).__name__", rank=0) == "Parameter"


def test_64_mib_both_ways(pool: Pool) -> None:
    sent = torch.arange(16 * 2**20, dtype=torch.float32)
    pool.push(big=sent)
    assert pool.pull("float(big[-1])") == [float(sent[-1])] * 2
    pool.run_cell("big += rank")  # the ranks' copies are their own
    first, second = pool.pull("big")
    assert torch.equal(first, sent)
    assert torch.equal(second, sent + 1)
    first.zero_()  # and so is what arrived here
    assert pool.pull("float(big[1])", rank=0) == 1.0


def test_what_is_not_a_tensor(pool: Pool) -> None:
    values = {
        "text": "ä" * 1000, "bytes": os.urandom(1 << 20), "none": None, "nested": [1, {2: (3,)}],
        "array": np.arange(200_000.0)[::2], "generator": torch.Generator().get_state(),
    }  # fmt: skip
    pool.push(**values)
    for name, value in values.items():
        for got in pool.pull(name):
            assert np.array_equal(got, value) if name == "array" else str(got) == str(value)
    pool.push(square=lambda x: x * x)
    assert pool.pull("square(rank + 2)") == [4, 9]


def test_a_value_that_cannot_leave_this_process(pool: Pool) -> None:
    pool.push(keep=1)
    with pytest.raises(Refusal, match="asked: send this to the ranks"):
        pool.push(keep=2, stream=(i for i in range(3)))
    assert pool.pull("keep") == [1, 1]


def test_a_value_that_cannot_leave_its_rank(pool: Pool) -> None:
    pool.push(keep=2)
    with pytest.raises(RanksError, match="generator"):
        pool.pull("(i for i in range(3))")
    assert pool.pull("keep") == [2, 2]


def test_a_value_that_cannot_be_unpacked_here(pool: Pool) -> None:
    outcome = pool.run_cell(
        "class Odd:\n    def __reduce__(self):\n        return int, ('no number',)\nodd = Odd()"
    )
    assert outcome.verdict == ""
    with pytest.raises(RanksError, match="cannot be unpacked here: ValueError"):
        pool.pull("odd")
    assert pool.pull("rank") == [0, 1], "an answer was left over"


def test_pull_of_one_rank_and_of_expressions(pool: Pool) -> None:
    assert pool.pull("rank * 10", rank=1) == 10
    assert pool.pull("rank * 10", rank=1.0) == 10  # type: ignore[arg-type]
    assert pool.pull("world_size") == [2, 2]
    for source in ("no_such_name", "1 +", "1 / 0"):
        with pytest.raises(RanksError):
            pool.pull(source)
    assert pool.pull("rank") == [0, 1]


# --- cells ---------------------------------------------------------------------------------------
def test_only_some_ranks(pool: Pool) -> None:
    pool.push(touched=False)
    outcome = pool.run_cell("touched = True; print('here')", only=[1])
    assert outcome.verdict == ""
    assert pool.pull("touched") == [False, True]
    assert {rank: bytes(text) for rank, text in outcome.output.items() if text} == {1: b"here\n"}


def test_a_collective_that_only_some_run(pool: Pool) -> None:
    outcome = pool.run_cell("dist.barrier()", only=[0])
    assert outcome.verdict == "deadlock"
    assert "Rank 0 waits for rank 1, which did not run this cell." in outcome.story()
    works(pool)


def test_a_time_limit(pool: Pool) -> None:
    outcome = pool.run_cell("import time\nif rank == 0:\n    time.sleep(60)", timeout=0.5)
    assert outcome.verdict == "timeout"
    assert outcome.reports[0]["state"] == "running"
    assert outcome.reports[1]["state"] == "finished"
    assert "variables are gone" in outcome.restarted
    works(pool)


def test_output_without_end_does_not_stop_the_clock(pool: Pool) -> None:
    outcome = pool.run_cell(
        "import subprocess, time\nif rank == 0:\n    p = subprocess.Popen(['yes'])\ntime.sleep(60)",
        timeout=0.5,
    )
    assert outcome.verdict == "timeout"
    assert outcome.output[0].startswith(b"y\ny\n")
    works(pool)


def test_output_is_whole_and_in_order(pool: Pool) -> None:
    source = "import os\nfor i in range(50_000):\n    print(i)\nos.system('echo end')"
    outcome = pool.run_cell(source)
    for text in outcome.output.values():
        lines = text.decode().splitlines()
        assert lines[:50_000] == [str(i) for i in range(50_000)]
        assert lines[50_000:] == ["end", "0"]


def test_ranks_out_of_step_are_started_anew(pool: Pool) -> None:
    before = pool.pids
    outcome = pool.run_cell("if rank == 0:\n    w = dist.all_reduce(torch.ones(1), async_op=True)")
    assert outcome.verdict == "out of step"
    works(pool)
    assert not set(before) & set(pool.pids)


def test_an_interrupt_stops_the_cell_and_keeps_the_variables(pool: Pool) -> None:
    pool.push(keep=7)
    with interrupt_after(0.4):
        outcome = pool.run_cell("import time\nwhile True:\n    time.sleep(0.01)")
    assert outcome.verdict == "interrupted"
    assert {report["line"] for report in outcome.reports.values()} <= {2, 3}
    assert pool.pull("keep") == [7, 7]


@pytest.mark.parametrize(("late", "verdict"), [(-1, ""), (0, "raised"), (1, "")])
def test_an_interrupt_hits_the_request_that_was_meant(pool: Pool, late: int, verdict: str) -> None:
    """On a busy machine it may arrive when that one is over, or before it has come."""
    ends = pool._ranks
    meant = ends[0].requests + 1 + late
    for end in ends:
        question = {"do": "interrupt", "asked": 0.0, "request": meant}
        delayed = threading.Timer(0.0 if late > 0 else 0.4, end.questions.send, [question])
        delayed.start()
        delayed.join() if late > 0 else None
    outcome = pool.run_cell(f"import time\ntime.sleep({60 if verdict else 0.8})")
    assert outcome.verdict == verdict
    if late > 0:
        outcome = pool.run_cell("never = 1")
        assert outcome.verdict == "raised" and "KeyboardInterrupt" in str(outcome.reports)
        with pytest.raises(RanksError, match="never"):
            pool.pull("never")
    works(pool)


def test_an_interrupt_that_ranks_refuse_ends_them(pool: Pool) -> None:
    with interrupt_after(0.4):
        outcome = pool.run_cell(
            "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)"
        )
    assert outcome.verdict == "interrupted"
    assert "Some did not stop" in outcome.restarted
    works(pool)


# --- life and death ------------------------------------------------------------------------------
def test_death_between_two_calls(pool: Pool) -> None:
    works(pool)
    victim = pool.pids[1]
    os.kill(victim, signal.SIGKILL)
    assert gone_within([victim])
    outcome = pool.run_cell("print('fine')")
    assert outcome.verdict == ""
    assert outcome.restarted.startswith("Rank 1 was killed by SIGKILL since the last cell.")
    works(pool)


def test_a_stopped_rank_is_named_and_replaced(pool: Pool) -> None:
    outcome = pool.run_cell(
        "import os, signal\nif rank == 1:\n    os.kill(os.getpid(), signal.SIGSTOP)\ndist.barrier()"
    )
    assert outcome.verdict == "stopped"
    first, *table, _ = outcome.story().splitlines()
    assert first == "Rank 1 was stopped by a signal (SIGSTOP) and did not go on."
    assert "waits in barrier" in table[0]
    assert "stopped by a signal" in table[1]
    works(pool)


def test_a_rank_that_was_stopped_and_goes_on_is_waited_for(server: ForkServer) -> None:
    with Pool(2, server, stall=60) as patient:
        outcome = patient.run_cell(
            "import os, signal, subprocess\nif rank == 1:\n"
            "    subprocess.Popen(['sh', '-c', f'sleep 1; kill -CONT {os.getpid()}'])\n"
            "    os.kill(os.getpid(), signal.SIGSTOP)\ndist.barrier()\nprint('met')"
        )
    assert outcome.verdict == "", outcome.story()


def test_a_death_while_the_ranks_start_is_not_waited_out(server: ForkServer) -> None:
    """The others wait for it in the rendezvous, where they would for minutes."""
    pool = Pool(4, server)

    def kill() -> None:
        while len(pool.pids) < 2:
            time.sleep(0.001)
        os.kill(pool.pids[1], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(RanksError, match="rank 1 was killed by SIGKILL") as caught:
        pool.start()
    killer.join()
    assert caught.value.outcome.verdict == "died", "not `timeout`"
    with pool:
        works(pool)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (lambda: os._exit(5), "rank 1 exited with code 5"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "rank 1 was killed by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "rank 1 was killed by SIGSEGV"),
    ],
)
def test_death_in_a_call(pool: Pool, how: Callable[[], None], words: str) -> None:
    def dies(group: Group) -> None:
        if group.rank == 1:
            how()
        dist.barrier()

    with pytest.raises(RanksError, match=words) as caught:
        pool.run(dies)
    assert caught.value.outcome.verdict == "died"
    works(pool)


def test_death_of_all(pool: Pool) -> None:
    with pytest.raises(RanksError, match="rank 0 exited with code 1; rank 1 exited with code 1"):
        pool.run(lambda group: os._exit(1))
    works(pool)


def test_two_pools_of_one_server_do_not_meet(pool: Pool, server: ForkServer) -> None:
    with Pool(3, server) as other:
        pool.push(who="first")
        other.push(who="second")
        assert pool.pull("who") == ["first"] * 2
        assert other.pull("who") == ["second"] * 3
        works(other)
        pids = other.pids
    assert gone_within(pids)
    works(pool)


def test_one_rank(server: ForkServer) -> None:
    assert run_on_ranks(world_sum, 1, server=server) == [1.0]


def test_a_stopped_pool_starts_again(server: ForkServer) -> None:
    with Pool(2, server) as pool:
        assert not pool.running
        works(pool)
        pids = pool.pids
        pool.stop()
        assert not pool.running
        assert gone_within(pids)
        works(pool)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda server: Pool(0, server), "asked: 0 ranks\nfound: room for 1 to 64"),
        (lambda server: Pool(65, server), "asked: 65 ranks"),
        (lambda server: Pool(2, server, device="tpu"), "asked: the device 'tpu'"),
        (lambda server: Pool(2, server).run_cell("1", only=[2]), r"a cell of ranks \[2\]"),
        (lambda server: Pool(2, server).run_cell("1", only=[]), r"a cell of ranks \[\]"),
        (lambda server: Pool(2, server).pull("rank", rank=-1), r"a value of ranks \[-1\]"),
    ],
)
def test_bad_arguments(
    server: ForkServer, make: Callable[[ForkServer], Any], sentence: str
) -> None:
    with pytest.raises(Refusal, match=sentence):
        make(server)


@pytest.mark.slow
def test_all_who_share_a_preloaded_process_share_the_one_that_replaces_it() -> None:
    with ForkServer() as shared, Pool(1, shared) as first, Pool(1, shared) as second:
        before, children = shared.pid, len(psutil.Process().children())
        for pool in (first, second):
            assert pool.run_cell("1").verdict == ""
        os.kill(before, signal.SIGKILL)
        assert gone_within([*first.pids, *second.pids], 20)
        for pool in (first, second):
            assert "was killed by SIGKILL" in pool.run_cell("1").restarted
            assert pool.server is shared
        assert shared.pid != before
        assert len(psutil.Process().children()) == children, "another one besides"


@pytest.mark.slow
def test_a_pool_outlives_its_server_and_an_interrupted_start(
    spares_of: Callable[[int], list[int]],
) -> None:
    with Pool(2) as pool:
        # Torch is still being imported, before the ranks are there or in them.
        with interrupt_after(0.1), pytest.raises((KeyboardInterrupt, RanksError)):
            works(pool)
        works(pool)
        server = psutil.Process(pool.server.pid)
        mine = {*pool.pids, *spares_of(server.pid)}
        others = [c.pid for c in server.children() if c.pid not in mine]
        assert gone_within(others, 20), "a rank of the interrupted start lives on"
        pool.push(keep=1)
        server.kill()
        assert gone_within(pool.pids, 20)
        outcome = pool.run_cell("print('fine')")
        assert outcome.verdict == "", outcome.story()
        assert outcome.restarted.startswith(
            "The preloaded process was killed by SIGKILL, and the ranks with it, since the last"
        )
        works(pool)
        left = [pool.server.pid, *pool.pids]
    assert gone_within(left, 20), "the pool left its own server behind"
