"""How a script joins the other ranks, and leaves nothing running when it is done."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ALONE = """
from pathlib import Path
import torch
from course_lib import comm
from course_lib.comm.start import start_from_environment

def threads():
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]

with start_from_environment() as group:
    part = group.split([[0]], "dp")
    torch.optim.AdamW([torch.ones(2, requires_grad=True)])  # imports much of torch.distributed
    comm.all_reduce(torch.ones(3), part)
    print(threads().count("pt_gloo_runloop"))
print(threads().count("pt_gloo_runloop"))
try:
    comm.all_reduce(torch.ones(3), part)
except comm.CommError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_the_backends_threads_end_with_the_block_though_the_groups_are_still_held() -> None:
    """A thread of gloo's that outlives it may abort the process while Python shuts down."""
    done = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, timeout=120, check=True
    )
    under_way, after, *error = done.stdout.splitlines()
    assert int(under_way) > 0 and int(after) == 0
    assert "torch.distributed has destroyed this process group" in " ".join(error)
