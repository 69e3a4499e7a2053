"""What a feed-forward block split over ranks holds, computes and sends: the sums under the picture.

Paper: Shoeybi et al., "Megatron-LM" (2019), section 3.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.plot.player.style import format_bytes
from course_lib.trace import Refusal, chunk_sizes, wire_bytes


@dataclass(frozen=True)
class Split:
    """The shapes: X of T×H, A of H×F cut by columns, B of F×H cut by rows.

    Attributes:
        token_count: T, batch times sequence.
        hidden: H.
        ffn: F.
        ranks: N.
        item: bytes of an element.

    Raises:
        Refusal: a size is below 1, or there are more ranks than columns of A.
    """

    token_count: int
    hidden: int
    ffn: int
    ranks: int
    item: int

    def __post_init__(self) -> None:
        if min(self.token_count, self.hidden, self.ffn, self.ranks, self.item) < 1:
            raise Refusal(
                f"a split of {self}",
                "a size below 1",
                "a matrix has at least one row and one column",
            )
        if self.ffn < self.ranks:
            raise Refusal(
                f"cut {self.ffn} columns over {self.ranks} ranks",
                f"{self.ranks - self.ffn} ranks without one",
                "every rank computes a part of the product",
            )

    @property
    def columns(self) -> list[int]:
        """Columns of A, which are rows of B, on each rank."""
        return chunk_sizes(self.ffn, self.ranks)

    def weights(self, columns: int) -> int:
        """Bytes of `columns` columns of A and as many rows of B."""
        return 2 * self.hidden * columns * self.item

    def inner(self, columns: int) -> int:
        """Bytes of `columns` columns of Z, or of Y."""
        return self.token_count * columns * self.item

    def product(self, columns: int) -> int:
        """FLOP of a product with `columns` columns of A, or as many rows of B."""
        return 2 * self.token_count * self.hidden * columns

    @property
    def payload(self) -> int:
        """Bytes of X, or of O: what an all-reduce sums."""
        return self.token_count * self.hidden * self.item

    def sent(self, rank: int) -> int:
        """Bytes that a rank sends in one all-reduce of X's or O's size."""
        return wire_bytes("all_reduce", self.payload, self.ranks, rank, self.item)[0]


def format_flop(count: float) -> str:
    """`34.4 GFLOP`, in powers of ten."""
    return format_bytes(count, decimal=True).replace("B", "FLOP")


def many_of(values: list[str]) -> str:
    """One value if all ranks have it, else the first and the last."""
    return values[0] if len(set(values)) == 1 else f"{values[0]} to {values[-1]}"
