"""Hosts that are not there: ranks of one machine in networks of their own, joined by slow links.

Each host is a network namespace with one device, and a switch in a namespace of its own joins them.
Nothing has a name outside: the namespaces are open files of this process and are gone with it, also
when it is killed, and the machine's own network is never touched.
"""

from __future__ import annotations

import ctypes
import io
import os
import shutil
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from course_lib.ranks.system.processes import LINUX
from course_lib.trace import Refusal

LINK = "eth0"  # a host's device, as its own ranks see it
SUBNET = "10.77.0"
MOST_HOSTS, MOST_MBIT = 16, 1000
MTU = 9000  # bytes of a packet, as clusters have it; small ones would cost processor time
BURST = "20kb"  # what may leave at once; a message of this size does not feel the limit
QUEUE = "100ms"  # how long a packet may wait at the switch when several hosts send to one
CLONE_NEWNET = 0x40000000

NEEDED = "emulated hosts need root on Linux, with ip and tc; without them, ranks run on one host"

T = TypeVar("T")


class HostsError(Refusal):
    """Hosts cannot be emulated on this machine; `found` says in a sentence what stands against it.

    Args:
        asked: the hosts.
        found: what was tried, and how it ended.
        why: what it takes.
    """

    def __init__(self, asked: str, found: str, why: str = NEEDED) -> None:
        super().__init__(asked, found, why)


def why_not() -> str | None:
    """Why hosts cannot be emulated here, in one sentence; None if they can: it is tried."""
    try:
        with EmulatedHosts(2, 1000):
            return None
    except HostsError as error:
        return error.found


def network_of(world_size: int, hosts: int, mbit: float | None) -> EmulatedHosts | None:
    """The hosts for so many ranks, not made yet; None for one host and no speed.

    Raises:
        Refusal: no such hosts, or the ranks cannot be dealt out to them evenly.
    """
    if hosts == 1 and mbit is None:
        return None
    network = EmulatedHosts(hosts, mbit)
    network.ranks_per_host(world_size)
    return network


