"""mutant: it is in flight already"""


def prefetch(order, limit):
    flight = []
    for place, unit in enumerate(order):
        wanted = list(dict.fromkeys(order[place:]))[:limit]
        for old in flight:
            if old not in wanted:
                old.free()
        for new in wanted:
            new.launch()
        flight = wanted
        unit.wait()
        yield unit
    for last in flight:
        last.free()
