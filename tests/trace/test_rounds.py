"""Rounds: chains, stars, trees and exchanges have as many as the textbook says."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from course_lib.trace import Ledger
from course_lib.trace.rounds import rounds

CLOCK = itertools.count(1)


class Book(Ledger):
    """A ledger in which messages are written down by hand, on a clock that counts."""

    def message(self, op: str, peer: int, wait: bool = True) -> Book:
        event = self.begin(op, axis="world", group=(0, 1, 2, 3, 4), payload=8, peer=peer)
        event.begin = float(next(CLOCK))
        if wait:
            event.end = float(next(CLOCK))
        return self

    def exchange(self, to: int, source: int) -> Book:
        self.message("recv", source, wait=False).message("send", to, wait=False)
        for event in self.events[-2:]:
            event.end = float(next(CLOCK))
        return self


def books(messages: Iterable[tuple[int, int]], size: int) -> list[Book]:
    """Blocking messages from one rank to another, in an order that can really happen."""
    found = [Book(rank) for rank in range(size)]
    for sender, receiver in messages:
        found[sender].message("send", receiver)
        found[receiver].message("recv", sender)
    return found


def test_no_message_takes_no_round() -> None:
    assert rounds([Book(0), Book(1)]) == 0


def test_a_chain_and_a_star_take_a_round_for_each_receiver() -> None:
    assert rounds(books([(0, 1), (1, 2), (2, 3), (3, 4)], 5)) == 4
    assert rounds(books([(0, 1), (0, 2), (0, 3), (0, 4)], 5)) == 4


def test_sends_that_are_started_together_still_leave_one_by_one() -> None:
    star = [Book(rank) for rank in range(4)]
    for to in (1, 2, 3):
        star[0].message("send", to, wait=False)
    for rank in (1, 2, 3):
        star[rank].message("recv", 0)
    assert rounds(star) == 3


def test_what_many_send_to_one_arrives_one_by_one() -> None:
    assert rounds(books([(1, 0), (2, 0), (3, 0)], 4)) == 3


def test_a_binomial_tree_takes_the_logarithm() -> None:
    assert rounds(books([(0, 1), (0, 2), (1, 3)], 4)) == 2
    assert rounds(books([(0, 1), (0, 2), (1, 3), (0, 4)], 5)) == 3


def test_an_exchange_is_one_round_and_a_ring_of_them_one_each() -> None:
    ring = [Book(rank) for rank in range(3)]
    for _ in range(2):
        for rank in range(3):
            ring[rank].exchange((rank + 1) % 3, (rank - 1) % 3)
    assert rounds(ring) == 2


def test_an_early_receive_holds_nothing_up() -> None:
    pair = [Book(0), Book(1)]
    pair[0].message("recv", 1, wait=False).message("send", 1)
    pair[1].message("recv", 0).message("send", 0)
    pair[0].events[0].end = float(next(CLOCK))
    assert rounds(pair) == 2
