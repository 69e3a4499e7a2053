"""Which token goes to which expert, and what follows from it: counts, loads, and what travels.

Paper: Lepikhin et al., "GShard" (2020), section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from course_lib.trace import Refusal, chunk_sizes

Choices = Sequence[Sequence[Sequence[int]]]  # by rank, token and place: first choice, second one
ROOM = {"ranks": 4, "experts": 8, "tokens": 8, "choices": 2}  # the most that can be drawn


class Row(NamedTuple):
    """One choice of one token, as it travels. Rows are sent in this order, by expert first.

    Attributes:
        expert: that was chosen.
        home: rank of the token.
        token: its number there.
        place: 0 for the token's first choice, 1 for its second.
    """

    expert: int
    home: int
    token: int
    place: int


class Routes:
    """All rows of one layer and one batch.

    Args:
        choices: experts by number.
        experts: E; the first ranks have one more if the number of ranks does not divide it.
        dropped: for each rank the (token, place) of the choices that were taken back.

    Attributes:
        rows: that are sent, by expert, then by home, then in the order of tokens.
        lost: that are not.
        sizes: how many experts each rank has.
        owner: the rank of each expert.
        top_k: K.

    Raises:
        Refusal: choices are missing, twice, out of range or too many, or none is left.
    """

    def __init__(
        self, choices: Choices, experts: int, dropped: Sequence[Sequence[Sequence[int]]]
    ) -> None:
        check_choices(choices, experts)
        rows = {
            (home, token, place): Row(expert, home, token, place)
            for home, tokens in enumerate(choices)
            for token, chosen in enumerate(tokens)
            for place, expert in enumerate(chosen)
        }
        gone = {(home, *choice) for home, pairs in enumerate(dropped) for choice in pairs}
        if gone - rows.keys() or len(gone) == len(rows):
            raise Refusal(
                f"a dispatch without {len(gone)} dropped choices",
                f"{len(gone - rows.keys())} of them that nobody made, among {len(rows)}",
                "a dropped choice is (token, place) in its rank's list, and one at least is left",
            )
        self.rows = sorted(row for key, row in rows.items() if key not in gone)
        self.lost = sorted(row for key, row in rows.items() if key in gone)
        self.token_counts = [len(tokens) for tokens in choices]
        self.sizes = chunk_sizes(experts, len(choices))
        self.owner = [rank for rank, size in enumerate(self.sizes) for _ in range(size)]
        self.top_k = max(row.place for row in rows.values()) + 1

    @property
    def ranks(self) -> range:
        """All ranks."""
        return range(len(self.sizes))

    @property
    def experts(self) -> range:
        """All experts."""
        return range(len(self.owner))

    def of_rank(self, rank: int) -> range:
        """The experts of a rank."""
        first = sum(self.sizes[:rank])
        return range(first, first + self.sizes[rank])

    def sent(self, home: int) -> list[Row]:
        """The rows of a rank's tokens, in the order in which they leave."""
        return [row for row in self.rows if row.home == home]

    def queue(self, expert: int) -> list[Row]:
        """The rows of an expert, in the order in which it has them."""
        return [row for row in self.rows if row.expert == expert]

    def of_token(self, home: int, token: int) -> list[Row]:
        """What a token chose, best first, dropped or not."""
        mine = (row for row in self.rows + self.lost if (row.home, row.token) == (home, token))
        return sorted(mine, key=lambda row: row.place)

    def count(self, home: int, expert: int) -> int:
        """How many rows a rank sends to an expert."""
        return sum(row.home == home for row in self.queue(expert))

    @property
    def loads(self) -> list[int]:
        """How many rows each expert has."""
        return [len(self.queue(expert)) for expert in self.experts]

    @property
    def work(self) -> list[int]:
        """How many rows each rank computes."""
        return [sum(self.loads[expert] for expert in self.of_rank(rank)) for rank in self.ranks]

    def moved(self, home: int) -> int:
        """How many rows of a rank's tokens go over the wire; the others stay."""
        return sum(self.owner[row.expert] != home for row in self.sent(home))

    @property
    def travelling(self) -> int:
        """How many rows go over the wire in all."""
        return sum(map(self.moved, self.ranks))


def check_choices(choices: Choices, experts: int) -> None:
    """Raises a ValueError if these are not K different experts of each token, or too many."""
    most = max(map(len, choices), default=0)
    sizes = {len(chosen) for tokens in choices for chosen in tokens}
    top_k = max(sizes, default=0)
    found = {"ranks": len(choices), "experts": experts, "tokens": most, "choices": top_k}
    for thing, count in found.items():
        if not 1 <= count <= ROOM[thing]:
            raise Refusal(
                f"a dispatch of {_list(found)} a token",
                f"{count} {thing}, and room for 1 to {ROOM[thing]}",
                "every row must be large enough to be seen",
            )
    if experts < len(choices):
        raise Refusal(
            f"{experts} experts on {len(choices)} ranks",
            f"{len(choices) - experts} ranks without one",
            "every rank has an expert at least",
        )
    for rank, tokens in enumerate(choices):
        for token, chosen in enumerate(tokens):
            _check_token(f"rank {rank}, token {token}", chosen, top_k, experts)


def _check_token(where: str, chosen: Sequence[int], top_k: int, experts: int) -> None:
    """Raises a ValueError if these are not `top_k` different experts."""
    known = all(0 <= expert < experts for expert in chosen)
    if len(set(chosen)) != top_k or len(chosen) != top_k or not known:
        raise Refusal(
            f"a dispatch to {experts} experts, {top_k} for each token",
            f"{list(chosen)} at {where}",
            f"these are to be {top_k} different numbers from 0 to {experts - 1}; one that was "
            "dropped is there too, and named in `dropped`",
        )


def _list(found: dict[str, int]) -> str:
    """`2 ranks, 4 experts, ...`."""
    return ", ".join(f"{count} {thing}" for thing, count in found.items())
