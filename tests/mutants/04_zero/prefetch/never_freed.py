"""mutant: the number of units in flight, is too large, everything is in flight at once"""


def prefetch(order, limit):
    flight = []
    for place, unit in enumerate(order):
        wanted = list(dict.fromkeys(order[place:]))[:limit]
        for new in wanted:
            if new not in flight:
                new.launch()
        flight += [new for new in wanted if new not in flight]
        unit.wait()
        yield unit
    for last in flight:
        last.free()
