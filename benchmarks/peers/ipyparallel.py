"""ipyparallel: a controller and one engine a rank; the process group is made by hand."""

from __future__ import annotations

from benchmarks.peers.way import Way

GROUP = """
import socket
with socket.socket() as s:
    s.bind(('127.0.0.1', 0))
    port = s.getsockname()[1]
def meet(rank, size, port):
    import os, torch, torch.distributed as dist
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR='127.0.0.1',
                      MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group('gloo')
calls = [rc[i].apply_async(meet, rank, len(rc.ids), port) for rank, i in enumerate(rc.ids)]
[call.get() for call in calls]
v.execute('import torch, torch.distributed as dist; rank = dist.get_rank()', block=True)
"""
VIEW = "rc.wait_for_engines(4, timeout=60); v = rc[:]; v.activate(''); v.block = True"


def ipyparallel(python: str) -> Way:
    """The way, in the environment of that interpreter."""
    start = "cluster = ipp.Cluster(n=4, log_level=40)\nrc = cluster.start_and_connect_sync()\n"
    return Way(
        name="ipyparallel",
        load="import ipyparallel as ipp",
        start=(start + VIEW, GROUP),
        header="%%px",
        pull="got = rc[rc.ids[0]].pull('big', block=True)",
        restart=("cluster.restart_engines_sync()\n" + VIEW, GROUP),
        python=python,
        env={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )
