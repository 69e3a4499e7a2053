"""mutant: in flight while, is missing"""


def prefetch(order, limit):
    flight = []
    for unit in order:
        place = list(order).index(unit)
        wanted = list(dict.fromkeys(order[place:]))[:limit]
        for old in flight:
            if old not in wanted:
                old.free()
        for new in wanted:
            if new not in flight:
                new.launch()
        flight = wanted
        unit.wait()
        yield unit
    for last in flight:
        last.free()
