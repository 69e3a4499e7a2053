"""The slips of a group are made of any solution: its index and its size, and no method's."""

from __future__ import annotations

from course_lib.grade.author.group_slips import WORLD_SIZE, group_slips

SOLUTION = '''
def parts(x, group, names):
    """By `group.index` of `group.size`."""
    place = names.index("x") + x.size(0)
    count = self.group.size
    return x.chunk(group.size)[group.index], place
'''


def test_every_index_and_every_size_of_a_group_is_replaced() -> None:
    slips = dict(group_slips(SOLUTION))
    assert slips["rank_for_index"] == SOLUTION.replace("[group.index]", "[group.rank]")
    world = SOLUTION.replace("chunk(group.size)", f"chunk({WORLD_SIZE})")
    world = world.replace("self.group.size", WORLD_SIZE)
    assert slips["world_size_for_size"] == world


def test_a_solution_without_a_group_has_none() -> None:
    assert list(group_slips("def total(x):\n    return x.size(0)\n")) == []
