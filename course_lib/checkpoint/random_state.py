"""Where each of a rank's random generators stands, so that it can go on from there.

Notebook: 11 Distributed checkpoint (resume_exact: rank-0 RNG everywhere).
Source: torch.get_rng_state, random.getstate, numpy.random.get_state.
Costs no communication; about 20 kB of JSON a rank.
The production version (Megatron-LM) keeps the same states, one set a data-parallel rank.
"""

from __future__ import annotations

import hashlib
import importlib
import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

from course_lib.recompute.checkpoint import RandomState


def random_state(generators: Mapping[str, RandomState]) -> dict[str, Any]:
    """This rank's default generators and `generators`: what `restore_random` takes.

    Default are those of torch on the CPU and, if it is in use, on the current GPU; Python's
    `random`; and NumPy's, if the program has them.
    """
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "generators": {name: made.get_state() for name, made in generators.items()},
    }
    if torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state()
    if "numpy.random" in sys.modules:
        kind, words, *rest = _numpy().get_state()
        state["numpy"] = (kind, words.tolist(), *rest)
    return state


def restore_random(state: Mapping[str, Any], generators: Mapping[str, RandomState]) -> None:
    """Goes on from where `random_state` was called.

    Args:
        state: what it returned. A GPU's is left out where there is none.
        generators: only these are set.

    Raises:
        KeyError: one of `generators` is not in the state.
    """
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
    if "numpy" in state:
        _numpy().set_state(state["numpy"])
    for name, made in generators.items():
        made.set_state(state["generators"][name])


def seed_random(*words: Any) -> None:
    """Seeds all default generators again, with a number that depends on all words."""
    seed = int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:7], "little")
    torch.manual_seed(seed)  # GPUs as well
    random.seed(seed)
    if "numpy.random" in sys.modules:
        _numpy().seed(seed % 2**32)


def _numpy() -> Any:
    return importlib.import_module("numpy.random")
