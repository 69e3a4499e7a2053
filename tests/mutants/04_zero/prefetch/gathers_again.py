"""mutant: freed and gathered again: keep what is wanted next, is missing"""


def prefetch(order, limit):
    for place, unit in enumerate(order):
        if place == 0:
            unit.launch()
        unit.wait()
        following = order[place + 1] if place + 1 < len(order) else None
        ahead = following is not None and following is not unit and limit > 1
        if ahead:
            following.launch()
        yield unit
        unit.free()
        if following is not None and not ahead:
            following.launch()
