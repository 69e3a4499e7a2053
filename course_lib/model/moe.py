"""A mixture of experts in place of the feed-forward network: more parameters, the same operations.

Notebook: 12 Expert parallel.
Paper: Shazeer et al., "Outrageously Large Neural Networks" (2017); Jiang et al., "Mixtral of
Experts" (2024), section 2.1.
Costs E times the parameters of one network and K times its operations, whatever E is.
The production version runs all experts in one grouped product instead of one after the other.

Shapes: B batch, T sequence; inside, T tokens of this device (batch and sequence together),
D hidden, E experts, K experts a token uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from course_lib.model.balance import balance_loss, moved_bias, z_loss
from course_lib.model.config import ModelConfig
from course_lib.model.feed_forward import FeedForward
from course_lib.model.router import Router, Routing
from course_lib.trace import Refusal

Run = Callable[[nn.ModuleDict, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Total = Callable[[torch.Tensor], tuple[torch.Tensor, int]]


def experts_in_turn(
    experts: nn.ModuleDict, x_TD: torch.Tensor, chosen_TK: torch.Tensor, weights_TK: torch.Tensor
) -> torch.Tensor:
    """Each expert computes the tokens that chose it, and adds its weighted outputs to theirs.

    An expert that no token chose computes nothing, but takes part: its gradients are zeros.

    Args:
        experts: networks by number.
        x_TD: tokens.
        chosen_TK: numbers of the experts of each token; E for none.
        weights_TK: of their outputs.

    Returns:
        The tokens' sums, in the dtype of `x_TD`; zeros for a token without experts.
    """
    y_TD = torch.zeros_like(x_TD)
    for number, expert in experts.items():
        token, choice = (chosen_TK == int(number)).nonzero(as_tuple=True)
        part = expert(x_TD[token]) * weights_TK[token, choice, None]
        y_TD = y_TD.index_add(0, token, part.to(y_TD.dtype))
    return y_TD


def every_expert(
    experts: nn.ModuleDict, x_TD: torch.Tensor, chosen_TK: torch.Tensor, weights_TK: torch.Tensor
) -> torch.Tensor:
    """The same, every expert on every token: E/K times the operations, and nothing to go wrong."""
    y_TD = torch.zeros_like(x_TD)
    for number, expert in experts.items():
        weight_T = (weights_TK * (chosen_TK == int(number))).sum(-1)
        y_TD = y_TD + (expert(x_TD) * weight_T[:, None]).to(y_TD.dtype)
    return y_TD


class Experts(nn.ModuleDict):
    """Networks by their number in the whole model, so that names do not depend on which are here.

    Args:
        config: D, F and E.

    Attributes:
        run: computes the tokens' sums as `experts_in_turn` does; may be replaced by another way to
            compute the same, also one that knows where experts are that are not here.
    """

    def __init__(self, config: ModelConfig) -> None:
        assert config.moe is not None
        numbers = range(config.moe.experts)
        super().__init__({str(number): FeedForward(config) for number in numbers})
        self.run: Run = experts_in_turn

    def forward(
        self, x_TD: torch.Tensor, chosen_TK: torch.Tensor, weights_TK: torch.Tensor
    ) -> torch.Tensor:
        """[T, D] to the same: for each token the weighted sum over its experts."""
        return self.run(self, x_TD, chosen_TK, weights_TK)


def _alone(counts_E: torch.Tensor) -> tuple[torch.Tensor, int]:
    """The counts of the only device."""
    return counts_E, 1


class MoE(nn.Module):
    """Experts, and the router that chooses among them.

    Args:
        config: D, F and the mixture.

    Attributes:
        router: chooses.
        experts: compute.
        total: of this device's counts makes those of all devices whose mean loss is trained, and
            says how many devices; may be replaced, as the experts' `run`.
        auxiliary: the weighted auxiliary losses of the last forward in training, with their graph,
            until `auxiliary_loss` takes them.
        load: how often each expert was chosen since the bias was moved.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if config.moe is None:
            raise Refusal(
                "a mixture of experts",
                "a config without one",
                "pass moe=MoEConfig(...) to the ModelConfig",
            )
        self.config = config.moe
        self.router = Router(config.hidden, config.moe)
        self.experts = Experts(config)
        self.total: Total = _alone
        self.auxiliary: torch.Tensor | None = None
        self.load: torch.Tensor | None = None

    def forward(self, x_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] to the same."""
        x_TD = x_BTD.flatten(0, -2)
        routing = self.router(x_TD)
        if self.training:
            self._account(routing)
        y_TD = self.experts(x_TD, routing.chosen, routing.weights)
        return y_TD.view(x_BTD.shape)

    def _account(self, routing: Routing) -> None:
        """Computes the auxiliary losses, and counts what the bias is moved by."""
        c = self.config
        if not (c.balance or c.z or c.bias_rate):
            return
        counts_E, devices = self.total(routing.counts)
        choices = counts_E.sum().clamp(min=1).to(routing.scores.dtype)
        tokens = choices / (c.top_k * devices)
        loss = torch.zeros_like(tokens)
        if c.balance:
            loss = loss + c.balance * balance_loss(routing.scores, counts_E, tokens)
        if c.z:
            loss = loss + c.z * z_loss(routing.logits, tokens)
        # In the midst of a backward a forward is a recomputation, and has been counted before.
        if torch._C._current_graph_task_id() == -1 and torch.is_grad_enabled():
            self.auxiliary = loss
            if c.bias_rate:
                self.load = counts_E if self.load is None else self.load + counts_E


# --- what a training loop asks a model for -------------------------------------------------------
def moe_layers(model: nn.Module) -> Iterator[MoE]:
    """The mixtures of experts in a model, in its order."""
    return (module for module in model.modules() if isinstance(module, MoE))


def auxiliary_loss(model: nn.Module) -> torch.Tensor:
    """The weighted auxiliary losses of the last forward, all layers together; to be added to it.

    Takes them from the layers, so call it once after each forward in training. 0 for a model
    without experts. With several devices it is this device's part: their mean is the loss.
    """
    total = torch.zeros(())
    for moe in moe_layers(model):
        if moe.auxiliary is not None:
            total = total + moe.auxiliary
            moe.auxiliary = None
    return total


def expert_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters of all experts here; everything else, routers included, is not in it."""
    return [p for moe in moe_layers(model) for p in moe.experts.parameters()]


@torch.no_grad()
def update_router_bias(model: nn.Module) -> None:
    """Moves the routers' biases by what was counted since the last call: once an update."""
    for moe in moe_layers(model):
        bias = moe.router.bias
        if bias is not None and moe.load is not None:
            bias.copy_(moved_bias(bias, moe.load, moe.config.bias_rate))
            moe.load = None
