"""Emulated hosts: real ranks, a link that is really slow, and nothing left behind."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from course_lib import comm
from course_lib.comm import Group
from course_lib.ranks import ForkServer, Pool, RanksError, run_on_ranks
from course_lib.ranks.hosts.hosts import EmulatedHosts, HostsError, why_not
from course_lib.ranks.hosts.recorded import Run, live_or_recorded
from course_lib.ranks.magic.asked import Form, cell_parser
from course_lib.trace import Ledger, Refusal
from tests.ranks.open_files import open_files

sys.path.insert(0, str(Path(__file__).parents[1]))
kernels = importlib.import_module("kernels")

REASON = why_not()
emulated = pytest.mark.skipif(REASON is not None, reason=f"no emulated hosts here: {REASON}")

MIB = 1 << 20


@pytest.fixture(scope="module")
def pool(server: ForkServer) -> Iterator[Pool]:
    """Four ranks on two hosts with a link of 50 Mbit/s: 1 MiB takes 168 ms."""
    with Pool(4, server, hosts=2, mbit=50) as started:
        started.start()
        yield started


def networks() -> set[str]:
    """Every network namespace that a thread, an open file or a mount keeps alive."""
    found: set[str] = set()
    for pattern in ("task/*/ns/net", "fd/*"):
        for path in Path("/proc").glob(f"[0-9]*/{pattern}"):
            with suppress(OSError):
                name = os.readlink(path)
                found |= {name} if name.startswith("net:") else set()
    return found | set(re.findall(r"net:\[\d+\]", Path("/proc/self/mountinfo").read_text()))


def held_by(pid: int | str = "self") -> set[str]:
    """The network namespaces that a process holds as open files."""
    return {name for name in open_files(pid) if name.startswith("net:")}


def gone_within(names: set[str], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while names & networks() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not names & networks()


# --- the ranks -----------------------------------------------------------------------------------
def introduce(group: Group) -> dict[str, Any]:
    tensor = torch.full((1000,), float(group.rank))
    comm.all_reduce(tensor, group)
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
             "GROUP_WORLD_SIZE")  # fmt: skip
    return {"sum": tensor.unique().tolist(), **{name: int(os.environ[name]) for name in names}}


def carry(group: Group, source: int, to: int) -> float:
    """1 MiB from one rank to another; seconds until it is there."""
    tensor = torch.zeros(MIB // 4)
    comm.barrier(group)
    begin = time.monotonic()
    if group.rank == source:
        dist.send(tensor, to)
    if group.rank == to:
        dist.recv(tensor, source)
    return time.monotonic() - begin


@emulated
def test_ranks_meet_over_hosts_and_know_their_places(pool: Pool) -> None:
    told = pool.run(introduce)
    assert [t["sum"] for t in told] == [[6.0]] * 4
    assert [t["RANK"] for t in told] == [0, 1, 2, 3]
    assert [t["LOCAL_RANK"] for t in told] == [0, 1, 0, 1]
    assert [t["GROUP_RANK"] for t in told] == [0, 0, 1, 1]
    assert {(t["WORLD_SIZE"], t["LOCAL_WORLD_SIZE"], t["GROUP_WORLD_SIZE"]) for t in told} == {
        (4, 2, 2)
    }


def test_on_one_host_the_places_are_those_of_one_node(server: ForkServer) -> None:
    told = run_on_ranks(introduce, 2, server=server)
    assert [(t["LOCAL_RANK"], t["GROUP_RANK"], t["GROUP_WORLD_SIZE"]) for t in told] == [
        (0, 0, 1),
        (1, 0, 1),
    ]


@emulated
@pytest.mark.parametrize(("source", "to"), [(0, 1), (3, 2)])
def test_ranks_of_one_host_do_not_use_the_link(pool: Pool, source: int, to: int) -> None:
    assert pool.network is not None
    before = pool.network.sent()
    pool.run(carry, source, to)
    used = [now - then for now, then in zip(pool.network.sent(), before, strict=True)]
    assert max(used) < MIB / 10, "only the barrier crosses"


@emulated
@pytest.mark.parametrize(("source", "to"), [(0, 2), (3, 1)])
def test_between_hosts_the_link_carries_and_limits(pool: Pool, source: int, to: int) -> None:
    assert pool.network is not None
    before = pool.network.sent()
    seconds = pool.run(carry, source, to)[to]
    used = [now - then for now, then in zip(pool.network.sent(), before, strict=True)]
    assert MIB <= used[source // 2] < 1.1 * MIB
    assert used[to // 2] < MIB / 10, "acknowledgements only"
    # A busy machine can only be slower than the link: there is no upper limit to hold it to.
    assert seconds > 0.9 * (MIB - 20e3) * 8 / 50e6


@emulated
def test_a_ring_crosses_each_link_once(pool: Pool) -> None:
    def reduce(group: Group) -> int:
        tensor = torch.zeros(MIB // 4)
        comm.ring_all_reduce(tensor, group)
        return group.ledger.sent("all_reduce")

    assert pool.network is not None
    before = pool.network.sent()
    booked = pool.run(reduce)
    used = [now - then for now, then in zip(pool.network.sent(), before, strict=True)]
    for host in (0, 1):  # one rank of each host sends to the other host
        assert booked[2 * host + 1] <= used[host] < 1.1 * booked[2 * host + 1]


@emulated
def test_a_pool_that_lost_a_rank_is_on_its_hosts_again(pool: Pool) -> None:
    pids = pool.pids
    os.kill(pids[3], signal.SIGKILL)
    with suppress(RanksError):  # the others may be in the call before the news of its end is here
        pool.run(introduce)
    told = pool.run(introduce)
    assert [t["GROUP_RANK"] for t in told] == [0, 0, 1, 1]
    assert not set(pool.pids) & set(pids)


# --- nothing is left behind ----------------------------------------------------------------------
@emulated
def test_nothing_is_left_after_exit_and_nothing_outside_is_touched(server: ForkServer) -> None:
    devices = sorted(os.listdir("/sys/class/net"))
    files = open_files()
    others = held_by()
    with Pool(2, server, hosts=2, mbit=100) as pool:
        pool.start()
        mine = held_by() - others
        assert len(mine) == 3, "two hosts and a switch"
        assert mine <= networks()
        assert sorted(os.listdir("/sys/class/net")) == devices
    assert gone_within(mine)
    assert not open_files() - files, "nothing is open that was not open before"
    assert sorted(os.listdir("/sys/class/net")) == devices


@emulated
def test_a_pool_that_was_not_closed_well_can_start_again(server: ForkServer) -> None:
    others = held_by()
    network = EmulatedHosts(3, 100)
    for _ in range(2):
        network.start()
        network.start()
        assert max(network.sent()) < 1000, "nothing but the system's own chatter"
        mine = held_by() - others
        network.close()
        network.close()
        assert gone_within(mine)


@pytest.mark.slow
@emulated
def test_nothing_is_left_after_the_parent_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import time\nfrom course_lib.ranks import Pool\n"
        "if __name__ == '__main__':\n"
        "    pool = Pool(4, hosts=2, mbit=100)\n    pool.start()\n"
        "    print('ready', flush=True)\n    time.sleep(600)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(kernels.ROOT)}
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, env=env)
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        mine = held_by(parent.pid)
        assert len(mine) == 3
    finally:
        parent.kill()
        parent.communicate()
    assert gone_within(mine)


@emulated
def test_the_thread_that_makes_them_stays_where_it_is() -> None:
    here = os.readlink("/proc/thread-self/ns/net")
    with EmulatedHosts(2, 100) as network:
        network.sent()
        assert os.readlink("/proc/thread-self/ns/net") == here
    threads = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
    assert not any("ThreadPool" in name for name in threads)


# --- what cannot be ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("world", "hosts", "mbit", "sentence"),
    [
        (4, 1, 300, "asked: a link of 300 Mbit/s\nfound: one host\nwhy: a link joins 2"),
        (4, 2, None, "asked: 2 hosts and no speed\nfound: no speed from 1 to 1000 Mbit/s"),
        (4, 2, 0.5, "asked: 2 hosts and 0.5 Mbit/s"),
        (4, 2, float("nan"), "asked: 2 hosts and nan Mbit/s"),
        (4, 2, 2000, "asked: 2 hosts and 2000 Mbit/s"),
        (4, 0, 300, "asked: 0 hosts\nfound: room for 1 to 16"),
        (34, 17, 300, "asked: 17 hosts"),
        (
            3,
            2,
            300,
            "asked: 3 ranks on 2 hosts\nfound: 1 of them left over",
        ),
    ],
)
def test_bad_arguments(
    server: ForkServer, world: int, hosts: int, mbit: float | None, sentence: str
) -> None:
    with pytest.raises(Refusal, match=sentence):
        run_on_ranks(introduce, world, server=server, hosts=hosts, mbit=mbit)


def without(program: str) -> Callable[..., str | None]:
    """`shutil.which` on a machine that lacks a program."""
    original = shutil.which
    return lambda name, **options: None if name == program else original(name, **options)


@emulated
@pytest.mark.parametrize("program", ["ip", "tc"])
def test_without_a_program_it_says_which(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    before = held_by()
    monkeypatch.setattr(shutil, "which", without(program))
    reason = f"there is no program {program}, which the package iproute2 has"
    assert why_not() == reason
    with pytest.raises(HostsError) as caught:
        run_on_ranks(introduce, 2, server=server, hosts=2, mbit=300)
    assert caught.value.asked == "2 hosts joined at 300 Mbit/s"
    assert caught.value.found == reason
    assert "root on Linux" in caught.value.why
    assert held_by() == before


@emulated
def test_what_a_kernel_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.ranks.hosts.hosts.LINK", "a name that is too long for a device")
    reason = why_not()
    assert reason is not None
    assert reason.startswith("ip refused `link set port0 master bridge up ...`: ")


@emulated
def test_without_root_it_says_so() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        os.write(write, (why_not() or "no reason").encode())
        os._exit(0)
    os.close(write)
    told = os.read(read, 1000).decode()
    os.close(read)
    os.waitpid(pid, 0)
    assert told == "making a network namespace is refused (Operation not permitted)"


# --- live or recorded ----------------------------------------------------------------------------
def sums(group: Group, factor: float) -> dict[str, Any]:
    tensor = torch.full((256,), factor)
    with group.ledger.span("work"):
        comm.all_reduce(tensor, group)
    return {"sum": float(tensor[0]), "pair": (1, 2), "ledger": group.ledger.to_dict()}


@emulated
def test_a_run_is_live_saved_and_replayed(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    path = tmp_path / "sums.json"
    first = live_or_recorded(path, sums, 2, 1.5, hosts=2, mbit=300, server=server)
    assert Run.load(path) == first, "a recording that is missing is made"
    live = live_or_recorded(path, sums, 2, 2.5, hosts=2, mbit=300, server=server)
    assert capsys.readouterr().out == "Live: 2 ranks on 2 hosts joined at 300 Mbit/s.\n" * 2
    assert Run.load(path) == first, "and stays as it is"
    monkeypatch.setattr(shutil, "which", without("tc"))
    recorded = live_or_recorded(path, sums, 2, 2.5, hosts=2, mbit=300, server=server)
    assert capsys.readouterr().out == (
        f"Recorded: 2 ranks on 2 hosts joined at 300 Mbit/s, on {first.machine}; "
        "here, there is no program tc, which the package iproute2 has.\n"
    )
    for run, total in ((live, 5.0), (recorded, 3.0)):
        assert [value["sum"] for value in run.values] == [total, total]
        assert run.values[0]["pair"] == [1, 2], "a live run looks as a recorded one does"
        assert run.timeline("ledger").sent("all_reduce") == [1024, 1024]
        assert [span.name for span in run.timeline("ledger").rank(1).spans] == ["work"]


def test_a_recording_of_another_run_is_refused(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: EmulatedHosts) -> None:
        raise HostsError("hosts", "this machine has none")

    monkeypatch.setattr(EmulatedHosts, "start", refuse)
    path = tmp_path / "run.json"
    value = {"a": {"ledger": Ledger(0).to_dict()}}
    Run(2, 2, 300, "a machine", [value, value]).save(path)
    assert Run.load(path).timeline("a", "ledger").ranks == [0, 0]
    assert json.loads(path.read_text())["machine"] == "a machine"
    with pytest.raises(Refusal) as caught:
        live_or_recorded(path, sums, 4, 1.0, hosts=2, mbit=300, server=server)
    assert str(caught.value).splitlines() == [
        "asked: 4 ranks on 2 hosts joined at 300 Mbit/s",
        "found: a recording of 2 ranks on 2 hosts joined at 300 Mbit/s, in run.json",
        "why: it cannot run here (this machine has none), and the recording is of another run",
    ]


# --- the notebook --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("before", "line", "after"),
    [
        (Form(4), "", Form(4)),
        (Form(4), "2", Form(2)),
        (Form(2), "4 --hosts 2 --mbit 300", Form(4, 2, 300)),
        (Form(4, 2, 300), "--ledger", Form(4, 2, 300)),
        (Form(4, 2, 300), "--mbit 100", Form(4, 2, 100)),
        (Form(4, 2, 300), "--hosts 4", Form(4, 4, 300)),
        (Form(4, 2, 300), "8 --hosts 4", Form(8, 4, 300)),
        (Form(4, 2, 300), "4", Form(4)),
        (Form(4, 2, 300), "--hosts 1", Form(4)),
    ],
)
def test_what_is_left_out_stays(before: Form, line: str, after: Form) -> None:
    assert before.changed(cell_parser().read(line)) == after


@pytest.mark.slow
@emulated
def test_magics(tmp_path: Path) -> None:
    kernel = kernels.Kernel()
    try:
        said = "4 ranks on CPU (gloo), 2 hosts joined at 300 Mbit/s"
        assert kernel.run("%ranks 4 --hosts 2 --mbit 300").text == said
        where = "import os\nint(os.environ['GROUP_RANK'])"
        answer = kernel.run(f"%%ranks\n{where}")
        assert answer.text == "ranks 0–1 │ 0\nranks 2–3 │ 1"
        assert kernel.run(f"%%ranks 4 --hosts 2 --mbit 300\n{where}").text == answer.text
        values = "run_on_ranks(lambda group: group.rank, 2, hosts=2, mbit=300)"
        assert kernel.run(values).text == "[0, 1]"
        run = f"live_or_recorded('{tmp_path}/run.json', lambda group: 1, 2, hosts=2, mbit=300)"
        assert kernel.run(f"{run}.values").text.endswith("[1, 1]")
        answer = kernel.run("%ranks 4")
        change = "From 4 ranks on 2 hosts at 300 Mbit/s to 4 ranks: all start again"
        assert answer.text.startswith(change)
        assert answer.text.endswith("\n4 ranks on CPU (gloo)")
        for line, sentence in [
            ("%ranks 3 --hosts 2 --mbit 300", "asked: 3 ranks on 2 hosts"),
            ("%ranks 4 --mbit 300", "asked: a link of 300 Mbit/s"),
            (
                "%ranks 4 --hosts two",
                "%ranks 4 --hosts two\nfound: the number of hosts is a number",
            ),
            ("%%ranks --mbit fast\n1", "found: the speed of a link is a number of Mbit/s"),
        ]:
            answer = kernel.run(line)
            assert answer.status == "error"
            assert sentence in answer.text
        assert kernel.run("%%ranks\nrank").status == "ok", "a refused line changes nothing"
    finally:
        kernel.close()
    assert kernels.gone_within(kernel.tag, 5) == []
