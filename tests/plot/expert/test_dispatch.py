"""The dispatch stepper: rows stand where they belong, and counts are those of the choices."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch

from course_lib.plot import Player, dispatch_steps, rank_color
from course_lib.plot.expert.dispatch_rows import Routes
from course_lib.trace import chunk_sizes

CHOSEN, SORTED, COUNTS, QUEUES, WORK, BACK, HOME, SUMS = range(8)
LANES = 3  # the first lane among a frame's parts: heading, over, under, lanes


def routed(ranks: int, experts: int, tokens: int, top_k: int) -> list[list[list[int]]]:
    """The choices of a router with a taste for the first experts, from a seed."""
    generator = torch.Generator().manual_seed(12)
    scores = torch.randn(ranks, tokens, experts, generator=generator)
    scores -= 0.3 * torch.arange(experts)
    return scores.topk(top_k, -1).indices.tolist()


def tokens(svg: str) -> list[tuple[str, str]]:
    """(colour, number) of the squares in a part, as drawn."""
    groups = re.findall(r'<path d="[^"]*z" fill="(#\w+)"/><g [^>]*>(.*?)</g>', svg)
    return [(color, n) for color, marks in groups for n in re.findall(r">(\d+)</text>", marks)]


def tags(svg: str) -> list[str]:
    """The experts whose names are in a part."""
    return re.findall(r">(?:\+ )?(?:w·)?(e\d)</text>", svg)


def words(svg: str) -> list[str]:
    """All words of a part."""
    return re.findall(r">([^<]+)</text>", svg)


def lanes(player: Player, frame: int) -> tuple[str, ...]:
    """What the ranks' lanes show."""
    return player.frames[frame].parts[LANES:]