class EmulatedHosts:
    """Hosts on one switch, each behind a link of the same speed in both directions.

    A context manager; `start` and `close` do the same for those who hold it longer. Ranks enter it
    through `Pool(..., hosts=, mbit=)`. Ranks of one host talk over its loopback, at full speed.

    Args:
        hosts: how many, 2 to 16.
        mbit: speed of each link in Mbit/s (10^6 bits), 1 to 1000: beyond, the processors that
            carry the packets are the limit, and not the link.

    Raises:
        Refusal: no such number of hosts, or no such speed.
    """

    def __init__(self, hosts: int, mbit: float | None) -> None:
        if hosts == 1 and mbit is not None:
            raise Refusal(f"a link of {mbit:g} Mbit/s", "one host", "a link joins 2 hosts or more")
        if not 2 <= hosts <= MOST_HOSTS:
            raise Refusal(
                f"{hosts} hosts",
                f"room for 1 to {MOST_HOSTS}",
                "each of them is a network of this machine",
            )
        if mbit is None or not 1 <= mbit <= MOST_MBIT:
            given = "no speed" if mbit is None else f"{mbit:g} Mbit/s"
            raise Refusal(
                f"{hosts} hosts and {given}",
                f"no speed from 1 to {MOST_MBIT} Mbit/s",
                "each link is held to a speed that the processors of this machine can carry",
            )
        self.hosts = hosts
        self.mbit = mbit
        self._namespaces: list[io.FileIO] = []  # one that an interrupt loses closes itself

    def __str__(self) -> str:
        return f"{self.hosts} hosts joined at {self.mbit:g} Mbit/s"

    # --- life ------------------------------------------------------------------------------------
    def start(self) -> None:
        """Makes the hosts, unless they are there.

        Raises:
            HostsError: it cannot be done here.
        """
        if self._namespaces:
            return
        if not LINUX:
            raise HostsError(str(self), "only Linux, with /proc, has network namespaces")
        try:
            for _ in range(self.hosts + 1):  # the last one is the switch
                self._namespaces.append(self._namespace())
            self._join(self._namespaces[-1].fileno())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Lets go of the hosts: the links are gone at once, a host with the last rank in it."""
        while self._namespaces:
            self._namespaces.pop().close()

    def __enter__(self) -> EmulatedHosts:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- use -------------------------------------------------------------------------------------
    def ranks_per_host(self, world_size: int) -> int:
        """How many of `world_size` ranks each host has: rank r is on host r // this.

        Raises:
            Refusal: they cannot be dealt out evenly.
        """
        if world_size % self.hosts:
            raise Refusal(
                f"{world_size} ranks on {self.hosts} hosts",
                f"{world_size % self.hosts} of them left over",
                "each host has the same number of ranks",
            )
        return world_size // self.hosts

    def namespace(self, host: int) -> int:
        """The open file that stands for a host's network; see `enter`. Stays this object's own."""
        return self._namespaces[host].fileno()

    def sent(self) -> list[int]:
        """Bytes that each host has put on its link so far, headers and acknowledgements included.

        What ranks of one host send each other is not among them.
        """
        return [_inside(network.fileno(), _bytes_sent) for network in self._namespaces[:-1]]

    # --- inside ----------------------------------------------------------------------------------
    def _namespace(self) -> io.FileIO:
        """A new network, as an open file; nothing but the file keeps it."""

        def make() -> io.FileIO:
            _libc("unshare", CLONE_NEWNET)
            with suppress(OSError):  # IPv6 would only chatter on the links
                Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
            return io.FileIO("/proc/thread-self/ns/net")

        try:
            return _in_thread(make)
        except OSError as error:
            reason = f"making a network namespace is refused ({error.strerror})"
            raise HostsError(str(self), reason) from None

    def _join(self, switch: int) -> None:
        """Puts a device into each host and joins all on a bridge, every end held to the speed."""
        ports = range(self.hosts)
        limit = f"root tbf rate {self.mbit * 1e6:.0f}bit burst {BURST} latency {QUEUE}"
        self._run(switch, "ip", "link add bridge type bridge", "link set bridge up")
        for port in ports:
            namespace = self._namespaces[port].fileno()
            self._run(
                switch, "ip",
                f"link add port{port} mtu {MTU} type veth"
                f" peer name {LINK} mtu {MTU} netns /proc/self/fd/{namespace}",
                f"link set port{port} master bridge up",
            )  # fmt: skip
            self._run(
                namespace, "ip", "link set lo up", f"link set {LINK} up",
                f"address add {SUBNET}.{port + 1}/24 dev {LINK}",
            )  # fmt: skip
            self._run(namespace, "tc", f"qdisc add dev {LINK} {limit}")
        self._run(switch, "tc", *(f"qdisc add dev port{port} {limit}" for port in ports))

    def _run(self, namespace: int, program: str, *lines: str) -> None:
        """Has `ip` or `tc` carry out lines inside a namespace.

        Raises:
            HostsError: there is no such program, or it refused.
        """
        path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        if path is None:
            reason = f"there is no program {program}, which the package iproute2 has"
            raise HostsError(str(self), reason)
        done = _inside(
            namespace,
            lambda: subprocess.run(
                [path, "-batch", "-"], input="\n".join(lines) + "\n", text=True,
                capture_output=True, pass_fds=[n.fileno() for n in self._namespaces], check=False,
            ),
        )  # fmt: skip
        if done.returncode:
            said = done.stderr.strip().splitlines() or [f"code {done.returncode}"]
            reason = f"{program} refused `{' '.join(lines[-1].split()[:6])} ...`: {said[0]}"
            raise HostsError(str(self), reason)


def enter(namespace: int) -> None:
    """Moves the calling thread, and threads that it starts from then on, to a host.

    Sockets that are open already stay where they are. Closes `namespace`, which the thread itself
    now keeps alive.

    Raises:
        OSError: it is not allowed.
    """
    _libc("setns", namespace, CLONE_NEWNET)
    os.close(namespace)


def _libc(name: str, *args: int) -> None:
    """Calls a function of the C library, which Python knows only from 3.12 on.

    Raises:
        OSError: it failed.
    """
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _in_thread(call: Callable[[], T]) -> T:
    """Calls it in a thread of its own: a network namespace belongs to a thread, not a process."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(call).result()


def _inside(namespace: int, call: Callable[[], T]) -> T:
    """Calls it in a namespace; programs that it starts run there as well."""

    def go_and_call() -> T:
        _libc("setns", namespace, CLONE_NEWNET)
        return call()

    return _in_thread(go_and_call)


def _bytes_sent() -> int:
    """What the link of the namespace that this thread is in has sent: proc(5), net/dev."""
    for line in Path("/proc/thread-self/net/dev").read_text().splitlines():
        device, _, counters = line.partition(":")
        if device.strip() == LINK:
            return int(counters.split()[8])
    raise LookupError(f"no device {LINK} here")
