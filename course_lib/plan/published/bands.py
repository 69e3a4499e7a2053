"""How far predictions are off on runs of a source that they were not fitted to.

Notebook: 15 Choosing a strategy (the planner against published runs, with its error band).
Source: Stone (1974) for cross-validation, here over sources: papers, models, clusters.
Costs a few simulations of each run, as a fit does.
The production version does this for each new cluster before it is trusted.

A band that is taken from the errors of the runs that constants were fitted to holds those runs, and
few others. So each source of a kind of run is left out in turn, the constants are fitted to all the
others, and the runs of the source that was left out are predicted. The band holds 90 % of the
errors of each source, also of the one that is predicted worst. What was chosen with the same runs
in view (see calibration.py) is not chosen again for each source.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from course_lib.plan.published.fit import Curve, fit

HELD = 0.9  # part of the errors on an unseen source that a band is to hold
# Kinds of runs, and in each the sources: beginnings of families. Three of the H100's are models of
# one author; the fourth is older software of the same, with shapes that are not from the source, so
# that it is used for this alone. The runs on B200 are all of one author, model and machine.
KINDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "A100": ("megatron_sc21_t1", "megatron_sc21_t2_ptd", "korthikanti", "zerobubble"),
        "H100": ("dgxc_llama8b", "dgxc_llama70b", "dgxc_nemo15b", "nemo2407"),
        "FSDP": ("llmfoundry_A100-40", "llmfoundry_A100-80", "llmfoundry_H100"),
    }
)


def left_out(sources: Mapping[str, Sequence[Curve]]) -> dict[str, list[float]]:
    """Errors of each source's runs with constants that were fitted to all other sources.

    Args:
        sources: at least two, each with its runs.
    """
    errors = {}
    for name, runs in sources.items():
        others = [run for other, each in sources.items() if other != name for run in each]
        constants = fit(others, (0.0,))
        errors[name] = [run.error(constants) for run in runs]
    return errors


def width(errors: Mapping[str, Sequence[float]], part: float = HELD) -> float:
    """The smallest band that holds a part of the errors of every source.

    Args:
        errors: of the runs of each source.
        part: of them, more than 0.
    """
    ordered = (sorted(map(abs, each)) for each in errors.values())
    return max(each[math.ceil(part * len(each)) - 1] for each in ordered)