SHAPES = [(4, 8, 8, 2), (3, 8, 5, 2), (2, 3, 8, 1), (1, 4, 6, 2), (3, 5, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_stands_in_the_queue_of_the_expert_it_chose(shape):
    ranks, experts, _, _ = shape
    choices, first = routed(*shape), 0
    player = dispatch_steps(choices, experts)
    for lane, size in zip(lanes(player, QUEUES), chunk_sizes(experts, ranks), strict=True):
        queues = re.split(r"(?=<rect)", lane)[1:]
        assert [tags(queue) for queue in queues] == [[f"e{first + i}"] for i in range(size)]
        for expert, queue in enumerate(queues, start=first):
            wanted = [
                (rank_color(home), str(token))
                for home, mine in enumerate(choices)
                for token, chosen in enumerate(mine)
                if expert in chosen
            ]
            assert tokens(queue) == wanted
            assert (f"= {len(wanted)}" if wanted else "no token") in words(queue)
        first += size
    assert first == experts


@pytest.mark.parametrize("shape", SHAPES)
def test_counts_and_what_travels_are_those_of_the_choices(shape):
    ranks, experts, _, _ = shape
    choices = routed(*shape)
    owner = [r for r, size in enumerate(chunk_sizes(experts, ranks)) for _ in range(size)]
    player, moved = dispatch_steps(choices, experts), 0
    for home, lane in enumerate(lanes(player, COUNTS)):
        flat = [expert for chosen in choices[home] for expert in chosen]
        away = sum(owner[expert] != home for expert in flat)
        counts = Counter(flat)
        assert words(lane) == [*(str(counts[e]) for e in range(experts)),
                               f"sends {away}, keeps {len(flat) - away}"]  # fmt: skip
        moved += away
    load = Counter(e for mine in choices for chosen in mine for e in chosen)
    sums = words(player.frames[COUNTS].parts[2])
    assert sums[1:-1] == [str(load[e]) for e in range(experts)]
    assert sums[-1] == f"{moved} over the wire"
    caption = player.frames[QUEUES].caption
    assert caption.startswith(f"{moved} of {load.total()} row")
    assert f"The longest queue has {max(load.values())} row" in caption
    assert f"the mean is {load.total() / experts:.3g}." in caption


def test_rows_leave_by_expert_and_results_come_back_to_their_token():
    choices = routed(4, 8, 8, 2)
    player = dispatch_steps(choices, 8)
    for home, mine in enumerate(choices):
        by_expert = sorted((e, t) for t, chosen in enumerate(mine) for e in chosen)
        for frame in (SORTED, BACK):
            lane = lanes(player, frame)[home]
            assert tokens(lane) == [(rank_color(home), str(t)) for _, t in by_expert]
            assert tags(lane) == [f"e{e}" for e in sorted({e for e, _ in by_expert})]
        for frame in (CHOSEN, HOME, SUMS):
            lane = lanes(player, frame)[home]
            assert tags(lane) == [f"e{e}" for chosen in mine for e in chosen]
            assert tokens(lane) == [(rank_color(home), str(t)) for t in range(8)]


def test_bars_are_as_long_as_the_work_and_the_slowest_decides():
    player = dispatch_steps([[[0], [0], [1], [2]], [[0], [0], [0], [3]]], 4)
    first, second = lanes(player, WORK)
    widths = [[float(w) + 1 for w in re.findall(r'width="([\d.]+)"[^>]*fill="#', lane)]
              for lane in (first, second)]  # fmt: skip
    assert widths[0][0] / widths[0][1] == pytest.approx(5, rel=0.01)  # loads 5, 1, 1, 1
    assert sum(widths[0]) / sum(widths[1]) == pytest.approx(3, rel=0.01)
    assert "6 rows" in words(first) and "2 rows" in words(second)
    caption = player.frames[WORK].caption
    assert "4 rows on average; rank 0 has 6. Load imbalance, max/mean: 1.5." in caption
    assert "33.3 % of the ranks' time is idle" in caption
    even = dispatch_steps([[[0], [1]], [[0], [1]]], 2)
    assert "max/mean: 1. Nobody waits." in even.frames[WORK].caption


def test_dropped_choices_are_crossed_out_and_do_not_travel(uneven):
    player, routes = dispatch_steps(**uneven), Routes(**uneven)
    crosses = [lane.count("<path d=") - lane.count('z" fill') for lane in lanes(player, CHOSEN)]
    assert crosses == [2, 1, 0]
    assert routes.loads == [4, 3, 2, 0, 2] and routes.work == [7, 2, 2] and routes.travelling == 6
    assert sum(len(tokens(lane)) for lane in lanes(player, QUEUES)) == 11 == len(routes.rows)
    assert words(lanes(player, SUMS)[0])[-1] == "0"  # token 3 lost both
    assert words(lanes(player, SUMS)[1])[3:] == ["w·e0", "+ w·e1", "w·e4", "w·e1", "+ w·e2"]
    captions = [frame.caption for frame in player.frames]
    assert "3 crossed out" in captions[CHOSEN] and "3 dropped choices" in captions[SORTED]
    assert "all it chose was dropped: 1 token." in captions[HOME]


def test_an_expert_and_a_rank_without_tokens_are_marked(uneven):
    player = dispatch_steps(**uneven)
    assert words(lanes(player, QUEUES)[1])[-2:] == ["e3", "no token"]
    assert "Without a row: expert 3. Still it runs" in player.frames[QUEUES].caption
    assert words(lanes(player, CHOSEN)[2]) == ["no tokens of its own"]
    idle = dispatch_steps([[[0]], [[0]]], 2)
    assert words(lanes(idle, WORK)[1]) == ["no rows: waits all the time"]
    assert "50 % of the ranks' time" in idle.frames[WORK].caption


def test_the_description_says_where_all_rows_come_from(uneven):
    player = dispatch_steps(**uneven)
    assert "7 tokens on 3 ranks, 5 experts" in player.alt
    assert all(frame.caption in player.alt for frame in player.frames)
    assert "expert 0 on rank 0: 3 from rank 0, 1 from rank 1; expert 1" in player.alt
    assert (
        "expert 3 on rank 1: none; expert 4 on rank 2: 1 from rank 0, 1 from rank 1." in player.alt
    )


def test_the_largest_player_is_small_and_the_same_each_time():
    choices = routed(4, 8, 8, 2)
    html = dispatch_steps(choices, 8)._repr_html_()
    assert html == dispatch_steps(choices, 8)._repr_html_()
    assert len(html) < 150_000


@pytest.mark.parametrize(
    ("choices", "experts", "found"),
    [
        ([], 4, "found: 0 ranks, and room for 1 to 4"),
        ([[[0]]] * 5, 8, "found: 5 ranks, and room for 1 to 4"),
        ([[[0]]], 9, "found: 9 experts"),
        ([[[0]] * 9], 4, "found: 9 tokens"),
        ([[], []], 4, "found: 0 tokens"),
        ([[[0, 1, 2]]], 4, "found: 3 choices"),
        ([[[0]]] * 3, 2, "found: 1 ranks without one"),
        ([[[0], [4]]], 4, r"found: \[4\] at rank 0, token 1"),
        ([[[0, 1]], [[2, 2]]], 4, r"found: \[2, 2\] at rank 1, token 0"),
        ([[[0, 1], [2]]], 4, r"found: \[2\] at rank 0, token 1"),
    ],
)
def test_impossible_choices_are_refused(choices, experts, found):
    with pytest.raises(ValueError, match=found) as error:
        dispatch_steps(choices, experts)
    assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize("dropped", [[[(1, 0)]], [[(0, 1)]], [[], [(0, 0)]], [[(0, 0)]]])
def test_dropping_what_nobody_chose_or_everything_is_refused(dropped):
    with pytest.raises(ValueError, match="one at least is left"):
        dispatch_steps([[[0]]], 1, dropped=dropped)
