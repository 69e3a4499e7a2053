"""Which unit each parameter belongs to: the innermost around it, or the root.

Notebook: 04 ZeRO (wrapping granularity).
Paper: Zhao et al., "PyTorch FSDP" (2023), section 4.1.
Costs nothing; but how finely a model is cut decides what FSDP costs: with one unit, everything is
whole at once; with one for each layer, there are many small messages.
The production version (FSDP2) asks for one call of fully_shard for each unit, from the inside out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from torch import nn

from course_lib.comm import CommError

Part = tuple[nn.Module | None, str, list[nn.Parameter]]


def cut(
    model: nn.Module, modules: Sequence[nn.Module], whole: Collection[nn.Parameter] = ()
) -> list[Part]:
    """Divides a model's parameters among some of its submodules, and the root for what is left.

    Args:
        model: whose parameters.
        modules: the submodules that become units; one may lie in another.
        whole: parameters that belong to no unit.

    Returns:
        For each unit its module, its name and its parameters, in the order in which they stand in
        the model; last the root, with None for the module.

    Raises:
        CommError: a module is not a submodule, or is named twice, or there is nothing to cut.
    """
    names = {m: name for name, m in model.named_modules() if m in set(modules) and m is not model}
    count = sum(1 for p in model.parameters() if p not in whole)
    if len(names) < len(modules) or not count:
        raise CommError(
            f"a {type(model).__name__} in {len(modules)} units",
            f"{len(names)} of them among its submodules, and {count} parameters",
            "units are different submodules of the module, and there is something to shard",
        )
    owners = {p: unit for p, unit in _owners(model, names).items() if p not in whole}
    parts: list[Part] = [
        (module, name, [p for p, owner in owners.items() if owner is module])
        for module, name in names.items()
    ]
    return [*parts, (None, "root", [p for p, owner in owners.items() if owner is None])]


def _owners(model: nn.Module, names: dict[nn.Module, str]) -> dict[nn.Parameter, nn.Module | None]:
    """The innermost unit around each parameter; None, the root, if there is none or several."""
    owners: dict[nn.Parameter, nn.Module | None] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        around = [module for module, outer in names.items() if name.startswith(f"{outer}.")]
        owner = max(around, key=lambda module: len(names[module]), default=None)
        owners[parameter] = owner if owners.get(parameter, owner) is owner else None
    return owners
